"""What was recorded, for other programs: a table as CSV, and intracellular series as NWB."""

import csv
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from .connectome import nearest
from .diagnose import bands

__all__ = ["SESSION_START", "write_csv", "write_nwb"]

SESSION_START = datetime(2000, 1, 1, tzinfo=UTC)  # NWB wants a date, and a simulated worm has none
SHOWN = ("mean", "q05", "q95")


def write_csv(run: xr.Dataset, path: str | Path, neurons: Iterable[str]) -> Path:
    """Write time, the voltage of some neurons and the current of every voltage clamp as a table.

    Columns are `time s`, `AVAL mV`, `AVAL pA` and so on; of a run with `sample` there are a mean and a 90 % band in place of
    each, `AVAL mV mean`, `AVAL mV q05`, `AVAL mV q95`. Cells are empty where there is no clamp. Numbers are written in full.
    """
    names, clamps = _check(run, neurons), _clamps(run)
    columns = {"time s": run["time"].values}
    series = [(f"{name} mV", run["voltage"].sel(neuron=name, drop=True)) for name in names]
    series += [(f"{name} pA", run["current"].sel(clamp=name, drop=True)) for name in clamps]
    for head, values in series:
        if "sample" in values.dims:
            shown = bands(xr.Dataset({"it": values}))["it"]
            columns |= {f"{head} {stat}": shown.sel(stat=stat).values for stat in SHOWN}
        else:
            columns[head] = values.values
    with _whole(path) as new, open(new, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*(values.tolist() for values in columns.values()), strict=True):
            writer.writerow("" if np.isnan(number) else number for number in row)
    return Path(path)


def write_nwb(run: xr.Dataset, path: str | Path, neurons: Iterable[str] | None = None) -> Path:
    """Write intracellular series as NWB, in SI units; needs the extra `data`.

    Of every voltage clamp there are the current (VoltageClampSeries) and its command (VoltageClampStimulusSeries), both NaN
    while it is off; of the neurons that are named, and of those whose clamp is off for a while, the voltage
    (CurrentClampSeries). Each neuron has an electrode. Of a run with `sample`, every worm has series of its own.

    Parameters
    ----------
    run
        A run or a branch; with `session_start_time` among its attributes, in ISO format, if it is to have another one than
        2000-01-01 UTC.
    path
        The file to write.
    neurons
        Their names; if none, only what is clamped.
    """
    try:
        from pynwb import NWBHDF5IO, NWBFile, icephys  # type: ignore[import-untyped]
        from pynwb.file import Subject  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError("write_nwb needs pynwb: pip install virtual-patch-clamp[data]") from None

    named = _check(run, () if neurons is None else neurons)
    clamps = _clamps(run)
    names = list(dict.fromkeys((*clamps, *named)))
    if not names:
        raise ValueError("neurons must be named, as nothing is under voltage clamp in this run")
    start = run.attrs.get("session_start_time")
    digest = hashlib.sha256(repr(sorted(run.attrs.items())).encode() + run["voltage"].values.tobytes())
    file = NWBFile(
        session_description=f"simulated by virtual-patch-clamp {run.attrs.get('version', '')}, not recorded from an animal",
        identifier=digest.hexdigest(),
        session_start_time=SESSION_START if start is None else datetime.fromisoformat(start),
        protocol=run.attrs.get("protocol"),
        subject=Subject(subject_id="simulated", species="Caenorhabditis elegans", description="a simulated worm"),
    )
    device = file.create_device(name="virtual patch clamp", description="a simulated amplifier without noise or filters")
    worms, clock = run if "sample" in run.dims else run.expand_dims("sample"), _clock(run["time"].values)

    def series(kind: str, what: str, data: np.ndarray) -> Any:
        """A series of one neuron of one worm."""
        name = f"{electrode.name} {what}" + (f" of worm {worm}" if "sample" in run.dims else "")
        about = f"{what} of neuron {electrode.name}, simulated"
        make = getattr(icephys, kind)
        return make(
            name=name, data=data, electrode=electrode, gain=1.0, description=about, sweep_number=np.uint64(worm), **clock
        )

    for name in names:
        about = f"an ideal electrode in neuron {name}, simulated"
        electrode = file.create_icephys_electrode(name=name, device=device, description=about, cell_id=name)
        for worm in range(worms.sizes["sample"]):
            one, on = worms.isel(sample=worm), np.zeros(run.sizes["time"], bool)
            volts = 1e-3 * one["voltage"].sel(neuron=name).values
            if name in clamps:
                amperes = 1e-12 * one["current"].sel(clamp=name).values
                on = np.isfinite(amperes)
                stimulus = series("VoltageClampStimulusSeries", "command", np.where(on, volts, np.nan))
                response = series("VoltageClampSeries", "current", amperes)
                file.add_intracellular_recording(electrode=electrode, stimulus=stimulus, response=response)
            if not on[:-1].all() or name not in clamps:  # no step begins with the last frame, so that it has no current
                file.add_intracellular_recording(electrode=electrode, response=series("CurrentClampSeries", "voltage", volts))
    with _whole(path) as new, NWBHDF5IO(new, "w") as out:
        out.write(file)
    return Path(path)


def _check(run: xr.Dataset, neurons: Iterable[str]) -> list[str]:
    """Names of neurons of a run, or an error."""
    if not isinstance(run, xr.Dataset) or "voltage" not in run or "time" not in run.dims:
        raise ValueError("run must be a run or a branch that holds the voltage")
    for dim, one in (("arm", "run.sel(arm='experiment')"), ("level", "run.isel(level=0)")):
        if dim in run.dims:
            raise ValueError(f"run must be one run, and this holds several along {dim!r}: write each, as {one}")
    names = [neurons] if isinstance(neurons, str) else list(neurons)
    there = run["neuron"].values.tolist()
    for name in names:
        if name not in there:
            near = nearest(str(name), there)
            raise ValueError(f"neurons must be among those of the run, got {name!r}; did you mean {near!r}?")
    return list(dict.fromkeys(names))


def _clamps(run: xr.Dataset) -> list[str]:
    """Neurons that are under voltage clamp for some time; in a control none is."""
    return (
        [name for name in run["clamp"].values.tolist() if run["current"].sel(clamp=name).notnull().any()]
        if "current" in run
        else []
    )


def _clock(time: np.ndarray) -> dict[str, Any]:
    """When the frames are: a rate if they are evenly spaced."""
    apart = np.diff(time)
    if len(apart) and np.allclose(apart, apart[0], rtol=0, atol=1e-6):
        return {"starting_time": float(time[0]), "rate": round(len(apart) / float(time[-1] - time[0]), 6)}
    return {"timestamps": time}


@contextmanager
def _whole(path: str | Path) -> Iterator[Path]:
    """A name to write to; what is written there replaces the file at a path when it is complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield folder / path.name
        os.replace(folder / path.name, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
