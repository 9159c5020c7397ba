"""Pictures of the body: `animate` plays it, `kymograph` shows its curvature over time and along the worm.

`animate` gives a Bokeh layout that holds all its frames and plays them in the browser: no kernel and no network are needed, so
it works in a notebook, in a saved page and in an app alike. `kymograph` gives a HoloViews image. In a notebook call
`notebook()` once, then `show` either.
"""

from importlib.resources import files

import holoviews as hv
import holoviews.plotting.bokeh  # lets kymograph set its options before a notebook loads the extension
import numpy as np
import panel as pn
import xarray as xr
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, CustomJS, LayoutDOM, LinearColorMapper, Range1d, Slider, Toggle
from bokeh.plotting import figure

from . import geometry as geo
from .gait import curvature

RELAXED_TO_ACTIVE = [
    "#d9d4c5",
    "#dcc3a6",
    "#dfb188",
    "#e19c6b",
    "#e28552",
    "#df6c3f",
    "#d75034",
    "#c8342e",
    "#b1162a",
    "#930025",
]
POST, TRAIL, HEAD = "#8fa3ad", "#b8b8b8", "#222222"


def notebook() -> None:
    """Make a notebook ready to draw, without a network; in a cell of its own, before the first picture."""
    pn.extension(inline=True)


def show(picture: LayoutDOM | hv.core.Dimensioned) -> pn.viewable.Viewable:
    """A picture, from Bokeh or HoloViews, as something that a notebook displays without asking a network for styles."""
    if isinstance(picture, LayoutDOM):
        return pn.pane.Bokeh(picture)
    return pn.pane.HoloViews(picture, widget_location="bottom")


def animate(dataset: xr.Dataset, frames_per_second: float = 30, width: int = 640, title: str = "") -> LayoutDOM:
    """An animated worm with a play button and a time slider.

    Parameters
    ----------
    dataset
        With `body` (time, rod, coord) in mm and rad, and, if they are to be seen, `muscle` (time, side, segment) and `objects`.
    frames_per_second
        Frames kept for each second of the worm's life; playing is in real time.
    width
        Pixels.
    title
        Over the picture.
    """
    time = dataset["time"].values
    if len(time) < 2:
        raise ValueError("dataset must hold at least two frames to animate")
    every = max(1, round(1 / (frames_per_second * (time[1] - time[0]))))
    time, body = time[::every], dataset["body"].values[::every].astype(np.float32)
    muscle = dataset["muscle"].values[::every] if "muscle" in dataset else np.zeros((len(time), 2, geo.SEGMENTS))
    objects = dataset["objects"].values if "objects" in dataset else np.empty((0, 3))

    left, right = body[..., 0].min() - 0.1, body[..., 0].max() + 0.1
    low, high = body[..., 1].min() - 0.1, body[..., 1].max() + 0.1
    middle, tall = (low + high) / 2, max(high - low, 0.35 * (right - left))
    low, high = middle - tall / 2, middle + tall / 2
    picture = figure(
        width=width,
        height=int(width * tall / (right - left)) + 60,
        x_range=Range1d(left, right),
        y_range=Range1d(low, high),
        x_axis_label="x (mm)",
        y_axis_label="y (mm)",
        title=title,
        match_aspect=True,
        tools="pan,wheel_zoom,reset,save",
    )
    picture.toolbar.logo = None
    picture.grid.grid_line_color = "#eeeeee"
    seen = (objects[:, 0] > left - 1) & (objects[:, 0] < right + 1) & (objects[:, 1] > low - 1) & (objects[:, 1] < high + 1)
    x, y, radius = objects[seen].T
    picture.circle(x=x, y=y, radius=radius, color=POST, line_color=None)

    worm, head = _first_frame(body[0], muscle[0])
    trail = ColumnDataSource({"x": [], "y": []})
    picture.line("x", "y", source=trail, color=TRAIL)
    colours = {"field": "active", "transform": LinearColorMapper(RELAXED_TO_ACTIVE, low=0, high=0.7)}
    picture.patches("xs", "ys", source=worm, fill_color=colours, line_color=colours, line_width=0.5)
    picture.scatter("x", "y", source=head, size=5, color=HEAD)

    step = float(time[1] - time[0])
    slider = Slider(
        start=0, end=float(time[-1] - time[0]), value=0, step=step, title="time (s)", format="0.00", width=width - 160
    )
    play = Toggle(label="play", width=100)
    draw = CustomJS(
        args={
            "bodies": ColumnDataSource({"values": body.ravel()}),
            "muscles": ColumnDataSource({"values": np.round(np.clip(muscle, 0, 1) * 255).astype(np.uint8).ravel()}),
            "radius": list(geo.RADIUS),
            "step": step,
            "slider": slider,
            "worm": worm,
            "trail": trail,
            "head": head,
        },
        code=_script("draw.js"),
    )
    slider.js_on_change("value", draw)
    play.js_on_change("active", CustomJS(args={"slider": slider}, code=_script("play.js")))
    return column(picture, row(play, slider))


def _script(name: str) -> str:
    return (files(__package__) / name).read_text()


def _first_frame(body: np.ndarray, muscle: np.ndarray) -> tuple[ColumnDataSource, ColumnDataSource]:
    """What draw.js does at time 0, so that there is a worm before anybody touches the slider."""
    centre = body[:, :2].astype(float)
    arm = geo.RADIUS[:, None] * np.column_stack([np.cos(body[:, 2]), np.sin(body[:, 2])])
    dorsal, ventral = centre + arm, centre - arm
    quads = np.concatenate([np.stack([centre[:-1], centre[1:], end[1:], end[:-1]], axis=1) for end in (dorsal, ventral)])
    active = np.clip(muscle, 0, 1).ravel()
    worm = {"xs": quads[..., 0].tolist(), "ys": quads[..., 1].tolist(), "active": active.tolist()}
    return ColumnDataSource(worm), ColumnDataSource({"x": centre[:1, 0], "y": centre[:1, 1]})


def kymograph(dataset: xr.Dataset, title: str = "") -> hv.Image:
    """Curvature of the body as a HoloViews image: time across, head at the top."""
    dataset = dataset.isel(
        time=slice(None, None, max(1, dataset.sizes["time"] // 600))
    )  # more than the picture's pixels is waste
    image = curvature(dataset["body"].values).T
    limit = max(float(np.abs(image).max()), 1e-9)
    return hv.Image(
        (dataset["time"].values, np.linspace(0, 1, geo.RODS), image),
        kdims=[hv.Dimension("time", unit="s"), hv.Dimension("place", label="from head (0) to tail (1)")],
        vdims=hv.Dimension("curvature", unit="1/mm", range=(-limit, limit)),
    ).opts(cmap="RdBu_r", colorbar=True, width=640, height=240, invert_yaxis=True, title=title, tools=["hover"])
