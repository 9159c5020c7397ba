"""A small stochastic model to try filters and learning on, and its linear-Gaussian twin, whose answers are known exactly.

x_t = (I + W) x_{t-1} + N(0, s^2), from x_0 ~ N(0, 1), with a sparse antisymmetric W. Some steps are observed, as

    y = F x / (K + |x|) + d + N(0, r^2)        `Autoregressive`
    y = x + N(0, r^2)                          `LinearGaussian`

with NaN where nothing was seen. The constants are those of Warrington, Spencer & Wood, who print W x and K + x: the first would
forget everything in one step, the second is singular at x = -1.
"""

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import prange

from wormsim import check
from wormsim.kernel import LANES, aligned, kernel, one_at_a_time

from .neurons import sparse_rows, sum_up
from .noise import PROCESS, gaussians
from .resampling import by_column

__all__ = ["Autoregressive", "Kalman", "LinearGaussian", "random_weights"]

PER_THREAD = 4096  # particles: with fewer, a second thread costs more than it brings


def random_weights(seed: int, species: int = 30, filled: float = 0.1, mean: float = 0.0185) -> np.ndarray:
    """W with a share of its upper triangle, 44 of 435 by default, filled from a Rayleigh distribution of some mean."""
    rng = np.random.default_rng(seed)
    rows, columns = np.triu_indices(species, 1)
    chosen = np.sort(rng.choice(len(rows), round(filled * len(rows) + 0.49), replace=False))
    weights = np.zeros((species, species))
    weights[rows[chosen], columns[chosen]] = rng.rayleigh(mean / np.sqrt(np.pi / 2), len(chosen))
    return weights - weights.T


@kernel
def _share(share, shares, x, where, weight, key):
    """Advance some blocks of lanes of particles (n, species) in place: x becomes (matrix) (x, noise)."""
    n, species = x.shape
    rows = aligned((species + 4 * -(-species // 4)) * LANES).reshape(-1, LANES)
    noise = rows[species:].reshape(-1)
    new, zero = aligned(species * LANES).reshape(-1, LANES), np.zeros(species)
    slots = np.empty(LANES, np.uint64)
    for begin in range(share * LANES, n, shares * LANES):
        here = min(LANES, n - begin)
        for i in range(LANES):
            slots[i] = begin + i
            for k in range(species):
                rows[k, i] = x[begin + min(i, here - 1), k]
        gaussians(noise, slots, 0, PROCESS, key)
        sum_up(where, weight, zero, rows, new)
        for i in range(here):
            for k in range(species):
                x[begin + i, k] = new[k, i]


@kernel
def _run(x, where, weight, key):
    _share(0, 1, x, where, weight, key)


@kernel(parallel=True)
def _run_parallel(threads, x, where, weight, key):
    for share in prange(threads):
        _share(share, threads, x, where, weight, key)


@kernel
def _hill(x, F, K, d):
    return F * x / (K + np.abs(x)) + d


@kernel
def _log_density(y, mean, sd):
    """Of independent Gaussians (particle, species) at y, where y is not NaN."""
    n, species = mean.shape
    seen = 0
    out = np.zeros(n)
    for k in range(species):
        seen += not np.isnan(y[k])
    for p in range(n):
        total = 0.0
        for k in range(species):
            error = y[k] - mean[p, k]
            total += 0.0 if np.isnan(y[k]) else error * error
        out[p] = -0.5 * total / sd**2 - seen * np.log(np.sqrt(2 * np.pi) * sd)
    return out


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

    @property
    def parameters(self) -> dict[str, Any]:
        """What makes this model this model."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def initial(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Particles at time 0."""
        return rng.standard_normal((n, len(self.weights)))

    def step(self, rng: np.random.Generator, x: np.ndarray, t: int) -> np.ndarray:
        """Particles at t + 1, of particles at t."""
        return self.advance(rng, x, t, t + 1)

    def advance(
        self,
        rng: np.random.Generator,
        x: np.ndarray,
        first: int,
        last: int,
        ancestors: np.ndarray | None = None,
        noise: np.ndarray | None = None,
    ) -> np.ndarray:
        """Particles at a later time, all steps at once: what they do to a particle is linear, and their noise adds up.

        The Gaussian noise (particle, 1, species) can be given.
        """
        if noise is not None:
            return self.drive(x, first, last, noise[:, 0, :, None], ancestors)
        x = np.array(x, dtype=float, order="C") if ancestors is None else x.take(ancestors, axis=0)
        arguments = (x, *self._compiled(last - first), rng.bit_generator.random_raw(2))
        threads = min(numba.get_num_threads(), len(x) // PER_THREAD)
        if threads <= 1:
            _run(*arguments)
        else:
            with one_at_a_time:
                _run_parallel(threads, *arguments)
        return x

    def noise_shape(self, steps: int) -> tuple[int, int]:
        """The Gaussian noise of some steps, all of them at once."""
        return len(self.weights), 1

    def drive(
        self,
        x: np.ndarray,
        first: int,
        last: int,
        noise: np.ndarray | None = None,
        ancestors: np.ndarray | None = None,
    ) -> np.ndarray:
        """Particles at a later time, given the noise on the way (particle, species, 1); or without any."""
        jump, spread = self._jump(last - first)
        later: np.ndarray = np.einsum("ij,pj->pi", jump, x if ancestors is None else x[ancestors])
        return later if noise is None else later + np.einsum("ij,pj->pi", np.linalg.cholesky(spread), noise[:, :, 0])

    def _compiled(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """The matrix that some steps apply to a particle and to standard Gaussians, for the kernel."""
        if steps not in self._jumps:
            jump, noise = self._jump(steps)
            matrix = np.hstack([jump, np.linalg.cholesky(noise)])
            self._jumps[steps] = sparse_rows(matrix, np.arange(matrix.shape[1]))
        return self._jumps[steps]

    @cached_property
    def _jumps(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        return {}

    def propose(
        self,
        rng: np.random.Generator,
        x: np.ndarray,
        y: np.ndarray,
        first: int,
        last: int,
        ancestors: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Particles at a later time, drawn from the model, but for those of time 0: they are drawn with y in view.

        Each species is drawn by itself, from a Gaussian where y puts it, or one time in ten from its prior; weighted and
        resampled. The new particles are draws given y, so their ratio times their likelihood is the estimate of p(y).
        """
        if last > first:
            return self.advance(rng, x, first, last, ancestors), np.zeros(len(x))
        place, slope = self._invert(np.where(np.isnan(self._checked(y)), self.d, y))
        information = np.where(np.isnan(y), 0, np.square(slope / self.observation_noise))
        sd = 1 / np.sqrt(1 + information)
        mean = place * information * sd**2
        draws = np.where(rng.random(x.shape) < 0.1, x, mean + sd * rng.standard_normal(x.shape))
        log_prior, log_near = -0.5 * draws**2, -0.5 * np.square((draws - mean) / sd) - np.log(sd)
        log_drawn = np.logaddexp(np.log(0.1) + log_prior, np.log(0.9) + log_near)
        fits = -0.5 * np.square((y - self.observe(draws)) / self.observation_noise)
        fits = np.where(np.isnan(y), 0, fits - np.log(np.sqrt(2 * np.pi) * self.observation_noise))
        new, estimate = by_column(rng, draws, fits + log_prior - log_drawn)
        return new, estimate - self.log_likelihood(y, new, first) if estimate > -np.inf else np.full(len(x), -np.inf)

    def linearise(self, x: np.ndarray, first: int, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """What would be seen (particle, time, species) without noise, and its derivative by the noise; see `vpc.guided`."""
        size, mean, predicted, rows = len(self.weights), x, [], []
        effects: list[np.ndarray] = []  # of the noise of each interval on the state
        for before, time in zip([first, *times[:-1]], times, strict=True):
            jump, spread = self._jump(int(time - before))
            mean = np.einsum("ij,pj->pi", jump, mean)
            effects = [jump @ effect for effect in effects] + [np.linalg.cholesky(spread)]
            later = np.zeros((size, size * (len(times) - len(effects))))
            predicted.append(self.observe(mean))
            rows.append(self.slope(mean)[:, :, None] * np.hstack([*effects, later]))
        return np.stack(predicted, axis=1), np.concatenate(rows, axis=1)[:, None], size

    def log_transition(self, x: np.ndarray, new: np.ndarray, first: int, last: int) -> np.ndarray:
        """log p(new at last | x at first) of each particle x, for one state `new`."""
        jump, noise = self._jump(last - first)
        root = np.linalg.cholesky(noise)
        error = np.linalg.solve(root, (new - x @ jump.T).T)
        return -0.5 * np.square(error).sum(axis=0) - np.log(np.sqrt(2 * np.pi) * np.diag(root)).sum()

    def _jump(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """The matrix that some steps apply to a state, and the covariance of the noise that they add."""
        transition = np.eye(len(self.weights)) + self.weights
        jump, noise = np.eye(len(transition)), np.zeros_like(transition)
        for _ in range(steps):
            jump, noise = transition @ jump, transition @ noise @ transition.T + self.process_noise**2 * np.eye(len(jump))
        return jump, noise

    def observe(self, x: np.ndarray) -> np.ndarray:
        """What would be seen of particles, without noise."""
        return _hill(x, self.F, self.K, self.d)

    def slope(self, x: np.ndarray) -> np.ndarray:
        """The derivative of `observe`."""
        return self.F * self.K / np.square(self.K + np.abs(x))

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What would be seen of particles, and the sd of its noise."""
        return self.observe(x), np.full(x.shape[1], self.observation_noise)

    def _invert(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The state that would be seen as y, or nearly so, and the slope of `observe` there."""
        share = np.clip((y - self.d) / self.F, -0.95, 0.95)
        x = self.K * share / (1 - np.abs(share))
        return x, self.slope(x)

    def log_likelihood(self, y: np.ndarray, x: np.ndarray, t: int) -> np.ndarray:
        """log p(y | x) of each particle; what is NaN in y does not count."""
        return _log_density(self._checked(y), self.observe(x), self.observation_noise)

    def _checked(self, y: np.ndarray) -> np.ndarray:
        if np.shape(y) != (len(self.weights),):
            raise ValueError(f"observations must have {len(self.weights)} species in each frame, got shape {np.shape(y)}")
        return y

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

    def slope(self, x: np.ndarray) -> np.ndarray:
        """The derivative of `observe`."""
        return np.ones_like(x)

    def _invert(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return y, self.slope(y)

    def kalman(self, observations: np.ndarray, times: np.ndarray) -> Kalman:
        """Filter and smoother (Rauch, Tung & Striebel 1965) for observations (frame, species), NaN where there is none."""
        size = len(self.weights)
        mean, covariance, now, log_evidence = np.zeros(size), np.eye(size), 0, 0.0
        predicted, filtered, jumps = [], [], []
        for y, t in zip(observations, times, strict=True):
            jump, noise = self._jump(t - now)
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
