"""The experiments of Warrington, Spencer & Wood, and harder ones: a truth, a recording of it, and how to impute it.

- paper: 49 neurons seen every 0.05 s, a noise-free truth that starts where the learned prior says
- all: the same with all 302 neurons seen. The paper takes 48 particles of 400, and divides its noise by 20; with the settled
  scaling that is too little for so few, which then follow the truth in some runs only
- noise: the truth is drawn from the filter's own model, with process noise and noise in the recording
- start: the truth starts at -20 mV and not where the learned prior says
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from .connectome import KATO_NEURONS, NEURONS, index, nearest
from .initialise import FACTOR, draw_start, learned_prior
from .recording import Recording
from .worm import Worm

__all__ = ["EXPERIMENTS", "Experiment", "experiment"]

EXPERIMENTS = ("paper", "all", "noise", "start")


class Experiment(NamedTuple):
    """What happened, and what was seen of it."""

    truth: xr.Dataset
    recording: Recording


def experiment(
    name: str,
    worm: Worm | None = None,
    seed: int = 0,
    seconds: float = 5.0,
    factor: float = FACTOR,
    neurons: Sequence[str] | None = None,
    corpus: Worm | None = None,
) -> Experiment:
    """Make one of the experiments, with a truth of its own for each seed.

    `factor` is that of the noise of "noise". `neurons` are seen in place of those that the experiment names. Start and noise
    are those that the worm itself gives, or another one, `corpus`.
    """
    if name not in EXPERIMENTS:
        guess = nearest(str(name), EXPERIMENTS)
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}; did you mean {guess!r}?")
    worm = Worm() if worm is None else worm
    corpus = worm if corpus is None else corpus
    prior = learned_prior(corpus)
    start = None if name == "start" else draw_start(corpus, seed)
    noise = dict(zip(NEURONS, (factor * prior.noise).tolist(), strict=True)) if name == "noise" else 0.0
    truth = worm.simulate(seconds, seed, noise=noise, initial=start, progress=False)
    usual = list(NEURONS) if name == "all" else KATO_NEURONS
    seen = Recording.from_simulation(truth, usual if neurons is None else neurons)
    if name == "noise":
        error = prior.sigma[index(seen.neurons)] * np.random.default_rng([seed, 2]).standard_normal(seen.values.shape)
        seen = Recording(seen.values + error, seen.neurons, seen.time)
    return Experiment(truth, seen)
