"""`Worm`: 302 neurons, 96 muscles and a body as one simulator, which can be perturbed and simulated many at a time."""

import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import numba
import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from wormsim import check
from wormsim import geometry as geo
from wormsim.body import default_substeps
from wormsim.kernel import one_at_a_time
from wormsim.objects import check_objects, off_the_worm

from . import loop, neurons
from .connectome import NEURONS, Connectome, index, nearest
from .coupling import coupling
from .frames import start_from, to_dataset
from .loop import BODY_ROW, LANES, MUSCLE_ROW, NONE, SIZE, Inputs, Noise, Offspring, Record, Surroundings, Worms
from .neurons import STEP, N
from .noise import START, gaussians, key
from .parameters import VARIANTS, Value, changed, defaults, per_neuron, plain
from .protocol import Ablate, Action, Change, CurrentClamp, VoltageClamp, check_protocol, dumps, inputs

__all__ = ["Worm"]

START_VOLTAGE, START_SPREAD = -20.0, 0.033**0.5  # mV: mean and sd of the voltages at the start of a run
RECORDABLE = {"voltage": N, "calcium": 2 * N, "body": 6 * geo.RODS, "muscle": 2 * geo.SEGMENTS}  # and their numbers in a frame
VERSION = version("virtual-patch-clamp")
STEPS_PER_CALL = 500  # of the kernel, so that a run can be interrupted and shows its progress


class Worm:
    """A worm, with all its numbers.

    Parameters
    ----------
    variant
        "default", "lively", "prototype", "paper" or "sce": see `vpc.parameters.VARIANTS`.
    connectome
        A `Connectome`, or the name of one.
    medium
        From 0 (water) to 1 (agar); the same as the parameter of that name.
    parameters
        Values by name, on top of the variant's; `vpc.parameters.PARAMETERS` lists names, units and limits. Those of neurons may
        be {neurons: value}.
    objects
        Round posts (n, 3) as x, y, radius in mm; see `wormsim.objects`.
    ablated
        Names of neurons that have been removed.
    """

    def __init__(
        self,
        variant: str = "default",
        connectome: Connectome | str = "openworm",
        medium: float | None = None,
        parameters: Mapping[str, Value] | None = None,
        objects: Sequence | np.ndarray = (),
        ablated: Iterable[str] = (),
    ):
        if not isinstance(variant, str) or variant not in VARIANTS:
            known = ", ".join(VARIANTS)
            raise ValueError(
                f"variant must be one of {known}, got {variant!r}; did you mean {nearest(str(variant), VARIANTS)!r}?"
            )
        self.variant = variant
        self.connectome = connectome if isinstance(connectome, Connectome) else Connectome.load(connectome)
        values = changed(defaults(variant), {} if parameters is None else parameters)
        values = values if medium is None else changed(values, {"medium": medium})
        self.parameters: Mapping[str, Value] = MappingProxyType(values)
        self.objects = check_objects(objects)
        self.objects.flags.writeable = False
        self.ablated = _names((ablated,))

    def with_parameters(self, **changes: Value) -> "Worm":
        """The same worm with some parameters changed."""
        return self._copy(changes, ())

    def ablate(self, *neurons: str | Iterable[str]) -> "Worm":
        """The same worm without some neurons: without their connections, receptors and output to muscles.

        What is left of them stays at the leak's reversal potential, whatever is injected. The other neurons' synapses stay as
        they were, half open at the equilibrium of the intact worm.
        """
        return self._copy({}, _names(neurons))

    def _copy(self, changes: Mapping[str, Value], removed: Iterable[str]) -> "Worm":
        worm = object.__new__(Worm)
        worm.variant, worm.connectome, worm.objects = self.variant, self.connectome, self.objects
        worm.parameters = MappingProxyType(changed(self.parameters, changes))
        worm.ablated = tuple(dict.fromkeys((*self.ablated, *removed)))
        return worm

    def __getstate__(self) -> dict[str, Any]:
        names = ("variant", "connectome", "objects", "ablated")
        return {"parameters": plain(self.parameters), **{name: getattr(self, name) for name in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, parameters=MappingProxyType(state["parameters"]))

    @cached_property
    def equilibrium(self) -> xr.DataArray:
        """Veq of every neuron, mV: where the currents balance while every synapse is half open."""
        values = neurons.equilibrium(self.connectome, self.parameters)
        return xr.DataArray(values, dims="neuron", coords={"neuron": list(NEURONS)}, attrs={"units": "mV"})

    def rest(self) -> xr.DataArray:
        """Voltages, mV, to which all neurons settle from the equilibrium while the body is held straight.

        An error says if they do not settle, as with very steep synapses.
        """
        from scipy.optimize import root

        from .reference import derivative

        start = xr.Dataset({"voltage": self.equilibrium})
        free = self.with_parameters(w_m=0)
        free.objects = np.empty((0, 3))
        end = free.simulate(20, initial=start, record=["voltage"], every=20)["voltage"].values[-1]
        found = root(lambda v: derivative(self, v), end, method="krylov", tol=1e-9).x
        if not (np.abs(derivative(self, found)).max() < 1e-6 and np.abs(found - end).max() < 1):
            raise ValueError("the voltages do not settle within 20 s with these parameters")
        return self.equilibrium.copy(data=found)

    @cached_property
    def _compiled(self) -> tuple[neurons.Circuit, Any, Surroundings]:
        """What the kernel needs."""
        removed = np.zeros(N, bool)
        removed[index(self.ablated)] = True
        medium = float(self.parameters["medium"])  # type: ignore[arg-type]
        substeps = default_substeps(STEP, medium, len(self.objects) > 0)
        return (
            neurons.circuit(self.connectome, self.parameters, removed, self.equilibrium.values),
            coupling(self.parameters, removed),
            Surroundings(*geo.drag(medium), self.objects.copy(), substeps),
        )

    def start(self, n: int, seed: int) -> np.ndarray:
        """States (n, 994) to begin with: voltages around -20 mV, calcium to match, a straight body, muscles relaxed."""
        count = -(-n // LANES)
        z, words = np.empty(neurons.PART), key(seed)
        state = np.zeros((count * LANES, SIZE))
        for block in range(count):
            lanes = slice(block * LANES, (block + 1) * LANES)
            gaussians(z, np.arange(lanes.start, lanes.stop, dtype=np.uint64), 0, START, words)
            state[lanes, :N] = START_VOLTAGE + START_SPREAD * z.reshape(-1, LANES)[:N].T
        state = state[:n]
        state[:, index(self.ablated)] = neurons.of(self.parameters, "E_leak")[index(self.ablated)]
        state[:, N:BODY_ROW] = neurons.calcium_target(state[:, :N], self.parameters)
        state[:, BODY_ROW:MUSCLE_ROW].reshape(n, geo.RODS, 6)[:, :, :3] = geo.straight()
        return state

    def simulate(
        self,
        seconds: float,
        seed: int = 0,
        n: int = 1,
        protocol: Action | Iterable[Action] = (),
        noise: Value = 0.0,
        initial: xr.Dataset | None = None,
        record: Iterable[str] = tuple(RECORDABLE),
        every: float = STEP,
        progress: bool = True,
    ) -> xr.Dataset:
        """Let the worm live.

        Parameters
        ----------
        seconds
            How long; a multiple of `every`.
        seed
            Of the voltages at the start and of the noise.
        n
            How many worms; more than one are simulated side by side and get a leading dimension `sample`. Worm k is the same
            whatever n is.
        protocol
            What is done to them: clamps, currents, ablations and so on, of `vpc.protocol`.
        noise
            Standard deviation of the noise that each voltage gets at each step of 10 ms, mV: a number, or {neurons: number}.
        initial
            A frame of another run, as in run.isel(time=-1), to start from; with `sample`, n of them. What it lacks is as at the
            start of any run. Noise goes on from the frame's time: with the same seed this is the run that was broken off.
        record
            What to keep: any of voltage, calcium (with fluorescence), body (with its velocity), muscle.
        every
            Seconds between the frames kept; a multiple of 0.01.
        progress
            Show a progress bar if it takes more than a second or two.

        Returns
        -------
        Dataset with `voltage` (time, neuron) in mV, `calcium` in uM, `fluorescence`, `body` and `velocity` (time, rod, coord)
        in mm and rad, `muscle` (time, side, segment), `ok` (time); and the `current` (time, clamp) in pA that voltage clamps
        take, in the step that begins at a time. A worm that fails is NaN from then on.
        """
        every = check.number("every", every, f"a multiple of {STEP} s", lambda s: s >= STEP / 2 and _whole(s / STEP))
        seconds = check.number("seconds", seconds, f"a multiple of every = {every:g} s", lambda s: s > 0 and _whole(s / every))
        total, stride = round(seconds / STEP), round(every / STEP)
        n, seed = check.whole("n", n), check.whole("seed", seed, least=0)
        kept, frames = _checked_record(record), total // stride + 1
        _check_memory(n * frames * sum(RECORDABLE[name] for name in kept))
        actions = check_protocol(protocol)
        given = inputs(actions, total)
        self._check_ablated(actions, total)
        scale, noise = noise_scale(noise)
        state = self.start(n, seed)
        first_step = 0 if initial is None else start_from(initial, state)
        if initial is None and len(off_the_worm(self.objects, clearance=0.0)) < len(self.objects):
            raise ValueError("objects must leave room for the worm, which starts straight from (0, 0) to (1, 0) mm")
        attributes = self._attributes(seed, first_step, noise, actions)

        worms = loop.pack(state)
        slots = np.arange(worms.alive.size, dtype=np.uint64).reshape(worms.alive.shape)

        def room(name: str, numbers: int) -> np.ndarray:
            return np.full((n if name in kept else 0, frames, numbers), np.nan)

        out = Record(
            stride,
            room("voltage", N),
            room("calcium", N),
            room("body", 3 * geo.RODS),
            room("body", 3 * geo.RODS),
            room("muscle", 2 * geo.SEGMENTS),
            np.full((n, frames, len(given.clamped)), np.nan),
        )
        marks = {0, total, *range(0, total, STEPS_PER_CALL)}
        for action in actions:
            if isinstance(action, Ablate | Change):
                marks |= {action.steps(total).start, action.steps(total).stop}
        bar = tqdm(total=total, desc="simulating", unit="step", delay=2, disable=None if progress else True)
        for first, last in itertools.pairwise(sorted(marks)):
            now = self._during([a for a in actions if a.steps(total).start <= first < a.steps(total).stop])
            gone = index(now.ablated)
            worms.blocks.reshape(-1, SIZE, LANES)[:, gone] = neurons.of(now.parameters, "E_leak")[gone, None]
            quiet = scale.copy()
            quiet[gone] = 0
            advance(now, worms, first, last, given, Noise(quiet, key(seed), slots, first_step), out)
            bar.update(last - first)
        bar.close()
        return to_dataset(out, worms, given, self.parameters, self.objects, attributes)

    def _during(self, actions: list[Action]) -> "Worm":
        """The worm while ablations and changes hold."""
        changes: Mapping[str, Value] = self.parameters
        for action in actions:
            if isinstance(action, Change):
                changes = changed(changes, action.parameters)
        changes = {name: value for name, value in changes.items() if value != self.parameters[name]}
        removed = [action.neuron for action in actions if isinstance(action, Ablate)]
        return self._copy(changes, removed)._with_equilibrium(self) if changes or removed else self

    def _with_equilibrium(self, other: "Worm") -> "Worm":
        """Synapses of a worm whose parameters change in mid-run stay half open where they were."""
        self.equilibrium = other.equilibrium
        return self

    def _check_ablated(self, actions: tuple[Action, ...], total: int) -> None:
        """Refuse clamps of neurons that are not there."""
        gone = {name: slice(0, total) for name in self.ablated}
        gone |= {action.neuron: action.steps(total) for action in actions if isinstance(action, Ablate)}
        for action in actions:
            if isinstance(action, VoltageClamp | CurrentClamp) and action.neuron in gone:
                one, other = action.steps(total), gone[action.neuron]
                if one.start < other.stop and other.start < one.stop:
                    raise ValueError(f"protocol clamps {action.neuron} while it is ablated: {action}")

    def _attributes(self, seed: int, first_step: int, noise: Value, actions: tuple[Action, ...]) -> dict[str, Any]:
        return {
            "seed": seed,
            "first_step": first_step,
            "version": VERSION,
            "variant": self.variant,
            "connectome": self.connectome.label,
            "ablated": ",".join(self.ablated),
            "parameters": json.dumps(plain(self.parameters)),
            "noise": json.dumps(noise),
            "protocol": dumps(actions),
        }

    def __repr__(self) -> str:
        base = defaults(self.variant)
        changed = ", ".join(f"{name}={value}" for name, value in self.parameters.items() if value != base[name])
        without = f", without {', '.join(self.ablated)}" if self.ablated else ""
        return f"<Worm {self.variant} on {self.connectome.name}{': ' + changed if changed else ''}{without}>"


def advance(
    worm: Worm, worms: Worms, first: int, last: int, given: Inputs, noise: Noise, record: Record, offspring: Offspring = NONE
) -> None:
    """Run the kernel on as many threads as numba has and as there are blocks for."""
    arguments = (worms, first, last, *worm._compiled, given, noise, record, offspring)
    threads = min(numba.get_num_threads(), len(worms.blocks))
    if threads == 1:
        loop.run(*arguments)
    else:
        with one_at_a_time:
            loop.run_parallel(threads, *arguments)


def noise_scale(noise: Value) -> tuple[np.ndarray, Any]:
    """Noise of each neuron, mV a step, of a number or {neurons: number}, and the same as plain numbers."""

    def one(name: str, value: object) -> float:
        return check.number(name, value, "from 0 to 100 mV a step", lambda sd: 0 <= sd <= 100)

    if not isinstance(noise, Mapping):
        noise = one("noise", noise)
        return per_neuron(noise, 0.0), noise
    plain_noise = {what: one(f"noise[{what!r}]", value) for what, value in noise.items()}
    return _of_each(tuple(plain_noise.items())).copy(), plain_noise


@lru_cache(maxsize=16)
def _of_each(noise: tuple[tuple[str, float], ...]) -> np.ndarray:
    """Noise of each neuron; kept, as a posterior names all 302 and is branched from again and again."""
    return per_neuron(dict(noise), 0.0)


def _whole(number: float) -> bool:
    return round(number) >= 1 and abs(number - round(number)) < 1e-6


def _names(words: Iterable[str | Iterable[str]]) -> tuple[str, ...]:
    """Names of neurons, of names and of lists of them."""
    names = tuple(name for word in words for name in ([word] if isinstance(word, str) else word))
    index(names)
    return tuple(dict.fromkeys(names))


def _checked_record(record: Iterable[str]) -> set[str]:
    if not isinstance(record, Iterable):
        raise ValueError(f"record must be any of {', '.join(RECORDABLE)}, got {record!r}")
    names = {record} if isinstance(record, str) else set(record)
    for name in names:
        if name not in RECORDABLE:
            raise ValueError(f"record must be any of {', '.join(RECORDABLE)}, got {name!r}")
    return names


def _check_memory(numbers: int) -> None:
    """Refuse a record that this machine cannot hold."""
    needed, there = 8 * numbers, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > 0.8 * there:
        raise ValueError(
            f"record would take {needed / 1e9:.0f} GB, and this machine has {there / 1e9:.0f}: "
            "record fewer variables (record=), fewer frames (every=) or fewer worms (n=)"
        )
