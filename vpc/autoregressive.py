"""A small stochastic model to try filters and learning on, and its linear-Gaussian twin, whose answers are known exactly.

x_t = (I + W) x_{t-1} + N(0, s^2), from x_0 ~ N(0, 1), with a sparse antisymmetric W. Some steps are observed, as

    y = F x / (K + |x|) + d + N(0, r^2)        `Autoregressive`
    y = x + N(0, r^2)                          `LinearGaussian`

with NaN where nothing was seen. The constants are those of Warrington, Spencer & Wood, who print W x and K + x: the first would
forget everything in one step, the second is singular at x = -1.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wormsim import check
from wormsim.kernel import LANES, aligned, kernel

from .noise import PROCESS, gaussians

__all__ = ["Autoregressive", "Kalman", "LinearGaussian", "random_weights"]


def random_weights(seed: int, species: int = 30, filled: float = 0.1, mean: float = 0.0185) -> np.ndarray:
    """W with a share of its upper triangle, 44 of 435 by default, filled from a Rayleigh distribution of some mean."""
    rng = np.random.default_rng(seed)
    rows, columns = np.triu_indices(species, 1)
    chosen = np.sort(rng.choice(len(rows), round(filled * len(rows) + 0.49), replace=False))
    weights = np.zeros((species, species))
    weights[rows[chosen], columns[chosen]] = rng.rayleigh(mean / np.sqrt(np.pi / 2), len(chosen))
    return weights - weights.T


@kernel
def _advance(x, rows, columns, values, scale, first, last, key):
    """Advance particles (n, species) in place by some steps, in blocks of lanes."""
    n, species = x.shape
    now, new = aligned(species * LANES).reshape(-1, LANES), aligned(species * LANES).reshape(-1, LANES)
    noise = aligned(4 * -(-species // 4) * LANES)
    slots = np.empty(LANES, np.uint64)
    for begin in range(0, n, LANES):
        here = min(LANES, n - begin)
        for i in range(LANES):
            slots[i] = begin + i
            for k in range(species):
                now[k, i] = x[begin + min(i, here - 1), k]
        for step in range(first, last):
            gaussians(noise, slots, step, PROCESS, key)
            z = noise.reshape(-1, LANES)
            for k in range(species):
                a, b, c = now[k], z[k], new[k]
                for i in range(LANES):
                    c[i] = a[i] + scale * b[i]
            for entry in range(len(values)):
                a, c, w = now[columns[entry]], new[rows[entry]], values[entry]
                for i in range(LANES):
                    c[i] += w * a[i]
            now, new = new, now
        for i in range(here):
            for k in range(species):
                x[begin + i, k] = now[k, i]


@dataclass(frozen=True, eq=False)
class Autoregressive:
    """The model, as `initial`, `step`, `advance` and `log_likelihood` over particles (n, species)."""

    weights: np.ndarray = field(default_factory=lambda: random_weights(0))
    process_noise: float = 0.01
    observation_noise: float = 0.01
    F: float = 1.0
    K: float = 1.0
    d: float = 10.0

    def __post_init__(self) -> None:
        size = len(np.atleast_1d(self.weights))
        object.__setattr__(self, "weights", check.array("weights", self.weights, (size, size)))
        for name in ("process_noise", "observation_noise"):
            check.number(name, getattr(self, name), "a positive number", lambda x: x > 0)

    def initial(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Particles at time 0."""
        return rng.standard_normal((n, len(self.weights)))

    def step(self, rng: np.random.Generator, x: np.ndarray, t: int) -> np.ndarray:
        """Particles at t + 1, of particles at t."""
        return self.advance(rng, x, t, t + 1)

    def advance(self, rng: np.random.Generator, x: np.ndarray, first: int, last: int) -> np.ndarray:
        """Particles at a later time, all steps in one compiled call."""
        x = np.array(x, dtype=float, order="C")
        rows, columns = np.nonzero(self.weights)
        words = rng.integers(0, 2**32, 2, dtype=np.uint64)
        _advance(x, rows, columns, self.weights[rows, columns], self.process_noise, first, last, words)
        return x

    def observe(self, x: np.ndarray) -> np.ndarray:
        """What would be seen of particles, without noise."""
        return self.F * x / (self.K + np.abs(x)) + self.d

    def log_likelihood(self, y: np.ndarray, x: np.ndarray, t: int) -> np.ndarray:
        """log p(y | x) of each particle; what is NaN in y does not count."""
        seen = ~np.isnan(y)
        error = (y[seen] - self.observe(x)[:, seen]) / self.observation_noise
        return -0.5 * np.square(error).sum(axis=1) - seen.sum() * np.log(np.sqrt(2 * np.pi) * self.observation_noise)

    def simulate(self, seed: int, steps: int = 200, every: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A true path (steps + 1, species), the steps at which it is observed, and the observations (frame, species)."""
        rng = np.random.default_rng(seed)
        path = [self.initial(rng, 1)]
        for t in range(steps):
            path.append(self.step(rng, path[-1], t))
        truth, times = np.concatenate(path), np.arange(0, steps + 1, every)
        seen = self.observe(truth[times])
        return truth, times, seen + self.observation_noise * rng.standard_normal(seen.shape)


class Kalman(NamedTuple):
    """Exact answers at the observed times: means (frame, species), covariances (frame, species, species), and log p(y)."""

    mean: np.ndarray
    covariance: np.ndarray
    smoothed_mean: np.ndarray
    smoothed_covariance: np.ndarray
    log_evidence: float


@dataclass(frozen=True, eq=False)
class LinearGaussian(Autoregressive):
    """The twin whose observations are linear, so that Kalman's filter is exact."""

    def observe(self, x: np.ndarray) -> np.ndarray:
        """What would be seen of particles, without noise."""
        return x

    def kalman(self, observations: np.ndarray, times: np.ndarray) -> Kalman:
        """Filter and smoother (Rauch, Tung & Striebel 1965) for observations (frame, species), NaN where there is none."""
        size = len(self.weights)
        mean, covariance, now, log_evidence = np.zeros(size), np.eye(size), 0, 0.0
        transition = np.eye(size) + self.weights
        predicted, filtered, jumps = [], [], []
        for y, t in zip(observations, times, strict=True):
            jump, noise = np.eye(size), np.zeros((size, size))
            for _ in range(now, t):
                jump, noise = transition @ jump, transition @ noise @ transition.T + self.process_noise**2 * np.eye(size)
            mean, covariance, now = jump @ mean, jump @ covariance @ jump.T + noise, int(t)
            predicted.append((mean, covariance))
            jumps.append(jump)
            seen = np.flatnonzero(~np.isnan(y))
            spread = covariance[np.ix_(seen, seen)] + self.observation_noise**2 * np.eye(len(seen))
            error = y[seen] - mean[seen]
            gain = np.linalg.solve(spread, covariance[seen]).T
            log_evidence -= 0.5 * (error @ np.linalg.solve(spread, error) + np.linalg.slogdet(2 * np.pi * spread)[1])
            mean, covariance = mean + gain @ error, covariance - gain @ covariance[seen]
            filtered.append((mean, covariance))
        smoothed = [filtered[-1]]
        for k in range(len(filtered) - 2, -1, -1):
            (mean, covariance), (prior_mean, prior) = filtered[k], predicted[k + 1]
            gain = np.linalg.solve(prior, jumps[k + 1] @ covariance).T
            later_mean, later = smoothed[-1]
            smoothed.append((mean + gain @ (later_mean - prior_mean), covariance + gain @ (later - prior) @ gain.T))
        means, covariances, smoothed_means, smoothed_covariances = (
            np.array(part) for some in (filtered, smoothed[::-1]) for part in zip(*some, strict=True)
        )
        return Kalman(means, covariances, smoothed_means, smoothed_covariances, float(log_evidence))
