"""Runs as datasets: what the kernel records gets names and units, and a frame becomes a state again."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from wormsim import check
from wormsim import geometry as geo

from .connectome import NEURONS
from .loop import BODY_ROW, CAUSES, MUSCLE_ROW, Inputs, Record, Worms
from .neurons import STEP, N, fluorescence
from .parameters import Value

__all__ = ["start_from", "to_dataset"]


def start_from(frame: xr.Dataset, state: np.ndarray) -> int:
    """Put what a frame of a run holds into states (n, 994); returns the step to which its noise has come."""
    if not isinstance(frame, xr.Dataset) or "time" in frame.dims:
        raise ValueError("initial must be one frame of a run, such as run.isel(time=-1)")
    n = len(state)
    rods = state[:, BODY_ROW:MUSCLE_ROW].reshape(n, geo.RODS, 6)
    places = {
        "voltage": (state[:, :N], ("neuron",)),
        "calcium": (state[:, N:BODY_ROW], ("neuron",)),
        "body": (rods[:, :, :3], ("rod", "coord")),
        "velocity": (rods[:, :, 3:], ("rod", "coord")),
        "muscle": (state[:, MUSCLE_ROW:].reshape(n, 2, geo.SEGMENTS), ("side", "segment")),
    }
    if not any(name in frame for name in places):
        raise ValueError(f"initial must hold any of {', '.join(places)}, got {', '.join(map(str, frame)) or 'nothing'}")
    for name, (place, dims) in places.items():
        if name in frame:
            given = frame[name]
            given = given.sel(neuron=list(NEURONS)) if "neuron" in given.coords else given
            many = "sample" in given.dims
            if many and given.sizes["sample"] != n:
                raise ValueError(f"initial holds {given.sizes['sample']} samples, but n is {n}; choose some, or as many worms")
            given = given.transpose(*(("sample", *dims) if many else dims), missing_dims="ignore")
            if not np.isfinite(given.values).all():
                raise ValueError(f"initial must be finite, but its {name} is not: that worm had failed")
            place[:] = check.array(f"initial[{name!r}]", given.values, place.shape if many else place.shape[1:])
    time = float(frame["time"]) if "time" in frame.coords else 0.0
    return int(frame.attrs.get("first_step", 0)) + round(time / STEP)


def to_dataset(
    out: Record, worms: Worms, given: Inputs, parameters: Mapping[str, Value], objects: np.ndarray, attributes: dict[str, Any]
) -> xr.Dataset:
    """What the kernel recorded of a run, with names and units; of one worm, without a dimension `sample`."""
    n = len(out.current)
    steps = np.arange(out.current.shape[1]) * out.every
    time = np.round(steps * STEP, 2)
    failed = worms.failed_step.reshape(-1)[:n]
    ok = (failed[:, None] < 0) | (steps <= failed[:, None])
    pose, sides = ("rod", "coord"), ("side", "segment")
    variables: dict[str, Any] = {
        "voltage": (("neuron",), out.voltage, "mV"),
        "calcium": (("neuron",), out.calcium, "uM"),
        "fluorescence": (("neuron",), fluorescence(out.calcium, parameters), "1"),
        "body": (pose, out.body.reshape(*out.body.shape[:2], geo.RODS, 3), "mm, mm, rad"),
        "velocity": (pose, out.velocity.reshape(*out.velocity.shape[:2], geo.RODS, 3), "mm/s, mm/s, rad/s"),
        "muscle": (sides, out.muscle.reshape(*out.muscle.shape[:2], 2, geo.SEGMENTS), "1"),
        "current": (("clamp",), out.current, "pA"),
    }
    data = {
        name: (("sample", "time", *dims), values, {"units": unit})
        for name, (dims, values, unit) in variables.items()
        if values.size
    }
    causes = [CAUSES[code] for code in worms.cause.reshape(-1)[:n]]
    dataset = xr.Dataset(
        {
            **data,
            "ok": (("sample", "time"), ok, {"meaning": "the worm has not failed"}),
            "failure": (
                "sample",
                np.array(causes, dtype=object).astype(str),
                {"meaning": "why the worm failed, if it did"},
            ),
            "objects": (("object", "shape"), objects, {"units": "mm"}),
        },
        coords={
            "time": ("time", time, {"units": "s"}),
            "neuron": list(NEURONS),
            "clamp": np.array(list(NEURONS))[given.clamped],
            "coord": ["x", "y", "phi"],
            "side": ["dorsal", "ventral"],
            "shape": ["x", "y", "radius"],
        },
        attrs=attributes,
    )
    if "current" in dataset:
        dataset["current"].attrs["meaning"] = "ionic current against which a clamp holds; C dV/dt is not in it"
    return dataset if n > 1 else dataset.isel(sample=0)
