"""The particle filter (Chopin & Papaspiliopoulos 2020, algorithm 10.1), as an iterator over the observed frames.

For each frame: resample if the weights have become too uneven, move all particles to its time, and weight them by how well they
explain it. The log of the mean of p(y_k | x), under the weights before, adds up to the log evidence log p(y_1 ... y_k); its
exponential is unbiased, for every scheme and policy.

    filter = SMC(model, observations, times, particles=1000, seed=0)
    for frame in filter:
        frame.ess, frame.log_evidence, filter.x, filter.weights     # look inside, stop, copy, go on

All randomness of frame k comes from a generator seeded by (seed, k), so a filter that is copied or saved goes on as if nothing
had happened.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from wormsim import check

from .connectome import nearest
from .model import StateSpaceModel, capability
from .resampling import SCHEMES, effective_sample_size, normalised

__all__ = ["SMC", "Frame", "weighted_mean", "weighted_sd"]


class Frame(NamedTuple):
    """What a filter says of one frame."""

    frame: int
    time: int
    ess: float
    log_evidence: float  # of all frames so far
    resampled: bool
    ancestors: int  # how many particles of the frame before have offspring
    failed: float  # share of particles with weight 0


def weighted_mean(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Mean over particles; those without weight do not count, whatever they are."""
    used = weights > 0
    return np.tensordot(weights[used], x[used], axes=1)


def weighted_sd(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Standard deviation over particles."""
    used = weights > 0
    return np.sqrt(np.tensordot(weights[used], np.square(x[used] - weighted_mean(weights, x)), axes=1))


Summary = Callable[[np.ndarray, np.ndarray], Any]


class SMC(Iterator[Frame]):
    """A particle filter.

    Parameters
    ----------
    model
        With `initial`, `step` and `log_likelihood`, and perhaps a fused `advance`.
    observations
        (frame, ...), with NaN for what was not seen; a frame of nothing but NaN is a prediction.
    times
        The step of each frame, increasing; by default 0, 1, 2 ...
    particles
        How many.
    seed
        Of all randomness.
    resampling
        multinomial, residual, stratified or systematic.
    threshold
        Resample when the effective sample size is below this share of the particles: 0 never does, 1 always.
    collect
        Functions of (weights, particles) by name, called at each frame; `collected` holds their values.
    """

    def __init__(
        self,
        model: StateSpaceModel,
        observations: np.ndarray,
        times: Sequence[int] | np.ndarray | None = None,
        particles: int = 1000,
        seed: int = 0,
        resampling: str = "systematic",
        threshold: float = 0.5,
        collect: Mapping[str, Summary] | None = None,
    ):
        self.model = model
        self.observations = np.asarray(observations, dtype=float)
        if self.observations.ndim < 2:
            shape = self.observations.shape
            raise ValueError(f"observations must have frames along axis 0, and what was seen after it; got shape {shape}")
        self.times = _check_times(times, len(self.observations))
        self.particles, self.seed = check.whole("particles", particles), check.whole("seed", seed, least=0)
        if resampling not in SCHEMES:
            known, guess = ", ".join(SCHEMES), nearest(str(resampling), SCHEMES)
            raise ValueError(f"resampling must be one of {known}, got {resampling!r}; did you mean {guess!r}?")
        self.resampling = resampling
        self.threshold = check.number("threshold", threshold, "from 0 (never) to 1 (always)", lambda x: 0 <= x <= 1)
        self.collect = dict(collect or {})

        self.index = 0  # of the next frame
        self.x: np.ndarray = np.empty(0)
        self.weights = np.full(self.particles, 1 / self.particles)
        self.ancestors = np.arange(self.particles)
        self.log_evidence = 0.0
        self.failure = ""  # why the evidence is -inf, if it is
        self.frames: list[Frame] = []
        self.collected: dict[str, list] = {name: [] for name in self.collect}

    def __next__(self) -> Frame:
        if self.index == len(self.times) or self.failure:
            raise StopIteration
        k, t, y = self.index, int(self.times[self.index]), self.observations[self.index]
        rng = np.random.default_rng([self.seed, k])

        # Resample.
        ess = effective_sample_size(self.weights)
        resampled = k > 0 and (ess < self.threshold * self.particles or self.threshold == 1)
        self.ancestors = np.arange(self.particles)
        if resampled:
            self.ancestors = SCHEMES[self.resampling](rng, self.weights, self.particles)
            self.x, self.weights = self.x[self.ancestors], np.full(self.particles, 1 / self.particles)

        # Move.
        if k == 0:
            self.x = self._checked(self.model.initial(rng, self.particles), "initial", (self.particles,))
        start = 0 if k == 0 else int(self.times[k - 1])
        advance = capability(self.model, "advance")
        if advance is not None and t > start:
            self.x = self._checked(advance(rng, self.x, start, t), "advance", self.x.shape)
        else:
            for step in range(start, t):
                self.x = self._checked(self.model.step(rng, self.x, step), "step", self.x.shape)

        # Weight.
        log_likelihood = self._checked(self.model.log_likelihood(y, self.x, t), "log_likelihood", (self.particles,))
        if not (log_likelihood < np.inf).all():
            which = int(np.argmax(~(log_likelihood < np.inf)))
            value = log_likelihood[which]
            raise ValueError(f"log_likelihood of the model is {value} for particle {which} at frame {k} (step {t})")
        with np.errstate(divide="ignore"):
            self.weights, increment = normalised(np.log(self.weights) + log_likelihood)
        self.log_evidence += increment
        if increment == -np.inf:
            self.failure = f"all particles have weight 0 at frame {k} (step {t})"
        self.index += 1

        alive = 0.0 if self.failure else float((self.weights > 0).mean())
        offspring = len(np.unique(self.ancestors))
        frame = Frame(k, t, effective_sample_size(self.weights), self.log_evidence, resampled, offspring, 1 - alive)
        self.frames.append(frame)
        for name, summary in self.collect.items():
            self.collected[name].append(summary(self.weights, self.x))
        return frame

    def run(self) -> Self:
        """Go through all frames that are left."""
        for _ in self:
            pass
        return self

    def copy(self) -> "SMC":
        """Another filter in the same state, which can go its own way."""
        other = object.__new__(SMC)
        other.__dict__ = self.__dict__ | {"frames": list(self.frames), "x": self.x.copy()}
        other.collected = {name: list(values) for name, values in self.collected.items()}
        return other

    def _checked(self, value: Any, method: str, shape: tuple[int, ...]) -> np.ndarray:
        """What a method of the model gave, if it has the right shape."""
        result = np.asarray(value, dtype=float)
        if result.shape[: len(shape)] != shape:
            k, t = self.index, int(self.times[self.index])
            raise ValueError(
                f"`{method}` of the model must give an array of shape {shape}, got {result.shape}, at frame {k} (step {t})"
            )
        return result


def _check_times(times: Sequence[int] | np.ndarray | None, frames: int) -> np.ndarray:
    result = np.arange(frames) if times is None else np.asarray(times)
    if result.shape != (frames,) or not np.issubdtype(result.dtype, np.integer):
        raise ValueError(f"times must be {frames} whole numbers, one for each frame of observations, got {times!r}")
    if frames and (result[0] < 0 or (np.diff(result) <= 0).any()):
        where = 0 if result[0] < 0 else int(np.argmax(np.diff(result) <= 0)) + 1
        raise ValueError(f"times must be increasing, from 0 on, but times[{where}] is {result[where]}")
    return result
