"""Stretch receptors: how much each side of each segment is lengthened, and what the motor neurons feel of it.

A segment's stretch is its side's relative lengthening, weighted by how thin the body is there; a unit of the nerve cord
sums it over its own segments and the ones behind it, with gains that make up for the body's taper (Boyle, Berri & Cohen
2012). On the dorsal side the original program weakens lengthening (0.8) and strengthens shortening (1.2).
"""

import numpy as np

from . import geometry as geo
from .blocks import LANES, PHI, STATE, X, Y
from .elementary import inverse_root, sine_cosine
from .kernel import aligned, kernel

UNITS = 12
SEGMENTS_PER_UNIT = geo.SEGMENTS // UNITS
REACH = 24  # segments a receptor extends towards the tail, its own unit included
DORSAL_LENGTHENING, DORSAL_SHORTENING = 0.8, 1.2


def _unit_weights() -> np.ndarray:
    """Weights (unit, segment); the last three units, whose reach runs out of worm, have their own gains."""
    weights = np.zeros((UNITS, geo.SEGMENTS))
    for unit in range(UNITS):
        first = SEGMENTS_PER_UNIT * unit
        tail = {9: 2, 10: 3, 11: 6}.get(unit, 1) ** 0.5  # the original's integer division, kept
        weights[unit, first : first + REACH] = 0.325 * (0.4 + 0.08 * unit) * tail
    return weights


UNIT_WEIGHTS = _unit_weights()


def segment_stretch(state: np.ndarray) -> np.ndarray:
    """Stretch (..., side, segment) of bodies (..., rod, coord): dorsal, then ventral; 0 at rest."""
    x, y, phi = np.moveaxis(np.asarray(state), -1, 0)
    sides = []
    for end in (1, -1):
        dx, dy = np.diff(x + end * geo.RADIUS * np.cos(phi)), np.diff(y + end * geo.RADIUS * np.sin(phi))
        sides.append((np.hypot(dx, dy) / geo.REST_LATERAL - 1) / geo.RELATIVE_WIDTH)
    return np.stack(sides, axis=-2)


def unit_stretch(stretch: np.ndarray, asymmetric: bool = False) -> np.ndarray:
    """What the units feel (..., side, unit) of segments' stretch (..., side, segment).

    `asymmetric` applies the original's dorsal factors, which depend on whether a side is longer than a segment (not than its
    own rest length).
    """
    stretch = np.array(stretch, dtype=float)
    if asymmetric:
        length = (stretch[..., 0, :] * geo.RELATIVE_WIDTH + 1) * geo.REST_LATERAL
        stretch[..., 0, :] *= np.where(length > geo.SEGMENT_LENGTH, DORSAL_LENGTHENING, DORSAL_SHORTENING)
    return stretch @ UNIT_WEIGHTS.T


@kernel
def stretch_block(q, out):
    """`segment_stretch` of a block of 16 bodies, into rows (side, segment, lane)."""
    ends = aligned(4 * LANES)  # x and y of the dorsal, then of the ventral end of the rod before
    for rod in range(geo.RODS):
        z = q[rod * STATE : (rod + 1) * STATE]
        segment = max(rod - 1, 0)
        o = out[segment * LANES :]
        per_rest, per_width, radius = 1 / geo.REST_LATERAL[segment], 1 / geo.RELATIVE_WIDTH[segment], geo.RADIUS[rod]
        for i in range(LANES):
            sine, cosine = sine_cosine(z[PHI + i])
            ax, ay = radius * cosine, radius * sine
            x1, y1, x2, y2 = z[X + i] + ax, z[Y + i] + ay, z[X + i] - ax, z[Y + i] - ay
            dx, dy = x1 - ends[i], y1 - ends[LANES + i]
            square = dx * dx + dy * dy
            o[i] = (square * inverse_root(square) * per_rest - 1) * per_width
            dx, dy = x2 - ends[2 * LANES + i], y2 - ends[3 * LANES + i]
            square = dx * dx + dy * dy
            o[geo.SEGMENTS * LANES + i] = (square * inverse_root(square) * per_rest - 1) * per_width
            ends[i], ends[LANES + i], ends[2 * LANES + i], ends[3 * LANES + i] = x1, y1, x2, y2
