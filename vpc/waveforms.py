"""What a clamp may command over time, as plain data: ramps, steps, pulses, sines, noise, samples; and a value held around."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from wormsim import check

from .neurons import STEP

__all__ = ["Data", "Held", "Noise", "Pulses", "Ramp", "Samples", "Sine", "Steps", "coerce", "described", "from_csv"]


class Data:
    """A dataclass that turns into plain data and back."""

    kinds: ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls) -> None:
        Data.kinds[cls.__name__] = cls


def coerce(data: Any, *names: str) -> None:
    """Make fields of a frozen dataclass plain finite numbers."""
    for name in names:
        value = check.number(f"{name} of {type(data).__name__}", getattr(data, name), "a finite number", lambda _: True)
        object.__setattr__(data, name, value)


def _sequence(data: Any, name: str) -> None:
    """Make a field of a frozen dataclass a tuple of finite numbers, at least one."""
    values, kind = getattr(data, name), type(data).__name__
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{name} of {kind} must be a sequence of numbers, got {values!r}")
    numbers = list(values)
    if not numbers:
        raise ValueError(f"{name} of {kind} must not be empty")
    object.__setattr__(data, name, tuple(check.array(f"{name} of {kind}", numbers, (len(numbers),)).tolist()))


@dataclass(frozen=True)
class Ramp(Data):
    """From one value to another over the whole action."""

    begin: float
    end: float

    def __post_init__(self) -> None:
        coerce(self, "begin", "end")

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return np.linspace(self.begin, self.end, len(time))


@dataclass(frozen=True)
class Steps(Data):
    """One value after the other, each for as long."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        _sequence(self, "values")

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return np.array(self.values)[np.arange(len(time)) * len(self.values) // max(len(time), 1)]


@dataclass(frozen=True)
class Pulses(Data):
    """Pulses of some width (s), one each period (s), over a base."""

    height: float
    width: float
    period: float
    base: float = 0.0

    def __post_init__(self) -> None:
        coerce(self, "height", "width", "period", "base")
        check.number("width of Pulses", self.width, f"at least {STEP} s", lambda s: s >= STEP)
        check.number("period of Pulses", self.period, "longer than the width, in s", lambda s: s > self.width)

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return np.where((time + 1e-9) % self.period < self.width, self.height, self.base)


@dataclass(frozen=True)
class Sine(Data):
    """A sine of some amplitude and frequency (Hz) around an offset."""

    amplitude: float
    frequency: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        coerce(self, "amplitude", "frequency", "offset")
        check.number("frequency of Sine", self.frequency, f"between 0 and {0.5 / STEP:g} Hz", lambda f: 0 < f < 0.5 / STEP)

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return self.offset + self.amplitude * np.sin(2 * np.pi * self.frequency * time)


@dataclass(frozen=True)
class Noise(Data):
    """Gaussian noise around a mean, new at each step; the same for the same seed."""

    sd: float
    mean: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        coerce(self, "sd", "mean")
        check.number("sd of Noise", self.sd, "0 or more", lambda sd: sd >= 0)
        object.__setattr__(self, "seed", check.whole("seed of Noise", self.seed, least=0))

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return self.mean + self.sd * np.random.default_rng(self.seed).standard_normal(len(time))


@dataclass(frozen=True)
class Samples(Data):
    """Values at given times since the start (s), with straight lines between them, and the ends before and after."""

    times: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        _sequence(self, "times")
        _sequence(self, "values")
        if len(self.times) != len(self.values):
            raise ValueError(f"Samples must have as many values as times, got {len(self.values)} and {len(self.times)}")
        if np.any(np.diff(self.times) <= 0):
            raise ValueError("times of Samples must increase")

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return np.interp(time, self.times, self.values)


@dataclass(frozen=True)
class Held(Data):
    """A command from `start` to `stop`, s since the clamp began (until its end if None), and a holding value around it."""

    holding: float
    command: Any
    start: float = 0.0
    stop: float | None = None

    def __post_init__(self) -> None:
        coerce(self, "holding", "start")
        check.number("start of Held", self.start, "0 s or later", lambda s: s >= 0)
        if self.stop is not None:
            coerce(self, "stop")
            check.number("stop of Held", self.stop, f"after its start at {self.start:g} s", lambda s: s > self.start)
        if not hasattr(self.command, "sample"):
            rule = "a finite number or a waveform"
            object.__setattr__(self, "command", check.number("command of Held", self.command, rule, lambda _: True))

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        out = np.full(len(time), self.holding)
        first, last = round(self.start / STEP), len(time) if self.stop is None else round(self.stop / STEP)
        if not first < last <= len(time):
            raise ValueError(
                f"protocol has a command that does not fit its clamp: {self} needs a step of {STEP} s or more, and the clamp "
                f"lasts {len(time) * STEP:g} s; simulate longer, or start or stop it otherwise"
            )
        inside = time[first:last] - self.start
        out[first:last] = self.command.sample(inside) if hasattr(self.command, "sample") else self.command
        return out


def from_csv(path: str | Path) -> Samples:
    """A command from a file of two columns, time in s and the value in mV or pA, separated by commas; a head is skipped."""
    try:
        rows = [line.split(",") for line in Path(path).read_text("utf-8-sig").splitlines() if line.strip()]
        for row in rows:
            if len(row) != 2:
                raise ValueError(f"there is a row {','.join(row)!r}")
        return Samples(*np.array(rows[_has_head(rows) :], dtype=float).reshape(-1, 2).T)
    except ValueError as error:
        raise ValueError(f"{path} must have two columns of numbers, time (s) and value: {error}") from None


def _has_head(rows: list[list[str]]) -> bool:
    try:
        np.array(rows[:1], dtype=float)
    except ValueError:
        return True
    return False


# What a rig offers, with the settings that each kind begins with; its level is the first field of a waveform.
FORMS: dict[str, tuple[Any, str]] = {
    "step": (None, ""),
    "ramp": (Ramp, "end=-20"),
    "pulses": (Pulses, "width=0.1, period=0.4, base=-40"),
    "sine": (Sine, "frequency=1, offset=-40"),
    "noise": (Noise, "mean=-40, seed=0"),
    "csv": (None, "file.csv"),
}


def described(form: str, level: float, settings: str = "") -> Any:
    """A command by the name of its form, its level, and settings such as "width=0.1, period=0.4"; or a file, for "csv"."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    make = FORMS[form][0]
    if form == "csv":
        command: Any = from_csv(settings.strip())
    elif make is None:
        command = check.number("level", level, "a finite number", lambda _: True)
    else:
        given: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in settings.split(","))):
            name, _, value = (word.strip() for word in part.partition("="))
            try:
                given[name] = int(value) if name == "seed" else float(value)
            except ValueError:
                raise ValueError(f"settings of a {form} must be like {FORMS[form][1]!r}, got {part!r}") from None
        try:
            command = make(level, **given)
        except TypeError:
            raise ValueError(f"settings of a {form} must be like {FORMS[form][1]!r}, got {settings!r}") from None
    return command
