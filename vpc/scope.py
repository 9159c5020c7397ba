"""`Scope`: a widget with panels of curves, bands and maps over one axis, and a cursor. The browser draws what Python sends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from .connectome import NEURONS
from .pictures import ORDER, groups, symmetric

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError("the scope needs anywidget: pip install virtual-patch-clamp[notebooks]") from error

__all__ = ["Map", "Panel", "Scope", "Series"]

_ROWS = np.array([list(NEURONS).index(name) for name in ORDER])


@dataclass
class Series:
    """A curve y over x; a band, if `high` is given; or dots. With a name it is in the legend, with its value at the cursor."""

    x: np.ndarray
    y: np.ndarray
    colour: str
    high: np.ndarray | None = None
    name: str = ""
    alpha: float = 1.0
    width: float = 1.5
    dash: tuple[float, ...] = ()
    dots: bool = False


@dataclass
class Map:
    """Values (302, time) as colours around 0, from one time to another."""

    values: np.ndarray
    span: tuple[float, float]
    unit: str


@dataclass
class Panel:
    """Some series, or a map, with a label and a height in pixels; `least` is the range that is shown at least."""

    label: str
    series: Sequence[Series] = ()
    map: Map | None = None
    height: int = 150
    least: float = 1e-3
    range: tuple[float, float] | None = field(default=None)


class Scope(anywidget.AnyWidget):
    """Panels over one axis; `frame` and `fps` say where the cursor is, counted from `start` on the axis."""

    _esm = (files(__package__) / "scope.js").read_text()

    spec = traitlets.Dict().tag(sync=True)
    data = traitlets.Bytes(b"").tag(sync=True)
    frame = traitlets.Int(0).tag(sync=True)
    fps = traitlets.Float(30.0).tag(sync=True)

    def draw(
        self,
        panels: Sequence[Panel],
        x_range: tuple[float, float],
        x_label: str,
        cursor_start: float | None = None,
        frames: int = 0,
        marks: Sequence[float] = (),
        name: str = "rig",
    ) -> None:
        """Show panels; with a cursor if it is said where on the axis its frame 0 is."""
        parts: list[np.ndarray] = []
        length = 0

        def put(values: np.ndarray) -> list[int]:
            nonlocal length
            parts.append(np.ascontiguousarray(values, np.float32).ravel())
            length += parts[-1].size
            return [length - parts[-1].size, parts[-1].size]

        def series(one: Series) -> dict[str, Any]:
            styles = {"colour": one.colour, "name": one.name, "alpha": one.alpha, "width": one.width, "dots": one.dots}
            high = None if one.high is None else put(one.high)
            return styles | {"dash": list(one.dash), "x": put(one.x), "y": put(one.y), "high": high}

        shown: list[dict[str, Any]] = []
        for panel in panels:
            shown.append({"label": panel.label, "height": panel.height, "series": [series(one) for one in panel.series]})
            if panel.map is not None:
                values = panel.map.values[_ROWS]
                shown[-1]["map"] = {
                    "values": put(values),
                    "rows": values.shape[0],
                    "columns": values.shape[1],
                    "limit": max(symmetric(values)[1], 0.01),
                    "span": list(panel.map.span),
                    "unit": panel.map.unit,
                    "groups": [[kind, rows[0], rows[-1] + 1] for kind, rows in groups(ORDER).items()],
                }
            else:
                shown[-1]["range"] = list(panel.range or _range(panel))
        axis = {"range": list(x_range), "label": x_label, "cursor": cursor_start is not None, "start": cursor_start or 0.0}
        axis |= {"frames": frames, "marks": list(marks)}
        with self.hold_sync():
            self.data = np.concatenate(parts).tobytes() if parts else b""
            self.spec = {"panels": shown, "x": axis, "name": name, "version": self.spec.get("version", 0) + 1}


def _range(panel: Panel) -> tuple[float, float]:
    """What holds all that is drawn, with some room."""
    values = [one.y for one in panel.series] + [one.high for one in panel.series if one.high is not None]
    finite = np.concatenate([np.ravel(v)[np.isfinite(np.ravel(v))] for v in values]) if values else np.empty(0)
    if not finite.size:
        return -1.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    more = max(panel.least - (high - low), 0) / 2
    low, high = low - more, high + more
    room = 0.06 * (high - low)
    return low - room, high + room
