"""What a filter keeps of its particles: summaries, and collectors that take them frame by frame, for `SMC(collect=...)`.

Summaries are functions of (weights, x) with particles along axis 0. They do the same sums in the same order on any machine and
for any number of threads, which BLAS would not. Particles without weight do not count, whatever they are.

A collector says of which particles, and when: `Filtered` is what a bare summary becomes, given the frames so far; `Predicted`
is given the frames before; `FixedLag` is given some later ones too.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from wormsim import check
from wormsim.kernel import kernel

if TYPE_CHECKING:
    from .smc import SMC

__all__ = [
    "Collector",
    "Filtered",
    "FixedLag",
    "Predicted",
    "Summary",
    "quantiles",
    "weighted_mean",
    "weighted_quantiles",
    "weighted_sd",
]

Summary = Callable[[np.ndarray, np.ndarray], Any]


@kernel
def _moments(weights, x, mean, variance):
    """Weighted mean and variance of the columns of x (particle, column)."""
    mean[:] = 0.0
    variance[:] = 0.0
    for p in range(len(x)):
        w, row = weights[p], x[p]
        if w > 0.0:
            for k in range(len(row)):
                mean[k] += w * row[k]
    for p in range(len(x)):
        w, row = weights[p], x[p]
        if w > 0.0:
            for k in range(len(row)):
                variance[k] += w * (row[k] - mean[k]) ** 2


def _mean_and_variance(weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    flat = np.ascontiguousarray(x, dtype=float).reshape(len(x), -1)
    mean, variance = np.empty(flat.shape[1]), np.empty(flat.shape[1])
    _moments(weights, flat, mean, variance)
    return mean.reshape(x.shape[1:]), variance.reshape(x.shape[1:])


def weighted_mean(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Mean over particles."""
    return _mean_and_variance(weights, x)[0]


def weighted_sd(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Standard deviation over particles."""
    return np.sqrt(_mean_and_variance(weights, x)[1])


@kernel
def _sortable(values, order, out):
    """Keys that sort as the numbers do: bits of a float32, made to rise with it, over the particle it belongs to."""
    for k in range(values.shape[1]):
        for j in range(len(order)):
            bits = np.float32(values[order[j], k]).view(np.uint32)
            rising = ~bits if bits >> np.uint32(31) else bits | np.uint32(0x80000000)
            out[k, j] = np.uint64(rising) << np.uint64(32) | np.uint64(order[j])


@kernel
def _pick(keys, weights, x, levels, out):
    """The first of the sorted particles at which the cumulated weight reaches each level."""
    n = keys.shape[1]
    for k in range(len(keys)):
        j, last = 0, np.int64(keys[k, 0] & np.uint64(0xFFFFFFFF))
        total = weights[last]
        for q in range(len(levels)):
            while total < levels[q] and j < n - 1:
                j += 1
                last = np.int64(keys[k, j] & np.uint64(0xFFFFFFFF))
                total += weights[last]
            out[q, k] = x[last, k]


def weighted_quantiles(weights: np.ndarray, x: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Quantiles (level, ...) over particles: the smallest value that has at least so much of the weight at or below it.

    Values that differ by less than a float32 can tell count as equal.
    """
    shares = np.asarray(levels, dtype=float)
    if shares.ndim != 1 or not ((shares > 0) & (shares < 1)).all() or (np.diff(shares) <= 0).any():
        raise ValueError(f"levels must be increasing numbers between 0 and 1, got {levels}")
    flat = np.ascontiguousarray(x, dtype=float).reshape(len(x), -1)
    used = np.flatnonzero(weights > 0)
    keys = np.empty((flat.shape[1], len(used)), np.uint64)
    _sortable(flat, used, keys)
    keys.sort(axis=1)
    out = np.empty((len(shares), flat.shape[1]))
    _pick(keys, weights, flat, shares * weights.sum() * (1 - 1e-12), out)
    return out.reshape(len(levels), *x.shape[1:])


def quantiles(*levels: float) -> Summary:
    """A summary that gives these quantiles."""
    return lambda weights, x: weighted_quantiles(weights, x, levels)


class Collector(Protocol):
    """Something that a filter calls after each frame, and saves with itself."""

    @property
    def values(self) -> list[Any]:
        """What there is to tell of each frame so far."""

    def update(self, filter: "SMC") -> None:
        """Look at a filter after a frame."""

    def state(self) -> dict[str, np.ndarray]:
        """Everything that `restore` needs."""

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Become as another collector was."""

    def copy(self) -> Self:
        """Another collector in the same state."""


class Filtered:
    """A summary of the particles at each frame, given the frames so far."""

    def __init__(self, summary: Summary):
        self.summary = summary
        self.values: list[Any] = []

    def update(self, filter: "SMC") -> None:
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
        other = type(self)(self.summary)
        other.values = list(self.values)
        return other


class Predicted(Filtered):
    """A summary of the particles at each frame, given the frames before it."""

    def update(self, filter: "SMC") -> None:
        """Summarise the particles with the weights that they had before they were compared with the frame."""
        self.values.append(self.summary(filter.prior_weights, filter.x))


class FixedLag:
    """A summary of the particles at each frame, given the frames until `lag` later, as far as there are any.

    Of each frame in this window it keeps the particles that still have descendants, and how much weight these carry.
    """

    def __init__(self, summary: Summary, lag: int):
        self.summary, self.lag = summary, check.whole("lag", lag, least=0)
        self._done: list[Any] = []
        self._states: list[np.ndarray] = []  # of each frame in the window, particles with descendants
        self._ancestors: list[np.ndarray] = []  # and where among them those of today's particles are
        self._weights = np.empty(0)

    @property
    def values(self) -> list[Any]:
        """Summaries of all frames so far; the last ones will change as the filter goes on."""
        return self._done + [self._summarise(k) for k in range(len(self._states))]

    def _summarise(self, k: int) -> Any:
        weights = np.bincount(self._ancestors[k], self._weights, len(self._states[k]))
        return self.summary(weights, self._states[k])

    def update(self, filter: "SMC") -> None:
        """Move the window on by a frame."""
        if filter.ancestors is not None:
            for k, ancestors in enumerate(self._ancestors):
                alive, self._ancestors[k] = np.unique(ancestors[filter.ancestors], return_inverse=True)
                if len(alive) < len(self._states[k]):
                    self._states[k] = self._states[k][alive]
        self._states.append(filter.x)
        self._ancestors.append(np.arange(len(filter.x)))
        self._weights = filter.weights
        if len(self._states) > self.lag:
            self._done.append(self._summarise(0))
            del self._states[0], self._ancestors[0]

    def state(self) -> dict[str, np.ndarray]:
        """The values of the frames that are done, and the window."""
        window = {f"states_{k}": states for k, states in enumerate(self._states)}
        window |= {f"ancestors_{k}": ancestors for k, ancestors in enumerate(self._ancestors)}
        return {"done": np.array(self._done), "weights": self._weights, **window}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a window over."""
        self._done, self._weights = list(state["done"]), state["weights"]
        count = sum(name.startswith("states_") for name in state)
        self._states, self._ancestors = ([state[f"{what}_{k}"] for k in range(count)] for what in ("states", "ancestors"))

    def copy(self) -> Self:
        """Another one with the same window."""
        other = type(self)(self.summary, self.lag)
        other.restore(self.state())
        return other
