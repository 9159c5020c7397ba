"""Pictures of a run and of the wiring as HoloViews objects: curves, maps of all 302 neurons, a map of the connections."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Literal

import colorcet
import holoviews as hv
import holoviews.plotting.bokeh  # lets pictures set their options before a notebook loads the extension
import numpy as np
import xarray as xr
from bokeh.models import CustomJSHover, HoverTool, Span

from .connectome import NEURONS, Connectome, find, index

TYPES = ("sensory", "inter", "motor", "polymodal", "unknown")
ORDER = tuple(sorted(NEURONS, key=lambda name: (TYPES.index(NEURONS[name].type), NEURONS[name].position)))
Selection = str | Iterable[str | Iterable[str]]

POINTS = 800  # of a curve or a row: more than a picture's pixels is waste
FEW = 10  # curves that the eye tells apart by colour; beyond that, classes share one
LEGEND_ROWS = 12
LANES = (*TYPES[:3], "other")  # of a map of neurons
LANE, APART = 8, 0.0175  # rows of dots from lane to lane, and shares of the width from dot to dot, which are 9 pixels wide
NAMED = (0.07, 0.1, 0.11, 0.12, 0.14, 0.2, 0.4, 0.6, 0.8, 0.9)  # places along the body that its axis names
STRONG = 10  # synapses or gap junctions: connections that a map of neurons shows
COLOURS = colorcet.palette["glasbey_category10"]
BELOW_TO_ABOVE = colorcet.palette["coolwarm"]  # blue, white, red, equally light on both sides


def traces(run: xr.Dataset, neurons: Selection = ("AVA", "DB", "VB"), variable: str = "voltage") -> hv.Overlay:
    """Curves of some neurons over time; click on the legend to mute them.

    Parameters
    ----------
    run
        Of one worm.
    neurons
        Names, classes, types or transmitters, as for `vpc.connectome.find`; one, or any number of them.
    variable
        voltage, calcium or fluorescence.
    """
    names = _select(neurons)
    data = thin(_of_neurons(run, variable), POINTS).sel(neuron=names)
    keys = names if len(names) <= FEW else [NEURONS[name].neuron_class for name in names]
    colours = {key: COLOURS[i % len(COLOURS)] for i, key in enumerate(dict.fromkeys(keys))}
    quantity = hv.Dimension(variable, unit=_unit(run, variable))
    curves = []
    for name, key in zip(names, keys, strict=True):
        values = data.sel(neuron=name).values.astype(np.float32)
        curve = hv.Curve((data["time"].values, values), hv.Dimension("time", unit="s"), quantity, group=name, label=key)
        tips = [("neuron", name), ("time", "@time{0.00} s"), (variable, f"@{variable}{{0.00}} {quantity.unit or ''}")]
        curves.append(curve.opts(color=colours[key], line_width=1.3, muted_alpha=0.06, tools=["hover"], hover_tooltips=tips))
    return hv.Overlay(curves).opts(
        width=740,
        height=300,
        legend_position="right",
        legend_cols=-(-len(colours) // LEGEND_ROWS),
        legend_limit=len(names),
        legend_opts={"label_text_font_size": "9pt", "glyph_height": 12, "label_height": 12, "spacing": 1, "padding": 4},
        show_legend=len(colours) <= 3 * LEGEND_ROWS,  # a longer one would push the curves out
        click_policy="mute",
    )


def heatmap(run: xr.Dataset, variable: str = "voltage", relative: bool = True) -> hv.Image:
    """All neurons over time, ordered by type and then from head to tail.

    Parameters
    ----------
    run
        Of one worm.
    variable
        voltage, calcium or fluorescence.
    relative
        Show the difference from each neuron's own mean over time. Colours end where 90% of all values do, so that small
        movements are seen beside large ones.
    """
    data = thin(_of_neurons(run, variable), POINTS)
    names = [name for name in ORDER if name in data["neuron"].values]
    values = data.sel(neuron=names).values.astype(np.float32)
    unit = _unit(run, variable)
    label, limits = variable, _limits(values)
    if relative:
        values = values - np.nanmean(values, axis=0)
        label, limits = f"{variable} from own mean", symmetric(values)
    tips = [("time", "$x{0.00} s"), (label, f"@image{{0.00}} {unit or ''}")]
    return hv.Image(
        (data["time"].values, np.arange(len(names)), values.T),
        kdims=[hv.Dimension("time", unit="s"), hv.Dimension("row", label="neurons, from head to tail within a type")],
        vdims=hv.Dimension(variable, label=label, unit=unit, range=limits),
    ).opts(
        cmap=BELOW_TO_ABOVE if relative else "viridis",
        colorbar=True,
        clabel=f"{label} ({unit})" if unit else label,
        colorbar_opts={"width": 12},
        width=740,
        height=420,
        invert_yaxis=True,
        yticks=_ticks(names),
        ylabel="",
        title=f"{len(names)} neurons: {label}",
        hooks=[_lines(names, "width"), _name_rows(names, tips)],
    )


def connectome(wiring: Connectome | str, kind: Literal["chemical", "gap"] = "chemical") -> hv.Rectangles:
    """The counts of connections, one square for each pair of neurons that has any: from the row to the column."""
    if kind not in ("chemical", "gap"):
        raise ValueError(f"kind must be 'chemical' or 'gap', got {kind!r}")
    wiring = wiring if isinstance(wiring, Connectome) else Connectome.load(wiring)
    names = list(NEURONS)
    place = {name: k for k, name in enumerate(ORDER)}
    matrix = getattr(wiring, kind)
    pairs = [(place[names[j]], place[names[i]], names[i], names[j], matrix[i, j]) for i, j in np.argwhere(matrix)]
    columns, rows, pre, post, count = zip(*pairs, strict=True) if pairs else ((), (), (), (), ())
    across, down = np.array(columns, float), np.array(rows, float)
    what = "synapses" if kind == "chemical" else "gap junctions"
    ends = ("presynaptic ", "postsynaptic ") if kind == "chemical" else ("", "")
    ticks = _ticks(ORDER)
    return hv.Rectangles(
        (across - 0.5, down - 0.5, across + 0.5, down + 0.5, np.array(pre), np.array(post), np.array(count, int)),
        kdims=["left", "top", "right", "bottom"],
        vdims=["pre", "post", hv.Dimension("count", label="count", range=(1, max(count, default=2)))],
    ).opts(
        color="count",
        cmap=colorcet.palette["bmw"][220:20:-1],
        line_color="count",
        line_width=1.2,  # a square is barely wider than a pixel before one zooms in
        cnorm="log",
        colorbar=True,
        clabel=what,
        colorbar_opts={"width": 12},
        width=740,
        height=640,
        xlim=(-0.5, len(ORDER) - 0.5),
        ylim=(-0.5, len(ORDER) - 0.5),
        invert_yaxis=True,
        xticks=ticks,
        yticks=ticks,
        xrotation=30,
        xlabel=f"{ends[1]}neurons, from head to tail within a type",
        ylabel=f"{ends[0]}neurons",
        title=f"{wiring.label}: {matrix.sum() // (1 if kind == 'chemical' else 2)} {what}",
        tools=["hover"],
        hover_tooltips=[("from", "@pre"), ("to", "@post"), (what, "@count")],
        hooks=[_lines(ORDER, "width"), _lines(ORDER, "height")],
    )


def neuron_map(
    values: xr.DataArray | Mapping[str, float],
    label: str,
    limits: tuple[float, float] = (0.0, 1.2),
    marked: Iterable[str] = (),
    wiring: Connectome | str | None = "openworm",
) -> hv.Overlay:
    """All neurons as dots from head to tail, a lane for each type, coloured by a number; those that would overlap are stacked.

    Half of them lie in the first eighth of the body. So each neuron, and not each part of the body, gets the same room, and the
    ticks say where one is.

    Parameters
    ----------
    values
        A number for each neuron, over `neuron` or by name; neurons that have none are grey.
    label
        What the numbers are, with their unit.
    limits
        Of the colours.
    marked
        Names of neurons that get a ring.
    wiring
        Whose strong connections are faint lines; None for no lines.
    """
    given = dict(values.to_series()) if isinstance(values, xr.DataArray) else values
    ringed, places, axes = list(marked), _places(), ["across", "row"]
    index([*given, *ringed])
    dots = hv.Points(
        [
            (*places[one.name], one.name, one.neuron_class, one.type, float(given.get(one.name, np.nan)))
            for one in NEURONS.values()
        ],
        axes,
        ["neuron", "class", "type", hv.Dimension("value", label=label)],
    ).opts(
        color="value",
        cmap="viridis",
        clim=limits,
        clipping_colors={"NaN": "#cccccc"},
        size=9,
        line_color=None,
        colorbar=True,
        clabel=label,
        colorbar_opts={"width": 12},
        tools=["hover"],
        hover_tooltips=[("neuron", "@neuron (@class, @type)"), (label, "@value{0.00}")],
    )
    rings = hv.Points([places[name] for name in ringed], axes).opts(size=11, fill_alpha=0, line_color="black", line_width=1.3)
    parts = [dots, rings]
    if wiring is not None:
        wiring = wiring if isinstance(wiring, Connectome) else Connectome.load(wiring)
        names = list(NEURONS)
        strong = np.argwhere(np.maximum(wiring.chemical, np.triu(wiring.gap)) >= STRONG)
        lines = hv.Segments([(*places[names[i]], *places[names[j]]) for i, j in strong], [*axes, "to", "there"])
        parts.insert(0, lines.opts(color="#777777", alpha=0.3, line_width=1))
    positions = np.sort([neuron.position for neuron in NEURONS.values()])
    return hv.Overlay(parts).opts(
        width=740,
        height=400,
        xlim=(-0.02, 1.02),
        ylim=(-LANE * (len(LANES) - 0.5), LANE * 0.5),
        xticks=[(float(np.mean(positions < share)), f"{share:g}") for share in NAMED],
        yticks=[(-LANE * k, kind) for k, kind in enumerate(LANES)],
        xlabel="distance from the tip of the head (body lengths)",
        ylabel="",
        show_legend=False,
    )


def _places() -> dict[str, tuple[float, float]]:
    """Where each neuron is on a map: the share of neurons before it, and a row of its lane in which there is room."""
    positions = np.array([neuron.position for neuron in NEURONS.values()])
    across = dict(zip(NEURONS, np.searchsorted(np.sort(positions), positions) / len(positions), strict=True))
    out: dict[str, tuple[float, float]] = {}
    ends: dict[tuple[int, int], float] = {}  # of the last dot in each row of each lane
    for name in sorted(across, key=across.__getitem__):
        lane, x = min(TYPES.index(NEURONS[name].type), len(LANES) - 1), float(across[name])
        row = next(row for row in count() if x - ends.get((lane, row), -1.0) >= APART)
        ends[lane, row] = x
        out[name] = x, -LANE * lane + (row + 1) // 2 * (-1) ** row
    return out


def _select(neurons: Selection) -> list[str]:
    """Names of what is asked for, each once, in the order asked."""
    entries = [neurons] if isinstance(neurons, str) else list(neurons)
    flat = [word for entry in entries for word in ([entry] if isinstance(entry, str) else entry)]
    if not flat:
        raise ValueError("neurons must name at least one neuron, class, type or transmitter")
    return list(dict.fromkeys(name for word in flat for name in find(word)))


def one_worm(run: xr.Dataset, variable: str) -> xr.DataArray:
    """A variable of a run, or an error if the run lacks it or holds several worms."""
    if variable not in run:
        raise ValueError(f"run holds no {variable!r}; it has {', '.join(map(str, run.data_vars))}")
    if "sample" in run[variable].dims:
        raise ValueError("run holds several worms; choose one, as in run.isel(sample=0)")
    return run[variable]


def _of_neurons(run: xr.Dataset, variable: str) -> xr.DataArray:
    """A variable of a run that neurons have."""
    data = one_worm(run, variable)
    if "neuron" not in data.dims or "time" not in data.dims:
        raise ValueError(
            f"variable must have a time course for each neuron, and {variable!r} has {', '.join(map(str, data.dims))}"
        )
    return data


def thin(data: xr.DataArray, most: int) -> xr.DataArray:
    """Every so many frames, so that no more than `most` are left."""
    return data.isel(time=slice(None, None, max(1, -(-data.sizes["time"] // most))))


def _unit(run: xr.Dataset, variable: str) -> str | None:
    unit = run[variable].attrs.get("units", "1")
    return None if unit == "1" else unit


def _limits(values: np.ndarray) -> tuple[float, float]:
    low, high = np.nanquantile(values, [0.005, 0.995])
    return float(low), float(max(high, low + 1e-9))


def symmetric(values: np.ndarray) -> tuple[float, float]:
    """Limits of colours: a few large movements must not hide the small ones."""
    limit = max(float(np.nanquantile(np.abs(values), 0.9)), 1e-9)
    return -limit, limit


def groups(names: Iterable[str]) -> dict[str, list[int]]:
    """Rows of each type that is there."""
    groups: dict[str, list[int]] = {}
    for k, name in enumerate(names):
        groups.setdefault(NEURONS[name].type, []).append(k)
    return groups


def _ticks(names: Iterable[str]) -> list[tuple[float, str]]:
    """A label in the middle of each type; the few polymodal and unknown neurons at the end have no room for theirs."""
    return [((rows[0] + rows[-1]) / 2, kind) for kind, rows in groups(names).items() if len(rows) > 5]


def _lines(names: Iterable[str], dimension: str) -> Callable[[Any, Any], None]:
    """A HoloViews hook that draws lines between the types."""
    ends = [rows[-1] + 0.5 for rows in groups(names).values()][:-1]

    def draw(plot: Any, element: Any) -> None:
        for end in ends:
            plot.state.add_layout(Span(location=end, dimension=dimension, line_color="#777777", line_width=1))

    return draw


def _name_rows(names: list[str], tips: list[tuple[str, str]]) -> Callable[[Any, Any], None]:
    """A HoloViews hook for hovering over an image whose rows are neurons: their numbers become names in the browser."""

    def add(plot: Any, element: Any) -> None:
        code = "const k = Math.round(special_vars.y); return names[Math.max(0, Math.min(names.length - 1, k))]"
        rows = {"$y": CustomJSHover(args={"names": [f"{name} ({NEURONS[name].type})" for name in names]}, code=code)}
        tool = HoverTool(
            renderers=[plot.handles["glyph_renderer"]], tooltips=[("neuron", "$y{custom}"), *tips], formatters=rows
        )
        plot.state.add_tools(tool)

    return add
