"""The virtual patch clamp: `impute` conditions a worm on a recording."""

import json
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from wormsim import check
from wormsim import geometry as geo

from .connectome import NEURONS, index
from .diagnose import LEVELS, STATS
from .filter import Filter
from .initialise import FACTOR, learned_prior
from .loop import BODY_ROW, MUSCLE_ROW
from .methods import METHODS, build, check_method
from .neurons import STEP, N
from .observe import fluorescence_of
from .parameters import plain
from .posterior import KINDS, PARTS, Posterior
from .recording import Recording
from .resampling import evenly
from .smc import SMC
from .summaries import Collector, Filtered, FixedLag, Predicted, describe
from .sweep import FromPrior, WormModel, model_of
from .worm import Worm

__all__ = ["METHODS", "blind", "filter_of", "impute", "unconditioned"]

# Particles, and how many in the initialisation.
SIZES = {"bootstrap": (1000, 5000), "guided": (1000, 0), "farsighted": (200, 0), "ensemble": (200, 0)}
BASELINE = 200  # unconditioned worms to compare with

# What is told of a state: all but velocities.
_RODS = np.arange(BODY_ROW, MUSCLE_ROW).reshape(geo.RODS, 6)
_SHOWN = np.concatenate([np.arange(2 * N), _RODS[:, :3].ravel(), np.arange(MUSCLE_ROW, MUSCLE_ROW + 2 * geo.SEGMENTS)])
_COORDS = {"neuron": list(NEURONS), "coord": ["x", "y", "phi"], "side": ["dorsal", "ventral"], "stat": list(STATS)}


def impute(
    worm: Worm,
    recording: Recording,
    method: str = "ensemble",
    particles: int | None = None,
    init_particles: int | None = None,
    seed: int = 1,
    progress: bool = True,
    *,
    scaling: str = "settled",
    factor: float = FACTOR,
    sigma: float | np.ndarray | None = None,
    temperature: float = 1.0,
    pose: np.ndarray | None = None,
    pose_spread: float = 0.0,
    look_ahead: int | None = None,
    lag: float = 0.5,
    draws: int = 100,
    checkpoint: str | Path | None = None,
) -> Posterior:
    """Infer everything inside a worm from the fluorescence of some of its neurons.

    Parameters
    ----------
    worm
        The simulator.
    recording
        What was seen of it.
    method
        "ensemble": members that are shifted by what they miss; quick and steady, with approximate bands and evidence.
        "guided": particles that look ahead, with unbiased evidence. "farsighted": particles that look far ahead; dear, with
        unbiased evidence that is good for wrong worms too. "bootstrap": the particle filter of the paper.
    particles
        How many worms to simulate side by side; by default what `SIZES` has for the method.
    init_particles
        How many to refine the start from; with 0 the start is drawn from the prior, and the evidence of a particle filter is
        unbiased. By default 5000 for the bootstrap filter, as in the paper, and 0 for others.
    seed
        Of all randomness: the same seed gives the same posterior.
    progress
        Show a progress bar.
    scaling, factor
        Process noise: "settled" or "paper", of `vpc.initialise`, times a factor.
    sigma
        sd of the noise of the fluorescence: one number, or one for each recorded neuron; by default what the corpus gives.
    temperature
        Widens the likelihood: the variance of that noise is multiplied by it.
    pose, pose_spread
        The body (49, 3) at the first frame, straight by default, and how far it may be bent otherwise, rad.
    look_ahead
        How many frames a guided (2 by default) or farsighted (10) filter sees ahead.
    lag
        Seconds of later frames that a smoothed summary may look at; with 0 there is none.
    draws
        How many worms of each frame to keep, for `Posterior.branch`.
    checkpoint
        A zarr folder: a sweep that was interrupted goes on from there.
    """
    draws = check.whole("draws", draws, least=0)
    lag = check.number("lag", lag, "a number of seconds from 0 on", lambda x: x >= 0)
    begin, busy = time.perf_counter(), time.process_time()

    collect: dict[str, Collector] = {
        "filtered": Filtered(_statistics),
        "predicted": Predicted(_statistics),
        "draws": Filtered(lambda weights, x: x[evenly(weights, draws)].astype(np.float32), label=str(draws)),
    }
    if lag > 0:
        collect["smoothed"] = FixedLag(_statistics_of_kept, round(lag / STEP), _kept)
    of_model = {"scaling": scaling, "factor": factor, "sigma": sigma, "temperature": temperature}
    of_model |= {"pose": pose, "pose_spread": pose_spread}
    filter, model = filter_of(worm, recording, method, particles, init_particles, seed, look_ahead, collect, **of_model)
    filter.run(progress, checkpoint)
    attributes = {
        "method": method,
        "seed": seed,
        "particles": filter.particles,
        "init_particles": model.candidates,
        "scaling": scaling,
        "factor": factor,
        "temperature": temperature,
        "lag": lag,
        "pose_spread": pose_spread,
        "log_evidence": filter.log_evidence,
        "failure": filter.failure,
        "evidence_is_unbiased": int(isinstance(model, FromPrior) and method != "ensemble"),
        "version": version("virtual-patch-clamp"),
        "variant": worm.variant,
        "connectome": worm.connectome.label,
        "ablated": ",".join(worm.ablated),
        "parameters": json.dumps(plain(worm.parameters)),
        "seconds": max(time.perf_counter() - begin, filter.seconds),  # more if the sweep was resumed
        "core_seconds": time.process_time() - busy,
    }
    return Posterior(_dataset(filter, model, attributes), worm)


def filter_of(
    worm: Worm,
    recording: Recording,
    method: str = "ensemble",
    particles: int | None = None,
    init_particles: int | None = None,
    seed: int = 1,
    look_ahead: int | None = None,
    collect: Mapping[str, Collector] | None = None,
    **of_model: Any,
) -> tuple[Filter, WormModel]:
    """The filter that `impute` runs, at its first frame, and its model; settings mean the same there."""
    if not isinstance(worm, Worm):
        raise ValueError(f"worm must be a vpc.Worm, got {type(worm).__name__}")
    if not isinstance(recording, Recording):
        raise ValueError(f"recording must be a vpc.Recording, got {type(recording).__name__}")
    usual, usual_first = SIZES[check_method(method)]
    particles = usual if particles is None else check.whole("particles", particles, least=2)
    init_particles = usual_first if init_particles is None else check.whole("init_particles", init_particles, least=0)
    model = model_of(worm, recording, candidates=init_particles, **of_model)
    return build(method, model, recording.values, recording.steps, particles, seed, collect, look_ahead), model


def blind(model: WormModel, seed: int, collect: Mapping[str, Collector] | None = None) -> SMC:
    """A filter that starts from the prior and sees nothing of the recording, at its first frame."""
    worms = WormModel(model.worm, model.recording, model.seen, model.prior, model.noise, 0, model.pose, model.pose_spread)
    nothing = np.full_like(model.recording.values, np.nan)
    return SMC(worms, nothing, model.recording.steps, BASELINE, seed, threshold=0, collect=collect)


def _statistics(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """STATS (7, 847) of all that is shown."""
    return describe(weights, x, _SHOWN, LEVELS).astype(np.float32)


def _kept(x: np.ndarray) -> np.ndarray:
    """What is shown, as it is kept to be smoothed; voltages and calcium come first, as in a state."""
    return x.T[_SHOWN].astype(np.float32).T


def _statistics_of_kept(weights: np.ndarray, kept: np.ndarray) -> np.ndarray:
    return describe(weights, kept.astype(float), np.arange(kept.shape[1]), LEVELS).astype(np.float32)


def _dataset(filter: Filter, model: WormModel, attributes: dict[str, Any]) -> xr.Dataset:
    """What a sweep collected, with names and units."""
    recording, collected = model.recording, filter.collected
    data: dict[str, Any] = {}
    for kind, prefix in KINDS.items():
        if kind not in collected:
            continue
        values, begin = np.moveaxis(np.array(collected[kind]), 1, 0), 0
        for name, (dims, shape, unit) in PARTS.items():
            part = values[:, :, begin : begin + int(np.prod(shape))].reshape(*values.shape[:2], *shape)
            data[prefix + name] = (("stat", "time", *dims), part, {"units": unit, "given": kind})
            begin += int(np.prod(shape))
    frames = filter.frames
    data["draws"] = (("time", "draw", "state"), np.array(collected["draws"]), {"meaning": "whole worms, for branching"})
    data["ess"] = ("time", np.array([frame.ess for frame in frames]), {"meaning": "effective sample size"})
    data["ancestors"] = ("time", np.array([frame.ancestors for frame in frames]), {"meaning": "particles with offspring"})
    smoother = filter.collectors.get("smoothed")
    if isinstance(smoother, FixedLag):
        data["lines"] = ("time", smoother.lines, {"meaning": "particles with descendants when the frame was smoothed"})
    data["failed"] = ("time", np.array([frame.failed for frame in frames]), {"meaning": "share of particles that failed"})
    data["evidence"] = ("time", np.array([frame.log_evidence for frame in frames]), {"units": "nats", "meaning": "so far"})
    seen = recording.values[: len(frames)]
    data["fluorescence"] = (("time", "observed"), seen, {"units": "1", "meaning": "what was recorded"})
    data["sigma"] = ("observed", model.seen.sigma, {"units": "1"})
    data["noise"] = ("neuron", model.noise, {"units": "mV a step of 10 ms"})
    pose = geo.straight()[0] if model.pose is None else model.pose
    data["pose"] = (("rod", "coord"), pose, {"units": "mm, mm, rad", "meaning": "of the body at the first frame"})
    data["objects"] = (("object", "shape"), model.worm.objects, {"units": "mm"})
    seconds = recording.time[: len(frames)]
    coords = _COORDS | {"time": ("time", seconds, {"units": "s"}), "observed": list(recording.neurons)}
    return xr.Dataset(data, coords, attributes)


def unconditioned(posterior: Posterior) -> Posterior:
    """The same worm without the recording: what one would say without having looked."""
    recording, attributes = posterior.recording, posterior.dataset.attrs
    worm = posterior.known_worm()
    prior, sigma = learned_prior(worm, attributes["scaling"]), np.ones(N)
    sigma[index(recording.neurons)] = posterior.dataset["sigma"].values
    seen = fluorescence_of(worm, recording, sigma)
    pose, spread = posterior.dataset["pose"].values, attributes["pose_spread"]
    model = WormModel(worm, recording, seen, prior, posterior.dataset["noise"].values, 0, pose, spread)
    collect = {"filtered": Filtered(_statistics), "draws": Filtered(lambda weights, x: x[:0])}
    filter = blind(model, attributes["seed"], collect).run()
    own = {"method": "none", "log_evidence": 0.0, "particles": BASELINE, "init_particles": 0, "failure": filter.failure}
    return Posterior(_dataset(filter, model, attributes | own | {"seconds": filter.seconds}), worm)
