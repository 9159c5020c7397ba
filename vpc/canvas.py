"""`WormCanvas`: a widget for notebooks that plays a worm at the screen's own rate, or shows a living one frame by frame."""

from importlib.resources import files

import numpy as np
import xarray as xr

from wormsim import check
from wormsim import geometry as geo

from .connectome import NEURONS
from .explorer import places
from .pictures import one_worm, symmetric

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError("the canvas needs anywidget: pip install virtual-patch-clamp[notebooks]") from error

__all__ = ["WormCanvas"]

FRAMES_PER_SECOND = 30  # kept of a run; the browser draws the poses between them
_POSITION, _SIDE = places(NEURONS)


class WormCanvas(anywidget.AnyWidget):
    """A worm on a canvas that follows it, with a play button and a slider.

    Parameters
    ----------
    run
        Of one worm, with `body` and, if they are to be seen, `muscle`, `voltage` and `objects`; none for `push`.

    Attributes
    ----------
    body, muscle, voltage, objects
        What is drawn, as bytes: float32 (frame, rod, coord) in mm and rad; uint8 (frame, side, segment), 255 for fully active;
        uint8 (frame, neuron) as the difference from each neuron's mean, 128 for none; float32 (object, shape) in mm.
    fps
        Frames a second of what is played.
    frame, playing
        Which frame is shown, and whether it goes on; both follow the browser and can be set.
    view, aspect
        Width of the picture, mm, and its height as a share of that; 0.6 holds a worm that crawls upwards too.
    """

    _esm = (files(__package__) / "canvas.js").read_text()

    body = traitlets.Bytes(b"").tag(sync=True)
    muscle = traitlets.Bytes(b"").tag(sync=True)
    voltage = traitlets.Bytes(b"").tag(sync=True)
    objects = traitlets.Bytes(b"").tag(sync=True)
    fps = traitlets.Float(FRAMES_PER_SECOND).tag(sync=True)
    frame = traitlets.Int(0).tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    view = traitlets.Float(1.6).tag(sync=True)
    aspect = traitlets.Float(0.6).tag(sync=True)
    radius = traitlets.List(geo.RADIUS.tolist()).tag(sync=True)
    position = traitlets.List(_POSITION.tolist()).tag(sync=True)
    side = traitlets.List(_SIDE.tolist()).tag(sync=True)

    def __init__(self, run: xr.Dataset | None = None, **traits: object):
        super().__init__(**traits)
        if run is not None:
            self.load(run)

    def load(self, run: xr.Dataset, frame: int = 0) -> None:
        """Show a run, from its beginning or from another frame."""
        one_worm(run, "body")
        ok = run["ok"].values if "ok" in run else np.ones(run.sizes["time"], bool)
        if ok.sum() < 2:
            raise ValueError("run must hold at least two frames before the worm fails")
        run = run.isel(time=ok)
        step = float(run["time"][1] - run["time"][0])
        every = max(1, round(1 / (FRAMES_PER_SECOND * step)))
        voltage = b""
        if "voltage" in run:
            change = run["voltage"].sel(neuron=list(NEURONS)).values
            change = change - change.mean(axis=0)
            voltage = _byte((change[::every] / symmetric(change)[1] + 1) / 2)
        with self.hold_sync():  # the browser must not see a new body with old muscles
            self.body = run["body"].values[::every].astype(np.float32).tobytes()
            self.muscle = _byte(run["muscle"].values[::every]) if "muscle" in run else b""
            self.voltage = voltage
            self.objects = run["objects"].values.astype(np.float32).tobytes() if "objects" in run else b""
            self.fps = 1 / (every * step)
            self.frame = min(frame, (run.sizes["time"] - 1) // every)

    def push(self, body: np.ndarray, muscle: np.ndarray | None = None) -> None:
        """Show one frame of a living worm: body (rod, coord) in mm and rad, muscle (side, segment) from 0 to 1."""
        body = check.array("body", body, (geo.RODS, 3))
        if muscle is not None:
            muscle = check.array("muscle", muscle, (2, geo.SEGMENTS))
        with self.hold_sync():
            self.body = body.astype(np.float32).tobytes()
            self.muscle = b"" if muscle is None else _byte(muscle)
            self.voltage = b""
            self.playing, self.frame = False, 0


def _byte(share: np.ndarray) -> bytes:
    """Numbers from 0 to 1 as one byte each."""
    return np.round(np.clip(share, 0, 1) * 255).astype(np.uint8).tobytes()
