"""The ensemble Kalman filter (Evensen 2003, Ocean Dynamics 53) and its fixed-lag smoother, beside the particle filter.

Members are moved as particles are, but not weighted by a frame: each is shifted, by what its own prediction h of it misses,
through covariances that the ensemble itself has:

    x += Cxy S^-1 (y + e - h),   S = Cyy + R = L L^T,   log Z += log N(y; mean h, S)
    e = R^(1/2) (L + R^(1/2))^-1 (h - mean h)

The errors e could be drawn from N(0, R). These do not add noise of their own, and leave the members with the covariance that
drawn ones leave on average, P - Cxy S^-1 Cyx (Andrews 1968; Whitaker & Hamill 2002, Mon. Weather Rev. 130).

A covariance whose correlation is r is multiplied by max(0, 1 - doubt / (members r^2)), so that correlations which may be
chance, as those below 2 / sqrt(members) may, are not believed if the doubt is 4. States of earlier frames are shifted through
their own covariances with h.

Nothing starves. But evidence and bands are exact only where the model is linear and Gaussian, and members are many; elsewhere
they are approximations, and the evidence is not unbiased.
"""

from typing import Any, ClassVar, NamedTuple

import numba
import numpy as np
from numba import prange

from wormsim import check
from wormsim.kernel import aligned, kernel, one_at_a_time

from .filter import Filter
from .matrices import cholesky, gram, solve, solve_rows
from .model import capability
from .resampling import systematic

__all__ = ["Ensemble"]

TILE = 16  # columns of states that are worked on together
FOUR, SIXTEEN = 4, 16  # rows, and half of the columns, of a product that are worked on together
ZEROS = (np.float32(0),) * SIXTEEN
DOUBT = 4.0  # squared standard errors below which a correlation is not believed, where nothing is said
PER_THREAD = 20_000_000  # products: with fewer, a second thread costs more than it brings


@kernel(inline="always")
def _add(s, w, r):
    """SIXTEEN sums s, which LLVM keeps in a register if they are spelled out, and w times a row r added to them."""
    a0, a1, a2, a3 = s[0] + w * r[0], s[1] + w * r[1], s[2] + w * r[2], s[3] + w * r[3]
    a4, a5, a6, a7 = s[4] + w * r[4], s[5] + w * r[5], s[6] + w * r[6], s[7] + w * r[7]
    a8, a9, a10, a11 = s[8] + w * r[8], s[9] + w * r[9], s[10] + w * r[10], s[11] + w * r[11]
    a12, a13, a14, a15 = s[12] + w * r[12], s[13] + w * r[13], s[14] + w * r[14], s[15] + w * r[15]
    return a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15


@kernel(inline="always")
def _put(s, t, r):
    """Write twice SIXTEEN sums into a row."""
    r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7] = s[:8]
    r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15] = s[8:]
    r[16], r[17], r[18], r[19], r[20], r[21], r[22], r[23] = t[:8]
    r[24], r[25], r[26], r[27], r[28], r[29], r[30], r[31] = t[8:]


@kernel
def _multiply(a, b, out):
    """out = a b, where out has a multiple of FOUR rows and of twice SIXTEEN columns."""
    for k in range(0, b.shape[1], 2 * SIXTEEN):
        for i in range(0, len(out), FOUR):
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = ZEROS
            for j in range(len(b)):
                left, right = b[j, k:], b[j, k + SIXTEEN :]
                s0, t0 = _add(s0, a[i, j], left), _add(t0, a[i, j], right)
                s1, t1 = _add(s1, a[i + 1, j], left), _add(t1, a[i + 1, j], right)
                s2, t2 = _add(s2, a[i + 2, j], left), _add(t2, a[i + 2, j], right)
                s3, t3 = _add(s3, a[i + 3, j], left), _add(t3, a[i + 3, j], right)
            _put(s0, t0, out[i, k:])
            _put(s1, t1, out[i + 1, k:])
            _put(s2, t2, out[i + 2, k:])
            _put(s3, t3, out[i + 3, k:])


@kernel(inline="always")
def _add_each(s, w, r):
    """SIXTEEN sums s, and the numbers of a row w times those of a row r added to them."""
    a0, a1, a2, a3 = s[0] + w[0] * r[0], s[1] + w[1] * r[1], s[2] + w[2] * r[2], s[3] + w[3] * r[3]
    a4, a5, a6, a7 = s[4] + w[4] * r[4], s[5] + w[5] * r[5], s[6] + w[6] * r[6], s[7] + w[7] * r[7]
    a8, a9, a10, a11 = s[8] + w[8] * r[8], s[9] + w[9] * r[9], s[10] + w[10] * r[10], s[11] + w[11] * r[11]
    a12, a13, a14, a15 = s[12] + w[12] * r[12], s[13] + w[13] * r[13], s[14] + w[14] * r[14], s[15] + w[15] * r[15]
    return a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15


@kernel(inline="always")
def _total(s):
    left = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    return left + (((s[8] + s[9]) + (s[10] + s[11])) + ((s[12] + s[13]) + (s[14] + s[15])))


@kernel
def _multiply_rows(a, b, out):
    """out = a b^T, where a and b have multiples of FOUR rows and of SIXTEEN columns."""
    for i in range(0, len(a), FOUR):
        for j in range(0, len(b), 2):
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = ZEROS
            for k in range(0, a.shape[1], SIXTEEN):
                left, right = b[j, k:], b[j + 1, k:]
                s0, t0 = _add_each(s0, a[i, k:], left), _add_each(t0, a[i, k:], right)
                s1, t1 = _add_each(s1, a[i + 1, k:], left), _add_each(t1, a[i + 1, k:], right)
                s2, t2 = _add_each(s2, a[i + 2, k:], left), _add_each(t2, a[i + 2, k:], right)
                s3, t3 = _add_each(s3, a[i + 3, k:], left), _add_each(t3, a[i + 3, k:], right)
            out[i, j], out[i, j + 1] = _total(s0), _total(t0)
            out[i + 1, j], out[i + 1, j + 1] = _total(s1), _total(t1)
            out[i + 2, j], out[i + 2, j + 1] = _total(s2), _total(t2)
            out[i + 3, j], out[i + 3, j + 1] = _total(s3), _total(t3)


@kernel
def _padded(rows, columns):
    """Zeros in single precision, in cache lines of their own, with rows and columns as `_multiply` needs them.

    An odd number of pairs of cache lines lies from row to row: a power of two would make rows turn each other out of the cache.
    """
    rows, columns = FOUR * -(-rows // FOUR), 2 * SIXTEEN * (-(-columns // (2 * SIXTEEN)) | 1)
    out = aligned(rows * columns // 2).view(np.float32).reshape(rows, columns)
    out[:] = 0
    return out


@kernel
def believed(covariance, variances, members, doubt):
    """The share of a covariance to believe, given the product of the two variances."""
    chance, found = doubt * variances, members * covariance * covariance
    return 1 - chance / found if found > chance else 0 * found


@kernel
def _share(share, shares, x, spread, pull, doubt, out):
    """Shift every tile of columns of members x (column, member) whose number leaves a remainder of `share`.

    `spread` (1 + seen, member) is 1, and h less its mean; `pull` is 0, and S^-1 (y + e - h): both padded with zeros. Single
    precision is enough for sums of some thousands, and twice as fast. The rows of `spread` add up to 0, so that members need
    not be centred for their covariances.
    """
    columns, n = x.shape
    tile, covariance, shifts = _padded(TILE, n), _padded(TILE, len(spread)), _padded(TILE, n)
    variance, degrees, threshold = np.zeros(len(spread), np.float32), np.float32(n - 1), np.float32(doubt)
    for j in range(1, len(spread)):
        s = ZEROS
        for p in range(0, spread.shape[1], SIXTEEN):
            s = _add_each(s, spread[j, p:], spread[j, p:])
        variance[j] = _total(s)
    for begin in range(share * TILE, columns, shares * TILE):
        height = min(TILE, columns - begin)
        for k in range(height):
            own, row, centre = x[begin + k], tile[k], x[begin + k, 0]  # near enough to the mean for differences to be single
            for p in range(n):
                row[p] = own[p] - centre
        _multiply_rows(tile, spread, covariance)
        for k in range(height):
            row, s = covariance[k], ZEROS
            for p in range(0, tile.shape[1], SIXTEEN):
                s = _add_each(s, tile[k, p:], tile[k, p:])
            square = _total(s) - row[0] * row[0] / np.float32(n)
            row[0] = 0
            for j in range(len(spread)):
                row[j] *= believed(row[j], variance[j] * square, degrees, threshold) / degrees
        _multiply(covariance, pull, shifts)
        for k in range(height):
            own, row, new = x[begin + k], shifts[k], out[begin + k]
            for p in range(n):
                new[p] = own[p] + row[p]


@kernel
def _run(x, spread, pull, doubt, out):
    _share(0, 1, x, spread, pull, doubt, out)


@kernel(parallel=True)
def _run_parallel(threads, x, spread, pull, doubt, out):
    for share in prange(threads):
        _share(share, threads, x, spread, pull, doubt, out)


@kernel
def _compare(h, y, sd, doubt, spread, pull):
    """Compare what members predict (seen, member) with a frame: fills `spread` and `pull`, and returns log N(y; mean h, S)."""
    seen, n = h.shape
    own, missed = np.empty((n, seen)), np.empty(seen)
    spread[0, :n] = 1
    for i in range(seen):
        mean = np.sum(h[i]) / n
        missed[i] = y[i] - mean
        for p in range(n):
            own[p, i] = spread[1 + i, p] = h[i, p] - mean
    s = gram(own) / (n - 1)
    found = np.diag(s).copy()
    for i in range(seen):
        for j in range(i + 1, seen):
            s[i, j] *= believed(s[i, j], found[i] * found[j], n - 1, doubt)
        s[i, i] += sd[i] * sd[i]

    b = np.zeros((seen, 1 + seen))  # y - mean h, and what is left of a deviation once the error has been added
    root, part = s.T.copy(), np.eye(seen)
    cholesky(root)
    for i in range(seen):
        root[i, i] += sd[i]
    solve_rows(root, part)
    for i in range(seen):
        b[i, 0] = missed[i]
        b[i, 1 + i] = -1.0
        b[i, 1:] += sd[i] * part[i]
    log_density = -solve(s, b) - 0.5 * seen * np.log(2 * np.pi) - 0.5 * np.sum(missed * b[:, 0])
    # Of each member S^-1 (y - mean h), less S^-1 times what is left of its deviation: one product for all of them.
    left = _padded(len(pull), len(spread))
    left[1 : 1 + seen, : 1 + seen] = b
    _multiply(left, spread, pull)
    return log_density


@kernel
def _finite(x):
    """Which members of x (column, member) have nothing but finite numbers."""
    columns, n = x.shape
    out = np.ones(n, np.bool_)
    for k in range(columns):
        row = x[k]
        for p in range(n):
            out[p] &= abs(row[p]) < np.inf
    return out


class Demands(NamedTuple):
    """What a frame demands of members; see `_share`."""

    spread: np.ndarray
    pull: np.ndarray
    doubt: float


def compare(h: np.ndarray, y: np.ndarray, sd: np.ndarray, doubt: float = DOUBT) -> tuple[Demands, float]:
    """What a frame demands of members that predict h (member, seen) of it, and its log density."""
    spread, pull = _padded(1 + h.shape[1], len(h)), _padded(1 + h.shape[1], len(h))
    log_density = _compare(np.ascontiguousarray(h.T), y, sd, doubt, spread, pull)
    return Demands(spread, pull, doubt), log_density


def shift(x: np.ndarray, demands: Demands) -> np.ndarray:
    """Members x (member, ...), shifted through their covariances with h."""
    rows = _rows(x)
    out = np.empty_like(rows)
    threads = min(numba.get_num_threads(), out.size * len(demands.spread) // PER_THREAD)
    if threads <= 1:
        _run(rows, *demands, out)
    else:
        with one_at_a_time:
            _run_parallel(threads, rows, *demands, out)
    return out.T.reshape(x.shape)


def _rows(x: np.ndarray) -> np.ndarray:
    """Members x (member, ...) as (column, member); no work for a worm's, which lie in memory so."""
    return np.ascontiguousarray(x.reshape(len(x), -1).T)


class Ensemble(Filter):
    """An ensemble Kalman filter, of members all of whose weights are equal; other parameters are those of `Filter`.

    Parameters
    ----------
    doubt
        Squared standard errors below which a correlation is not believed.

    The model may have `confine`, for states that a shift must not take out of bounds. A member that has
    failed on the way begins the next frame as a copy of another.
    """

    needs: ClassVar[dict[str, str]] = {"predict": "Gaussian noise of what is seen"}
    settings: ClassVar[tuple[str, ...]] = ("doubt",)

    def __init__(self, *arguments: Any, doubt: float = DOUBT, **others: Any):
        super().__init__(*arguments, **others)
        self.doubt = check.number("doubt", doubt, "a number from 0 on", lambda x: x >= 0)

    def _update(self, rng: np.random.Generator, y: np.ndarray, first: int, last: int) -> tuple[float, float]:
        self._revision: tuple[np.ndarray, Demands] | None = None  # who lives, and what the frame demands
        x = self.x if self.index else self._call("initial", (self.particles,), rng, self.particles)
        uneven = self.weights.min() < self.weights.max()
        self.ancestors = systematic(rng, self.weights, self.particles) if uneven else None
        x, _ = self._step(rng, x, first, last)
        alive = _finite(_rows(x))
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
            demands, log_density = compare(h, y[seen], sd, self.doubt)
            self._revision = living, demands
            increment += log_density
            self.x, _ = self.revise(x, np.arange(self.particles))
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

    def revise(self, x: np.ndarray, ancestors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Members of this frame or of an earlier one, shifted as this frame demands; those that failed stay as they are."""
        if self._revision is None:
            return x, ancestors
        living, demands = self._revision
        if len(living) == len(x) == len(ancestors) and (ancestors == np.arange(len(x))).all():
            new = shift(x, demands)
        else:
            new = x[ancestors]
            new[living] = shift(new[living], demands)
        confines = capability(self.model, "confine")
        if confines:
            confines(new)
        return new, np.arange(len(new))
