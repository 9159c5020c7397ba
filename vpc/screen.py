"""A screen: one neuron after the other is clamped, injected or ablated, and the worms are compared with their control."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import special

from .branching import Preparation, Source, branch, moment, prepare
from .cluster import Cluster
from .connectome import NEURONS, find, index, nearest
from .protocol import Ablate, Action, CurrentClamp, VoltageClamp

__all__ = ["EFFECTS", "KINDS", "forward_velocity", "ranking", "screen"]

# What is done to a neuron, from the start of a run to its end.
CLAMP = 20.0  # mV above or below its equilibrium
INJECT = 5.0  # pA
KINDS: dict[str, Callable[[str, float], Action]] = {
    "clamp up": lambda neuron, equilibrium: VoltageClamp(neuron, equilibrium + CLAMP),
    "clamp down": lambda neuron, equilibrium: VoltageClamp(neuron, equilibrium - CLAMP),
    "inject": lambda neuron, equilibrium: CurrentClamp(neuron, INJECT),
    "ablate": lambda neuron, equilibrium: Ablate(neuron),
}
EFFECTS = {"speed": "mm/s", "reversal": "1"}  # and their units; that of a neuron is mV
EVERY = 0.1  # s between the frames that an effect is read off; an undulation takes some 2 s
CONFIDENCE = 0.95  # of the intervals


def screen(
    source: Source | Preparation,
    effect: str = "speed",
    at: float | None = None,
    seconds: float = 2.0,
    particles: int = 100,
    seed: int = 0,
    kinds: Iterable[str] = tuple(KINDS),
    neurons: Iterable[str] | None = None,
    progress: bool = True,
    cluster: Cluster | None = None,
) -> xr.Dataset:
    """Perturb one neuron after the other, always in the same worms with the same noise.

    Parameters
    ----------
    source
        A `Worm`, a run of one, or a `Posterior`, as for `vpc.branch`. The worms of one run without noise are all alike; then
        intervals have no width.
    effect
        "speed": mean velocity of the centroid in the direction from tail to head, mm/s. "reversal": share of the time in
        which it goes backwards. Or the name of a neuron: its mean voltage, mV.
    at
        The moment from which to branch, s; the last one if not given.
    seconds
        How long each perturbation lasts and is watched; a multiple of 0.1.
    particles
        How many worms.
    seed
        Of their noise.
    kinds
        What to do, any of `KINDS`: hold the neuron 20 mV above ("clamp up") or below ("clamp down") its equilibrium, inject
        5 pA ("inject"), or remove it ("ablate").
    neurons
        Names, classes, types or transmitters, as for `vpc.connectome.find`; all if not given.
    progress
        Show a progress bar.
    cluster
        Of `vpc.cluster.connect`: one perturbation is one task. By default one after the other, each on all cores; the result is
        the same.

    Returns
    -------
    Dataset with `effect` (kind, neuron), the mean over the worms of each one's difference from its control; `low` and `high`,
    the 95 % interval of that mean by Student's t; `failed`, the share of worms that failed with or without the perturbation,
    and are left out; and `control`, the mean of the unperturbed worms. Neurons that the worm lacks are NaN.
    """
    if effect not in (*EFFECTS, *NEURONS):
        guess = nearest(str(effect), (*EFFECTS, *NEURONS))
        raise ValueError(f"effect must be {', '.join(EFFECTS)} or a neuron, got {effect!r}; did you mean {guess!r}?")
    unit, record = (EFFECTS[effect], ["body"]) if effect in EFFECTS else ("mV", ["voltage"])
    chosen, names = _kinds(kinds), _names(neurons)
    given = prepare(source)
    equilibrium = given.worm.equilibrium.values[index(names)].tolist()

    settings: dict[str, Any] = {"seconds": seconds, "seed": seed, "particles": particles, "every": EVERY, "record": record}
    unperturbed = branch(given, at, progress=False, **settings)
    control = _measure(unperturbed, effect)
    todo = [
        (i, j, KINDS[kind](name, equilibrium[j]))
        for i, kind in enumerate(chosen)
        for j, name in enumerate(names)
        if name not in given.worm.ablated
    ]
    found = np.full((len(_Mean._fields), len(chosen), len(names)), np.nan)
    perturb = _Perturb(moment(given, at, particles), settings, effect, control)
    means = (cluster or Cluster()).map(perturb, [action for _, _, action in todo], progress)
    for (i, j, _), mean in zip(todo, means, strict=True):
        found[:, i, j] = mean
    data: dict[str, Any] = {
        name: (("kind", "neuron"), values, {"units": "1" if name == "failed" else unit})
        for name, values in zip(_Mean._fields, found, strict=True)
    }
    attributes: dict[str, Any] = {"of": effect, "source": given.label}
    attributes |= {"seconds": seconds, "particles": len(control), "seed": seed}
    attributes |= {"clamp_mv": CLAMP, "inject_pa": INJECT, "every": EVERY, "confidence": CONFIDENCE}
    for name in ("branched_at", "version", "variant", "connectome", "ablated", "parameters", "noise"):
        attributes[name] = unperturbed.attrs[name]
    data["control"] = ((), _mean(control).effect, {"units": unit})
    return xr.Dataset(data, {"kind": chosen, "neuron": names}, attributes)


@dataclass(frozen=True)
class _Perturb:
    """What an action does to the worms of a moment, beside their control: a task for a cluster."""

    start: Preparation
    settings: dict[str, Any]  # of the branch
    effect: str
    control: np.ndarray

    def __call__(self, action: Action) -> "_Mean":
        return _mean(_measure(branch(self.start, protocol=action, progress=False, **self.settings), self.effect) - self.control)


def ranking(screened: xr.Dataset) -> pd.DataFrame:
    """What a screen found, the strongest effect first: neuron, kind, effect, low, high, and `clear`: 0 is not between these.

    Each interval is one of 95 %. Of many that are looked at, some miss.
    """
    if not isinstance(screened, xr.Dataset) or not {"effect", "low", "high"} <= set(screened):
        raise ValueError("screened must be what `screen` returned")
    table = screened[["effect", "low", "high"]].to_dataframe(["neuron", "kind"]).reset_index().dropna(subset="effect")
    table["clear"] = (table["low"] > 0) | (table["high"] < 0)
    return table.sort_values("effect", key=abs, ascending=False, kind="stable", ignore_index=True)


def forward_velocity(body: np.ndarray, every: float) -> np.ndarray:
    """Velocity of the centroid from tail to head, mm/s, between frames of bodies (..., time, rod, coord)."""
    places = body[..., :2]
    ahead = places[..., 0, :] - places[..., -1, :]
    ahead = ahead[..., 1:, :] + ahead[..., :-1, :]
    ahead /= np.linalg.norm(ahead, axis=-1, keepdims=True)
    return (np.diff(places.mean(axis=-2), axis=-2) * ahead).sum(axis=-1) / every


class _Mean(NamedTuple):
    """A mean with its interval, and the share of worms that are not in it."""

    effect: float
    low: float
    high: float
    failed: float


def _mean(values: np.ndarray) -> _Mean:
    known = values[np.isfinite(values)]
    n, failed = len(known), 1 - len(known) / len(values)
    if n == 0:
        return _Mean(np.nan, np.nan, np.nan, failed)
    mean = float(known.mean())
    half = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2) * known.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return _Mean(mean, mean - half, mean + half, failed)


def _measure(run: xr.Dataset, effect: str) -> np.ndarray:
    """The number that each worm of a run has, NaN if it failed."""
    if effect in NEURONS:
        values = run["voltage"].values[:, 1:, index(effect)[0]]
    else:
        values = forward_velocity(run["body"].values, EVERY)
        values = values < 0 if effect == "reversal" else values
    return np.where(run["ok"].values.all(axis=1), values.mean(axis=1), np.nan)


def _kinds(kinds: Iterable[str]) -> list[str]:
    words = [kinds] if isinstance(kinds, str) else list(kinds)
    for word in words:
        if word not in tuple(KINDS):
            raise ValueError(f"kinds must be any of {', '.join(KINDS)}, got {word!r}; did you mean {nearest(word, KINDS)!r}?")
    if not words:
        raise ValueError(f"kinds must be any of {', '.join(KINDS)}, got none")
    return list(dict.fromkeys(words))


def _names(neurons: Iterable[str] | None) -> list[str]:
    words = ["all"] if neurons is None else [neurons] if isinstance(neurons, str) else list(neurons)
    if not words:
        raise ValueError("neurons must name at least one neuron, class, type or transmitter, got none")
    return list(dict.fromkeys(name for word in words for name in find(word)))
