"""Between the ensemble Kalman filter and the particle filter, after Frei & Künsch (2013, Biometrika 100).

What a frame says is used in two parts, p(y | x) = p(y | x)^g p(y | x)^(1 - g). By the first, members are shifted, as in
`vpc.ensemble` with R / g for R; by the second they are weighted, as particles are, at where they have come:

    log Z += log N(y; mean h, Cyy + R/g) + (k (1 - g) log 2 pi - k log g) / 2 + (1 - g) sum log sd + log mean p(y | x)^(1 - g)

where k numbers are seen. The share g is the least that leaves an effective sample size of half the members; it is sought as if
what is seen were linear in the state, and raised where that leaves less than half of this. Weights are exact
where a shift is not, as at a threshold that some members have passed and others have not; shifts go where weights would starve.
With more members g is less, and approximations with it. Errors are drawn here, so that copies of a member part.
"""

import numpy as np

from .ensemble import Comparison, Ensemble, shift
from .resampling import effective_sample_size, reweighted

__all__ = ["Bridged"]

ENOUGH = 0.5  # effective sample size after a frame, as a share of the members
HALVINGS = 6  # of the interval in which g is sought


class Bridged(Ensemble):
    """An ensemble whose members are shifted as far as they must be, and weighted for the rest; see `Ensemble`."""

    def _analyse(self, rng: np.random.Generator, x: np.ndarray, frame: Comparison) -> float:
        living, seen, y, h, sd = frame
        drawn, everyone, there = rng.standard_normal(h.shape), np.arange(len(h)), np.empty_like(h)
        even, own = np.full(len(h), 1 / len(h)), np.log(sd * np.sqrt(2 * np.pi)).sum()

        def weigh(h: np.ndarray, share: float) -> tuple[np.ndarray, float]:
            z = (y - h) / sd
            return reweighted(even, (share - 1) * (0.5 * (z * z).sum(axis=1) + own))

        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            share = (low + high) / 2
            shift(h, everyone, frame.revision(share, drawn)[0]._replace(living=everyone), there)  # as if it were linear
            enough = effective_sample_size(weigh(there, share)[0]) >= ENOUGH * len(h)
            low, high = (low, share) if enough else (share, high)

        share = high
        while True:
            self._revision, log_density = frame.revision(share, drawn)
            self.x, _ = self.revise(x, np.arange(self.particles))
            weights, log_mean = weigh(self._predict(self.x, living, seen)[0], share)
            if share == 1 or effective_sample_size(weights) >= ENOUGH * len(h) / 2:
                break
            share = (1 + share) / 2 if share < 0.9 else 1.0  # it is not linear: shift more
        self.weights = np.zeros(self.particles)
        self.weights[living] = weights
        return log_density + (1 - share) * own - 0.5 * len(y) * np.log(share) + log_mean
