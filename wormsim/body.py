"""`Body`: many worm bodies in one medium, stepped together under muscle activation."""

from collections.abc import Sequence
from typing import Any, Self

import numba
import numpy as np

from . import check
from . import geometry as geo
from .blocks import LANES, SCRATCH, from_blocks, to_blocks
from .kernel import aligned, one_at_a_time
from .mechanics import advance, advance_parallel
from .objects import check_objects

MOST_SUBSTEPS = 100_000  # in one call of `step`: some seconds for one body


def longest_step(medium: float, touching: bool = False) -> float:
    """The longest step, s, that keeps the error over 5 s of crawling below 0.1 % of body length on agar, 0.2 % elsewhere.

    Without objects dilute gels need the shortest: the worm is fastest there. Posts hold a worm in water much harder than the
    water does, and need far shorter ones; with them the error stays below 0.1 % on agar, 0.2 % in water and 0.6 % between.
    """
    if touching:
        return 0.001 if medium >= 0.5 else 0.0005 if medium >= 0.05 else 0.0001
    if medium >= 0.5:
        return 0.01
    return 0.005 if medium >= 0.05 or medium == 0 else 0.002


def default_substeps(dt: float, medium: float, touching: bool) -> int:
    """How many substeps a step of dt seconds needs."""
    return max(1, int(np.ceil(dt / longest_step(medium, touching) - 1e-9)))


class Body:
    """Worm bodies, straight and at rest to begin with.

    Parameters
    ----------
    particles
        How many bodies.
    medium
        From 0 (water) to 1 (agar).
    objects
        Round posts (n, 3) as x, y, radius in mm; see `wormsim.objects`.
    """

    def __init__(self, particles: int = 1, medium: float = 1.0, objects: Sequence | np.ndarray = ()):
        self.particles = check.whole("particles", particles)
        self.drag = geo.drag(medium)
        self.medium = float(medium)
        self.objects = check_objects(objects)
        self._set(geo.straight(self.particles), np.zeros((self.particles, geo.RODS, 3)), np.ones(self.particles, bool))

    @classmethod
    def from_state(
        cls, state: np.ndarray, velocity: np.ndarray | None = None, ok: np.ndarray | None = None, **options: Any
    ) -> Self:
        """Bodies in given states (particle, 49, 3) in mm and rad, with the velocity of their last step (0 if not given).

        Options are those of the class, but for `particles`.
        """
        body = cls(particles=len(np.atleast_1d(state)), **options)
        body.restore(state, velocity, ok)
        return body

    def restore(self, state: np.ndarray, velocity: np.ndarray | None = None, ok: np.ndarray | None = None) -> None:
        """Put all bodies into given states, as in `from_state`."""
        shape = (self.particles, geo.RODS, 3)
        self._set(
            check.array("state", state, shape),
            check.array("velocity", np.zeros(shape) if velocity is None else velocity, shape),
            check.array("ok", np.ones(self.particles) if ok is None else ok, (self.particles,)).astype(bool),
        )

    @property
    def state(self) -> np.ndarray:
        """Rods (particle, 49, 3): x and y in mm, phi in rad. A read-only copy."""
        return self._get(0)

    @property
    def velocity(self) -> np.ndarray:
        """Rates of change (particle, 49, 3) in the last step, mm/s and rad/s. A read-only copy."""
        return self._get(1)

    @property
    def ok(self) -> np.ndarray:
        """Which bodies (particle,) are still physical; the others are frozen as they were before the step that failed."""
        return self._alive.reshape(-1)[: self.particles] > 0

    def step(self, muscle: np.ndarray, dt: float = 0.01, substeps: int | None = None) -> None:
        """Advance all bodies by dt seconds.

        Parameters
        ----------
        muscle
            Activations (particle, 2, 48), dorsal and ventral, held over the step; below 0 counts as 0. For a changing
            activation, give its value in the middle of the step.
        dt
            Seconds.
        substeps
            Solves in this step; by default as many as the medium needs (see `longest_step`).
        """
        muscle = check.array("muscle", muscle, (self.particles, 2, geo.SEGMENTS))
        dt = check.number("dt", dt, "a positive number of seconds", lambda seconds: seconds > 0)
        if substeps is None:
            substeps = default_substeps(dt, self.medium, len(self.objects) > 0)
            if substeps > MOST_SUBSTEPS:
                raise ValueError(
                    f"dt of {dt} s needs {substeps} substeps, and one call takes {MOST_SUBSTEPS} at most; call step more often"
                )
        self._advance(muscle, dt, check.whole("substeps", substeps, most=MOST_SUBSTEPS))

    def _advance(self, muscle: np.ndarray, dt: float, substeps: int) -> None:
        missing = len(self._blocks) * LANES - self.particles  # the last block is filled up with bodies at rest
        rows = np.concatenate([muscle, np.zeros((missing, 2, geo.SEGMENTS))]) if missing else muscle
        if not (rows.flags.writeable and rows.flags.c_contiguous):  # another kind of array, for which numba would compile again
            rows = rows.copy()
        rows = rows.reshape(len(self._blocks), -1)
        scratch = aligned(min(numba.get_num_threads(), len(self._blocks)) * SCRATCH).reshape(-1, SCRATCH)
        arguments = (scratch, self._blocks, self._alive, rows, dt / substeps, substeps, *self.drag, self.objects)
        if len(scratch) == 1:
            advance(*arguments)
        else:
            with one_at_a_time:
                advance_parallel(*arguments)

    def _set(self, state: np.ndarray, velocity: np.ndarray, ok: np.ndarray) -> None:
        self._blocks = to_blocks(state, velocity)
        self._alive = np.ones((len(self._blocks), LANES))
        self._alive.reshape(-1)[: self.particles] = ok

    def _get(self, which: int) -> np.ndarray:
        array = from_blocks(self._blocks, self.particles)[which]
        array.flags.writeable = False
        return array

    def __repr__(self) -> str:
        failed = self.particles - int(self.ok.sum())
        return (
            f"<{type(self).__name__}: {self.particles} particles, medium {self.medium}, {len(self.objects)} objects, "
            f"{failed} failed>"
        )
