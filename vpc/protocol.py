"""What an experimenter does to a worm, as plain data: clamps, currents, stimuli, ablations and changes of parameters.

Times are in s from the start of a run; an action holds from its `start` up to its `stop` (the end of the run if None). What a
clamp commands may be a number, a sequence of one number for each step of 10 ms, or a waveform of the time since its start.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from wormsim import check

from .connectome import NEURONS, find, index, nearest
from .loop import Inputs
from .neurons import STEP
from .parameters import Value, checked, plain
from .waveforms import Data, Held, Noise, Pulses, Ramp, Samples, Sine, Steps, coerce, from_csv

__all__ = [
    "STIMULI",
    "Ablate",
    "Action",
    "Change",
    "CurrentClamp",
    "Held",
    "Noise",
    "Pulses",
    "Ramp",
    "Samples",
    "Sine",
    "StepFamily",
    "Steps",
    "Stimulus",
    "VoltageClamp",
    "dumps",
    "from_csv",
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


def _one_neuron(data: Any) -> None:
    if not isinstance(data.neuron, str):
        raise ValueError(
            f"neuron of {type(data).__name__} must be one name, got {data.neuron!r}; use one action for each neuron"
        )
    index(data.neuron)


Command = float | Sequence[float] | Ramp | Steps | Pulses | Sine | Noise | Samples | Held


@dataclass(frozen=True)
class Action(Data):
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

    def command(self, values: Command, unit: str, limit: float, total: int) -> np.ndarray:
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
        if not (np.abs(result) <= limit).all():
            raise ValueError(
                f"{unit} of {type(self).__name__}({self.neuron!r}) must stay within -{limit:g} to {limit:g} {unit}"
            )
        return result

    def _check(self, name: str, low: float, high: float) -> None:
        super().__post_init__()
        _one_neuron(self)
        values = getattr(self, name)
        if isinstance(values, np.ndarray) and values.ndim == 0:
            values = float(values)
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
    """Hold a neuron at a voltage, mV.

    A run then holds the `current` that this takes against the neuron's ionic currents, in pA. What charges the membrane when
    the command changes, C dV/dt, is not in it, as with a compensated amplifier.
    """

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
        pa = check.number("pa of Stimulus", self.pa, "from -1000 to 1000 pA", lambda x: abs(x) <= 1000)
        object.__setattr__(self, "pa", pa)

    def neurons(self) -> tuple[str, ...]:
        """Names of the neurons."""
        if not isinstance(self.group, str):
            raise ValueError(f"group of Stimulus must be one name, got {self.group!r}; use one action for each group")
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
        _one_neuron(self)


@dataclass(frozen=True)
class Change(Action):
    """Change parameters of the worm, as in Change({"w_s": 5}, start=2, stop=4)."""

    parameters: Mapping[str, Value] = field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.parameters, Mapping):
            raise ValueError(f"parameters of Change must be a mapping from names to values, got {self.parameters!r}")
        for name in {"F", "Kd", "D"} & set(self.parameters):
            raise ValueError(
                f"parameters of Change must act on the worm, but {name} is the microscope's: set it on the worm itself"
            )
        object.__setattr__(self, "parameters", plain({name: checked(name, value) for name, value in self.parameters.items()}))


@dataclass(frozen=True)
class StepFamily(Data):
    """A family of clamps of one neuron to levels first, first + increment, ...: an iterable of protocols, one for each level.

    `clamp` is "voltage" (levels in mV) or "current" (pA). Outside of start to stop the neuron is free, or held at `holding`.
    """

    neuron: str
    first: float
    increment: float
    count: int
    start: float = 0.0
    stop: float | None = None
    clamp: str = "voltage"
    holding: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("start", "stop", "holding") if getattr(self, name) is not None]
        coerce(self, "first", "increment", *given)
        object.__setattr__(self, "count", check.whole("count of StepFamily", self.count))
        if self.clamp not in ("voltage", "current"):
            raise ValueError(f"clamp of StepFamily must be 'voltage' or 'current', got {self.clamp!r}")
        for level in self.levels if self.holding is None else (self.holding, *self.levels):
            self._clamp(float(level), start=self.start, stop=self.stop)

    def _clamp(self, command: Command, **times: Any) -> _Clamp:
        return (VoltageClamp if self.clamp == "voltage" else CurrentClamp)(self.neuron, command, **times)

    @property
    def levels(self) -> np.ndarray:
        """The levels, mV or pA."""
        return self.first + self.increment * np.arange(self.count)

    def __iter__(self) -> Any:
        if self.holding is None:
            return iter([(self._clamp(float(level), start=self.start, stop=self.stop),) for level in self.levels])
        return iter([(self._clamp(Held(self.holding, float(level), self.start, self.stop)),) for level in self.levels])

    def __len__(self) -> int:
        return self.count


Protocol = Sequence[Action]


def check_protocol(protocol: Action | Iterable[Action]) -> tuple[Action, ...]:
    """The protocol as a tuple, if it is one, and no neuron has two clamps at a time."""
    if isinstance(protocol, StepFamily):
        raise ValueError("protocol must be one experiment, and a StepFamily is several: simulate each `for protocol in family`")
    if not isinstance(protocol, Action | Iterable) or isinstance(protocol, str):
        raise ValueError(f"protocol must be a sequence of clamps and other actions of vpc.protocol, got {protocol!r}")
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
        command[clamp.steps(total), clamped.index(clamp.neuron)] = clamp.command(clamp.mv, "mv", 200, total)
    currents: dict[str, np.ndarray] = {}
    for action in protocol:
        steps = action.steps(total)
        if isinstance(action, CurrentClamp):
            currents.setdefault(action.neuron, np.zeros(total))[steps] += action.command(action.pa, "pa", 1000, total)
        elif isinstance(action, Stimulus):
            for name in action.neurons():
                currents.setdefault(name, np.zeros(total))[steps] += action.pa
    columns = np.stack(list(currents.values()), axis=1) if currents else np.zeros((total, 0))
    return Inputs(index(clamped), command, index(currents), np.ascontiguousarray(columns))


def excerpt(protocol: Protocol, total: int, first: int, last: int) -> list[Action]:
    """What a protocol for a run of so many steps does from one step to another, as a protocol for that time."""
    out = []
    for action in protocol:
        steps = action.steps(total)
        begin, end = max(steps.start, first), min(steps.stop, last)
        if begin < end:
            part: dict[str, Any] = {"start": (begin - first) * STEP, "stop": (end - first) * STEP}
            if isinstance(action, VoltageClamp):
                part["mv"] = action.command(action.mv, "mv", 200, total)[begin - steps.start : end - steps.start]
            elif isinstance(action, CurrentClamp):
                part["pa"] = action.command(action.pa, "pa", 1000, total)[begin - steps.start : end - steps.start]
            out.append(replace(action, **part))
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, Data):
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
        kind = str(entry.pop("kind"))
        if kind not in Data.kinds or kind.startswith("_") or kind == "Action":
            raise ValueError(f"protocol has an unknown kind {kind!r}; did you mean {nearest(str(kind), Data.kinds)!r}?")
        try:
            return Data.kinds[kind](**entry)
        except TypeError as error:
            raise ValueError(f"protocol has a bad entry of kind {kind}: {error}") from None

    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"protocol is not JSON: {error}") from None
    if not isinstance(data, dict | list):
        raise ValueError(f"protocol must be a list of actions, got {data!r}")
    built = build(data) if isinstance(data, dict) else [build(entry) for entry in data]
    return built if isinstance(built, StepFamily) else check_protocol(built)
