"""The ensemble Kalman filter (Evensen 2003, Ocean Dynamics 53) and its fixed-lag smoother, beside the particle filter.

Members are moved as particles are, but not weighted by a frame: each is shifted, by what its own prediction h of it misses,
through covariances that the ensemble itself has:

    x += Cxy S^-1 (y + e - h),   S = Cyy + R = L L^T,   log Z += log N(y; mean h, S)
    e = R^(1/2) (L + R^(1/2))^-1 (h - mean h)

The errors e could be drawn from N(0, R). These do not add noise of their own, and leave the members with the covariance that
drawn ones leave on average, P - Cxy S^-1 Cyx (Andrews 1968; Whitaker & Hamill 2002, Mon. Weather Rev. 130).

A covariance whose correlation is r is multiplied by max(0, 1 - 4 / (members r^2)), so that correlations which may be chance, as
those below 2 / sqrt(members) may, are not believed. States of earlier frames are shifted through their own covariances with h.

Nothing starves. But evidence and bands are exact only where the model is linear and Gaussian, and members are many; elsewhere
they are approximations, and the evidence is not unbiased.
"""

from typing import NamedTuple

import numba
import numpy as np
from numba import prange

from wormsim.kernel import kernel, one_at_a_time

from .filter import Filter
from .matrices import cholesky, gram, solve, solve_rows
from .model import capability
from .resampling import systematic

__all__ = ["Ensemble"]

TILE = 128  # columns that are worked on together
PANEL = 64  # rows that are kept at hand
EIGHT = 8  # products that are added up together
DOUBT = 4.0  # squared standard errors below which a correlation is not believed
NOTHING = np.empty((0, 0))
PER_THREAD = 20_000_000  # products: with fewer, a second thread costs more than it brings


@kernel
def _multiply(a, b, out):
    """out = a b, where b and out have TILE columns, and other sizes are multiples of EIGHT.

    Four rows of out, and PANEL of b, are copied to where the processor has them at hand and LLVM sees that they do not overlap.
    """
    few, panel = np.empty(4 * TILE, np.float32), np.empty(PANEL * TILE, np.float32)
    out[:] = 0
    for first in range(0, len(b), PANEL):
        last = min(first + PANEL, len(b))
        for j in range(first, last):
            for k in range(TILE):
                panel[(j - first) * TILE + k] = b[j, k]
        for i in range(0, len(out), 4):
            for q in range(4):
                for k in range(TILE):
                    few[q * TILE + k] = out[i + q, k]
            for j in range(first, last, EIGHT):
                p0, p1, p2, p3, p4, p5, p6, p7 = _eight(a[i], j)
                q0, q1, q2, q3, q4, q5, q6, q7 = _eight(a[i + 1], j)
                r0, r1, r2, r3, r4, r5, r6, r7 = _eight(a[i + 2], j)
                s0, s1, s2, s3, s4, s5, s6, s7 = _eight(a[i + 3], j)
                own = panel[(j - first) * TILE : (j - first + EIGHT) * TILE]
                for k in range(TILE):
                    b0, b1, b2, b3 = own[k], own[k + TILE], own[k + 2 * TILE], own[k + 3 * TILE]
                    b4, b5, b6, b7 = own[k + 4 * TILE], own[k + 5 * TILE], own[k + 6 * TILE], own[k + 7 * TILE]
                    few[k] += p0 * b0 + p1 * b1 + p2 * b2 + p3 * b3 + p4 * b4 + p5 * b5 + p6 * b6 + p7 * b7
                    few[k + TILE] += q0 * b0 + q1 * b1 + q2 * b2 + q3 * b3 + q4 * b4 + q5 * b5 + q6 * b6 + q7 * b7
                    few[k + 2 * TILE] += r0 * b0 + r1 * b1 + r2 * b2 + r3 * b3 + r4 * b4 + r5 * b5 + r6 * b6 + r7 * b7
                    few[k + 3 * TILE] += s0 * b0 + s1 * b1 + s2 * b2 + s3 * b3 + s4 * b4 + s5 * b5 + s6 * b6 + s7 * b7
            for q in range(4):
                for k in range(TILE):
                    out[i + q, k] = few[q * TILE + k]


@kernel(inline="always")
def _eight(row, j):
    return row[j], row[j + 1], row[j + 2], row[j + 3], row[j + 4], row[j + 5], row[j + 6], row[j + 7]


@kernel
def _believed(covariance, variances, members):
    """The share of a covariance to believe, given the product of the two variances."""
    doubt, found = DOUBT * variances, members * covariance * covariance
    return 1 - doubt / found if found > doubt else 0 * found


@kernel
def _share(share, shares, x, sources, living, spread, pull, out):
    """Shift every tile of columns of x[sources] (member, column) whose number leaves a remainder of `share`.

    Members and what was seen are padded with zeros to multiples of EIGHT. `spread` (seen, member) is h less its mean, `pull`
    (member, seen) is S^-1 (y + e - h). Single precision is enough for sums of some thousands, and twice as fast. The rows of
    `spread` add up to 0, so that members need not be centred for their covariances.
    """
    n, (seen, padded), columns = len(living), spread.shape, x.shape[1]
    tile, covariance = np.zeros((padded, TILE), np.float32), np.empty((seen, TILE), np.float32)
    observed = np.zeros(seen, np.float32)
    centre, total, squares = np.empty(TILE), np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for j in range(seen):
        for p in range(n):
            observed[j] += spread[j, p] * spread[j, p]
    scale = np.float32(n - 1)
    for begin in range(share * TILE, columns, shares * TILE):
        width = min(TILE, columns - begin)
        total[:] = 0.0
        squares[:] = 0.0
        for k in range(width):
            centre[k] = x[sources[living[0]], begin + k]  # near enough to the mean for differences to be single
        for p in range(n):
            source, row = sources[living[p]], tile[p]
            for k in range(width):
                row[k] = x[source, begin + k] - centre[k]
            for k in range(TILE):
                total[k] += row[k]
                squares[k] += row[k] * row[k]
        for k in range(TILE):
            squares[k] -= total[k] * total[k] / np.float32(n)
        _multiply(spread, tile, covariance)
        for j in range(seen):
            row, other = covariance[j], observed[j]
            for k in range(TILE):
                row[k] *= _believed(row[k], other * squares[k], scale) / scale
        _multiply(pull, covariance, tile)
        for p in range(n):
            member, source = living[p], sources[living[p]]
            for k in range(width):
                out[member, begin + k] = x[source, begin + k] + tile[p, k]


@kernel
def _run(x, sources, living, spread, pull, out):
    _share(0, 1, x, sources, living, spread, pull, out)


@kernel(parallel=True)
def _run_parallel(threads, x, sources, living, spread, pull, out):
    for share in prange(threads):
        _share(share, threads, x, sources, living, spread, pull, out)


@kernel
def _compare(h, y, sd, drawn, spread, pull):
    """Compare what members predict (member, seen) with a frame: fills `spread` and `pull`, and returns log N(y; mean h, S).

    If standard Gaussians (member, seen) were drawn, errors are made of them, and otherwise of the members.
    """
    n, seen = h.shape
    mean = np.zeros(seen)
    for p in range(n):
        mean += h[p]
    mean /= n
    own = h - mean
    s = gram(own) / (n - 1)
    found = np.diag(s).copy()
    for i in range(seen):
        for j in range(i + 1, seen):
            s[i, j] *= _believed(s[i, j], found[i] * found[j], n - 1)
        s[i, i] += sd[i] * sd[i]

    errors = own.T.copy()
    for i in range(seen):
        spread[i, :n] = errors[i]
    if len(drawn):
        errors[:] = drawn.T
    else:
        root = s.T.copy()
        cholesky(root)
        for i in range(seen):
            root[i, i] += sd[i]
        solve_rows(root, errors)
    missed, b = y - mean, np.empty((seen, n + 1))
    b[:, n] = missed
    for i in range(seen):
        for p in range(n):
            b[i, p] = y[i] + sd[i] * errors[i, p] - h[p, i]
    log_density = -solve(s, b) - 0.5 * seen * np.log(2 * np.pi) - 0.5 * np.sum(missed * b[:, n])
    for p in range(n):
        for i in range(seen):
            pull[p, i] = b[i, p]
    return log_density


@kernel
def _finite(x):
    """Which members (member, column) have nothing but finite numbers."""
    out = np.empty(len(x), np.bool_)
    for p in range(len(x)):
        row, bad = x[p], False
        for k in range(len(row)):
            bad |= not abs(row[k]) < np.inf
        out[p] = not bad
    return out


class Revision(NamedTuple):
    """What a frame demands of members; see `_share`."""

    living: np.ndarray
    spread: np.ndarray
    pull: np.ndarray


class Comparison(NamedTuple):
    """What there is to compare at a frame: what was seen, and what living members predict of it."""

    living: np.ndarray
    seen: np.ndarray  # which of all that could be seen
    y: np.ndarray
    h: np.ndarray  # (member, seen)
    sd: np.ndarray  # of the noise

    def revision(self, share: float = 1.0, drawn: np.ndarray = NOTHING) -> tuple[Revision, float]:
        """What a share of the frame's information demands, and its log density; see `_compare`."""
        spread, pull = _padded(self.h.T.shape), _padded(self.h.shape)
        log_density = _compare(self.h, self.y, self.sd / np.sqrt(share), drawn, spread, pull)
        return Revision(self.living, spread, pull), log_density


def shift(x: np.ndarray, sources: np.ndarray, revision: Revision, out: np.ndarray) -> None:
    """Shift living members of x[sources] (member, column), through their covariances with h, into `out`."""
    arguments = x, sources, *revision, out
    threads = min(numba.get_num_threads(), out.size * len(revision.spread) // PER_THREAD)
    if threads <= 1:
        _run(*arguments)
    else:
        with one_at_a_time:
            _run_parallel(threads, *arguments)


class Ensemble(Filter):
    """An ensemble Kalman filter, of members all of whose weights are equal; its parameters are those of `Filter`.

    The model needs `predict`, and may have `confine`, for states that a shift must not take out of bounds. A member that has
    failed on the way begins the next frame as a copy of another.
    """

    def _update(self, rng: np.random.Generator, y: np.ndarray, first: int, last: int) -> tuple[float, float]:
        self._revision: Revision | None = None
        x = self.x if self.index else self._call("initial", (self.particles,), rng, self.particles)
        uneven = self.weights.min() < self.weights.max()
        self.ancestors = systematic(rng, self.weights, self.particles) if uneven else None
        x, _ = self._step(rng, x, first, last)
        alive = _finite(x.reshape(len(x), -1))
        living = np.flatnonzero(alive)
        failed = 1 - len(living) / self.particles
        self.prior_x = self.x = x
        if len(living) < 2:
            return -np.inf, failed
        self.weights = self.prior_weights = alive / len(living)
        increment = np.log1p(-failed)

        seen = np.flatnonzero(~np.isnan(y))
        if len(seen):
            h, sd = self._predict(x, living, seen)
            increment += self._analyse(rng, x, Comparison(living, seen, y[seen], h, sd))
            if not np.isfinite(increment):
                raise ValueError(f"`predict` of the model gives what is not finite at frame {self.index} (step {last})")
        return float(increment), failed

    def _predict(self, x: np.ndarray, living: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What living members predict (member, seen) of what was seen, and the sd of its noise."""
        predicts = capability(self.model, "predict", needed_for="the ensemble Kalman filter")
        assert predicts is not None
        predicted, sd = predicts(x)
        h = self._checked(predicted, "predict", (self.particles, *self.observations.shape[1:]))
        whole = len(living) == len(h) and len(seen) == h.shape[1]
        return h if whole else h[np.ix_(living, seen)], sd[seen]

    def _analyse(self, rng: np.random.Generator, x: np.ndarray, frame: Comparison) -> float:
        """Shift the members as a frame demands; returns its log density."""
        self._revision, log_density = frame.revision()
        self.x, _ = self.revise(x, np.arange(self.particles))
        return log_density

    def revise(self, x: np.ndarray, ancestors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Members of this frame or of an earlier one, shifted as this frame demands; those that failed stay as they are."""
        if self._revision is None:
            return x, ancestors
        new = np.empty((len(ancestors), *x.shape[1:]), x.dtype)
        if len(self._revision.living) < len(new):
            new[:] = x[ancestors]
        shift(x.reshape(len(x), -1), ancestors, self._revision, new.reshape(len(new), -1))
        confines = capability(self.model, "confine")
        if confines:
            confines(new)
        return new, np.arange(len(new))


def _padded(shape: tuple[int, int]) -> np.ndarray:
    """Zeros in single precision, with sizes that are multiples of EIGHT."""
    return np.zeros([EIGHT * -(-size // EIGHT) for size in shape], np.float32)
