"""`Worm`: 302 neurons, 96 muscles and a body as one simulator, which can be perturbed and simulated many at a time."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
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
from wormsim.objects import check_objects

from . import loop, neurons
from .connectome import NEURONS, Connectome, find, index, nearest
from .coupling import coupling
from .loop import BODY_ROW, CAUSES, LANES, MUSCLE_ROW, SIZE, Inputs, Noise, Record, Surroundings, Worms
from .neurons import STEP, N
from .noise import START, gaussians, key
from .parameters import VARIANTS, Value, checked, defaults, per_neuron
from .protocol import Ablate, Action, Change, check_protocol, dumps, inputs

__all__ = ["Worm"]

START_VOLTAGE, START_SPREAD = -20.0, 0.033**0.5  # mV: mean and sd of the voltages at the start of a run
RECORDABLE = ("voltage", "calcium", "body", "muscle")
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
        if variant not in VARIANTS:
            known = ", ".join(VARIANTS)
            raise ValueError(
                f"variant must be one of {known}, got {variant!r}; did you mean {nearest(str(variant), VARIANTS)!r}?"
            )
        self.variant = variant
        self.connectome = connectome if isinstance(connectome, Connectome) else Connectome.load(connectome)
        given = dict(parameters or {}) | ({} if medium is None else {"medium": medium})
        values = defaults(variant) | {name: checked(name, value) for name, value in given.items()}
        self.parameters: Mapping[str, Value] = MappingProxyType(values)
        self.objects = check_objects(objects)
        self.ablated = tuple(ablated)
        index(self.ablated)

    def with_parameters(self, **changes: Value) -> "Worm":
        """The same worm with some parameters changed."""
        return self._copy({name: checked(name, value) for name, value in changes.items()}, ())

    def ablate(self, *neurons: str) -> "Worm":
        """The same worm without some neurons: without their connections, receptors and output to muscles.

        What is left of them rests at the leak's reversal potential. The other neurons' synapses stay as they were, half open at
        the equilibrium of the intact worm.
        """
        index(neurons)
        return self._copy({}, neurons)

    def _copy(self, changes: Mapping[str, Value], removed: Iterable[str]) -> "Worm":
        worm = object.__new__(Worm)
        worm.variant, worm.connectome, worm.objects = self.variant, self.connectome, self.objects
        worm.parameters = MappingProxyType({**self.parameters, **changes})
        worm.ablated = tuple(dict.fromkeys((*self.ablated, *removed)))
        return worm

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
        end = self.with_parameters(w_m=0).simulate(20, initial=start, record=["voltage"], every=20)["voltage"].values[-1]
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
            Surroundings(*geo.drag(medium), self.objects, substeps),
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
        record: Iterable[str] = RECORDABLE,
        every: float = STEP,
        progress: bool = True,
    ) -> xr.Dataset:
        """Let the worm live.

        Parameters
        ----------
        seconds
            How long.
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
            start of any run.
        record
            What to keep: any of voltage, calcium (with fluorescence), body (with its velocity), muscle.
        every
            Seconds between the frames kept.
        progress
            Show a progress bar if it takes more than a second or two.

        Returns
        -------
        Dataset with `voltage` (time, neuron) in mV, `calcium` in uM, `fluorescence`, `body` and `velocity` (time, rod, coord)
        in mm and rad, `muscle` (time, side, segment), `ok` (time); and the `current` (time, clamp) in pA that voltage clamps
        take, in the step that begins at a time. A worm that fails is NaN from then on.
        """
        seconds = check.number("seconds", seconds, f"a number of at least {STEP}", lambda s: s >= STEP)
        n, seed = check.whole("n", n), check.whole("seed", seed, least=0)
        total, stride = (
            round(seconds / STEP),
            round(check.number("every", every, f"{STEP} s or more", lambda s: s >= STEP) / STEP),
        )
        if total < stride:
            raise ValueError(f"every must not be longer than the run of {seconds:g} s, got {every!r}")
        kept = _checked_record(record)
        actions = check_protocol(protocol)
        given = inputs(actions, total)
        state = self.start(n, seed) if initial is None else self._from_frame(initial, n, seed)
        scale = noise_scale(noise)

        worms = loop.pack(state)
        drawn = Noise(scale, key(seed), np.arange(worms.alive.size, dtype=np.uint64).reshape(worms.alive.shape))
        frames = total // stride + 1

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
            for name in now.ablated:
                place = index(name)[0]
                worms.blocks.reshape(-1, SIZE, LANES)[:, place] = neurons.of(now.parameters, "E_leak")[place]
            advance(now, worms, first, last, given, drawn, out)
            bar.update(last - first)
        bar.close()
        return self._dataset(out, worms, given, n, seed, noise, actions)

    def _during(self, actions: list[Action]) -> "Worm":
        """The worm while ablations and changes hold."""
        changes: dict[str, Value] = {}
        for action in actions:
            if isinstance(action, Change):
                changes |= action.parameters
        removed = [action.neuron for action in actions if isinstance(action, Ablate)]
        return self._copy(changes, removed)._with_equilibrium(self) if changes or removed else self

    def _with_equilibrium(self, other: "Worm") -> "Worm":
        """Synapses of a worm whose parameters change in mid-run stay half open where they were."""
        self.equilibrium = other.equilibrium
        return self

    def _from_frame(self, frame: xr.Dataset, n: int, seed: int) -> np.ndarray:
        """States (n, 994) of a frame of a run."""
        if not isinstance(frame, xr.Dataset) or "time" in frame.dims:
            raise ValueError("initial must be one frame of a run, such as run.isel(time=-1)")
        state = self.start(n, seed)
        rods = state[:, BODY_ROW:MUSCLE_ROW].reshape(n, geo.RODS, 6)
        places = {
            "voltage": state[:, :N],
            "calcium": state[:, N:BODY_ROW],
            "body": rods[:, :, :3],
            "velocity": rods[:, :, 3:],
            "muscle": state[:, MUSCLE_ROW:].reshape(n, 2, geo.SEGMENTS),
        }
        for name, place in places.items():
            if name in frame:
                shape = place.shape if "sample" in frame[name].dims else place.shape[1:]
                place[:] = check.array(f"initial[{name!r}]", frame[name].values, shape)
        return state

    def _dataset(
        self, out: Record, worms: Worms, given: Inputs, n: int, seed: int, noise: Value, actions: tuple[Action, ...]
    ) -> xr.Dataset:
        time = np.arange(out.current.shape[1]) * out.every * STEP
        failed = worms.failed_step.reshape(-1)[:n]
        failed_at = np.where(failed >= 0, (failed + 1) * STEP, np.inf)
        pose, sides = ("rod", "coord"), ("side", "segment")
        variables: dict[str, Any] = {
            "voltage": (("neuron",), out.voltage, "mV"),
            "calcium": (("neuron",), out.calcium, "uM"),
            "fluorescence": (("neuron",), neurons.fluorescence(out.calcium, self.parameters), "1"),
            "body": (pose, out.body.reshape(*out.body.shape[:2], geo.RODS, 3), "mm, mm, rad"),
            "velocity": (pose, out.velocity.reshape(*out.velocity.shape[:2], geo.RODS, 3), "mm/s, mm/s, rad/s"),
            "muscle": (sides, out.muscle.reshape(*out.muscle.shape[:2], 2, geo.SEGMENTS), "1"),
            "current": (("clamp",), out.current, "pA"),
        }
        data = {
            name: (("sample", "time", *dims), values, {"units": unit})
            for name, (dims, values, unit) in variables.items()
            if values.size
        }
        causes = [CAUSES[code] for code in worms.cause.reshape(-1)[:n]]
        dataset = xr.Dataset(
            {
                **data,
                "ok": (("sample", "time"), time[None] < failed_at[:, None], {"meaning": "the worm has not failed"}),
                "failure": (
                    "sample",
                    np.array(causes, dtype=object).astype(str),
                    {"meaning": "why the worm failed, if it did"},
                ),
                "objects": (("object", "shape"), self.objects, {"units": "mm"}),
            },
            coords={
                "time": ("time", time, {"units": "s"}),
                "neuron": list(NEURONS),
                "clamp": np.array(list(NEURONS))[given.clamped],
                "coord": ["x", "y", "phi"],
                "side": ["dorsal", "ventral"],
                "shape": ["x", "y", "radius"],
            },
            attrs={
                "seed": seed,
                "version": version("virtual-patch-clamp"),
                "variant": self.variant,
                "connectome": self.connectome.name,
                "ablated": ",".join(self.ablated),
                "parameters": json.dumps(dict(self.parameters)),
                "noise": json.dumps(noise if not isinstance(noise, Mapping) else dict(noise)),
                "protocol": dumps(actions),
            },
        )
        return dataset if n > 1 else dataset.isel(sample=0)

    def __repr__(self) -> str:
        base = defaults(self.variant)
        changed = ", ".join(f"{name}={value}" for name, value in self.parameters.items() if value != base[name])
        without = f", without {', '.join(self.ablated)}" if self.ablated else ""
        return f"<Worm {self.variant} on {self.connectome.name}{': ' + changed if changed else ''}{without}>"


def advance(worm: Worm, worms: Worms, first: int, last: int, given: Inputs, noise: Noise, record: Record) -> None:
    """Run the kernel on as many threads as numba has and as there are blocks for."""
    arguments = (worms, first, last, *worm._compiled, given, noise, record)
    threads = min(numba.get_num_threads(), len(worms.blocks))
    if threads == 1:
        loop.run(*arguments)
    else:
        with one_at_a_time:
            loop.run_parallel(threads, *arguments)


def noise_scale(noise: Value) -> np.ndarray:
    """Noise of each neuron, mV a step, of a number or {neurons: number}."""
    rule = "from 0 to 100 mV a step"
    if isinstance(noise, Mapping):
        for what, value in noise.items():
            find(what)
            check.number(f"noise[{what!r}]", value, rule, lambda sd: 0 <= sd <= 100)
    else:
        noise = check.number("noise", noise, rule, lambda sd: 0 <= sd <= 100)
    return per_neuron(noise, 0.0)


def _checked_record(record: Iterable[str]) -> set[str]:
    names = {record} if isinstance(record, str) else set(record)
    for name in names:
        if name not in RECORDABLE:
            raise ValueError(f"record must be any of {', '.join(RECORDABLE)}, got {name!r}")
    return names
