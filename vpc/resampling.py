"""Resampling: n ancestors drawn so that particle i has n w_i offspring on average (Douc, Cappe & Moulines 2005, ISPA).

All schemes walk through the cumulated weights once, against n increasing points in (0, 1); they differ in where the points lie.
Ancestors come out sorted, which is kind to memory.

- multinomial: n independent points
- residual: floor(n w_i) copies for certain, the rest multinomial in what is left
- stratified: one point in each of n equal intervals
- systematic: the same, all at the same place in their intervals
"""

from collections.abc import Callable

import numpy as np

from wormsim.kernel import kernel

__all__ = [
    "SCHEMES",
    "adaptive",
    "by_column",
    "effective_sample_size",
    "evenly",
    "multinomial",
    "residual",
    "reweighted",
    "stratified",
    "systematic",
]


@kernel
def reweighted(weights, log_factors):
    """Weights times exp(log_factors), made to sum to 1 again, and the log of the sum that they had.

    If all are 0, the weights stay as they were and the log is -inf; if a factor is NaN or +inf, so is the log.
    """
    n = len(weights)
    logs, highest = np.empty(n), -np.inf
    for i in range(n):
        logs[i] = np.log(weights[i]) + log_factors[i] if weights[i] > 0.0 else -np.inf
        if not log_factors[i] < np.inf:
            return weights, log_factors[i]
        highest = max(highest, logs[i])
    if highest == -np.inf:
        return weights, -np.inf
    total = 0.0
    for i in range(n):
        logs[i] = np.exp(logs[i] - highest)
        total += logs[i]
    return logs / total, highest + np.log(total)


@kernel
def effective_sample_size(weights):
    """1 / sum w^2, of weights that sum to 1: from 1 (one particle has it all) to n (all alike)."""
    total = 0.0
    for weight in weights:
        total += weight * weight
    return min(1 / total, 1.0 * len(weights))


@kernel
def _walk(points, weights, total, out):
    """For each of some increasing points in (0, 1), the particle whose share of the cumulated weights it falls into."""
    i, reached = 0, weights[0]
    last = 0
    for k in range(len(points)):
        while reached < points[k] * total and i < len(weights) - 1:
            i += 1
            reached += weights[i]
            last = i if weights[i] > 0.0 else last
        out[k] = i if weights[i] > 0.0 else last  # rounding may carry the last point beyond the last particle with a weight
    return out


def _ancestors(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return _walk(points, weights, weights.sum(), np.empty(len(points), np.int64))


def multinomial(rng: np.random.Generator, weights: np.ndarray, n: int) -> np.ndarray:
    """Independent draws; their sorted points are the normalised partial sums of n + 1 exponential numbers."""
    sums = rng.standard_exponential(n + 1).cumsum()
    return _ancestors(sums[:-1] / sums[-1], weights)


def residual(rng: np.random.Generator, weights: np.ndarray, n: int) -> np.ndarray:
    """As many copies as n w_i holds whole, and multinomial draws from the fractions."""
    expected = n * weights / weights.sum()
    copies = np.floor(expected + 1e-12).astype(int)
    certain = np.repeat(np.arange(len(weights)), copies)
    if len(certain) >= n:
        return certain[:n]
    fractions = np.clip(expected - copies, 0, None)
    return np.sort(np.concatenate([certain, multinomial(rng, fractions, n - len(certain))]))


def stratified(rng: np.random.Generator, weights: np.ndarray, n: int) -> np.ndarray:
    """A draw in each of n equal intervals."""
    return _ancestors((np.arange(n) + rng.random(n)) / n, weights)


def systematic(rng: np.random.Generator, weights: np.ndarray, n: int) -> np.ndarray:
    """One draw, repeated in each of n equal intervals."""
    return _ancestors((np.arange(n) + rng.random()) / n, weights)


Scheme = Callable[[np.random.Generator, np.ndarray, int], np.ndarray]
SCHEMES: dict[str, Scheme] = {scheme.__name__: scheme for scheme in (multinomial, residual, stratified, systematic)}
Policy = Callable[[np.random.Generator, np.ndarray], np.ndarray | None]


def adaptive(scheme: Scheme, threshold: float = 0.5) -> Policy:
    """A scheme that draws only when the effective sample size is below a share of the particles, and gives None otherwise.

    A threshold of 0 never resamples, 1 always.
    """

    def policy(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray | None:
        n = len(weights)
        return scheme(rng, weights, n) if threshold == 1 or effective_sample_size(weights) < threshold * n else None

    return policy


def evenly(weights: np.ndarray, n: int) -> np.ndarray:
    """n particles that stand for weighted ones, without chance: systematic, in the middle of the intervals."""
    return _ancestors((np.arange(n) + 0.5) / n, weights)


def by_column(
    rng: np.random.Generator, draws: np.ndarray, log_weights: np.ndarray, n: int | None = None
) -> tuple[np.ndarray, float]:
    """Resample each column of draws (draw, column, ...) by itself, n times, shuffled; and log of the product of mean weights.

    This is for states whose parts are independent, each weighted by what was seen of it: in all parts at once, no draw would
    fit. The product is an unbiased estimate of the likelihood of everything seen; -inf if a part fits nowhere.
    """
    n = len(draws) if n is None else n
    new, total = np.empty((n, *draws.shape[1:])), 0.0
    even = np.full(len(draws), 1 / len(draws))
    for k in range(draws.shape[1]):
        weights, estimate = reweighted(even, np.ascontiguousarray(log_weights[:, k]))
        new[:, k] = draws[rng.permutation(systematic(rng, weights, n)), k]
        total += estimate
    return new, total
