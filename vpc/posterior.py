"""`Posterior`: what is known of a worm, given a recording, and experiments that branch from it."""

import json
import warnings
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import xarray as xr

from wormsim import geometry as geo

from .connectome import SOURCES
from .diagnose import score
from .neurons import N
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

    def branch(self, at: float, protocol: Action | Iterable[Action] = (), **settings: Any) -> xr.Dataset:
        """Let the worms of a frame live on under an experiment: `vpc.branch`, which tells the settings."""
        from .branching import branch

        return branch(self, at, protocol, **settings)

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
