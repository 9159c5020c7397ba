"""Pictures of searches: how they converge, how near they come to a truth, and what the data tell about each parameter."""

from collections.abc import Mapping, Sequence
from typing import Any

import holoviews as hv
import holoviews.plotting.bokeh  # lets pictures set their options before a notebook loads the extension
import numpy as np
import panel as pn
import xarray as xr

from .fit import Fit
from .identify import Report
from .priors import flattened

__all__ = ["Convergence", "convergence", "gaps", "profiles"]

COLOURS = ("#30678d", "#e28552", "#7a4fa3", "#5b8c5a", "#b1162a", "#999999")
FEW = 6  # parameters that the eye tells apart
NATS = hv.Dimension("objective", label="log p(y, theta)", unit="nats")
SIZE = {"width": 420, "height": 300, "show_grid": True}


def convergence(fit: Fit | xr.Dataset, truth: Mapping[str, Any] | None = None) -> hv.Layout:
    """Objective and parameters of a search, step by step; of the coldest chain if there are several. A truth is dashed."""
    trace = fit.trace if isinstance(fit, Fit) else fit
    trace = trace.isel(chain=-1) if "chain" in trace.dims else trace
    steps = np.arange(trace.sizes["step"])
    climbed = hv.Curve((steps, trace["objective"].values), "step", NATS, label="objective").opts(color=COLOURS[0])
    checked = np.flatnonzero(np.isfinite(trace["score"].values))
    dots = hv.Scatter((checked, trace["score"].values[checked]), "step", NATS, label="checked").opts(color=COLOURS[1], size=5)
    left = [climbed, dots] if len(checked) < len(steps) else [climbed]
    labels, known = [str(label) for label in trace["parameter"].values], flattened(truth or {})
    few = len(labels) <= FEW
    right: list[Any] = []
    if not few:
        lines = [np.column_stack([steps, trace["value"].values[:, k]]) for k in range(len(labels))]
        right.append(hv.Path(lines, ["step", "parameter"]).opts(color=COLOURS[0], line_width=1, alpha=0.4))
    for k, label in enumerate(labels if few else ()):
        line = hv.Curve((steps, trace["value"].values[:, k]), "step", "parameter", label=label)
        right.append(line.opts(color=COLOURS[k], line_width=2))
        if label in known:
            right.append(hv.HLine(known[label]).opts(color=COLOURS[k], line_dash="dashed", line_width=1))
    axes = {**SIZE, "padding": 0.05, "title": ""}
    return (
        hv.Overlay(left).opts(**axes, legend_position="bottom_right") + hv.Overlay(right).opts(**axes, legend_position="right")
    ).opts(shared_axes=False)


class Convergence:
    """A picture that follows a search: put its `view` at the end of a cell, then search with `watch=` this."""

    def __init__(self, truth: Mapping[str, Any] | None = None):
        self._truth = truth
        self.view = pn.pane.HoloViews(None, min_height=SIZE["height"])

    def __call__(self, trace: xr.Dataset) -> None:
        """Draw what there is so far."""
        self.view.object = convergence(trace, self._truth)


def gaps(searches: Mapping[str, Sequence[Mapping[str, Any]]], particles: int = 1, least: float = 1.0) -> hv.Overlay:
    """How far below the truth's log p(y, theta) searches are, against evaluations: the median of restarts, and quartiles.

    `searches` has, by name, the restarts that `vpc learn --json` prints. What is above the truth, or less than `least` nats
    below, is drawn there.
    """
    parts: list[Any] = []
    for (name, restarts), colour in zip(searches.items(), COLOURS, strict=False):
        ways = [one["way"] for one in restarts]
        ends = max(way["evaluations"][0] for way in ways), min(way["evaluations"][-1] for way in ways)
        at = np.geomspace(*ends, 80)
        rows = []
        for way in ways:
            place = np.searchsorted(way["evaluations"], at * (1 + 1e-9), side="right") - 1
            below = np.array([np.nan if gap is None else -gap for gap in way["gap"]])
            rows.append(np.fmax(below[place], least))
        low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
        axes = hv.Dimension("sweeps", label="particle sweeps" if particles > 1 else "sweeps")
        nats = hv.Dimension("gap", label="below the truth", unit="nats")
        x = at * particles
        parts.append(hv.Area((x, low, high), axes, [nats, "high"]).opts(color=colour, alpha=0.25, line_alpha=0))
        parts.append(hv.Curve((x, middle), axes, nats, label=name).opts(color=colour, line_width=2))
    return hv.Overlay(parts).opts(width=740, height=360, logx=True, logy=True, show_grid=True, legend_position="bottom_left")


def profiles(report: Report, truth: Mapping[str, Any] | None = None, fall: float = 60.0) -> hv.Layout:
    """Log evidence along each parameter, less the best, with a band of 90 %; and across pairs. A truth is dashed."""
    data, known, parts = report.dataset, flattened(truth or {}), []
    nats = hv.Dimension("nats", label="log evidence, less the best", unit="nats", range=(-fall, 0.05 * fall))
    for label in map(str, data["parameter"].values):
        one = data.sel(parameter=label)
        below = one["profile"].values - one["profile"].values.max()
        near = below > -1.5 * fall
        x, y = one["value"].values[near], below[near]
        band = hv.VSpan(float(one["low"]), float(one["high"])).opts(color=COLOURS[0], alpha=0.15)
        curve = hv.Curve((x, y), label, nats).opts(color=COLOURS[0]) * hv.Scatter((x, y), label, nats).opts(
            color=COLOURS[0], size=5
        )
        lines = [hv.VLine(known[label]).opts(color="black", line_dash="dashed", line_width=1)] if label in known else []
        axes = {"xlabel": label, "ylabel": "log evidence, less the best (nats)"}
        parts.append(hv.Overlay([band, curve, *lines]).opts(**SIZE, **axes, title=report.verdict(label)))
    for k in range(data.sizes.get("pair", 0)):
        first, second = str(data["pair"].values[k]).split(", ")
        values = data["slice"].values[k]
        x, y = data["side"].values[k]
        squares = [(f"{a:.5g}", f"{b:.5g}", values[i, j] - values.max()) for i, a in enumerate(x) for j, b in enumerate(y)]
        map_ = hv.HeatMap(squares, [first, second], hv.Dimension("below", label="less the best", unit="nats"))
        parts.append(map_.opts(cmap="viridis", colorbar=True, clim=(-20, 0), tools=["hover"], **{**SIZE, "show_grid": False}))
    return hv.Layout(parts).cols(2).opts(shared_axes=False)
