"""What an experimenter does to a worm, as plain data: clamps, currents, stimuli, ablations and changes of parameters.

Times are in s from the start of a run; an action holds from its `start` up to its `stop` (the end of the run if None). What a
clamp commands may be a number, a sequence of one number for each step of 10 ms, or a waveform of the time since its start.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from wormsim import check

from .connectome import NEURONS, find, index, nearest
from .loop import Inputs
from .neurons import STEP
from .parameters import Value, checked

__all__ = [
    "STIMULI",
    "Ablate",
    "Action",
    "Change",
    "CurrentClamp",
    "Noise",
    "Pulses",
    "Ramp",
    "Sine",
    "StepFamily",
    "Steps",
    "Stimulus",
    "VoltageClamp",
    "dumps",
    "loads",
]  # fmt: skip

# Sensory neurons by what excites them (WormAtlas; Goodman 2006 and Bargmann 2006 in WormBook).
STIMULI = {
    "anterior touch": ("ALML", "ALMR", "AVM"),
    "posterior touch": ("PLML", "PLMR"),
    "harsh touch": ("PVDL", "PVDR"),
    "nose touch": ("ASHL", "ASHR", "FLPL", "FLPR", "OLQDL", "OLQDR", "OLQVL", "OLQVR"),
    "salt": ("ASEL", "ASER"),
    "attractive odour": ("AWAL", "AWAR", "AWCL", "AWCR"),
    "repulsive odour": ("AWBL", "AWBR", "ASHL", "ASHR"),
    "temperature": ("AFDL", "AFDR"),
    "oxygen": ("URXL", "URXR", "AQR", "PQR"),
    "carbon dioxide": ("BAGL", "BAGR"),
}


class _Data:
    """A dataclass that turns into plain data and back."""

    kinds: ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls) -> None:
        _Data.kinds[cls.__name__] = cls


def _finite(name: str, value: object) -> float:
    return check.number(name, value, "a finite number", lambda _: True)


@dataclass(frozen=True)
class Ramp(_Data):
    """From one value to another over the whole action."""

    begin: float
    end: float

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return np.linspace(self.begin, self.end, len(time))


@dataclass(frozen=True)
class Steps(_Data):
    """One value after the other, each for as long."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        if not self.values:
            raise ValueError("values of Steps must not be empty")

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return np.array(self.values)[np.arange(len(time)) * len(self.values) // max(len(time), 1)]


@dataclass(frozen=True)
class Pulses(_Data):
    """Pulses of some width (s), one each period (s), over a base."""

    height: float
    width: float
    period: float
    base: float = 0.0

    def __post_init__(self) -> None:
        check.number("width of Pulses", self.width, f"at least {STEP} s", lambda s: s >= STEP)
        check.number("period of Pulses", self.period, "longer than the width, in s", lambda s: s > self.width)

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return np.where((time + 1e-9) % self.period < self.width, self.height, self.base)


@dataclass(frozen=True)
class Sine(_Data):
    """A sine of some amplitude and frequency (Hz) around an offset."""

    amplitude: float
    frequency: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        check.number("frequency of Sine", self.frequency, f"between 0 and {0.5 / STEP:g} Hz", lambda f: 0 < f < 0.5 / STEP)

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return self.offset + self.amplitude * np.sin(2 * np.pi * self.frequency * time)


@dataclass(frozen=True)
class Noise(_Data):
    """Gaussian noise around a mean, new at each step; the same for the same seed."""

    sd: float
    mean: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        check.number("sd of Noise", self.sd, "0 or more", lambda sd: sd >= 0)
        check.whole("seed of Noise", self.seed, least=0)

    def sample(self, time: np.ndarray) -> np.ndarray:
        """Values at times since the start."""
        return self.mean + self.sd * np.random.default_rng(self.seed).standard_normal(len(time))


Command = float | Sequence[float] | Ramp | Steps | Pulses | Sine | Noise


@dataclass(frozen=True)
class Action(_Data):
    """Something done from `start` to `stop`."""

    start: float = field(default=0.0, kw_only=True)
    stop: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        start = check.number(f"start of {kind}", self.start, "0 s or later", lambda s: s >= 0)
        object.__setattr__(self, "start", start)
        if self.stop is not None:
            stop = check.number(f"stop of {kind}", self.stop, f"after its start at {start:g} s", lambda s: s > start)
            object.__setattr__(self, "stop", stop)

    def steps(self, total: int) -> slice:
        """The steps of a run during which it holds, or an error if it goes beyond the run."""
        first, last = round(self.start / STEP), total if self.stop is None else round(self.stop / STEP)
        if first >= total or last > total:
            until = "the end" if self.stop is None else f"{self.stop:g} s"
            raise ValueError(
                f"protocol goes beyond the run: {self} is from {self.start:g} s to {until}, "
                f"but the run ends at {total * STEP:g} s; simulate longer or stop it earlier"
            )
        if last == first:
            raise ValueError(f"protocol has an action shorter than a step of {STEP} s: {self}")
        return slice(first, last)


@dataclass(frozen=True)
class _Clamp(Action):
    neuron: str = field(kw_only=False)

    def command(self, values: Command, unit: str, total: int) -> np.ndarray:
        """What it commands in each of its steps."""
        steps = self.steps(total)
        count = steps.stop - steps.start
        if hasattr(values, "sample"):
            result = values.sample(np.arange(count) * STEP)
        elif isinstance(values, tuple):
            if len(values) != count:
                raise ValueError(
                    f"{unit} of {type(self).__name__}({self.neuron!r}) must have one value for each of its {count} steps of "
                    f"{STEP} s, got {len(values)}"
                )
            result = np.array(values)
        else:
            result = np.full(count, float(values))  # type: ignore[arg-type]
        return result

    def _check(self, name: str, low: float, high: float) -> None:
        super().__post_init__()
        index(self.neuron)
        values = getattr(self, name)
        if isinstance(values, str) or (not isinstance(values, Sequence | np.ndarray) and not hasattr(values, "sample")):
            rule = f"a number from {low:g} to {high:g}, a sequence of them, or a waveform"
            values = check.number(f"{name} of {type(self).__name__}", values, rule, lambda x: low <= x <= high)
        elif not hasattr(values, "sample"):
            numbers = check.array(f"{name} of {type(self).__name__}", values, np.shape(values))
            if numbers.ndim != 1 or not ((low <= numbers) & (numbers <= high)).all():
                raise ValueError(f"{name} of {type(self).__name__} must be numbers from {low:g} to {high:g} in one sequence")
            values = tuple(numbers.tolist())
        object.__setattr__(self, name, values)


@dataclass(frozen=True)
class VoltageClamp(_Clamp):
    """Hold a neuron at a voltage, mV; a run then holds the current that this takes, in pA."""

    mv: Command = field(kw_only=False)

    def __post_init__(self) -> None:
        self._check("mv", -200, 200)


@dataclass(frozen=True)
class CurrentClamp(_Clamp):
    """Inject a current into a neuron, pA; 1 pA is 100 mV/s."""

    pa: Command = field(kw_only=False)

    def __post_init__(self) -> None:
        self._check("pa", -1000, 1000)


@dataclass(frozen=True)
class Stimulus(Action):
    """Excite all sensory neurons of a group (see `STIMULI`), or any others by name, class or type, by a current in pA."""

    group: str = field(kw_only=False)
    pa: float = field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.neurons()
        check.number("pa of Stimulus", self.pa, "from -1000 to 1000 pA", lambda x: abs(x) <= 1000)

    def neurons(self) -> tuple[str, ...]:
        """Names of the neurons."""
        if self.group in STIMULI:
            return STIMULI[self.group]
        try:
            return find(self.group)
        except ValueError:
            known = ", ".join(STIMULI)
            raise ValueError(
                f"group of Stimulus must be one of {known}, or a neuron, class or type, got {self.group!r}; "
                f"did you mean {nearest(self.group, [*STIMULI, *NEURONS])!r}?"
            ) from None


@dataclass(frozen=True)
class Ablate(Action):
    """Remove a neuron: its connections, receptors and muscle output; its voltage goes to the leak's reversal potential."""

    neuron: str = field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        index(self.neuron)


@dataclass(frozen=True)
class Change(Action):
    """Change parameters of the worm, as in Change({"w_s": 5}, start=2, stop=4)."""

    parameters: Mapping[str, Value] = field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parameters", {name: checked(name, value) for name, value in self.parameters.items()})


@dataclass(frozen=True)
class StepFamily(_Data):
    """A family of clamps of one neuron to levels first, first + increment, ...: an iterable of protocols, one for each level.

    `clamp` is "voltage" (levels in mV) or "current" (pA); outside of start to stop the neuron is free.
    """

    neuron: str
    first: float
    increment: float
    count: int
    start: float = 0.0
    stop: float | None = None
    clamp: str = "voltage"

    def __post_init__(self) -> None:
        check.whole("count of StepFamily", self.count)
        if self.clamp not in ("voltage", "current"):
            raise ValueError(f"clamp of StepFamily must be 'voltage' or 'current', got {self.clamp!r}")
        for _ in self:
            pass

    @property
    def levels(self) -> np.ndarray:
        """The levels, mV or pA."""
        return self.first + self.increment * np.arange(self.count)

    def __iter__(self) -> Any:
        make = VoltageClamp if self.clamp == "voltage" else CurrentClamp
        return iter([(make(self.neuron, float(level), start=self.start, stop=self.stop),) for level in self.levels])

    def __len__(self) -> int:
        return self.count


Protocol = Sequence[Action]


def check_protocol(protocol: Action | Iterable[Action]) -> tuple[Action, ...]:
    """The protocol as a tuple, if it is one, and no neuron has two clamps at a time."""
    actions = (protocol,) if isinstance(protocol, Action) else tuple(protocol)
    for action in actions:
        if not isinstance(action, Action) or type(action) in (Action, _Clamp):
            raise ValueError(f"protocol must be a sequence of clamps and other actions of vpc.protocol, got {action!r}")
    clamps = [action for action in actions if isinstance(action, _Clamp)]
    for i, one in enumerate(clamps):
        for other in clamps[:i]:
            if one.neuron == other.neuron and one.start < (other.stop or np.inf) and other.start < (one.stop or np.inf):
                raise ValueError(
                    f"protocol has overlapping clamps on {one.neuron}: {other} and {one}; "
                    "stop the first before the second starts, or command their sum in one"
                )
    return actions


def inputs(protocol: Protocol, total: int) -> Inputs:
    """Clamps and currents of a protocol for each step of a run."""
    clamps = [action for action in protocol if isinstance(action, VoltageClamp)]
    clamped = sorted({action.neuron for action in clamps}, key=list(NEURONS).index)
    command = np.full((total, len(clamped)), np.nan)
    for clamp in clamps:
        command[clamp.steps(total), clamped.index(clamp.neuron)] = clamp.command(clamp.mv, "mv", total)
    current = np.zeros((total, len(NEURONS)))
    for action in protocol:
        if isinstance(action, CurrentClamp):
            current[action.steps(total), index(action.neuron)[0]] += action.command(action.pa, "pa", total)
        elif isinstance(action, Stimulus):
            current[action.steps(total), index(action.neurons())[:, None]] += action.pa
        else:
            action.steps(total)
    injected = np.flatnonzero(current.any(axis=0))
    return Inputs(index(clamped), command, injected, np.ascontiguousarray(current[:, injected]))


def _plain(value: Any) -> Any:
    if isinstance(value, _Data):
        return {"kind": type(value).__name__} | {f.name: _plain(getattr(value, f.name)) for f in fields(value)}  # type: ignore[arg-type]
    return dict(value) if isinstance(value, Mapping) else value


def dumps(protocol: Action | StepFamily | Iterable[Action]) -> str:
    """A protocol, or a family of them, as JSON."""
    if isinstance(protocol, StepFamily):
        return json.dumps(_plain(protocol))
    return json.dumps([_plain(action) for action in check_protocol(protocol)])


def loads(text: str) -> Any:
    """What `dumps` wrote: a tuple of actions, or a family."""

    def build(entry: Any) -> Any:
        if not (isinstance(entry, dict) and "kind" in entry):
            return entry
        entry = {name: build(value) for name, value in entry.items()}
        kind = entry.pop("kind")
        if kind not in _Data.kinds or kind.startswith("_") or kind == "Action":
            raise ValueError(f"protocol has an unknown kind {kind!r}; did you mean {nearest(str(kind), _Data.kinds)!r}?")
        try:
            return _Data.kinds[kind](**entry)
        except TypeError as error:
            raise ValueError(f"protocol has a bad entry of kind {kind}: {error}") from None

    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"protocol is not JSON: {error}") from None
    return build(data) if isinstance(data, dict) else check_protocol([build(entry) for entry in data])
