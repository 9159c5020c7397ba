"""The virtual patch clamp: `impute` conditions a worm on a recording, and `Posterior` is what is then known of all of it."""

import json
import time
from collections.abc import Iterable
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from wormsim import check
from wormsim import geometry as geo

from .connectome import NEURONS, SOURCES, index, nearest
from .diagnose import score
from .initialise import learned_prior
from .loop import BODY_ROW, MUSCLE_ROW
from .neurons import STEP, N
from .observe import fluorescence_of
from .parameters import plain
from .protocol import Action
from .recording import Recording
from .resampling import evenly
from .smc import SMC
from .store import open_dataset, save_dataset
from .summaries import Collector, Filtered, FixedLag, Predicted, describe
from .sweep import FromPrior, WormModel
from .worm import Worm

__all__ = ["METHODS", "Posterior", "impute", "open_posterior"]

METHODS = ("bootstrap",)
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
STATS = ("mean", "sd", *(f"q{round(100 * level):02d}" for level in LEVELS))
BASELINE = 200  # unconditioned worms to compare with

# What is told of a state: all but velocities, with names, shapes and units.
_RODS = np.arange(BODY_ROW, MUSCLE_ROW).reshape(geo.RODS, 6)
_SHOWN = np.concatenate([np.arange(2 * N), _RODS[:, :3].ravel(), np.arange(MUSCLE_ROW, MUSCLE_ROW + 2 * geo.SEGMENTS)])
_PARTS = {
    "voltage": (("neuron",), (N,), "mV"),
    "calcium": (("neuron",), (N,), "uM"),
    "body": (("rod", "coord"), (geo.RODS, 3), "mm, mm, rad"),
    "muscle": (("side", "segment"), (2, geo.SEGMENTS), "1"),
}
_COORDS = {"neuron": list(NEURONS), "coord": ["x", "y", "phi"], "side": ["dorsal", "ventral"], "stat": list(STATS)}
KINDS = {"filtered": "", "smoothed": "smoothed_", "predicted": "predicted_"}


def impute(
    worm: Worm,
    recording: Recording,
    method: str = "bootstrap",
    particles: int = 1000,
    init_particles: int = 5000,
    seed: int = 1,
    progress: bool = True,
    *,
    scaling: str = "settled",
    factor: float = 0.2,
    sigma: float | np.ndarray | None = None,
    temperature: float = 1.0,
    pose: np.ndarray | None = None,
    pose_spread: float = 0.0,
    lag: float = 1.0,
    draws: int = 100,
    checkpoint: str | Path | None = None,
) -> "Posterior":
    """Infer everything inside a worm from the fluorescence of some of its neurons.

    Parameters
    ----------
    worm
        The simulator.
    recording
        What was seen of it.
    method
        "bootstrap": the particle filter of the paper.
    particles
        How many worms to simulate side by side.
    init_particles
        How many to refine the start from; with 0 the start is drawn from the prior, and the evidence is exact.
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
    lag
        Seconds of later frames that a smoothed summary may look at.
    draws
        How many worms of each frame to keep, for `Posterior.branch`.
    checkpoint
        A zarr folder: a sweep that was interrupted goes on from there.
    """
    if not isinstance(worm, Worm):
        raise ValueError(f"worm must be a vpc.Worm, got {type(worm).__name__}")
    if not isinstance(recording, Recording):
        raise ValueError(f"recording must be a vpc.Recording, got {type(recording).__name__}")
    if method not in METHODS:
        known, guess = ", ".join(METHODS), nearest(str(method), METHODS)
        raise ValueError(f"method must be one of {known}, got {method!r}; did you mean {guess!r}?")
    particles = check.whole("particles", particles, least=2)
    init_particles = check.whole("init_particles", init_particles, least=0)
    draws = check.whole("draws", draws, least=0)
    factor = check.number("factor", factor, "from 0 to 10", lambda x: 0 <= x <= 10)
    temperature = check.number("temperature", temperature, "a positive number", lambda x: x > 0)
    lag = check.number("lag", lag, "a number of seconds from 0 on", lambda x: x >= 0)
    begin, busy = time.perf_counter(), time.process_time()

    prior = learned_prior(worm, scaling)
    widths = prior.sigma.copy()
    if sigma is not None:
        widths[index(recording.neurons)] = np.broadcast_to(np.asarray(sigma, dtype=float), len(recording.neurons))
        if not (widths > 0).all():
            raise ValueError(f"sigma must be positive, got {sigma!r}")
    seen = fluorescence_of(worm, recording, widths, temperature)
    kind = WormModel if init_particles else FromPrior
    model = kind(worm, recording, seen, prior, factor * prior.noise, init_particles, pose, pose_spread)
    frames = int(np.searchsorted(recording.steps, round(lag / STEP), side="right")) - 1
    collect: dict[str, Collector] = {
        "filtered": Filtered(_statistics),
        "smoothed": FixedLag(_statistics, max(frames, 0)),
        "predicted": Predicted(_statistics),
        "draws": Filtered(lambda weights, x: x[evenly(weights, draws)].astype(np.float32)),
    }
    filter = SMC(model, recording.values, recording.steps, particles, seed, collect=collect).run(progress, checkpoint)
    attributes = {
        "method": method,
        "seed": seed,
        "particles": particles,
        "init_particles": init_particles,
        "scaling": scaling,
        "factor": factor,
        "temperature": temperature,
        "lag": lag,
        "pose_spread": pose_spread,
        "log_evidence": filter.log_evidence,
        "failure": filter.failure,
        "evidence_is_unbiased": int(init_particles == 0),
        "version": version("virtual-patch-clamp"),
        "variant": worm.variant,
        "connectome": worm.connectome.label,
        "ablated": ",".join(worm.ablated),
        "parameters": json.dumps(plain(worm.parameters)),
        "seconds": time.perf_counter() - begin,
        "core_seconds": time.process_time() - busy,
    }
    return Posterior(_dataset(filter, model, attributes), worm)


def _statistics(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """STATS (7, 847) of all that is shown."""
    return describe(weights, x, _SHOWN, LEVELS).astype(np.float32)


def _dataset(filter: SMC, model: WormModel, attributes: dict[str, Any]) -> xr.Dataset:
    """What a sweep collected, with names and units."""
    recording, collected = model.recording, filter.collected
    data: dict[str, Any] = {}
    for kind, prefix in KINDS.items():
        if kind not in collected:
            continue
        values, begin = np.moveaxis(np.array(collected[kind]), 1, 0), 0
        for name, (dims, shape, unit) in _PARTS.items():
            part = values[:, :, begin : begin + int(np.prod(shape))].reshape(*values.shape[:2], *shape)
            data[prefix + name] = (("stat", "time", *dims), part, {"units": unit, "given": kind})
            begin += int(np.prod(shape))
    frames = filter.frames
    data["draws"] = (("time", "draw", "state"), np.array(collected["draws"]), {"meaning": "whole worms, for branching"})
    data["ess"] = ("time", np.array([frame.ess for frame in frames]), {"meaning": "effective sample size"})
    data["ancestors"] = ("time", np.array([frame.ancestors for frame in frames]), {"meaning": "particles with offspring"})
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


class Posterior:
    """What is known of a worm at each frame of a recording.

    `voltage`, `calcium`, `body` and `muscle` are DataArrays over stat (mean, sd, q05, q25, q50, q75, q95), time and neuron, or
    rod and coord, given the frames so far. `smoothed` and `predicted` are Datasets of the same, given some later frames too, or
    only the frames before. `dataset` holds everything.
    """

    def __init__(self, dataset: xr.Dataset, worm: Worm | None = None):
        self.dataset, self.worm = dataset, worm

    def _kind(self, kind: str) -> xr.Dataset:
        return xr.Dataset({name: self.dataset[KINDS[kind] + name] for name in _PARTS}, attrs=self.dataset.attrs)

    @property
    def filtered(self) -> xr.Dataset:
        """Given the frames so far."""
        return self._kind("filtered")

    @property
    def smoothed(self) -> xr.Dataset:
        """Given the frames until some later."""
        return self._kind("smoothed")

    @property
    def predicted(self) -> xr.Dataset:
        """Given the frames before."""
        return self._kind("predicted")

    @property
    def voltage(self) -> xr.DataArray:
        """mV, (stat, time, neuron)."""
        return self.dataset["voltage"]

    @property
    def calcium(self) -> xr.DataArray:
        """uM, (stat, time, neuron)."""
        return self.dataset["calcium"]

    @property
    def body(self) -> xr.DataArray:
        """mm and rad, (stat, time, rod, coord)."""
        return self.dataset["body"]

    @property
    def muscle(self) -> xr.DataArray:
        """Activation, (stat, time, side, segment)."""
        return self.dataset["muscle"]

    @property
    def ess(self) -> xr.DataArray:
        """Effective sample size of each frame."""
        return self.dataset["ess"]

    @property
    def failed(self) -> xr.DataArray:
        """Share of failed particles at each frame."""
        return self.dataset["failed"]

    @property
    def log_evidence(self) -> float:
        """log p(recording), as the sweep estimates it; -inf if all particles failed."""
        return self.dataset.attrs["log_evidence"]

    @property
    def evidence_is_unbiased(self) -> bool:
        """Whether the expectation of exp(log_evidence) is p(recording)."""
        return bool(self.dataset.attrs["evidence_is_unbiased"])

    @property
    def failure(self) -> str:
        """When and why all particles failed, if they did."""
        return self.dataset.attrs["failure"]

    @property
    def recording(self) -> Recording:
        """What was seen."""
        data = self.dataset
        return Recording(data["fluorescence"].values, data["observed"].values.tolist(), data["time"].values)

    def save(self, path: str | Path) -> Path:
        """Write everything into a zarr folder, which is there whole or not at all."""
        return save_dataset(self.dataset, path)

    def branch(
        self,
        at: float,
        protocol: Action | Iterable[Action] = (),
        seconds: float = 2.0,
        seed: int = 0,
        control: bool = False,
        every: float = 0.05,
        progress: bool = True,
    ) -> xr.Dataset:
        """Let the worms of one moment live on under an experiment: a run with a dimension `sample`.

        Parameters
        ----------
        at
            The moment, s; a frame of the recording.
        protocol
            What is done to them; times count from that moment.
        seconds
            How long.
        seed
            Of the noise.
        control
            Let the same worms live on with the same noise and without the experiment too; the two are then along a leading
            dimension `arm`, "experiment" and "control".
        every
            Seconds between the frames kept.
        progress
            Show a progress bar if it takes long.
        """
        worm = self._worm()
        times = self.dataset["time"].values
        low, high = times[0], times[-1]
        at = check.number("at", at, f"a moment of the recording, from {low:g} to {high:g} s", lambda t: low <= t <= high)
        frame = int(np.abs(times - at).argmin())
        if abs(times[frame] - at) > STEP / 2:
            raise ValueError(f"at must be the time of a frame, got {at:g}; the nearest is {times[frame]:g} s")
        state = self.dataset["draws"].isel(time=frame).values.astype(float)
        if not len(state):
            raise ValueError("this posterior has no draws to branch from: impute with draws=100 or so")
        initial = _frame(state).assign_coords(time=times[frame])
        noise = dict(zip(NEURONS, self.dataset["noise"].values.tolist(), strict=True))
        arms = {"experiment": protocol, "control": ()} if control else {"experiment": protocol}
        runs = [
            worm.simulate(seconds, seed, len(state), actions, noise, initial, every=every, progress=progress)
            for actions in arms.values()
        ]
        runs = [(run if "sample" in run.dims else run.expand_dims("sample")).assign_attrs(branched_at=at) for run in runs]
        return xr.concat(runs, xr.Variable("arm", list(arms)), join="outer", combine_attrs="override") if control else runs[0]

    def _worm(self) -> Worm:
        if self.worm is None:
            raise ValueError("worm is not known: open this posterior with open_posterior(path, worm=...)")
        return self.worm

    @cached_property
    def unconditioned(self) -> "Posterior":
        """The same worm without the recording: what one would say without having looked."""
        recording, attributes = self.recording, self.dataset.attrs
        worm, prior = self._worm(), learned_prior(self._worm(), attributes["scaling"])
        sigma = np.ones(N)
        sigma[index(recording.neurons)] = self.dataset["sigma"].values
        seen = fluorescence_of(worm, recording, sigma)
        pose, spread = self.dataset["pose"].values, attributes["pose_spread"]
        model = WormModel(worm, recording, seen, prior, self.dataset["noise"].values, 0, pose, spread)
        blind = np.full_like(recording.values, np.nan)
        collect = {"filtered": Filtered(_statistics), "draws": Filtered(lambda weights, x: x[:0])}
        filter = SMC(model, blind, recording.steps, BASELINE, attributes["seed"], threshold=0, collect=collect).run()
        return Posterior(_dataset(filter, model, attributes | {"method": "none", "log_evidence": 0.0}), worm)

    def score(self, truth: xr.Dataset) -> xr.Dataset:
        """How near the posterior comes to the run that was recorded, beside an unconditioned one; `vpc.diagnose` has more."""
        return score(self, truth)

    def __repr__(self) -> str:
        shape, attributes = self.dataset.sizes, self.dataset.attrs
        failure = f"; {self.failure}" if self.failure else ""
        return (
            f"<Posterior of {N} neurons from {shape['observed']}, {shape['time']} frames, by {attributes['method']} with "
            f"{attributes['particles']} particles: log evidence {self.log_evidence:.1f}, median ESS "
            f"{float(self.ess.median()):.0f}{failure}>"
        )


def _frame(state: np.ndarray) -> xr.Dataset:
    """States (sample, 994) as a frame for `Worm.simulate`."""
    rods = state[:, BODY_ROW:MUSCLE_ROW].reshape(len(state), geo.RODS, 6)
    muscle = state[:, MUSCLE_ROW:].reshape(len(state), 2, geo.SEGMENTS)
    frame = xr.Dataset(
        {
            "voltage": (("sample", "neuron"), state[:, :N]),
            "calcium": (("sample", "neuron"), state[:, N:BODY_ROW]),
            "body": (("sample", "rod", "coord"), rods[:, :, :3]),
            "velocity": (("sample", "rod", "coord"), rods[:, :, 3:]),
            "muscle": (("sample", "side", "segment"), muscle),
        },
        {"neuron": list(NEURONS)},
    )
    return frame if len(state) > 1 else frame.isel(sample=0)


def open_posterior(path: str | Path, worm: Worm | None = None) -> Posterior:
    """Read a posterior that `Posterior.save` wrote.

    The worm is made anew from what is written there, unless its wiring was changed by hand; then it must be given.
    """
    dataset = open_dataset(path)
    if "draws" not in dataset or "log_evidence" not in dataset.attrs:
        raise ValueError(f"{path} is not a posterior; vpc.store.open_dataset reads other results")
    attributes = dataset.attrs
    if worm is None and attributes["connectome"] in SOURCES:
        parameters, ablated = json.loads(attributes["parameters"]), attributes["ablated"]
        worm = Worm(
            attributes["variant"],
            attributes["connectome"],
            parameters=parameters,
            objects=dataset["objects"].values,
            ablated=ablated.split(",") if ablated else (),
        )
    return Posterior(dataset, worm)
