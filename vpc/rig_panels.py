"""What the rig's scopes show: a run, an I-V curve, a living worm."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from .neurons import STEP
from .pictures import COLOURS
from .scope import Map, Panel, Series
from .session import View

__all__ = ["of_curve", "of_life", "of_run"]

TRUE = "#222222"


def of_run(view: View, names: Sequence[str], truth: xr.DataArray | None = None) -> list[Panel]:
    """Voltages with 50 and 90 % bands over the command, clamp currents, what was observed, and all neurons as a map."""
    parts: dict[str, list[Series]] = {name: [] for name in ("voltage", "command", "current", "light")}
    for k, name in enumerate(names):
        colour = COLOURS[k]
        for time, bands in ((view.past, view.known[k]), (view.time, view.bands[k])):
            if np.any(bands[4] - bands[0] > 1e-9):  # one worm has no bands
                parts["voltage"].append(Series(time, bands[0], colour, bands[4], alpha=0.15))
                parts["voltage"].append(Series(time, bands[1], colour, bands[3], alpha=0.25))
        parts["voltage"].append(Series(view.past, view.known[k, 2], colour))
        parts["voltage"].append(Series(view.time, view.control[k], colour, dash=(4, 3), width=1.0))
        parts["voltage"].append(Series(view.time, view.bands[k, 2], colour, name=name))
        if truth is not None:
            parts["voltage"].append(
                Series(
                    truth["time"].values, truth.sel(neuron=name).values, TRUE, width=1.0, dash=(1, 2), name="" if k else "truth"
                )
            )
        if np.isfinite(view.command[k]).any():
            parts["command"].append(Series(view.time, view.command[k], colour, name=name))
        if np.isfinite(view.current[k]).any():
            parts["current"].append(Series(view.time, view.current[k, 0], colour, view.current[k, 4], alpha=0.2))
            parts["current"].append(Series(view.time, view.current[k, 2], colour, name=name))
        if np.isfinite(view.seen[k]).any():
            parts["light"].append(Series(view.seen_time, view.seen[k], colour, dots=True))
            parts["light"].append(Series(view.time, view.fluorescence[k], colour, name=name))
    panels = [
        Panel("voltage (mV)", parts["voltage"], height=170, least=1.0),
        Panel("command", parts["command"], height=60, least=1.0),
        Panel("clamp (pA)", parts["current"], height=90, least=0.1),
        Panel("fluorescence", parts["light"], height=90, least=0.01),
    ]
    steps = len(view.time) - 1
    if len(view.past) > 1:  # frames of the recording, as often as those of the run
        grid = np.arange(view.past[0], -1e-9, view.time[1])
        before = view.past_change[:, np.abs(view.past[:, None] - grid).argmin(axis=0)]
    else:
        before = view.past_change[:, :0]
    everything = np.concatenate([before, view.change[:, :steps]], axis=1)
    neurons = Map(everything, (view.time[-1] - everything.shape[1] * view.time[1], view.time[-1]), "mV")
    return [panel for panel in panels if panel.series] + [Panel("302 neurons", map=neurons, height=190)]


def of_curve(found: xr.Dataset, neuron: str) -> tuple[list[Panel], tuple[float, float], str]:
    """An I-V curve of a voltage clamp with its 90 % band, the range of its axis, and what to write below."""
    current, x = found["current"], found["level"].values
    low, mean, high = (current.sel(stat=stat).values for stat in ("q05", "mean", "q95"))
    line = (
        f"command (mV): {float(found['conductance']):.3g} nS, {float(found['reversal']):.1f} mV"
        if len(x) > 1
        else "command (mV)"
    )
    series = [Series(x, low, COLOURS[0], high, alpha=0.25), Series(x, mean, COLOURS[0]), Series(x, mean, COLOURS[0], dots=True)]
    room = 0.03 * (x[-1] - x[0]) or 1.0
    return [Panel(f"{neuron} (pA)", series, height=190)], (float(x[0] - room), float(x[-1] + room)), line


def of_life(values: np.ndarray, now: float, names: Sequence[str]) -> Panel:
    """Voltages (step, neuron) of a living worm until now."""
    times = now - STEP * np.arange(len(values))[::-1]
    series = [Series(times, values[:, k], COLOURS[k], name=name) for k, name in enumerate(names)]
    return Panel("voltage (mV)", series, height=200, least=1.0)
