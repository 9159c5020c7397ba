"""The worm at rest: rods, radii, springs, dampers and media.

The body is a row of 49 rigid rods, each across the worm, joined by 48 segments of springs and dampers
(Boyle, Berri & Cohen 2012, Front. Comput. Neurosci. 6:10; their parameters throughout). Rod 0 is the head.

Units: mm, rad, s and mN. Stiffness in N/m equals mN/mm and drag in kg/s equals mN s/mm, so the printed SI
values carry over unchanged.
"""

import numpy as np

from . import check

RODS = 49
SEGMENTS = 48
LENGTH = 1.0  # mm, an adult worm
SEGMENT_LENGTH = LENGTH / SEGMENTS

# Half the body's width at each rod: an ellipse, 80 um across in the middle; 24.2 keeps the tips from vanishing.
RADIUS = 0.040 * np.abs(np.sin(np.arccos((np.arange(RODS) - 24) / 24.2)))
_SUM = RADIUS[:-1] + RADIUS[1:]
_DIFFERENCE = RADIUS[:-1] - RADIUS[1:]

# Elements of a segment: two lateral (dorsal-dorsal, ventral-ventral) and two diagonal (dorsal-ventral, ventral-dorsal).
REST_LATERAL = np.hypot(SEGMENT_LENGTH, _DIFFERENCE)
REST_DIAGONAL = np.hypot(SEGMENT_LENGTH, _SUM)
RELATIVE_WIDTH = _SUM / 0.080
CONTRACTION = 0.65 * RELATIVE_WIDTH * REST_LATERAL  # how much a fully active muscle shortens its rest length, mm

LATERAL_STIFFNESS = 0.02  # kPE, N/m: cuticle
LATERAL_DAMPING = 0.025 * LATERAL_STIFFNESS  # DPE, N s/m
MUSCLE_STIFFNESS = 20 * LATERAL_STIFFNESS  # kAE, at activation 1
MUSCLE_DAMPING = 100 * LATERAL_DAMPING  # DAE, at activation 1
DIAGONAL_STIFFNESS = 350 * LATERAL_STIFFNESS  # kDE: internal pressure
DIAGONAL_DAMPING = 0.01 * DIAGONAL_STIFFNESS  # DDE

# Objects push a rod end back with k (p + p^2 / (0.01 R)) at depth p inside radius R.
OBJECT_STIFFNESS = 5 * LATERAL_STIFFNESS
OBJECT_SOFTNESS = 0.01

# Drag of the whole worm, kg/s, along and across the body.
WATER_DRAG = (3.3e-6, 5.2e-6)
AGAR_DRAG = (3.2e-3, 128e-3)

# Muscle: 0.1 s to follow its drive, weaker towards the tail and at the head's tip.
MUSCLE_TIME = 0.1
NEUROMUSCULAR_GAIN = 0.7 * (1 - 0.6 * np.arange(SEGMENTS) / SEGMENTS)
NEUROMUSCULAR_GAIN[0] /= 1.5


def drag(medium: float) -> tuple[float, float]:
    """Drag of one rod along and across the body, kg/s, in a medium from 0 (water) to 1 (agar)."""
    value = check.number("medium", medium, "a number from 0 (water) to 1 (agar)", lambda m: 0 <= m <= 1)
    along, across = (water + value * (agar - water) for water, agar in zip(WATER_DRAG, AGAR_DRAG, strict=True))
    return along / (2 * RODS), across / (2 * RODS)


def straight(particles: int = 1) -> np.ndarray:
    """Straight relaxed bodies (particle, rod, coord): head at the origin, tail at x = 1 mm, dorsal side up."""
    state = np.zeros((particles, RODS, 3))
    state[:, :, 0] = np.arange(RODS) * SEGMENT_LENGTH
    state[:, :, 2] = np.pi / 2
    return state
