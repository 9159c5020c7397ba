"""`Posterior`: what is known of a worm, given a recording, and experiments that branch from it."""

import json
import warnings
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from wormsim import check
from wormsim import geometry as geo

from .connectome import NEURONS, SOURCES
from .diagnose import score
from .loop import BODY_ROW, MUSCLE_ROW
from .neurons import STEP, N
from .protocol import Action
from .recording import Recording
from .store import open_dataset, save_dataset
from .worm import Worm

__all__ = ["KINDS", "PARTS", "Posterior", "open_posterior", "worm_of"]

# What is told of a state, with dimensions, shapes and units, and given what: names in the dataset get these prefixes.
PARTS = {
    "voltage": (("neuron",), (N,), "mV"),
    "calcium": (("neuron",), (N,), "uM"),
    "body": (("rod", "coord"), (geo.RODS, 3), "mm, mm, rad"),
    "muscle": (("side", "segment"), (2, geo.SEGMENTS), "1"),
}
KINDS = {"filtered": "", "smoothed": "smoothed_", "predicted": "predicted_"}


class Posterior:
    """What is known of a worm at each frame of a recording.

    `voltage`, `calcium`, `body` and `muscle` are DataArrays over stat (mean, sd, q05, q25, q50, q75, q95), time and neuron, or
    rod and coord, given the frames so far. `smoothed` and `predicted` are Datasets of the same, given some later frames too, or
    only the frames before. `dataset` holds everything.
    """

    def __init__(self, dataset: xr.Dataset, worm: Worm | None = None):
        self.dataset, self.worm = dataset, worm

    def _kind(self, kind: str) -> xr.Dataset:
        if KINDS[kind] + "voltage" not in self.dataset:
            raise ValueError(f"this posterior has nothing {kind}: it is unconditioned, or was imputed with lag=0")
        return xr.Dataset({name: self.dataset[KINDS[kind] + name] for name in PARTS}, attrs=self.dataset.attrs)

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were given when it was recorded
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
            Of the noise, which is another one than that of a run with this seed.
        control
            Let the same worms live on with the same noise and without the experiment too; the two are then along a leading
            dimension `arm`, "experiment" and "control".
        every
            Seconds between the frames kept.
        progress
            Show a progress bar if it takes long.
        """
        worm = self.known_worm()
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
        own = int(np.random.SeedSequence([check.whole("seed", seed, least=0), 4]).generate_state(1)[0])
        arms = {"experiment": protocol, "control": ()} if control else {"experiment": protocol}
        runs = [
            worm.simulate(seconds, own, len(state), actions, noise, initial, every=every, progress=progress)
            for actions in arms.values()
        ]
        runs = [(run if "sample" in run.dims else run.expand_dims("sample")).assign_attrs(branched_at=at) for run in runs]
        return xr.concat(runs, xr.Variable("arm", list(arms)), join="outer", combine_attrs="override") if control else runs[0]

    def known_worm(self) -> Worm:
        """The worm, or an error that says how to make it known."""
        if self.worm is None:
            raise ValueError("worm is not known: open this posterior with open_posterior(path, worm=...)")
        return self.worm

    @cached_property
    def unconditioned(self) -> "Posterior":
        """The same worm without the recording: what one would say without having looked."""
        from .imputation import unconditioned

        return unconditioned(self)

    def score(self, truth: xr.Dataset, kind: str = "filtered") -> xr.Dataset:
        """How near the posterior comes to the run that was recorded, beside an unconditioned one; `vpc.diagnose` has more."""
        return score(self, truth, kind)

    def __repr__(self) -> str:
        shape, attributes = self.dataset.sizes, self.dataset.attrs
        failure = f"; {self.failure}" if self.failure else ""
        size, known = attributes["particles"], "" if self.evidence_is_unbiased else ", approximate"
        crowd = (
            f"{size} members"
            if attributes["method"] == "ensemble"
            else f"{size} particles (median ESS {self.ess.median():.0f})"
        )
        return (
            f"<Posterior of {N} neurons from {shape['observed']}, {shape['time']} frames, by {attributes['method']} with "
            f"{crowd}: log evidence {self.log_evidence:.1f}{known}{failure}>"
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
    return Posterior(dataset, worm or worm_of(dataset))


def worm_of(dataset: xr.Dataset) -> Worm | None:
    """The worm of a run or a posterior, as its attributes tell; None if its wiring was changed by hand."""
    known = dataset.attrs
    if known["connectome"] not in SOURCES:
        return None
    return Worm(
        known["variant"],
        known["connectome"],
        parameters=json.loads(known["parameters"]),
        objects=dataset["objects"].values,
        ablated=known["ablated"].split(",") if known["ablated"] else (),
    )
