"""What a filter keeps of its particles: summaries, and collectors that take them frame by frame, for a filter's `collect`.

Summaries are functions of (weights, x) with particles along axis 0. They do the same sums in the same order on any machine and
for any number of threads, which BLAS would not. Particles without weight do not count, whatever they are.

A collector says of which particles, and when: `Filtered` is what a bare summary becomes, given the frames so far; `Predicted`
is given the frames before; `FixedLag` is given some later ones too.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numba
import numpy as np
from numba import prange

from wormsim import check
from wormsim.kernel import kernel, one_at_a_time

if TYPE_CHECKING:
    from .filter import Filter

__all__ = [
    "Collector",
    "Filtered",
    "FixedLag",
    "Predicted",
    "Summary",
    "describe",
    "quantiles",
    "weighted_mean",
    "weighted_sd",
]

Summary = Callable[[np.ndarray, np.ndarray], Any]


WIDE = 64  # columns that are worked on together
BINS = 128
FEW = 24  # numbers that are quicker sorted than counted
PER_THREAD = 200_000  # numbers: with fewer, a second thread costs more than it brings


@kernel
def _moments(weights, tile, mean, variance):
    """Weighted mean and variance of the columns of a tile (particle, WIDE)."""
    mean[:] = 0.0
    variance[:] = 0.0
    for p in range(len(tile)):
        w, row = weights[p], tile[p]
        for k in range(WIDE):
            mean[k] += w * row[k]
    for p in range(len(tile)):
        w, row = weights[p], tile[p]
        for k in range(WIDE):
            variance[k] += w * (row[k] - mean[k]) ** 2


@kernel
def _select(values, weights, n, level):
    """The smallest of n values at or below which there is at least `level` of the weight; shuffles them in place.

    Count them in bins, keep the bin in which the level is reached, and so on, until few are left to sort.
    """
    while n > FEW:
        low = high = values[0]
        for i in range(n):
            low, high = min(low, values[i]), max(high, values[i])
        scale = _scale(low, high)
        if scale == 0.0:
            return low
        total = np.zeros(BINS)
        for i in range(n):
            total[int((values[i] - low) * scale)] += weights[i]
        chosen = 0
        while chosen < BINS - 1 and total[chosen] < level:
            level -= total[chosen]
            chosen += 1
        kept = 0
        for i in range(n):
            if int((values[i] - low) * scale) == chosen:
                values[kept], weights[kept] = values[i], weights[i]
                kept += 1
        if kept == 0:  # by rounding, the level lies beyond the last
            return high
        n = kept
    for i in range(1, n):
        value, weight, j = values[i], weights[i], i
        while j > 0 and values[j - 1] > value:
            values[j], weights[j] = values[j - 1], weights[j - 1]
            j -= 1
        values[j], weights[j] = value, weight
    for i in range(n - 1):
        level -= weights[i]
        if level <= 0.0:
            return values[i]
    return values[n - 1]


@kernel
def _scale(low, high):
    """By what to multiply the distance from the lowest number to get its bin; 0 if there is no telling them apart."""
    scale = (BINS - 1) / (high - low)
    return scale if 0.0 < scale < np.inf else 0.0


@kernel
def _limits(tile):
    """The lowest and the highest number of each column of a tile."""
    low, high = tile[0].copy(), tile[0].copy()
    for p in range(len(tile)):
        row = tile[p]
        for k in range(WIDE):
            low[k] = row[k] if row[k] < low[k] else low[k]
            high[k] = row[k] if row[k] > high[k] else high[k]
    return low, high


@kernel
def _quantiles(weights, tile, low, high, levels, some, their, out):
    """Quantiles (level, WIDE) of a tile: numbers are counted in bins once, and each level is then looked for in its own bin."""
    scale = np.empty(WIDE)
    for k in range(WIDE):
        scale[k] = _scale(low[k], high[k])
    total, bins = np.zeros((WIDE, BINS)), np.empty((len(tile), WIDE), np.uint8)
    for p in range(len(tile)):
        w, row, places = weights[p], tile[p], bins[p]
        for k in range(WIDE):
            places[k] = np.uint8((row[k] - low[k]) * scale[k])
        for k in range(WIDE):
            total[k, places[k]] += w

    # The bin of each level, and how much weight lies below it; levels that share a bin share its numbers.
    slot, count = np.full((WIDE, BINS), -1, np.int16), np.zeros((WIDE, len(levels)), np.int64)
    place, below = np.zeros((WIDE, len(levels)), np.int64), np.zeros((WIDE, len(levels)))
    for k in range(WIDE):
        chosen, sum_below = 0, 0.0
        for q in range(len(levels)):
            while chosen < BINS - 1 and sum_below + total[k, chosen] < levels[q]:
                sum_below += total[k, chosen]
                chosen += 1
            place[k, q], below[k, q] = chosen, sum_below
            if slot[k, chosen] < 0:
                slot[k, chosen] = q
    for p in range(len(tile)):
        places = bins[p]
        for k in range(WIDE):
            s = slot[k, places[k]]
            if s >= 0:
                at = count[k, s]
                some[k, s, at], their[k, s, at] = tile[p, k], weights[p]
                count[k, s] = at + 1
    for k in range(WIDE):
        for q in range(len(levels)):
            s = slot[k, place[k, q]]
            n = count[k, s]
            out[q, k] = _select(some[k, s, :n].copy(), their[k, s, :n].copy(), n, levels[q] - below[k, q]) if n else high[k]


@kernel
def _sorted_quantiles(weights, values, levels, out):
    """Quantiles the slow way, for numbers that bins cannot hold: infinite ones, and ranges beyond those of a float."""
    order = np.argsort(values)
    j, total = 0, weights[order[0]]
    for q in range(len(levels)):
        while total < levels[q] and j < len(order) - 1:
            j += 1
            total += weights[order[j]]
        out[q] = values[order[j]]


@kernel
def _share(share, shares, weights, x, columns, levels, out):
    """Mean, variance and quantiles of every tile of columns of x (column, particle) whose number leaves `share` over."""
    used = np.flatnonzero(weights > 0.0)
    n = len(used)
    w, tile, found = weights[used] / weights[used].sum(), np.zeros((n, WIDE)), np.empty((2 + len(levels), WIDE))
    some, their = np.empty((2, WIDE, len(levels), n if len(levels) else 0))
    reach = levels * (1 - 1e-12)
    for begin in range(share * WIDE, len(columns), shares * WIDE):
        width = min(WIDE, len(columns) - begin)
        for i in range(n):
            for k in range(width):
                tile[i, k] = x[columns[begin + k], used[i]]
        _moments(w, tile, found[0], found[1])
        if len(levels):
            odd, (low, high) = np.zeros(width, np.bool_), _limits(tile)
            for k in range(width):
                odd[k] = not np.isfinite(found[1, k]) or (_scale(low[k], high[k]) == 0.0 and low[k] < high[k])
                if odd[k]:
                    low[k] = high[k] = 0.0
                    column = tile[:, k].copy()
                    tile[:, k] = 0.0
                    if np.isnan(column).any():
                        out[2:, begin + k] = np.nan
                    else:
                        _sorted_quantiles(w, column, reach, out[2:, begin + k])
            _quantiles(w, tile, low, high, reach, some, their, found[2:])
            for k in range(width):
                if odd[k]:
                    found[2:, k] = out[2:, begin + k]
        out[:, begin : begin + width] = found[:, :width]


@kernel
def _run(weights, x, columns, levels, out):
    _share(0, 1, weights, x, columns, levels, out)


@kernel(parallel=True)
def _run_parallel(threads, weights, x, columns, levels, out):
    for share in prange(threads):
        _share(share, threads, weights, x, columns, levels, out)


def describe(weights: np.ndarray, x: np.ndarray, columns: np.ndarray, levels: Sequence[float] = ()) -> np.ndarray:
    """Mean, sd and quantiles (2 + levels, column) over particles of some columns of x (particle, column).

    A quantile is the smallest value that has at least so much of the weight at or below it.
    """
    shares = np.array(levels, dtype=float)
    if shares.ndim != 1 or not ((shares > 0) & (shares < 1)).all() or (np.diff(shares) <= 0).any():
        raise ValueError(f"levels must be increasing numbers between 0 and 1, got {levels}")
    rows, out = np.ascontiguousarray(x.T), np.empty((2 + len(shares), len(columns)))
    threads = min(numba.get_num_threads(), len(x) * len(columns) // PER_THREAD)
    if threads <= 1:
        _run(weights, rows, columns, shares, out)
    else:
        with one_at_a_time:
            _run_parallel(threads, weights, rows, columns, shares, out)
    out[1] = np.sqrt(out[1])
    return out


def _all(weights: np.ndarray, x: np.ndarray, levels: Sequence[float] = ()) -> np.ndarray:
    flat = np.asarray(x, dtype=float).reshape(len(x), -1)
    return describe(weights, flat, np.arange(flat.shape[1]), levels).reshape(-1, *x.shape[1:])


def weighted_mean(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Mean over particles."""
    return _all(weights, x)[0]


def weighted_sd(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Standard deviation over particles."""
    return _all(weights, x)[1]


def quantiles(*levels: float) -> Summary:
    """A summary that gives these quantiles (level, ...)."""
    return lambda weights, x: _all(weights, x, levels)[2:]


class Collector(Protocol):
    """Something that a filter calls after each frame, and saves with itself; the label tells it from others of its kind."""

    label: str

    @property
    def values(self) -> list[Any]:
        """What there is to tell of each frame so far."""

    def update(self, filter: "Filter") -> None:
        """Look at a filter after a frame."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything that `restore` needs."""

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Become as another collector was."""

    def copy(self) -> Self:
        """Another collector in the same state."""


class Filtered:
    """A summary of the particles at each frame, given the frames so far."""

    def __init__(self, summary: Summary, label: str = ""):
        self.summary, self.label = summary, label
        self.values: list[Any] = []

    def update(self, filter: "Filter") -> None:
        """Summarise the particles as they are."""
        self.values.append(self.summary(filter.weights, filter.x))

    def state(self) -> dict[str, np.ndarray]:
        """The values."""
        return {"values": np.array(self.values)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take values over."""
        self.values = list(state["values"])

    def copy(self) -> Self:
        """Another one with the same values."""
        other = type(self)(self.summary, self.label)
        other.values = list(self.values)
        return other


class Predicted(Filtered):
    """A summary of the particles at each frame, given the frames before it, of those that did not fail on the way."""

    def update(self, filter: "Filter") -> None:
        """Summarise the particles with the weights that they had before they were compared with the frame."""
        self.values.append(self.summary(filter.prior_weights, filter.prior_x))


class FixedLag:
    """A summary of the particles at each frame, given the frames until `lag` steps later, as far as there are any.

    Of each frame in this window it keeps the particles that still have descendants, and how much weight these carry; or what
    `keep` makes of them, such as some of their columns, in single precision.
    """

    def __init__(self, summary: Summary, lag: int, keep: Callable[[np.ndarray], np.ndarray] | None = None):
        self.summary, self.lag, self.keep = summary, check.whole("lag", lag, least=0), keep
        self.label = f"{lag} steps"
        self._done: list[Any] = []
        self._lines: list[int] = []  # of each frame that is done, how many particles had descendants
        self._times: list[int] = []  # of each frame in the window
        self._states: list[np.ndarray] = []  # of each frame in the window, particles with descendants
        self._ancestors: list[np.ndarray] = []  # and where among them those of today's particles are
        self._weights = np.empty(0)

    @property
    def values(self) -> list[Any]:
        """Summaries of all frames so far; the last ones will change as the filter goes on."""
        return self._done + [self._summarise(k) for k in range(len(self._states))]

    @property
    def lines(self) -> list[int]:
        """How many particles of each frame still have descendants when it is summarised."""
        return self._lines + [len(state) for state in self._states]

    def _summarise(self, k: int) -> Any:
        weights = np.bincount(self._ancestors[k], self._weights, len(self._states[k]))
        return self.summary(weights, self._states[k])

    def update(self, filter: "Filter") -> None:
        """Move the window on by a frame."""
        if filter.ancestors is not None:
            for k, ancestors in enumerate(self._ancestors):
                alive, self._ancestors[k] = np.unique(ancestors[filter.ancestors], return_inverse=True)
                if len(alive) < len(self._states[k]):
                    self._states[k] = self._states[k][alive]
        for k, state in enumerate(self._states):
            self._states[k], self._ancestors[k] = filter.revise(state, self._ancestors[k])
        now = filter.frames[-1].time
        self._times.append(now)
        self._states.append(filter.x if self.keep is None else self.keep(filter.x))
        self._ancestors.append(np.arange(len(filter.x)))
        self._weights = filter.weights
        while self._times and now - self._times[0] >= self.lag:
            self._done.append(self._summarise(0))
            self._lines.append(len(self._states[0]))
            del self._times[0], self._states[0], self._ancestors[0]

    def state(self) -> dict[str, np.ndarray]:
        """The values of the frames that are done, and the window."""
        window = {f"states_{k}": states for k, states in enumerate(self._states)}
        window |= {f"ancestors_{k}": ancestors for k, ancestors in enumerate(self._ancestors)}
        past = {"done": np.array(self._done), "lines": np.array(self._lines, int)}
        return past | {"times": np.array(self._times, int), "weights": self._weights, **window}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a window over."""
        self._done, self._lines = list(state["done"]), state["lines"].tolist()
        self._weights, self._times = state["weights"], state["times"].tolist()
        window = range(len(self._times))
        self._states, self._ancestors = ([state[f"{what}_{k}"] for k in window] for what in ("states", "ancestors"))

    def copy(self) -> Self:
        """Another one with the same window."""
        other = type(self)(self.summary, self.lag, self.keep)
        other.restore(self.state())
        return other
