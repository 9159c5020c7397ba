"""How good a posterior is, where the truth is known: correlation, error and coverage, beside an unconditioned worm's."""

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr
from scipy import special

from wormsim import geometry as geo

from .connectome import NEURONS

if TYPE_CHECKING:
    from .posterior import Posterior

__all__ = ["GROUPS", "LEVELS", "STATS", "align", "bands", "closeness", "curvature", "medians", "score", "table"]

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
            numbers.mean("sample").expand_dims("stat"),
            numbers.std("sample").expand_dims("stat"),
            numbers.quantile(LEVELS, "sample").drop_vars("quantile").rename(quantile="stat"),
        ]
    together = xr.concat(parts, "stat", coords="minimal", compat="override", combine_attrs="override")
    return together.assign_coords(stat=list(STATS)).assign_attrs(run.attrs)


def curvature(body: xr.DataArray) -> xr.DataArray:
    """How sharply bodies (..., rod, coord) are bent at each joint, 1/mm."""
    phi = body.sel(coord="phi", drop=True)
    bent = phi.diff("rod", label="lower") / geo.SEGMENT_LENGTH
    return bent.assign_attrs(units="1/mm")


def score(posterior: "Posterior", truth: xr.Dataset, kind: str = "filtered") -> xr.Dataset:
    """How near a posterior ("filtered" or "smoothed") comes to the run that was recorded.

    Returns, for `source` "posterior" and "unconditioned" and for each neuron's voltage: `r`, the correlation over time of the
    mean with the truth; `nrmse`, the error of the mean, and `crps`, the continuous ranked probability score of a Gaussian with
    its mean and sd, both as shares of the truth's range; `coverage`, the share of frames whose truth lies in the 90 % band; and
    `sd`, in mV, on average over time. `body_r` and `body_nrmse` are the same for the curvature at each joint, `body_crps` and
    `body_coverage` for the direction of each rod. `range` is the truth's, in mV.
    """
    if not isinstance(truth, xr.Dataset) or "voltage" not in truth or "sample" in truth.dims:
        raise ValueError("truth must be the run of one worm, as `Worm.simulate` gives it")
    if kind not in ("filtered", "smoothed"):
        raise ValueError(f"kind must be 'filtered' or 'smoothed', got {kind!r}")
    times = posterior.dataset["time"].values
    try:
        truth = truth.sel(time=times, method="nearest", tolerance=1e-3)
    except KeyError:
        raise ValueError(f"truth must cover the posterior's frames, from {times[0]:g} to {times[-1]:g} s") from None
    if not np.isfinite(truth["voltage"]).all():
        raise ValueError("truth must be finite, but its worm failed")
    frames = min(int((source.failed < 1).sum()) for source in (posterior, posterior.unconditioned))  # until all failed
    if frames < 2:
        raise ValueError(f"posterior has {frames} frames to score: {posterior.failure or 'there must be 2'}")
    truth = truth.isel(time=slice(frames))
    voltage, parts = truth["voltage"].sel(neuron=list(NEURONS)), []
    for source in (getattr(posterior, kind), posterior.unconditioned.filtered):
        shown = source.isel(time=slice(frames))
        found = _of_mean(shown["voltage"], voltage) | _of_spread(shown["voltage"], voltage)
        found["sd"] = ("neuron", shown["voltage"].sel(stat="sd").values.mean(axis=0))
        if "body" in truth:
            directions = [one["body"].sel(coord="phi", drop=True) for one in (shown, truth)]
            of_body = _of_mean(curvature(shown["body"]), curvature(truth["body"]), "joint") | _of_spread(*directions)
            found |= {f"body_{name}": value for name, value in of_body.items()}
        parts.append(xr.Dataset(found))
    result = xr.concat(parts, xr.Variable("source", ["posterior", "unconditioned"]))
    observed = np.isin(list(NEURONS), posterior.dataset["observed"].values)
    motor = np.array([neuron.type == "motor" for neuron in NEURONS.values()])
    group = np.where(observed, GROUPS[0], np.where(motor, GROUPS[1], GROUPS[2]))
    gone = posterior.dataset.attrs["ablated"]
    group = np.where(np.isin(list(NEURONS), gone.split(",")), "ablated", group)
    extent = (voltage.max("time") - voltage.min("time")).values
    return result.assign_coords(neuron=list(NEURONS), group=("neuron", group), range=("neuron", extent, {"units": "mV"}))


def _of_mean(shown: xr.DataArray, truth: xr.DataArray, dim: str = "") -> dict[str, tuple[str, np.ndarray]]:
    """Correlation over time of the mean with a truth (time, ...), and its error as a share of the range."""
    dim = dim or str(truth.dims[1])
    r, nrmse = closeness(shown.sel(stat="mean").values.astype(float), truth.values)
    return {"r": (dim, r), "nrmse": (dim, nrmse)}


def closeness(mean: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Correlation over time of means (time, ...) with a truth, and their error as a share of its range; NaN if still."""
    extent = np.ptp(truth, axis=0)
    moving = (extent > STILL) & (np.ptp(mean, axis=0) > STILL)
    left, right = mean - mean.mean(axis=0), truth - truth.mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (left * right).sum(axis=0) / np.sqrt((left**2).sum(axis=0) * (right**2).sum(axis=0))
        nrmse = np.sqrt(np.square(mean - truth).mean(axis=0)) / extent
    return np.where(moving, r, np.nan), np.where(extent > STILL, nrmse, np.nan)


def _of_spread(shown: xr.DataArray, truth: xr.DataArray) -> dict[str, tuple[str, np.ndarray]]:
    """How often a truth lies in the 90 % band, and the CRPS of a Gaussian (Gneiting & Raftery 2007) as a share of its range."""
    mean, sd, low, high = (shown.sel(stat=stat).values.astype(float) for stat in ("mean", "sd", "q05", "q95"))
    b, dim = truth.values, str(truth.dims[1])
    rounding = np.spacing(np.abs(b).astype(np.float32))  # bands are in single precision
    inside = (b >= low - rounding) & (b <= high + rounding)
    sd = np.maximum(sd, rounding)
    z, extent = (b - mean) / sd, np.ptp(b, axis=0)
    crps = sd * (z * special.erf(z / np.sqrt(2)) + np.sqrt(2 / np.pi) * np.exp(-0.5 * z * z) - 1 / np.sqrt(np.pi))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(extent > STILL, crps.mean(axis=0) / extent, np.nan)
    return {"coverage": (dim, inside.mean(axis=0)), "crps": (dim, share)}


def table(found: xr.Dataset, active: float = 0.0) -> pd.DataFrame:
    """Medians of a score by group of neurons, and of the body; of neurons whose truth moves by more than `active` mV.

    `sd_ratio` is the median of a neuron's sd over that of the unconditioned worm.
    """
    rows = []
    for source in found["source"].values:
        one, blind = found.sel(source=source), found["sd"].sel(source="unconditioned").values
        for group in GROUPS:
            chosen = (one["group"].values == group) & (one["range"].values > active)
            some = one.isel(neuron=chosen)
            values = {name: _median(some[name].values) for name in ("r", "nrmse", "crps")}
            values["coverage"] = float(some["coverage"].mean()) if chosen.any() else np.nan
            values["sd_ratio"] = _median(some["sd"].values / np.maximum(blind[chosen], STILL))
            rows.append({"source": source, "of": group, "n": some.sizes["neuron"], **values})
        if "body_r" in one:
            body = {name: _median(one[f"body_{name}"].values) for name in ("r", "nrmse", "crps")}
            rows.append({"source": source, "of": "body", "n": 49, **body, "coverage": float(one["body_coverage"].mean())})
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
