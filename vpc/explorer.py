"""`explore`: the worm with its neurons in their places, the map of all voltages and some traces on one time slider.

Everything is in the page and moves in the browser, so it needs neither a kernel nor a network.
"""

from collections.abc import Iterable
from importlib.resources import files

import holoviews as hv
import numpy as np
import xarray as xr
from bokeh.layouts import column, row
from bokeh.models import ColorBar, ColumnDataSource, CustomJS, HoverTool, LayoutDOM, LinearColorMapper, Slider, Span, Toggle
from bokeh.plotting import figure

from wormsim import geometry as geo
from wormsim.plot import animate

from .connectome import NEURONS
from .pictures import BELOW_TO_ABOVE, Selection, heatmap, one_worm, symmetric, thin, traces

FLESH = ["#f4f1ea", "#ece5d8", "#e3d8c4", "#d9caaf", "#cfbb99"]  # pale, so that neurons stand out against muscles
SHORTEST = 0.1  # s: less than a few frames is nothing to play
LEFT, RIGHT = 80, 130  # pixels beside the frames, so that all share one time axis


def explore(run: xr.Dataset, neurons: Selection = ("AVA", "DB", "VB"), width: int = 740) -> LayoutDOM:
    """The worm with its neurons in their places, the map of all voltages and some traces, on one time slider.

    Neurons are coloured like the map, by their difference from their own mean. Clicking on the map or the traces goes to that
    time. The page holds 30 frames a second of the body and 15 of the voltages.

    Parameters
    ----------
    run
        Of one worm, with voltage and body.
    neurons
        Those to draw as traces.
    width
        Pixels.
    """
    one_worm(run, "voltage"), one_worm(run, "body")
    run = run.isel(time=run["ok"].values) if "ok" in run else run
    if run.sizes["time"] < 2 or (seconds := float(run["time"][-1] - run["time"][0])) < SHORTEST:
        raise ValueError(f"run must last at least {SHORTEST} s before the worm fails, to be explored")
    start = float(run["time"][0])
    voltage = thin(run["voltage"], int(15 * seconds) + 1)

    frame = width - LEFT - RIGHT
    worm = animate(run, frames_per_second=30, width=width, title="neurons in their places; the black dot is the head")
    picture, slider, play = (worm.select_one({"type": kind}) for kind in (figure, Slider, Toggle))
    worm.select_one({"type": LinearColorMapper}).palette = FLESH
    bodies = slider.js_property_callbacks["change:value"][0].args["bodies"]  # shared, not sent twice
    frames = bodies.data["values"].reshape(-1, geo.RODS, 3)
    _look_at(picture, frames, frame)
    dots = _light_up(picture, frames[0], voltage)

    thinned = run[["voltage"]].sel(time=voltage["time"])
    below = [hv.render(picture, backend="bokeh") for picture in (heatmap(thinned), traces(run, neurons))]
    below[1].x_range = below[0].x_range
    cursors = [Span(location=start, dimension="height", line_color="#222222", line_width=1.5) for _ in below]
    go = CustomJS(
        args={"slider": slider, "start": start},
        code="slider.value = Math.max(slider.start, Math.min(slider.end, cb_obj.x - start))",
    )
    for plot, cursor, height in zip(below, cursors, (300, 200), strict=True):
        plot.add_layout(cursor)
        plot.js_on_event("tap", go)
        plot.update(frame_width=frame, frame_height=height, width=None, height=None, sizing_mode=None, min_border_left=LEFT)
        plot.toolbar.update(logo=None, active_scroll=None)  # the wheel scrolls the page
    position, side = places(voltage["neuron"].values)
    move = CustomJS(
        args={
            "bodies": bodies,
            "body_step": slider.step,
            "voltages": ColumnDataSource({"values": voltage.values.astype(np.float32).ravel()}),
            "voltage_step": float(voltage["time"][1] - start),
            "mean": list(voltage.values.mean(axis=0)),
            "position": list(position),
            "side": list(side),
            "radius": list(geo.RADIUS),
            "start": start,
            "slider": slider,
            "dots": dots,
            "cursors": cursors,
            "picture": picture,
        },
        code=(files(__package__) / "explore.js").read_text(),
    )
    slider.js_on_change("value", move)
    return column(picture, row(play, slider), *below)


def places(names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Where to draw somata: along the body from head (0) to tail (1), and across it from ventral (-1) to dorsal (1).

    OpenWorm's worm is bent, so heights are measured from its ventral side, along which the cord's motor neurons lie; the view
    is turned by 20 degrees about the body's axis, so that left and right partners do not hide each other.
    """
    cord = [name for name, n in NEURONS.items() if n.neuron_class in ("VA", "VB", "VD", "DD", "AS")]
    ventral = sorted(NEURONS[name].soma[1:] for name in (*cord, "IL2VL", "RMEV", "SIAVL", "LUAL", "PHCL"))
    x, y, z = np.array([NEURONS[name].soma for name in names]).T
    position = np.array([NEURONS[name].position for name in names])
    height = z - np.interp(y, *np.array(ventral).T)
    middle = -1.8  # um: x of the cord
    turn = np.deg2rad(20)
    diameter = 40 * np.interp(position, np.linspace(0, 1, geo.RODS), geo.RADIUS / geo.RADIUS.max())  # um
    across = (height * np.cos(turn) + (x - middle) * np.sin(turn)) / diameter
    return position, np.clip(1.6 * across - 0.7, -0.85, 0.85)


def _light_up(picture: figure, body: np.ndarray, voltage: xr.DataArray) -> ColumnDataSource:
    """Somata on a body (rod, coord), as explore.js draws them at time 0."""
    names = voltage["neuron"].values
    position, side = places(names)
    x, y, angle, radius = (np.interp(position, np.linspace(0, 1, geo.RODS), values) for values in (*body.T, geo.RADIUS))
    change = voltage.values - voltage.values.mean(axis=0)
    dots = ColumnDataSource(
        {
            "name": list(names),
            "kind": [NEURONS[name].type for name in names],
            "x": x + side * radius * np.cos(angle),
            "y": y + side * radius * np.sin(angle),
            "volts": voltage.values[0],
            "change": change[0],
        }
    )
    low, high = symmetric(change)
    mapper = LinearColorMapper(BELOW_TO_ABOVE, low=low, high=high)
    colour = {"field": "change", "transform": mapper}
    drawn = picture.scatter("x", "y", source=dots, size=6.5, fill_color=colour, line_color="#555555", line_width=0.6)
    tips = [("neuron", "@name (@kind)"), ("voltage", "@volts{0.0} mV"), ("from own mean", "@change{0.0} mV")]
    picture.add_tools(HoverTool(renderers=[drawn], tooltips=tips))
    picture.add_layout(ColorBar(color_mapper=mapper, title="from own mean (mV)", width=12, padding=4), "right")
    return dots


def _look_at(picture: figure, bodies: np.ndarray, width: int) -> None:
    """Set the frame to a window that holds the worm at all times when it moves along."""
    away = np.abs(bodies[..., :2] - bodies[..., :2].mean(axis=1, keepdims=True)).max(axis=(0, 1)) + 0.06
    height = float(np.clip(width * away[1] / away[0], 0.25 * width, 0.6 * width))
    half_width = max(away[0], away[1] * width / height)
    half_height = half_width * height / width
    x, y = bodies[0, :, :2].mean(axis=0)
    picture.x_range.update(start=x - half_width, end=x + half_width)
    picture.y_range.update(start=y - half_height, end=y + half_height)
    picture.update(frame_width=width, frame_height=round(height), width=None, height=None, min_border_left=LEFT)
