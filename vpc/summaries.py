"""Summaries of weighted particles: functions of (weights, x) with particles along axis 0, for `SMC(collect=...)`.

They do the same sums in the same order on any machine and for any number of threads, which BLAS would not. Particles without
weight do not count, whatever they are.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wormsim.kernel import kernel

__all__ = ["Summary", "quantiles", "weighted_mean", "weighted_quantiles", "weighted_sd"]

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
