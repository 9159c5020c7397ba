"""Experiments with a known truth: how near searches come to it, from several starts.

- ar: 44 weights of the autoregressive model, from 20 frames of 30 species, with the budgets of Warrington, Spencer & Wood: 8e6
  particle sweeps for each search
- worm: w_m and w_s, or other parameters, from the fluorescence of some neurons
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ..autoregressive import Autoregressive, random_weights
from ..cluster import Cluster
from ..experiments import experiment
from ..posterior import worm_of
from ..recording import Recording
from ..worm import Worm
from .fit import Fit
from .pmmh import pmmh
from .pmvo import pmvo
from .priors import Space, rayleigh, split
from .search import log_mean
from .targets import OF_FILTER, WEIGHT_MEAN, ArTarget, Observations, Sweep, Target, WormTarget, mean_of
from .tempering import LADDER, parallel_tempering

__all__ = ["AR", "SEARCHES", "Restart", "Twin", "ar_twin", "run_twin", "worm_twin"]

JUDGES = 4  # sweeps of the referee
SEARCHES: dict[str, Callable[..., Fit]] = {"pmvo": pmvo, "pmmh": pmmh, "pt": parallel_tempering}
_SD = rayleigh(mean=WEIGHT_MEAN, log=False).frame[1]  # the unit of widths and rates, of the prior of a weight

# What the paper spends on the autoregressive model.
AR: dict[str, dict[str, Any]] = {
    "pmvo": {
        "steps": 1000,
        "samples": 20,
        "sweeps": 2,
        "draws": 20,
        "checks": 50,
        "rate": (1e-3 / _SD, 1e-4 / _SD),
        "width": (0.000923 / _SD, 0.000923 / 5 / _SD),
        "temperature": (100.0, 1.0),
        "widen": (2.5, 1.0),
    },
    "pmmh": {"steps": 8000, "sweeps": 5, "draws": 20, "width": 0.00185 / _SD},
    "pt": {
        "steps": 4000,
        "sweeps": 2,
        "draws": 20,
        "temperatures": LADDER,
        "width": tuple(sd / _SD for sd in (0.00185, 0.00180, 0.00156, 0.00147, 0.00138)),
    },
}
WORM_STEPS = {"steps": 30, "samples": 4, "rate": (0.2, 0.02)}
# What it spends on the worm: 500 steps of 8 samples, with 90 bootstrap particles that start from 500.
PAPER_STEPS = {"steps": 500, "samples": 8, "draws": 9}
PAPER_FILTER: dict[str, Any] = {"method": "bootstrap", "particles": 90, "init_particles": 500}


@dataclass(frozen=True)
class Twin:
    """A target, the parameters that its data were made with, and a more exact target to judge by."""

    target: Target
    truth: np.ndarray
    referee: Target
    frames: int = 0  # that are learned from
    later: Target | None = None  # the same with frames that are held out

    def worth(self, theta: np.ndarray) -> float:
        """log p(y, theta), as the referee estimates it."""
        found = [self.referee(Sweep(tuple(np.asarray(theta).tolist()), seed))[0] for seed in range(JUDGES)]
        return float(log_mean(np.array(found)) + self.target.space.log_prior(theta))

    def held_out(self, theta: np.ndarray) -> float:
        """log p(frames held out | frames learned from, theta): the mean of some sweeps."""
        if self.later is None:
            raise ValueError("no frames were held out")
        found = []
        for seed in range(JUDGES):
            done = self.later.filter(Sweep(tuple(np.asarray(theta).tolist()), seed)).run()
            known = -np.inf if done.failure else done.log_evidence - done.frames[self.frames - 1].log_evidence
            found.append(known)
        return float(np.mean(found))


def ar_twin(seed: int = 0, method: str = "bootstrap", particles: int = 200) -> Twin:
    """The autoregressive model with weights and data of a seed, judged by guided particles."""
    model = Autoregressive(random_weights(seed))
    _, times, values = model.simulate(seed)
    seen = Observations(values, times)
    target = ArTarget(model, seen, method=method, particles=particles)
    rows, columns = np.argwhere(np.triu(model.weights)).T
    return Twin(target, model.weights[rows, columns], ArTarget(model, seen, method="guided", particles=50))


def worm_twin(
    parameters: Any = ("w_m", "w_s"),
    preset: str = "noise",
    seed: int = 0,
    seconds: float = 5.0,
    neurons: Sequence[str] | None = None,
    drawn: bool = False,
    held_out: float = 0.0,
    **settings: Any,
) -> Twin:
    """A worm of `vpc.experiments` whose parameters are forgotten, judged by the default ensemble.

    Its parameters are the default ones, or `drawn` from their priors, around these. `held_out` seconds more of its recording
    are kept for judging.
    """
    base = Worm()
    guess = WormTarget(base, experiment(preset, base, seed, 0.1, neurons=neurons).recording, parameters)
    truth = guess.space.draw(np.random.default_rng([seed, 11]), 1)[0]
    if not drawn:
        truth = default_point(guess.space)
    whole = experiment(preset, guess.living(truth), seed, seconds + held_out, neurons=neurons, corpus=base).recording
    return _twin(base, whole, parameters, truth, seconds, settings)


def run_twin(run: xr.Dataset, parameters: Any = ("w_m", "w_s"), **settings: Any) -> Twin:
    """A run of `Worm.simulate` whose parameters are forgotten."""
    base = worm_of(run)
    if base is None:
        raise ValueError("the run is of a worm with wiring of its own; learn in Python, where that is at hand")
    seen = Recording.from_simulation(run)
    truth = default_point(WormTarget(base, seen, parameters).space, base)
    return _twin(base, seen, parameters, truth, float(seen.time[-1]), settings)


def _twin(base: Worm, whole: Recording, parameters: Any, truth: np.ndarray, seconds: float, settings: dict[str, Any]) -> Twin:
    """The twin that learns from the first seconds of a recording, and is judged by all of it."""
    learned = whole.time <= whole.time[0] + seconds + 1e-9
    seen = Recording(whole.values[learned], whole.neurons, whole.time[learned])
    same = {name: value for name, value in settings.items() if name not in OF_FILTER}
    later = None if learned.all() else WormTarget(base, whole, parameters, **same)
    target, referee = WormTarget(base, seen, parameters, **settings), WormTarget(base, seen, parameters, **same)
    return Twin(target, truth, referee, int(learned.sum()), later)


def default_point(space: Space, worm: Worm | None = None) -> np.ndarray:
    """What a worm, the default one if none is given, has of some parameters, on average of groups."""
    known = (Worm() if worm is None else worm).parameters
    return np.array([mean_of(known[name], name, group) for name, group in map(split, space.labels)])


@dataclass(frozen=True)
class Restart:
    """One search of a twin for each seed, as a task for a cluster; gives what is worth telling of it, in plain numbers."""

    twin: Twin
    search: str
    plan: dict[str, Any] = field(default_factory=dict)
    points: int = 25  # of the way, that the referee judges
    checkpoint: str | None = None
    out: str | None = None
    inside: Cluster | None = field(default_factory=Cluster)  # where its own sweeps run; None: as the search likes
    progress: bool = False

    def __call__(self, seed: int) -> dict[str, Any]:
        """Search from a start of this seed."""
        begin, busy = time.perf_counter(), time.process_time()
        fit = SEARCHES[self.search](
            self.twin.target,
            **self.plan,
            seed=seed,
            checkpoint=numbered(self.checkpoint, seed),
            cluster=self.inside,
            progress=self.progress,
        )
        took, cost = time.perf_counter() - begin, time.process_time() - busy
        if self.out:
            fit.save(str(numbered(self.out, seed)))
        way, truth = fit.progress(self.points), self.twin.worth(self.twin.truth)
        known = {theta.tobytes(): self.twin.worth(theta) - truth for theta in np.unique(way["value"].values, axis=0)}
        gaps = [known[theta.tobytes()] for theta in way["value"].values]
        starts = fit.dataset
        later = {}
        if self.twin.later is not None:
            points = {"start": starts["value"].values[0], "best": starts["best"].values, "truth": self.twin.truth}
            later = {"held_out": {name: self.twin.held_out(point) for name, point in points.items()}}
        return later | {
            "seed": seed,
            "best": fit.best,
            "best_score": fit.best_score,
            "gap": gaps[-1],
            "evaluations": fit.evaluations,
            "seconds": round(took, 1),
            "core_seconds": round(cost, 1),
            "failures": fit.failures,
            "acceptance": np.atleast_1d(fit.acceptance).tolist() if "accepted" in starts else None,
            "swaps": fit.swaps.values.tolist() if "swapped" in starts else None,
            "way": {
                "evaluations": way["evaluations"].values.tolist(),
                "gap": rounded(gaps),
                "value": rounded(way["value"].values) if len(self.twin.truth) < 10 else None,
            },
            "start": {name: rounded(starts[f"start_{name}"].values) for name in ("value", "objective")},
        }


def rounded(values: Any) -> Any:
    """Numbers as lists of six digits, for a file that people share."""
    return [rounded(value) for value in values] if np.ndim(values) else float(f"{values:.6g}")


def numbered(path: str | None, seed: int) -> str | None:
    """A path for each seed: fit.zarr is fit-3.zarr for seed 3."""
    if path is None:
        return None
    place = Path(path)
    return str(place.with_name(f"{place.stem}-{seed}{place.suffix}"))
