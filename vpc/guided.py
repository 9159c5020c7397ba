"""A proposal that looks ahead, with exact weights, for any model that can `linearise` what comes.

Let z be the noise on the way to the next frame, and r by how much the next few frames differ from what a particle would show
without any noise. To first order r is J1 z + (later noise) + (noise of the observations), so that given r, z is Gaussian:

    r ~ N(0, S),   S = S2 + J1 J1^T,   S2 = J2 J2^T + R,      J1: the noise on the way to the next frame, J2: later noise
    z | r = e + J1^T S^-1 (r - J1 e - u),   e ~ N(0, I),   u ~ N(0, S2)

Ancestors are chosen by their prospects psi = N(r; 0, S), and z is drawn given r. Both are corrected for, by 1 / psi and by

    p(z) / q(z) = N(r; 0, S) / N(r - J1 z; 0, S2)

so that the evidence stays unbiased however bad J is. What is seen may come in groups that share no noise, such as one neuron
each: then all matrices are as small as a group.

The model's `linearise(x, first, times)` gives three things, for particles at step `first` and some later times:

- what would be seen without noise, (particle, time, seen)
- J, (particle, group, time x seen in the group, noise): its derivative by standard Gaussian noise on the way
- how many of the noises come before the first of the times

and its `advance(rng, x, first, last, ancestors, noise)` takes the noise (particle, group, noise) before the first as given.
"""

from typing import Any, ClassVar

import numba
import numpy as np
from numba import prange

from wormsim import check
from wormsim.kernel import kernel, one_at_a_time

from .matrices import cholesky, solve_lower, solve_upper
from .model import capability

__all__ = ["Guided"]

PER_THREAD = 10_000  # numbers that are foretold: with fewer, a second thread costs more than it brings


@kernel
def _widths(jacobian, first, variance, wide, late):
    """S and S2 of one group."""
    size, noises = jacobian.shape
    for i in range(size):
        for j in range(i + 1):
            total = variance[i] if i == j else 0.0
            for k in range(first, noises):
                total += jacobian[i, k] * jacobian[j, k]
            late[i, j] = total
            for k in range(first):
                total += jacobian[i, k] * jacobian[j, k]
            wide[i, j] = total


@kernel
def _log_normal(root, log_determinant, r):
    """log N(r; 0, L L^T), but for a constant; replaces r by L^-1 r."""
    solve_lower(root, r)
    total = -log_determinant
    for i in range(len(r)):
        total -= 0.5 * r[i] * r[i]
    return total


@kernel
def _foresee_share(share, shares, missed, jacobian, first, variance, out):
    """log psi of every particle whose number leaves a remainder of `share`."""
    groups, size = missed.shape[1:]
    wide, late, r = np.empty((size, size)), np.empty((size, size)), np.empty(size)
    for p in range(share, len(out), shares):
        out[p] = 0.0
        for g in range(groups):
            _widths(jacobian[p, g], first, variance[g], wide, late)
            r[:] = missed[p, g]
            log_determinant = cholesky(wide)
            out[p] += _log_normal(wide, log_determinant, r)


@kernel
def _draw_share(share, shares, missed, jacobian, first, variance, ancestors, free, errors, out):
    """Replace free noise e (particle, group, noise) by draws of z given r, with N(0, I) for u, and find log p / q."""
    groups, size = missed.shape[1:]
    wide, late, r, u = np.empty((size, size)), np.empty((size, size)), np.empty(size), np.empty(size)
    for p in range(share, len(out), shares):
        out[p], a = 0.0, ancestors[p]
        for g in range(groups):
            j, e, error = jacobian[a, g], free[p, g], errors[p, g]
            _widths(j, first, variance[g], wide, late)
            wide_determinant, late_determinant = cholesky(wide), cholesky(late)
            for i in range(size):
                u[i] = missed[a, g, i]
                for k in range(first):
                    u[i] -= j[i, k] * e[k]
                for k in range(i + 1):
                    u[i] -= late[i, k] * error[k]
            solve_lower(wide, u)
            solve_upper(wide, u)
            for k in range(first):
                for i in range(size):
                    e[k] += j[i, k] * u[i]
            r[:] = missed[a, g]
            u[:] = r
            for i in range(size):
                for k in range(first):
                    u[i] -= j[i, k] * e[k]
            out[p] += _log_normal(wide, wide_determinant, r) - _log_normal(late, late_determinant, u)


@kernel(parallel=True)
def _foresee_parallel(shares, missed, jacobian, first, variance, out):
    for share in prange(shares):
        _foresee_share(share, shares, missed, jacobian, first, variance, out)


@kernel(parallel=True)
def _draw_parallel(shares, missed, jacobian, first, variance, ancestors, free, errors, out):
    for share in prange(shares):
        _draw_share(share, shares, missed, jacobian, first, variance, ancestors, free, errors, out)


def _share_out(share: Any, parallel: Any, missed: np.ndarray, *arguments: Any) -> None:
    """Run a kernel on as many threads as there is work for."""
    threads = min(numba.get_num_threads(), missed.size // PER_THREAD)
    if threads <= 1:
        share(0, 1, missed, *arguments)
    else:
        with one_at_a_time:
            parallel(threads, missed, *arguments)


class Guided:
    """A model for `SMC` that behaves as another one does, and whose particles look ahead.

    Parameters
    ----------
    model
        With `predict` and `linearise`, and an `advance` that takes noise.
    observations, times
        As `SMC` gets them.
    look_ahead
        How many frames.
    """

    needs: ClassVar[dict[str, str]] = {
        "predict": "Gaussian noise of what is seen",
        "linearise": "the Jacobian of what is seen by the noise",
    }

    def __init__(self, model: Any, observations: np.ndarray, times: np.ndarray, look_ahead: int = 2):
        for name in self.needs:
            capability(model, name, needed_for=f"a {type(self).__name__.lower()} filter")
        self.model, self.observations, self.times = model, np.asarray(observations, float), np.asarray(times)
        self.look_ahead = check.whole("look_ahead", look_ahead)
        self._plan: tuple[Any, ...] = ()  # what `foresee` found of some particles

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def parameters(self) -> dict[str, Any]:
        """What two models must share to be the same."""
        return {"look_ahead": self.look_ahead, "of": type(self.model).__name__, **getattr(self.model, "parameters", {})}

    def _coming(self, t: int) -> slice:
        """Frames that are in view at step t."""
        return slice(*np.searchsorted(self.times, t, "right") + np.array([0, self.look_ahead]))

    def foresee(self, x: np.ndarray, t: int) -> np.ndarray:
        """log psi of particles at step t."""
        coming = self._coming(t)
        y, times = self.observations[coming], self.times[coming]
        predicted, jacobian, first = self.model.linearise(x, t, times)
        groups = jacobian.shape[1]
        own = y.shape[1] // groups  # seen in each group

        def by_group(values: np.ndarray) -> np.ndarray:
            return (
                values.reshape(*values.shape[:-2], len(times), groups, own)
                .swapaxes(-3, -2)
                .reshape(*values.shape[:-2], groups, -1)
            )

        there = ~np.isnan(by_group(y))
        missed = np.where(there, by_group(y - predicted), 0.0)
        jacobian *= there[..., None]
        variance = np.where(there, by_group(np.broadcast_to(self.model.predict(x)[1] ** 2, y.shape)), 1.0)
        out = np.empty(len(x))
        _share_out(_foresee_share, _foresee_parallel, missed, jacobian, first, variance, out)
        self._plan = x, missed, jacobian, first, variance
        return np.where(np.isnan(x.reshape(len(x), -1)[:, 0]), -np.inf, out)

    def propose(
        self,
        rng: np.random.Generator,
        x: np.ndarray,
        y: np.ndarray,
        first: int,
        last: int,
        ancestors: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Particles at the next frame, drawn with it and some later ones in view."""
        if last == first:
            starts, begins = capability(self.model, "propose_start"), capability(self.model, "propose")
            if starts:
                return starts(rng, x, y, self.look_ahead)
            return begins(rng, x, y, first, last) if begins else (x, np.zeros(len(x)))
        if not self._plan or self._plan[0] is not x:
            self.foresee(x, first)
        new = self._move(rng, x, first, last, np.arange(len(x)) if ancestors is None else ancestors)
        self._plan = ()
        return new

    def _move(
        self, rng: np.random.Generator, x: np.ndarray, first: int, last: int, ancestors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Offspring by the plan, and log p / q."""
        _, missed, jacobian, count, variance = self._plan
        noise = rng.standard_normal((len(ancestors), jacobian.shape[1], count))
        errors, log_ratio = rng.standard_normal((len(ancestors), *missed.shape[1:])), np.empty(len(ancestors))
        plan = missed, jacobian, count, variance
        _share_out(_draw_share, _draw_parallel, *plan, ancestors, noise, errors, log_ratio)
        return self.model.advance(rng, x, first, last, ancestors, noise), log_ratio
