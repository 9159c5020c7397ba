"""Families of steps, and what is read off them: current against voltage, and voltage or rate against current."""

from collections.abc import Iterable

import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from wormsim import check

from .branching import Preparation, Source, branch, prepare
from .connectome import index
from .diagnose import bands
from .neurons import STEP
from .protocol import StepFamily, dumps

__all__ = ["fi", "iv", "record_family"]


def record_family(
    source: Source | Preparation,
    family: StepFamily,
    seconds: float,
    at: float | None = None,
    seed: int = 0,
    particles: int | None = None,
    neurons: Iterable[str] = (),
    progress: bool = True,
) -> xr.Dataset:
    """Branch once for each level of a family, always with the same worms and noise: a run with a leading dimension `level`.

    It holds every step of the `voltage` of the neuron that is clamped and of others that are named, with their `equilibrium`,
    and the clamp's `current`. What else there is to say is as for `vpc.branch`.
    """
    if not isinstance(family, StepFamily):
        raise ValueError(f"family must be a StepFamily, got {type(family).__name__}")
    names = list(dict.fromkeys((family.neuron, *neurons)))
    index(names)
    runs = []
    silent = None if progress else True
    for protocol in tqdm(family, desc="stepping", unit="level", delay=2, disable=silent):
        run = branch(source, at, protocol, seconds, seed, particles, every=STEP, record=["voltage"], progress=False)
        runs.append(run[[name for name in ("voltage", "current", "ok") if name in run]].sel(neuron=names))
    unit = "mV" if family.clamp == "voltage" else "pA"
    out = xr.concat(runs, xr.Variable("level", family.levels, {"units": unit}), join="outer", combine_attrs="override")
    out = out.assign_coords(equilibrium=prepare(source).worm.equilibrium.sel(neuron=names))
    return out.assign_attrs(family_neuron=family.neuron, family_clamp=family.clamp, protocol=dumps(family))


def iv(family: xr.Dataset, window: tuple[float, float]) -> xr.Dataset:
    """The I-V curve of a family, from means over a window (from, to) in s; along `level`.

    Of a voltage clamp, `current` in pA at each voltage; of a current clamp, `voltage` at each current. Both have a mean and
    quantiles over the worms, along `stat`. `conductance` (nS) and `reversal` (mV) are those of the line through the means.
    """
    seen = _window(family, window)
    neuron, kind = family.attrs["family_neuron"], family.attrs["family_clamp"]
    column = {"clamp": neuron} if kind == "voltage" else {"neuron": neuron}
    name, unit = ("current", "pA") if kind == "voltage" else ("voltage", "mV")
    values = seen[name].sel(column, drop=True)
    curve = bands(xr.Dataset({name: values.mean("time", skipna=False).assign_attrs(units=unit)}))
    mean, levels = curve[name].sel(stat="mean").values, curve["level"].values
    if np.isnan(mean).any():
        raise ValueError(f"window must lie within the time of the clamp, and some worm must live until it ends, got {window}")
    if np.ptp(levels) > 0:
        apart = levels - levels.mean()
        slope = apart @ mean / (apart @ apart)
        with np.errstate(divide="ignore", invalid="ignore"):  # of a flat line
            if kind == "voltage":
                conductance, reversal = slope, levels.mean() - mean.mean() / slope
            else:
                conductance, reversal = 1 / slope, mean.mean() - slope * levels.mean()
        curve["conductance"] = ((), conductance, {"units": "nS"})
        curve["reversal"] = ((), reversal, {"units": "mV"})
    return curve


def fi(
    family: xr.Dataset, window: tuple[float, float], neuron: str | None = None, threshold: float | None = None
) -> xr.Dataset:
    """How often a neuron rises through a threshold, Hz, at each level of a family, within a window (from, to) in s.

    These neurons do not spike: what counts is each swing, or plateau, that begins. The neuron is the clamped one if none is
    named (it must be among those that were recorded), and the threshold (mV) its equilibrium. Worms that fail are left out.
    """
    steps = _window(family, window).sizes["time"]
    neuron = neuron or family.attrs["family_neuron"]
    if neuron not in family["neuron"].values:
        raise ValueError(f"neuron {neuron!r} was not recorded; it can be any of {', '.join(family['neuron'].values)}")
    ends = slice(window[0] - STEP / 2, window[1] + STEP / 2)  # of each step, the last one's too
    seen = family["voltage"].sel(neuron=neuron, time=ends)
    above = seen > (seen["equilibrium"] if threshold is None else threshold)
    rises = (above & ~above.shift(time=1, fill_value=True)).sum("time")
    rate = (rises / (steps * STEP)).where(seen.notnull().all("time"))
    return bands(xr.Dataset({"rate": rate.assign_attrs(units="Hz")}))


def _window(family: xr.Dataset, window: tuple[float, float]) -> xr.Dataset:
    if not isinstance(family, xr.Dataset) or "family_neuron" not in family.attrs:
        raise ValueError("family must be what record_family returned")
    last = float(family["time"][-1])
    begin, end = check.array("window", window, (2,))
    if not 0 <= begin < end <= last + STEP / 2:
        raise ValueError(f"window must lie within 0 to {last:g} s and end after it begins, got {window}")
    seen = family.sel(time=slice(begin - STEP / 2, end - STEP / 2))  # a step belongs to the window that it begins in
    if not seen.sizes["time"]:
        raise ValueError(f"window must hold a step of {STEP} s, got {window}")
    return seen
