"""`ClampRig`: a patch-clamp rig on the screen. It is thin: what its controls do are methods of `vpc.session.Session`."""

import asyncio
import html
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from .branching import Source
from .canvas import WormCanvas
from .export import write_csv, write_nwb
from .protocol import dumps, loads
from .rig_panels import of_curve, of_life, of_run
from .scope import Scope
from .session import FRAME, MODES, PAST, PRESETS, Session, select
from .waveforms import FORMS, described

try:
    import ipywidgets as w
except ImportError as error:
    raise ImportError("the rig needs ipywidgets: pip install virtual-patch-clamp[notebooks]") from error

__all__ = ["ClampRig"]

MOST = 6  # neurons whose curves are drawn
LIVE_SECONDS = 5.0  # that the curves of a living worm show
PICTURES_PER_SCOPE = 2  # frames of a living worm for one of its curves
LIMITS = {"voltage": (-100.0, 60.0), "current": (-20.0, 20.0)}  # of the level's slider, mV and pA
UNITS = {"voltage": "mV", "current": "pA"}
PARAMETERS = {"w_m": (20.0, 0.1), "w_s": (20.0, 0.1), "medium": (1.0, 0.01)}  # highest value and step of their sliders
STYLE = f"<style>{(files(__package__) / 'rig.css').read_text()}</style>"


class ClampRig(w.VBox):
    """Clamp, inject, ablate, and watch voltages and body answer.

    Parameters
    ----------
    source
        A `Worm`, a run of one, or a `Posterior`; a worm that has crawled for 4 s if none.
    neurons
        Whose curves to draw at first; the first of them is chosen to be clamped.
    truth
        The run that was recorded, to be drawn beside what is imputed.
    setup
        Any of the fields of `vpc.session.Setup`.
    """

    def __init__(
        self,
        source: Source | None = None,
        neurons: Sequence[str] = ("AVAL", "DB3", "VB3"),
        truth: xr.Dataset | None = None,
        **setup: Any,
    ):
        self.session = Session(source, **setup)
        self.truth = truth
        self.canvas, self.scope, self.curve = WormCanvas(aspect=0.36), Scope(), Scope()
        self._controls()
        self._lock, self._busy, self._said = threading.RLock(), False, ""  # JupyterLab runs callbacks beside a running cell
        self._task: asyncio.Task | None = None
        super().__init__([self._laid_out()])
        self.add_class("vpc-rig")
        self.neurons.value, self.watch.value = select(", ".join(neurons))[:1], ", ".join(neurons)
        self._connect()
        self._refresh()
        self.do(self.run_button, self.session.run)

    def _controls(self) -> None:
        common: dict[str, Any] = {"layout": w.Layout(width="98%"), "style": {"description_width": "70px"}}

        def text(name: str, value: str = "", hint: str = "", kind: type = w.Text, **more: Any) -> w.Widget:
            return kind(value, placeholder=hint, description=name, **{"continuous_update": False, **common, **more})

        def slider(name: str, high: float, step: float, low: float = 0.0, value: float = 0.0) -> w.FloatSlider:
            return w.FloatSlider(value, min=low, max=high, step=step, description=name, **common)

        def button(name: str, tip: str, icon: str = "", kind: type = w.Button) -> w.Widget:
            return kind(description=name, tooltip=tip, icon=icon, layout=w.Layout(width="auto"))

        self.search = text("find", hint="name, class, transmitter, observed ...", continuous_update=True)
        self.preset = w.Dropdown(options=["all", *PRESETS], description="preset", **common)
        self.neurons = w.SelectMultiple(options=select("all"), rows=7, description="neurons", **common)
        self.watch = text("watch")
        self.mode = w.ToggleButtons(options=list(MODES), style={"button_width": "72px"})
        self.form = w.Dropdown(options=list(FORMS), description="form", **common)
        self.level = slider("level (mV)", 60.0, 0.5, -100.0, -40.0)
        self.settings, self.start = text("settings"), text("start (s)", "0")
        self.stop, self.holding = text("stop (s)", hint="end of the run"), text("holding", hint="free")
        self.protocol = text("protocol", "[]", kind=w.Textarea, rows=4)
        self.parameters = {
            name: slider(name, high, step, value=self.session.tuned(name)) for name, (high, step) in PARAMETERS.items()
        }
        self.at = slider("from (s)", 0.0, 0.01)
        self.seconds, self.particles, self.seed = text("for (s)"), text("worms"), text("seed")

        self.run_button = button("run", "run the setup, with its control", "play")
        self.live = button("live", "let one worm live, and act on it", "heartbeat", w.ToggleButton)
        self.step_button = button("step", "go on from the end of the run", "step-forward")
        self.branch_button = button("branch", "go on from the time of the cursor", "code-fork")
        self.rewind_button = button("rewind", "back to before the last branch", "undo")
        self.reset_button = button("reset", "back to the first source, and nothing done to it", "refresh")
        self.iv_button = button("I-V", "step the first chosen neuron through voltages", "line-chart")
        self.code_button = button("copy as code", "the cell that repeats this run")
        self.csv_button, self.nwb_button = button("CSV", "write rig.csv"), button("NWB", "write rig.nwb")
        wide = {"layout": w.Layout(width="260px"), "style": {"description_width": "100px"}}
        self.iv_text = text("first, by, count", "-100, 10, 14", **wide)
        self.code = w.Textarea("", rows=8, layout=w.Layout(width="98%", display="none"))
        self.note, self.trust = w.HTML(""), w.HTML("")
        self.note.add_class("vpc-note")

    def _laid_out(self) -> w.Widget:
        def title(text: str) -> w.HTML:
            return w.HTML(f'<div class="vpc-title">{text}</div>')

        left = w.VBox(
            [title("neurons"), self.search, self.preset, self.neurons, self.watch, title("clamp"), self.mode, self.form,
             self.level, self.settings, self.start, self.stop, self.holding, self.protocol, title("worm"),
             *self.parameters.values(), title("run"), self.at, self.seconds, self.particles, self.seed],
            layout=w.Layout(width="340px", flex="0 0 340px"),
        )  # fmt: skip
        buttons = (self.run_button, self.live, self.step_button, self.branch_button, self.rewind_button, self.reset_button)
        bar = w.HBox([*buttons, self.code_button, self.csv_button, self.nwb_button], layout=w.Layout(flex_flow="row wrap"))
        below = w.HBox(
            [w.VBox([title("trust"), self.trust], layout=w.Layout(flex="1 1 0")),
             w.VBox([w.HBox([self.iv_button, self.iv_text]), self.curve], layout=w.Layout(flex="1 1 0"))]
        )  # fmt: skip
        right = w.VBox([bar, self.note, self.canvas, self.scope, below, self.code])
        right.layout = w.Layout(flex="1 1 0", min_width="480px", padding="0 8px 0 0")
        return w.VBox([w.HTML(STYLE), w.HBox([left, right])])

    def _connect(self) -> None:
        session = self.session
        w.jslink((self.canvas, "frame"), (self.scope, "frame"))
        self.search.observe(lambda _: self._offer(select(self.search.value or "all", session.observed)), "value")
        self.preset.observe(lambda _: self._offer(select(", ".join(PRESETS.get(self.preset.value, ("all",))))), "value")
        self.neurons.observe(lambda _: self._choose(), "value")
        self.watch.observe(lambda _: self.do(self.watch, self._watch), "value")
        self.mode.observe(lambda _: self._set_mode(), "value")
        self.form.observe(lambda _: self._set_form(), "value")
        self._slide(self.level, lambda _: self._clamp(), self._level)
        for name, slider in self.parameters.items():
            self._slide(slider, partial(self._tune, name), partial(session.tuned, name))
        self._slide(self.at, lambda value: session.change(at=value), lambda: session.setup.at)
        for field in (self.settings, self.start, self.stop, self.holding):
            field.observe(lambda change: self.do(change["owner"], self._clamp, run=True), "value")
        self.protocol.observe(lambda _: self.do(self.protocol, self._typed, run=True), "value")
        for name, field, kind in (
            ("seconds", self.seconds, float),
            ("particles", self.particles, int),
            ("seed", self.seed, int),
        ):
            field.observe(
                lambda change, name=name, kind=kind: self.do(
                    change["owner"], lambda: session.change(**{name: _number(name, change["new"], kind)}), run=True
                ),
                "value",
            )
        self.run_button.on_click(lambda b: self.do(b, session.run))
        self.step_button.on_click(lambda b: self.do(b, session.step))
        self.branch_button.on_click(lambda b: self.do(b, lambda: session.branch(self.cursor), run=True))
        self.rewind_button.on_click(lambda b: self.do(b, session.rewind))
        self.reset_button.on_click(lambda b: self.do(b, session.reset, run=True))
        self.iv_button.on_click(lambda b: self.do(self.iv_text, self._measure))
        self.code_button.on_click(lambda b: self.do(b, self._copy))
        self.csv_button.on_click(lambda b: self.do(b, lambda: self._export(write_csv, "rig.csv")))
        self.nwb_button.on_click(lambda b: self.do(b, lambda: self._export(write_nwb, "rig.nwb")))
        self.live.observe(lambda _: self._live(), "value")

    def _level(self) -> Any:
        """What the first neuron chosen is commanded; the slider's own value if nothing."""
        mode, command = self.session.mode(self.chosen[0]) if self.chosen else ("free", None)
        return command if mode in LIMITS else self.level.value

    def _slide(self, slider: w.FloatSlider, act: Callable[[float], None], known: Callable[[], Any]) -> None:
        """Let a slider act when it is moved; a browser that only rounds what it was told has not moved it."""

        def moved(change: dict[str, Any]) -> None:
            now = known()
            if not isinstance(now, float) or abs(change["new"] - now) > 0.5 * slider.step + 1e-9:
                self.do(slider, lambda: act(change["new"]), run=True)

        slider.observe(moved, "value")

    def do(self, control: w.Widget, act: Callable[[], Any], run: bool = False, refresh: bool = True) -> bool:
        """Do what a control asks for, and then run; nonsense marks the control and is told, and leaves everything as it was."""
        with self._lock:
            return not self._busy and self._done(control, act, run, refresh)

    def _done(self, control: w.Widget, act: Callable[[], Any], run: bool, refresh: bool) -> bool:
        self._busy = True
        try:
            act()
            if run and not self.live.value:
                self.session.run()
            control.remove_class("vpc-bad")
            if refresh:
                self.note.value, self._said = self._said, ""
                self._refresh()
            return True
        except Exception as error:  # nobody at a rig wants a traceback
            known = isinstance(error, ValueError | OSError | ImportError)
            self.note.value = html.escape(str(error) if known else f"this should not happen: {type(error).__name__}: {error}")
            control.add_class("vpc-bad")
            return False
        finally:
            self._busy = False

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Set controls without doing what they ask for."""
        with self._lock:
            busy, self._busy = self._busy, True
            try:
                yield
            finally:
                self._busy = busy

    @property
    def chosen(self) -> list[str]:
        """The neurons that are clamped."""
        return list(self.neurons.value)

    @property
    def drawn(self) -> list[str]:
        """The neurons whose curves are drawn."""
        return list(dict.fromkeys((*self.chosen, *select(self.watch.value, self.session.observed))))[:MOST]

    def _watch(self) -> None:
        for part in self.watch.value.split(","):
            if part.strip() and not select(part, self.session.observed):
                raise ValueError(f"watch must name neurons, classes or types, and {part.strip()!r} fits none")

    @property
    def cursor(self) -> float:
        """Where the cursor is, s since the branch; a frame of the run."""
        return round(round(self.canvas.frame / self.canvas.fps / 0.02) * 0.02, 9)

    def _offer(self, names: list[str]) -> None:
        chosen = [name for name in self.neurons.value if name in names] or names[:1]
        with self.neurons.hold_sync():  # the browser must not see a choice that the list does not hold
            self.neurons.options, self.neurons.value = names, chosen

    def _follow(self) -> None:
        """Let mode and level be those of the first neuron chosen."""
        with self._quietly():
            if self.chosen:
                self.mode.value, command = self.session.mode(self.chosen[0])
                if isinstance(command, float):
                    self._set_level(self.mode.value, command)

    def _choose(self) -> None:
        self._follow()
        self._show()

    def _set_mode(self) -> None:
        with self._lock:
            if not self._busy:
                with self._quietly():
                    self._set_level(self.mode.value, -40.0 if self.mode.value == "voltage" else 5.0)
                self.do(self.mode, self._clamp, run=True)

    def _set_level(self, mode: str, value: float) -> None:
        """Let the slider have the limits and the unit of a mode."""
        if mode in LIMITS:
            low, high = LIMITS[mode]
            with self.level.hold_sync():
                self.level.min, self.level.max = min(low, self.level.min), max(high, self.level.max)
                self.level.value = value
                self.level.min, self.level.max, self.level.description = low, high, f"level ({UNITS[mode]})"

    def _set_form(self) -> None:
        with self._quietly():
            self.settings.value = FORMS[self.form.value][1]
        self.do(self.form, self._clamp, run=True)

    def _clamp(self) -> None:
        command = described(self.form.value, self.level.value, self.settings.value)
        start, stop, holding = (
            None if not field.value.strip() else _number(name, field.value, float)
            for name, field in (("start", self.start), ("stop", self.stop), ("holding", self.holding))
        )
        self.session.clamp(self.chosen, self.mode.value, command, start or 0.0, stop, holding)

    def _tune(self, name: str, value: float) -> None:
        self.session.tune(**{name: value})

    def _typed(self) -> None:
        self.session.change(protocol=loads(self.protocol.value))

    def _measure(self) -> None:
        words = self.iv_text.value.split(",")
        if len(words) != 3 or not self.chosen:
            raise ValueError(f"I-V needs a chosen neuron and three numbers, such as -100, 10, 14; got {self.iv_text.value!r}")
        first, increment = (_number(name, word, float) for name, word in zip(("first", "by"), words, strict=False))
        found = self.session.iv(self.chosen[0], first, increment, _number("count", words[2], int))
        self.curve.draw(*of_curve(found, self.chosen[0]), name="iv")

    def _copy(self) -> None:
        self.code.value = self.session.code()
        self.code.layout.display = ""

    def _export(self, write: Callable[..., Path], name: str) -> None:
        path = write(self.session.fan.sel(arm="experiment"), name, self.drawn)
        self._said = html.escape(f"written to {path}")

    def _refresh(self) -> None:
        """Let the controls say what the session is, and draw its last run."""
        session = self.session
        times = session.given.times
        with self._quietly():
            with self.at.hold_sync():
                self.at.min, self.at.max = min(self.at.min, times[0]), max(self.at.max, times[-1])
                self.at.value = session.setup.at
                self.at.min, self.at.max = times[0], times[-1]
            self.at.disabled = len(times) < 2
            self.seconds.value, self.particles.value = f"{session.setup.seconds:g}", str(session.setup.particles)
            self.seed.value, self.protocol.value = str(session.setup.seed), dumps(session.setup.protocol)
            for name, slider in self.parameters.items():
                slider.value = session.tuned(name)
            self.rewind_button.disabled = session.depth == 0
        self._follow()
        if session.last is not None and not self.live.value:
            self.canvas.load(session.last.experiment.isel(sample=int(session.last.living.argmax())), self.canvas.frame)
            self._show()
        rows = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(v)}</td></tr>" for k, v in session.trust().items())
        self.trust.value = f'<table class="vpc-trust">{rows}</table>'

    def _show(self) -> None:
        """Draw the curves of the last run."""
        session, names = self.session, self.drawn
        if session.last is None or not names or self.live.value:
            return
        view = session.view(names)
        panels = of_run(view, names, self._true(names) if self.truth is not None and session.depth == 0 else None)
        begin = float(view.past[0]) if len(view.past) else 0.0
        self.scope.fps = self.canvas.fps
        frames = round(view.time[-1] * self.canvas.fps) + 1
        label = "time since the branch (s); dashed: without the experiment"
        self.scope.draw(panels, (begin, view.time[-1]), label, 0.0, frames, [0.0] if begin else [])

    def _true(self, names: list[str]) -> xr.DataArray:
        """What truly happened around the branch."""
        assert self.truth is not None and self.session.last is not None
        at, seconds = self.session.last.setup.at, self.session.last.setup.seconds
        true = self.truth["voltage"].sel(neuron=names, time=slice(at - PAST, at + seconds))
        return true.assign_coords(time=true["time"] - at)

    def _live(self) -> None:
        if not self.live.value:
            if self._task is not None:
                self._task.cancel()
            self._task = None
            self.do(self.live, self.session.end_live)
            return
        self._lived: deque[xr.Dataset] = deque(maxlen=round(LIVE_SECONDS / (FRAME * 0.01)))
        self._count = 0
        try:
            self._task = asyncio.get_running_loop().create_task(self._go_on())
        except RuntimeError:  # no loop: `advance` is called by hand
            self._task = None

    async def _go_on(self) -> None:
        while self.live.value:
            begin = time.perf_counter()
            self.do(self.live, self.advance, refresh=False)
            await asyncio.sleep(max(0.002, FRAME * 0.01 - (time.perf_counter() - begin)))

    def advance(self) -> None:
        """The next frame of the living worm."""
        run = self.session.live()
        self._lived.append(run[["voltage"]].isel(time=slice(1, None)))
        self._count += 1
        end = run.isel(time=-1)
        self.canvas.push(end["body"].values, end["muscle"].values)
        if self._count % PICTURES_PER_SCOPE == 0 and self.drawn:
            values = np.concatenate([one["voltage"].sel(neuron=self.drawn).values for one in self._lived])
            now = self._count * FRAME * 0.01
            begin = max(0.0, now - LIVE_SECONDS)
            self.scope.draw([of_life(values, now, self.drawn)], (begin, begin + LIVE_SECONDS), "time (s)")


def _number(name: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"{name} must be {what}, got {text!r}") from None
