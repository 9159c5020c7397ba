"""Held-out neurons: each recorded neuron is predicted from the others, and compared with what was recorded of it.

This needs no truth, so it is how an imputation from a real recording can be judged.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy import special

from .cluster import Cluster
from .connectome import find
from .diagnose import closeness
from .filter import Filter
from .imputation import BASELINE, blind, filter_of
from .observe import Fluorescence
from .recording import Recording
from .worm import Worm

__all__ = ["held_out"]

BAND = 0.9  # of the probability
SCORES = ("r", "nrmse", "coverage")
OF_FILTER = ("method", "particles", "init_particles", "look_ahead")
SETTINGS = (*OF_FILTER, "scaling", "factor", "sigma", "temperature", "pose", "pose_spread")


def held_out(
    worm: Worm,
    recording: Recording,
    neurons: Iterable[str] | None = None,
    cluster: Cluster | None = None,
    seed: int = 1,
    progress: bool = True,
    **settings: Any,
) -> xr.Dataset:
    """Impute a worm from a recording without one of its neurons, and predict the fluorescence of that; one after the other.

    Parameters
    ----------
    worm, recording
        As for `vpc.impute`; at least two neurons must have been seen.
    neurons
        Which to leave out: names, classes, types or transmitters, as for `vpc.connectome.find`; those of them that were
        recorded, and all of these if not given.
    cluster
        Of `vpc.cluster.connect`: one neuron is one task. By default one after the other, each on all cores; the result is the
        same.
    seed
        Of each imputation, and of the worms that saw nothing.
    progress
        Show a progress bar.
    settings
        Of `vpc.impute`: method, particles, init_particles, look_ahead, scaling, factor, sigma, temperature, pose, pose_spread.

    Returns
    -------
    Dataset over `source` ("posterior" and "unconditioned", worms that saw nothing) and `neuron`. Predictions are given the
    frames so far of the other neurons. `r` is the correlation over time of their mean with what was recorded; `nrmse` the error
    of the mean as a share of the recorded range; `coverage` the share of frames in the 90 % band, which includes the noise of
    the recording (`sigma`, whatever the temperature). Gaps do not count. NaN: the filter lost the worm, or nothing moved.
    """
    for name in settings:
        if name not in SETTINGS:
            raise ValueError(f"{name} is not a setting that held-out neurons have; these are {', '.join(SETTINGS)}")
    filter, model = filter_of(worm, recording, seed=seed, **settings | {"temperature": 1.0})
    if (seen := int(np.isfinite(recording.values).any(axis=0).sum())) < 2:
        raise ValueError(f"recording must have seen at least 2 neurons, one to leave out and one to impute from, got {seen}")
    names = _names(neurons, recording)
    leave_out = _LeaveOut(worm, recording, model.seen, settings | {"seed": seed})
    known = (cluster or Cluster()).map(leave_out, names, progress)
    ignorant = _scores(blind(model, seed), model.seen, recording.values)[:, [recording.neurons.index(name) for name in names]]
    found = np.stack([np.array(known).T, ignorant], axis=1)
    data = {name: (("source", "neuron"), values, {"units": "1"}) for name, values in zip(SCORES, found, strict=True)}
    attributes = worm._attributes(seed, 0, 0.0, ())
    attributes = {name: attributes[name] for name in ("seed", "version", "variant", "connectome", "ablated", "parameters")}
    attributes |= {"particles": filter.particles, "unconditioned_particles": BASELINE, "band": BAND}
    attributes["settings"] = json.dumps(settings, default=lambda value: np.asarray(value).tolist())
    return xr.Dataset(data, {"source": ["posterior", "unconditioned"], "neuron": names}, attributes)


@dataclass(frozen=True)
class _LeaveOut:
    """How well a neuron is predicted from the others: a task for a cluster."""

    worm: Worm
    recording: Recording
    seen: Fluorescence  # of all recorded neurons, with their noise
    settings: dict[str, Any]

    def __call__(self, neuron: str) -> np.ndarray:
        k = self.recording.neurons.index(neuron)
        sigma: Any = self.settings.get("sigma")
        own = {"sigma": np.delete(sigma, k)} if np.ndim(sigma) else {}
        filter, _ = filter_of(self.worm, self.recording.without(neuron), **self.settings | own)
        one = Fluorescence(*(values[k : k + 1] for values in self.seen))
        return _scores(filter, one, self.recording.values[:, k : k + 1])[:, 0]


def _scores(filter: Filter, seen: Fluorescence, recorded: np.ndarray) -> np.ndarray:
    """r, nrmse and coverage (3, neuron) of what a filter predicts of neurons that it does not see."""
    means, ranks = np.empty_like(recorded), np.empty_like(recorded)
    out = np.full((len(SCORES), recorded.shape[1]), np.nan)
    for frame in filter:
        if filter.failure:
            return out
        alive = filter.weights > 0
        shown, weights = seen.predict(filter.x[alive]), filter.weights[alive]
        below = special.ndtr((recorded[frame.frame] - shown) / seen.sigma)  # the share of the noise that stays below the record
        means[frame.frame], ranks[frame.frame] = (np.average(values, axis=0, weights=weights) for values in (shown, below))
    for k, there in enumerate(np.isfinite(recorded).T):
        if there.any():
            inside = np.abs(ranks[there, k] - 0.5) <= BAND / 2
            out[:, k] = *closeness(means[there, k], recorded[there, k]), inside.mean()
    return out


def _names(neurons: Iterable[str] | None, recording: Recording) -> list[str]:
    """Recorded neurons by name or group, or an error that says which words name none."""
    if neurons is None:
        return list(recording.neurons)
    words, names = [neurons] if isinstance(neurons, str) else list(neurons), []
    for word in words:
        own = [name for name in find(word) if name in recording.neurons]
        if not own:
            known = ", ".join(recording.neurons)
            raise ValueError(f"neurons must be recorded ones, but {word!r} is none; leave it out, or choose of {known}")
        names += own
    if not names:
        raise ValueError("neurons must name at least one recorded neuron, class, type or transmitter, got none")
    return list(dict.fromkeys(names))
