"""The particle filter (Chopin & Papaspiliopoulos 2020, algorithm 10.1), as an iterator over the observed frames.

For each frame: resample if the weights have become too uneven, move all particles to its time, and weight them by how well they
explain it. The log of the mean of p(y_k | x), under the weights before, adds up to the log evidence log p(y_1 ... y_k); its
exponential is unbiased, for every scheme and policy.

    filter = SMC(model, observations, times, particles=1000, seed=0)
    for frame in filter:
        frame.ess, frame.log_evidence, filter.x, filter.weights     # look inside, stop, copy, go on

Where a model can `foresee` the frames to come, ancestors are chosen by them too: one whose weight is w and whose prospects are
psi is chosen by w psi, and its offspring begin with weights in proportion to 1 / psi, so that nothing is counted twice (Pitt &
Shephard 1999, JASA).
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from wormsim import check

from .connectome import nearest
from .filter import ERRORS, Filter, Frame
from .model import StateSpaceModel, capability
from .resampling import SCHEMES, adaptive, reweighted
from .summaries import Collector, Summary

__all__ = ["SMC", "Frame"]


class SMC(Filter):
    """A particle filter; other parameters are those of `Filter`.

    Parameters
    ----------
    resampling
        multinomial, residual, stratified or systematic.
    threshold
        Resample when the effective sample size is below this share of the particles: 0 never does, 1 always.

    A likelihood of NaN or +inf is an error that names the particle and the frame; so are particles of NaN, unless their
    likelihood is -inf: these have failed, and the others go on.
    """

    settings: ClassVar[tuple[str, ...]] = ("resampling", "threshold")

    def __init__(
        self,
        model: StateSpaceModel,
        observations: np.ndarray,
        times: Sequence[int] | np.ndarray | None = None,
        particles: int = 1000,
        seed: int = 0,
        resampling: str = "systematic",
        threshold: float = 0.5,
        collect: Mapping[str, Summary | Collector] | None = None,
    ):
        super().__init__(model, observations, times, particles, seed, collect)
        if resampling not in SCHEMES:
            known, guess = ", ".join(SCHEMES), nearest(str(resampling), SCHEMES)
            raise ValueError(f"resampling must be one of {known}, got {resampling!r}; did you mean {guess!r}?")
        self.threshold = check.number("threshold", threshold, "from 0 (never) to 1 (always)", lambda x: 0 <= x <= 1)
        self.resampling, self._resample = resampling, adaptive(SCHEMES[resampling], self.threshold)

    def _update(self, rng: np.random.Generator, y: np.ndarray, first: int, last: int) -> tuple[float, float]:
        x = self.x if self.index else self._call("initial", (self.particles,), rng, self.particles)
        blind = x
        weights = self._choose(rng) if self.index else self.weights

        # Move.
        x, log_ratio, method = self._move(rng, x, y, first, last)

        # Weight.
        log_likelihood = self._call("log_likelihood", (self.particles,), y, x, last)
        log_factors = log_likelihood + log_ratio
        new_weights, increment = reweighted(weights, log_factors)
        dead = log_factors == -np.inf
        failed = np.count_nonzero(dead) / self.particles
        if np.isnan(x.sum()) or not increment < np.inf:
            self._diagnose(x, method, log_likelihood, log_factors)
        if self.index == 0 and last == first:
            self._remember(blind, weights, 0.0, None)
        else:
            self._remember(x, weights, log_ratio, dead if failed else None)
        self.x, self.weights = x, new_weights
        return increment, failed

    def _choose(self, rng: np.random.Generator) -> np.ndarray:
        """Choose ancestors if the weights have become too uneven; returns the weights that their offspring begin with."""
        foresees = capability(self.model, "foresee")
        if not foresees:
            self.ancestors = self._resample(rng, self.weights)
            return self.weights if self.ancestors is None else np.full(self.particles, 1 / self.particles)
        log_prospects = self._call("foresee", (self.particles,), self.x, int(self.times[self.index - 1]))
        wanted, log_mean = reweighted(self.weights, log_prospects)
        if not np.isfinite(log_mean):
            raise ValueError(f"`foresee` of the model gives prospects of {log_mean} at frame {self.index - 1}")
        self.ancestors = self._resample(rng, wanted)
        if self.ancestors is None:
            return self.weights
        return np.exp(log_mean - log_prospects[self.ancestors]) / self.particles

    def _remember(self, x: np.ndarray, weights: np.ndarray, log_ratio: np.ndarray | float, failed: np.ndarray | None) -> None:
        """Keep particles as they would be had the frame not been seen, of those that did not fail on the way."""
        if not isinstance(log_ratio, float):
            weights = reweighted(weights, log_ratio)[0]
        if failed is not None and not failed.all():
            weights = np.where(failed, 0.0, weights) / weights[~failed].sum()
        self.prior_x, self.prior_weights = x, weights

    def _move(
        self, rng: np.random.Generator, x: np.ndarray, y: np.ndarray, first: int, last: int
    ) -> tuple[np.ndarray, np.ndarray | float, str]:
        """Offspring at a later step, log p / q of each (0 for moves drawn from the model), and the method that gave them."""
        proposes = capability(self.model, "propose")
        if not proposes:
            x, method = self._step(rng, x, first, last)
            return x, 0.0, method
        try:
            new, log_ratio = proposes(rng, x, y, first, last, self.ancestors)
        except ERRORS as error:
            raise self._blame("propose", error) from error
        return self._checked(new, "propose", x.shape), self._checked(log_ratio, "propose", (self.particles,)), "propose"

    def _diagnose(self, x: np.ndarray, method: str, log_likelihood: np.ndarray, log_factors: np.ndarray) -> None:
        """Refuse particles that are NaN but not marked as failed by -inf, and likelihoods that are NaN or +inf."""
        where = f"at frame {self.index} (step {self.times[self.index]})"
        lost = np.isnan(x).reshape(len(x), -1).any(axis=1) & ~(log_likelihood == -np.inf)
        if lost.any():
            raise ValueError(f"`{method}` of the model gave NaN for particle {np.argmax(lost)} {where}")
        if not (log_factors < np.inf).all():
            which = np.argmax(~(log_factors < np.inf))
            name = "propose" if log_likelihood[which] < np.inf else "log_likelihood"
            raise ValueError(f"`{name}` of the model makes a log weight of {log_factors[which]} for particle {which} {where}")
