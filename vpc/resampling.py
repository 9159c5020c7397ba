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

__all__ = ["SCHEMES", "effective_sample_size", "multinomial", "normalised", "residual", "stratified", "systematic"]


def normalised(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights that sum to 1, and the log of the sum that they had; if all are 0 (-inf), equal weights and -inf.

    A weight of NaN, or one of +inf, is no weight: an error names the particle.
    """
    highest = log_weights.max()
    if not highest < np.inf:  # NaN or +inf
        which = int(np.argmax(~(log_weights < np.inf)))
        raise ValueError(f"log weight of particle {which} is {log_weights[which]}; weights must be below +inf and numbers")
    if highest == -np.inf:
        return np.full(len(log_weights), 1 / len(log_weights)), -np.inf
    weights = np.exp(log_weights - highest)
    total = weights.sum()
    return weights / total, float(highest + np.log(total))


def effective_sample_size(weights: np.ndarray) -> float:
    """1 / sum w^2, of weights that sum to 1: from 1 (one particle has it all) to n (all alike)."""
    return float(1 / np.square(weights).sum())


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
