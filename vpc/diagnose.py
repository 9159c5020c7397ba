"""How good a posterior is, where the truth is known: correlation, error and coverage, beside an unconditioned worm's."""

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from wormsim import geometry as geo

from .connectome import NEURONS

if TYPE_CHECKING:
    from .posterior import Posterior

__all__ = ["GROUPS", "LEVELS", "STATS", "align", "bands", "curvature", "medians", "score", "table"]

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
STATS = ("mean", "sd", *(f"q{round(100 * level):02d}" for level in LEVELS))
GROUPS = ("observed", "unobserved motor", "other")
STILL = 1e-6  # of a range, mV: what moves less has no correlation


def bands(run: xr.Dataset) -> xr.Dataset:
    """Mean, sd and quantiles over the samples of a run or a branch, along a leading dimension `stat`, of everything it holds.

    Clamp currents too: what it takes to hold a neuron, and how sure that is. Samples that failed are left out.
    """
    if "sample" not in run.dims:
        raise ValueError("run must have a dimension 'sample', as branches and runs with n > 1 have")
    numbers = run[[name for name, values in run.items() if "sample" in values.dims and values.dtype == float]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of clamps that are not on, which have no current
        parts = [
            numbers.mean("sample"),
            numbers.std("sample"),
            *(numbers.quantile(q, "sample").drop_vars("quantile") for q in LEVELS),
        ]
    return xr.concat(parts, xr.Variable("stat", list(STATS)), combine_attrs="override").assign_attrs(run.attrs)


def curvature(body: xr.DataArray) -> xr.DataArray:
    """How sharply bodies (..., rod, coord) are bent at each joint, 1/mm."""
    phi = body.sel(coord="phi", drop=True)
    bent = phi.diff("rod", label="lower") / geo.SEGMENT_LENGTH
    return bent.assign_attrs(units="1/mm")


def score(posterior: "Posterior", truth: xr.Dataset) -> xr.Dataset:
    """How near a posterior comes to the run that was recorded.

    Returns, for `source` "posterior" and "unconditioned": `r`, the correlation over time of the mean with the truth; `nrmse`,
    the error of the mean, as a share of the truth's range; `coverage`, the share of frames whose truth lies in the 90 % band;
    all for each neuron's voltage. `body_r` and `body_nrmse` are the same for the curvature at each joint. `range` is the
    truth's, in mV.
    """
    if not isinstance(truth, xr.Dataset) or "voltage" not in truth or "sample" in truth.dims:
        raise ValueError("truth must be the run of one worm, as `Worm.simulate` gives it")
    times = posterior.dataset["time"].values
    try:
        truth = truth.sel(time=times, method="nearest", tolerance=1e-3)
    except KeyError:
        raise ValueError(f"truth must cover the posterior's frames, from {times[0]:g} to {times[-1]:g} s") from None
    if not np.isfinite(truth["voltage"]).all():
        raise ValueError("truth must be finite, but its worm failed")
    parts, sources = [], (posterior, posterior.unconditioned)
    frames = min(int((source.failed < 1).sum()) for source in sources)  # until all particles failed, if they did
    if frames < 2:
        raise ValueError(f"posterior has {frames} frames to score: {posterior.failure or 'there must be 2'}")
    truth = truth.isel(time=slice(frames))
    voltage = truth["voltage"].sel(neuron=list(NEURONS))
    bent = curvature(truth["body"]) if "body" in truth else None
    for source in sources:
        shown = source.voltage.isel(time=slice(frames))
        mean, low, high = (shown.sel(stat=stat, drop=True) for stat in ("mean", "q05", "q95"))
        rounding = np.spacing(np.abs(voltage.values).astype(np.float32))  # bands are in single precision
        inside = (voltage.values >= low.values - rounding) & (voltage.values <= high.values + rounding)
        found = {**_compare(mean, voltage), "coverage": ("neuron", inside.mean(axis=0))}
        if bent is not None:
            shape = _compare(curvature(source.body.isel(time=slice(frames)).sel(stat="mean", drop=True)), bent)
            found |= {f"body_{name}": value for name, value in shape.items()}
        parts.append(xr.Dataset(found))
    result = xr.concat(parts, xr.Variable("source", ["posterior", "unconditioned"]))
    observed = np.isin(list(NEURONS), posterior.dataset["observed"].values)
    motor = np.array([neuron.type == "motor" for neuron in NEURONS.values()])
    group = np.where(observed, GROUPS[0], np.where(motor, GROUPS[1], GROUPS[2]))
    gone = posterior.dataset.attrs["ablated"]
    group = np.where(np.isin(list(NEURONS), gone.split(",")), "ablated", group)
    extent = (voltage.max("time") - voltage.min("time")).values
    return result.assign_coords(neuron=list(NEURONS), group=("neuron", group), range=("neuron", extent, {"units": "mV"}))


def _compare(mean: xr.DataArray, truth: xr.DataArray) -> dict[str, tuple[str, np.ndarray]]:
    """Correlation over time, and error as a share of the range, along the other dimension."""
    a, b, dim = mean.values.astype(float), truth.values, str(truth.dims[1])
    extent = np.ptp(b, axis=0)
    moving = (extent > STILL) & (np.ptp(a, axis=0) > STILL)
    left, right = a - a.mean(axis=0), b - b.mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (left * right).sum(axis=0) / np.sqrt((left**2).sum(axis=0) * (right**2).sum(axis=0))
        nrmse = np.sqrt(np.square(a - b).mean(axis=0)) / extent
    return {"r": (dim, np.where(moving, r, np.nan)), "nrmse": (dim, np.where(extent > STILL, nrmse, np.nan))}


def table(found: xr.Dataset, active: float = 0.0) -> pd.DataFrame:
    """Medians of a score by group of neurons, and of the body; of neurons whose truth moves by more than `active` mV."""
    rows = []
    for source in found["source"].values:
        one = found.sel(source=source)
        for group in GROUPS:
            some = one.isel(neuron=(one["group"].values == group) & (one["range"].values > active))
            values = {name: _median(some[name].values) for name in ("r", "nrmse")}
            coverage = float(some["coverage"].mean()) if some.sizes["neuron"] else np.nan
            rows.append({"source": source, "of": group, "n": some.sizes["neuron"], **values, "coverage": coverage})
        if "body_r" in one:
            body = {name: _median(one[f"body_{name}"].values) for name in ("r", "nrmse")}
            rows.append({"source": source, "of": "body", "n": one["body_r"].size, **body, "coverage": np.nan})
    return pd.DataFrame(rows).set_index(["of", "source"]).sort_index(level=0, sort_remaining=False)


def medians(found: xr.Dataset, active: float = 1.0) -> dict[str, dict[str, float]]:
    """A score in five numbers for each source; `active` neurons are those whose truth moves by more than so many mV."""
    out = {}
    for source in found["source"].values.tolist():
        one = found.sel(source=source)
        group, extent = one["group"].values, one["range"].values
        unseen = np.isin(group, GROUPS[1:])
        out[source] = {
            "r_unobserved_motor": _median(one["r"].values[group == GROUPS[1]]),
            "r_unobserved_active": _median(one["r"].values[unseen & (extent > active)]),
            "nrmse_unobserved_motor": _median(one["nrmse"].values[group == GROUPS[1]]),
            "r_body": _median(one["body_r"].values) if "body_r" in one else np.nan,
            "coverage90": float(one["coverage"].values[group != "ablated"].mean()),
        }
    return out


def _median(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else np.nan


def align(body: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Bodies (..., 49, 3), each moved and turned as a whole to lie as near as it can to a reference (..., 49, 3)."""
    own, other = body[..., :2], reference[..., :2]
    centre, there = own.mean(axis=-2, keepdims=True), other.mean(axis=-2, keepdims=True)
    a, b = own - centre, other - there
    turn = np.arctan2((a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]).sum(-1), (a * b).sum((-1, -2)))
    cosine, sine = np.cos(turn)[..., None], np.sin(turn)[..., None]
    out = np.empty(np.broadcast_shapes(body.shape, reference.shape))
    out[..., 0] = cosine * a[..., 0] - sine * a[..., 1] + there[..., 0]
    out[..., 1] = sine * a[..., 0] + cosine * a[..., 1] + there[..., 1]
    out[..., 2] = body[..., 2] + turn[..., None]
    return out
