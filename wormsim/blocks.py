"""How bodies lie in memory: in blocks of 16, for vector instructions.

Bodies are kept in blocks of 16; within a block every quantity is a row of 16 numbers, one for each body ("lane"),
and every inner loop runs over the lanes, which LLVM turns into vector instructions. A block q holds the state, 49 rods of 6
rows; a scratch array s holds 49 records of what a step works out, so that all offsets are constants within one slice and the
compiler need not fear aliases. Lanes never mix: a body's future does not depend on its neighbours, on the number of bodies, or
on threads.
"""

import numpy as np

from . import geometry as geo
from .kernel import LANES, aligned

# Rows of a rod's state: position and the last step's velocity.
X, Y, PHI, VX, VY, VPHI = [LANES * row for row in range(6)]
STATE = 6 * LANES
# Rows of its working record: extrapolated place, arm R (cos, sin), 3x3 block A (6 rows), force F (3) and velocity U (3). Once
# a rod is eliminated, its block and force make room for its coupling W to the next rod (9), and once that is used, its place
# for FINE: 1 where the step keeps the body physical from this rod to the tail.
XS, YS, AX, AY, A = [LANES * row for row in range(5)]
F, U = A + 6 * LANES, A + 9 * LANES
W, FINE = A, XS
RECORD = A + 12 * LANES
MUSCLE = geo.RODS * RECORD  # after the records: activations (side, segment, lane)
SCRATCH = MUSCLE + 2 * geo.SEGMENTS * LANES


def to_blocks(state: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Pack state and velocity (particle, 49, 3) into blocks; the last one is filled up with straight bodies."""
    particles = len(state)
    count = -(-particles // LANES)
    rows = np.zeros((count * LANES, geo.RODS, 6))
    rows[particles:, :, :3] = geo.straight()
    rows[:particles, :, :3] = state
    rows[:particles, :, 3:] = velocity
    blocks = aligned(rows.size).reshape(count, geo.RODS * 6, LANES)
    blocks[:] = rows.reshape(count, LANES, geo.RODS * 6).swapaxes(1, 2)
    return blocks.reshape(count, -1)


def from_blocks(blocks: np.ndarray, particles: int) -> tuple[np.ndarray, np.ndarray]:
    """State and velocity (particle, 49, 3) of the first particles in some blocks."""
    rows = blocks.reshape(len(blocks), geo.RODS * 6, LANES).swapaxes(1, 2).reshape(-1, geo.RODS, 6)[:particles]
    return np.ascontiguousarray(rows[:, :, :3]), np.ascontiguousarray(rows[:, :, 3:])
