"""Stretch receptors: how much each side of each segment is lengthened, and what the motor neurons feel of it.

A segment's stretch is its side's relative lengthening, weighted by how thin the body is there; a unit of the nerve cord
sums it over its own segments and the ones behind it, with gains that make up for the body's taper (Boyle, Berri & Cohen
2012). On the dorsal side the original program weakens lengthening (0.8) and strengthens shortening (1.2).
"""

import numpy as np

from . import geometry as geo
from .blocks import AX, AY, LANES, RECORD, XS, YS
from .elementary import inverse_root
from .kernel import kernel
from .mechanics import place

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
def stretch_block(q, s, out):
    """`segment_stretch` of a block of 16 bodies, into rows (side, segment, lane), with scratch array s."""
    place(q, s, 0.0)
    for segment in range(geo.SEGMENTS):
        r, o = s[segment * RECORD : (segment + 2) * RECORD], out[segment * LANES :]
        per_rest, per_width = 1 / geo.REST_LATERAL[segment], 1 / geo.RELATIVE_WIDTH[segment]
        for i in range(LANES):
            cx, cy = r[RECORD + XS + i] - r[XS + i], r[RECORD + YS + i] - r[YS + i]
            ax, ay = r[RECORD + AX + i] - r[AX + i], r[RECORD + AY + i] - r[AY + i]
            dorsal, ventral = (cx + ax) * (cx + ax) + (cy + ay) * (cy + ay), (cx - ax) * (cx - ax) + (cy - ay) * (cy - ay)
            o[i] = (dorsal * inverse_root(dorsal) * per_rest - 1) * per_width
            o[geo.SEGMENTS * LANES + i] = (ventral * inverse_root(ventral) * per_rest - 1) * per_width
