"""What a clamp may command over time, as plain data: ramps, steps, pulses, sines, noise, samples; and a value held around."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from wormsim import check

from .neurons import STEP

__all__ = ["Data", "Held", "Noise", "Pulses", "Ramp", "Samples", "Sine", "Steps", "coerce", "from_csv"]


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
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            raise ValueError(f"values of Steps must be a sequence of numbers, got {self.values!r}")
        numbers = check.array("values of Steps", list(self.values), (len(list(self.values)),))
        object.__setattr__(self, "values", tuple(numbers.tolist()))
        if not self.values:
            raise ValueError("values of Steps must not be empty")

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
        for name in ("times", "values"):
            numbers = np.atleast_1d(np.asarray(getattr(self, name), dtype=float))
            object.__setattr__(self, name, tuple(check.array(f"{name} of Samples", numbers, (len(numbers),)).tolist()))
        if len(self.times) != len(self.values) or not self.times:
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
            coerce(self, "command")

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        out = np.full(len(time), self.holding)
        first, last = round(self.start / STEP), len(time) if self.stop is None else round(self.stop / STEP)
        inside = time[first:last] - self.start
        out[first:last] = self.command.sample(inside) if hasattr(self.command, "sample") else self.command
        return out


def from_csv(path: str | Path) -> Samples:
    """A command from a file of two columns with a head: time in s, and the value in mV or pA."""
    try:
        table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must have a head and two columns of numbers, time (s) and value: {error}") from None
    if table.shape[1] != 2:
        raise ValueError(f"{path} must have two columns, time (s) and value, and has {table.shape[1]}")
    return Samples(*table.T)
