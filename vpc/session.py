"""`Session`: what the clamp rig does, without its widgets: a setup, runs of it, branches from them, code that repeats them.

Every run is a branch with its control. A change that is refused leaves the setup and the last run as they were.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from wormsim import check

from .as_code import code_of, code_of_source
from .branching import Preparation, Source, beside, branch, prepare
from .connectome import KATO_NEURONS, NEURONS, find, index
from .curves import iv, record_family
from .neurons import STEP, N
from .posterior import Posterior
from .protocol import Ablate, Action, Change, CurrentClamp, StepFamily, VoltageClamp, check_protocol, excerpt, inputs
from .waveforms import Held
from .worm import Worm

__all__ = ["MODES", "PRESETS", "Run", "Session", "Setup", "View", "select"]

EVERY = 0.02  # s between the frames of a run
FRAME = 3  # steps of a frame of a living worm: 30 ms
HIGHEST, LOWEST = 20.0, -80.0  # mV: beyond these, no neuron of a worm has been seen (Goodman 1998; Liu 2018)
PRESETS = {"AVA": ("AVA",), "AVB": ("AVB",), "B-type": ("DB", "VB"), "Kato 49": KATO_NEURONS}
MODES = ("free", "voltage", "current", "ablated")
PAST = 1.0  # s of the posterior that are shown before the branch


@dataclass(frozen=True)
class Setup:
    """What is to be run: from which moment, s, for how long, what is done, and by how many worms with which noise."""

    at: float
    seconds: float = 2.0
    protocol: tuple[Action, ...] = ()
    particles: int = 1
    seed: int = 0


class View(NamedTuple):
    """What the rig draws of a run, for some neurons."""

    time: np.ndarray
    bands: np.ndarray  # (neuron, stat, time), mV: q05, q25, q50, q75, q95
    control: np.ndarray  # (neuron, time), mV: the median
    command: np.ndarray  # (neuron, time), mV or pA; NaN where the neuron is free
    current: np.ndarray  # (neuron, stat, time), pA; NaN where there is no voltage clamp
    change: np.ndarray  # (302, time), mV: the mean less each neuron's mean over time without the experiment
    past: np.ndarray  # times before the branch, s, negative
    known: np.ndarray  # (neuron, stat, past time), mV: as `bands`, of the posterior
    past_change: np.ndarray  # (302, past time), mV: as `change`
    seen_time: np.ndarray  # when there are frames of the recording, s since the branch
    seen: np.ndarray  # (neuron, seen time), fluorescence; NaN if it was not observed
    fluorescence: np.ndarray  # (neuron, time): the median


class Run:
    """The worms of an experiment, and the same without it."""

    def __init__(self, setup: Setup, experiment: xr.Dataset, control: xr.Dataset):
        self.setup, self.experiment, self.control = setup, experiment, control
        self.living = experiment["ok"].isel(time=-1).values & control["ok"].isel(time=-1).values  # to the end, in both

    @cached_property
    def fan(self) -> xr.Dataset:
        """Both, as `vpc.branch` gives them: joining takes longer than a slider may wait, so it is done when asked for."""
        return beside(self.experiment, self.control)


class Session:
    """An experiment at work.

    Parameters
    ----------
    source
        A `Worm`, a run of one, or a `Posterior`; a worm that has crawled for 4 s if none.
    setup
        Any of the fields of `Setup`.
    """

    def __init__(self, source: Source | None = None, **setup: Any):
        self.source: Source = Worm().simulate(4.0, progress=False) if source is None else source
        self.given: Preparation = prepare(self.source)
        self.setup = Setup(float(self.given.times[-1]), particles=min(100, self.given.most or 1))
        self.last: Run | None = None  # the last one that went well
        self._before: list[tuple[Source, Run]] = []  # sources, and the runs that were branched from
        self._control: tuple[Setup, xr.Dataset] | None = None  # of the source, with a setup without protocol
        self._live: xr.Dataset | None = None
        self._lived = 0  # steps
        self.change(**setup)

    @property
    def depth(self) -> int:
        """How many branches lie behind."""
        return len(self._before)

    def change(self, **changes: Any) -> None:
        """Change fields of the setup; nothing changes if any is refused."""
        known = [field.name for field in fields(Setup)]
        for name in changes:
            if name not in known:
                raise ValueError(f"a setup has {', '.join(known)}, not {name!r}")
        new = replace(self.setup, **changes)
        times, most = self.given.times, self.given.most
        rule = f"from {times[0]:g} to {times[-1]:g} s"
        at = check.number("at", new.at, rule, lambda t: times[0] - STEP / 2 <= t <= times[-1] + STEP / 2)
        at = float(times[np.abs(times - at).argmin()])
        seconds = check.number("seconds", new.seconds, f"from {EVERY} to 60 s", lambda s: EVERY <= s <= 60)
        seconds = round(round(seconds / EVERY) * EVERY, 9)
        particles = check.whole("particles", new.particles, most=most or 1000)
        seed = check.whole("seed", new.seed, least=0)
        protocol = check_protocol(new.protocol)
        total = round(seconds / STEP)
        inputs(protocol, total)
        self.given.worm._check_ablated(protocol, total)
        self.setup = Setup(at, seconds, protocol, particles, seed)

    def clamp(
        self,
        neurons: Iterable[str],
        mode: str,
        command: Any = 0.0,
        start: float = 0.0,
        stop: float | None = None,
        holding: float | None = None,
    ) -> None:
        """Put neurons into a mode: "free", "voltage" (command in mV), "current" (pA) or "ablated"; what was done before ends.

        Before start and after stop they are free, or held at `holding`.
        """
        names = list(neurons)
        index(names)
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        kept = [action for action in self.setup.protocol if getattr(action, "neuron", None) not in names]
        if holding is not None:
            command, start, stop = Held(holding, command, start, stop), 0.0, None
        make: dict[str, Callable[[str], Action]] = {
            "voltage": lambda name: VoltageClamp(name, command, start=start, stop=stop),
            "current": lambda name: CurrentClamp(name, command, start=start, stop=stop),
            "ablated": lambda name: Ablate(name, start=start, stop=stop),
        }
        self.change(protocol=(*kept, *([make[mode](name) for name in names] if mode in make else [])))

    def mode(self, neuron: str) -> tuple[str, Any]:
        """The mode that a neuron is in, and its command."""
        for action in self.setup.protocol:
            if getattr(action, "neuron", None) == neuron:
                if isinstance(action, Ablate):
                    return "ablated", None
                return ("voltage", action.mv) if isinstance(action, VoltageClamp) else ("current", getattr(action, "pa", None))
        return "free", None

    def tune(self, **parameters: float) -> None:
        """Give the worm other parameters, for the whole run."""
        own = self.given.worm.parameters
        now = {name: value for action in self._tuning() for name, value in action.parameters.items()} | parameters
        now = {name: value for name, value in now.items() if value != own[name]}
        kept = [action for action in self.setup.protocol if action not in self._tuning()]
        self.change(protocol=(*kept, *([Change(now)] if now else [])))

    def _tuning(self) -> list[Change]:
        return [a for a in self.setup.protocol if isinstance(a, Change) and a.start == 0 and a.stop is None]

    def tuned(self, name: str) -> float:
        """A parameter of the worm, as it is at the start of the run."""
        now = dict(self.given.worm.parameters)
        for action in self._tuning():
            now |= action.parameters
        return float(now[name])  # type: ignore[arg-type]

    @property
    def observed(self) -> list[str]:
        """Neurons that were recorded, if the source knows."""
        first = self._before[0][0] if self._before else self.source
        return first.dataset["observed"].values.tolist() if isinstance(first, Posterior) else []

    def run(self) -> None:
        """Branch, with control, as the setup says."""
        s = self.setup

        def live(protocol: tuple[Action, ...]) -> xr.Dataset:
            return branch(self.given, s.at, protocol, s.seconds, s.seed, s.particles, every=EVERY, progress=False)

        alike = replace(s, protocol=())
        if self._control is None or self._control[0] != alike:
            self._control = alike, live(())
        run = Run(s, live(s.protocol), self._control[1])
        if not run.living.any():
            causes = ", ".join(filter(None, np.unique(run.experiment["failure"].values)))
            raise ValueError(f"all worms fail within {s.seconds:g} s: {causes}; do less to them, or stop earlier")
        self.last = run

    @property
    def fan(self) -> xr.Dataset:
        """The last run, as `vpc.branch` gives it."""
        return self._run().fan

    def _run(self) -> Run:
        if self.last is None:
            raise ValueError("there is no run yet: run first")
        return self.last

    def branch(self, at: float) -> None:
        """Go on from a moment of the last run, whose worms are the source from now on; `rewind` comes back."""
        run, before = self._run(), (self.source, self.given)
        self.source, self.given = run.experiment, prepare(run.experiment)
        try:
            self.change(at=at)
        except ValueError:
            self.source, self.given = before
            raise
        self._before.append((before[0], run))
        self._control = None

    def step(self) -> None:
        """Go on from the end of the last run for as long again."""
        self.branch(self._run().setup.seconds)
        self.run()

    def rewind(self) -> None:
        """Come back to before the last branch."""
        if not self._before:
            raise ValueError("there is nothing to rewind: this is the first source")
        self.source, self.last = self._before.pop()
        self.given, self.setup, self._control = prepare(self.source), self.last.setup, None

    def reset(self) -> None:
        """Come back to the first source, and do nothing to it."""
        while self._before:
            self.rewind()
        self.change(protocol=())
        self.last = None

    def live(self) -> xr.Dataset:
        """The next 30 ms of one worm to which the setup's protocol is done, again and again; what was changed acts at once."""
        if self._live is None:
            frame = int(np.abs(self.given.times - self.setup.at).argmin())
            start = self.given.start(frame, 1)
            start = start.isel(sample=0) if start is not None and "sample" in start.dims else start
            self._live, self._lived = start, 0
        total = round(self.setup.seconds / STEP)
        first = self._lived % max(total - total % FRAME, FRAME)
        actions = excerpt(self.setup.protocol, total, first, first + FRAME)
        run = self.given.worm.simulate(
            FRAME * STEP, self.setup.seed, 1, actions, self.given.noise, self._live, every=STEP, progress=False
        )
        self._lived += FRAME
        self._live = run.isel(time=-1) if bool(run["ok"][-1]) else None
        if self._live is None:
            raise ValueError(f"the worm has failed, and begins anew: {run['failure'].item()}; do less to it")
        return run

    def end_live(self) -> None:
        """Let the next `live` begin anew."""
        self._live = None

    def iv(self, neuron: str, first: float, increment: float, count: int, clamp: str = "voltage") -> xr.Dataset:
        """The I-V curve of a neuron from the last half of steps as long as the setup's run."""
        s = self.setup
        family = StepFamily(neuron, first, increment, count, clamp=clamp)
        seen = record_family(self.given, family, s.seconds, s.at, s.seed, s.particles, progress=False)
        return iv(seen, (s.seconds / 2, s.seconds))

    def view(self, neurons: Iterable[str]) -> View:
        """What there is to see of some neurons in the last run; worms that failed are left out."""
        run, names = self._run(), list(neurons)
        where, time, living = index(names), run.experiment["time"].values, run.living
        voltage, without = (arm["voltage"].values[living] for arm in (run.experiment, run.control))  # (sample, time, neuron)
        levels = (0.05, 0.25, 0.5, 0.75, 0.95)
        bands = np.quantile(voltage[:, :, where], levels, axis=0).transpose(2, 0, 1)
        control = np.quantile(without[:, :, where], 0.5, axis=0).T
        command = np.full((len(names), len(time)), np.nan)
        current = np.full((len(names), len(levels), len(time)), np.nan)
        stride, total = round(EVERY / STEP), round(run.setup.seconds / STEP)
        given = inputs(run.setup.protocol, total)
        steps = np.minimum(np.arange(len(time)) * stride, total - 1)
        for i, k in enumerate(where):
            for which, commands in ((given.injected, given.current), (given.clamped, given.command)):
                if k in which:
                    command[i] = commands[steps, list(which).index(k)]
        if "current" in run.experiment:
            clamps = run.experiment["clamp"].values.tolist()
            for i, name in enumerate(names):
                if name in clamps:
                    one = run.experiment["current"].values[living][:, :, clamps.index(name)]
                    on = np.isfinite(one).all(axis=0)
                    current[i][:, on] = np.quantile(one[:, on], levels, axis=0)
        usual = without.mean(axis=(0, 1))
        change = (voltage.mean(axis=0) - usual).T
        light = np.quantile(run.experiment["fluorescence"].values[living][:, :, where], 0.5, axis=0).T
        past, known, before, seen_time, seen = self._recorded(names, run.setup)
        return View(
            time, bands, control, command, current, change, past, known, before - usual[:, None], seen_time, seen, light
        )

    def _recorded(self, names: list[str], setup: Setup) -> tuple[np.ndarray, ...]:
        """What the posterior and the recording say around the branch."""
        if not isinstance(self.source, Posterior):
            return np.empty(0), np.empty((len(names), 5, 0)), np.empty((N, 0)), np.empty(0), np.empty((len(names), 0))
        at, data = setup.at, self.source.dataset
        past = data.sel(time=slice(at - PAST - STEP / 2, at + STEP / 2))
        known = past["voltage"].sel(stat=["q05", "q25", "q50", "q75", "q95"], neuron=names).transpose("neuron", "stat", "time")
        around = data["fluorescence"].sel(time=slice(at - PAST - STEP / 2, at + setup.seconds + STEP / 2))
        seen = around.reindex(observed=names).values.T
        mean = past["voltage"].sel(stat="mean").values.T
        return past["time"].values - at, known.values, mean, around["time"].values - at, seen

    def trust(self) -> dict[str, str]:
        """What speaks for or against the last run."""
        out: dict[str, str] = {"source": self.given.label}
        first = self._before[0][0] if self._before else self.source
        if isinstance(first, Posterior):
            at = self._before[0][1].setup.at if self._before else self.setup.at
            frame = first.dataset.sel(time=at, method="nearest")
            known = "" if first.evidence_is_unbiased else ", approximate"
            out["effective sample size"] = f"{float(frame['ess']):.0f} of {first.dataset.attrs['particles']} at {at:g} s"
            out["log evidence"] = f"{first.log_evidence:.1f}{known}"
            out["failed while filtering"] = f"{100 * float(first.failed.max()):.1f} % at most"
        if self.last is not None:
            voltage = self.last.experiment["voltage"].values
            failed = 1 - float(self.last.experiment["ok"].isel(time=-1).mean())
            beyond = ((voltage > HIGHEST) | (voltage < LOWEST)).mean(axis=(0, 1))
            most = f" (most: {list(NEURONS)[beyond.argmax()]})" if beyond.any() else ""
            out["failed in this run"] = f"{100 * failed:.1f} % of {voltage.shape[0]} worms"
            out["voltages beyond -80 to 20 mV"] = f"{100 * beyond.mean():.2g} %{most}"
        return out

    def code(self, folder: str | Path = ".") -> str:
        """A cell that repeats the last run in a new kernel, to the last bit.

        A run or a posterior that it begins with is saved into the folder, under a name made of what it holds.
        """
        first = self._before[0][0] if self._before else self.source
        setups = [run.setup for _, run in self._before] + [self._run().setup]
        lines = ["import vpc", "", f"source = {code_of_source(first, Path(folder))}"]
        for k, s in enumerate(setups):
            source = 'fan.sel(arm="experiment")' if k else "source"
            actions = "".join(f"\n    {code_of(action)}," for action in s.protocol)
            lines.append(f"protocol = [{actions}\n]" if actions else "protocol = []")
            lines.append(
                f"fan = vpc.branch(\n    {source}, at={s.at!r}, protocol=protocol, seconds={s.seconds!r}, seed={s.seed}, "
                f"particles={s.particles},\n    control=True, every={EVERY}, progress=False,\n)"
            )
        return "\n".join(lines)


def select(words: str, observed: Iterable[str] = ()) -> list[str]:
    """Neurons that every one of some words fits: a name or its beginning, a class, a type, a transmitter, (un)observed.

    Alternatives are separated by commas, as in "DB, VB" or "observed inter".
    """
    seen, out = set(observed), dict[str, None]()
    for part in filter(None, (part.strip() for part in words.split(","))):
        names = list(NEURONS)
        for word in part.split():
            fitting = _fitting(word, seen)
            names = [name for name in names if name in fitting]
        out.update(dict.fromkeys(names))
    return list(out)


def _fitting(word: str, observed: set[str]) -> set[str]:
    if word.lower() in ("observed", "unobserved"):
        return observed if word.lower() == "observed" else set(NEURONS) - observed
    try:
        return set(find(word))
    except ValueError:
        low = word.lower()
        about = {n.name: (n.name, n.type, *n.transmitters) for n in NEURONS.values()}
        return {name for name, texts in about.items() if any(text.lower().startswith(low) for text in texts)}
