"""`branch`: from any moment of a worm, of a run, or of what is known of a recorded worm, an experiment and its control."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from wormsim import check
from wormsim import geometry as geo

from .connectome import NEURONS
from .loop import BODY_ROW, MUSCLE_ROW
from .neurons import STEP, N
from .parameters import Value
from .posterior import Posterior, worm_of
from .protocol import Action
from .worm import RECORDABLE, Worm

__all__ = ["Preparation", "Source", "beside", "branch", "difference", "moment", "prepare"]

STATE = ("voltage", "calcium", "body", "velocity", "muscle")


class Preparation(NamedTuple):
    """What an experiment is done on."""

    worm: Worm
    times: np.ndarray  # the moments from which one can branch, s
    start: Callable[[int, int | None], xr.Dataset | None]  # some worms at one of them
    most: int | None  # worms that there are at each; None: as many as one likes
    noise: Value
    label: str


Source = Worm | xr.Dataset | Posterior


def prepare(source: Source | Preparation) -> Preparation:
    """What is needed to branch from a worm, a run or a posterior."""
    if isinstance(source, Preparation):
        return source
    if isinstance(source, Worm):
        return Preparation(source, np.zeros(1), lambda frame, n: None, None, 0.0, repr(source).strip("<>"))
    if isinstance(source, Posterior):
        data = source.dataset
        noise = dict(zip(NEURONS, data["noise"].values.tolist(), strict=True))
        if not data.sizes.get("draw"):
            raise ValueError("this posterior has no draws to branch from: impute with draws=100 or so")

        def drawn(frame: int, n: int | None) -> xr.Dataset:
            return _frame(data["draws"].isel(time=frame, draw=slice(n)).values.astype(float))

        return Preparation(source.known_worm(), data["time"].values, drawn, data.sizes["draw"], noise, repr(source).strip("<>"))
    if not isinstance(source, xr.Dataset) or "parameters" not in source.attrs:
        raise ValueError(f"source must be a Worm, a run of one, or a Posterior, got {type(source).__name__}")
    if "draws" in source:
        raise ValueError("source is the dataset of a posterior: give the Posterior, as vpc.open_posterior reads it")
    if "arm" in source.dims or "level" in source.dims:
        raise ValueError("source must be one run: choose one with source.sel(arm='experiment'), or one level of a family")
    missing = [name for name in STATE if name not in source]
    if missing:
        raise ValueError(f"source is a run without {', '.join(missing)}: simulate it with all of record=")
    worm = worm_of(source)
    if worm is None:
        raise ValueError("source is a run of a worm with wiring of its own; branch from the Worm, or simulate(initial=...)")
    run = source.sel(time=source["time"][source["ok"].all("sample") if "sample" in source.dims else source["ok"]])
    most = source.sizes.get("sample")

    def of_run(frame: int, n: int | None) -> xr.Dataset:
        one = run[list(STATE)].isel(time=frame, drop=True)
        return one if most is None else one.isel(sample=slice(n))

    label = f"run of {run.sizes['time']} frames, {float(run['time'][-1]):g} s, seed {source.attrs['seed']}"
    return Preparation(worm, run["time"].values, of_run, most, json.loads(source.attrs["noise"]), label)


def moment(source: Source | Preparation, at: float | None = None, particles: int | None = None) -> Preparation:
    """One moment of a source with these worms, and nothing else: small, and it can be pickled, as a cluster needs it."""
    given = prepare(source)
    _, frame = _find(given, at)
    worms = given.start(frame, particles or given.most or 1)
    kept = _Kept(None if worms is None else worms.load())
    return given._replace(times=given.times[frame : frame + 1], start=kept)


@dataclass(frozen=True)
class _Kept:
    worms: xr.Dataset | None

    def __call__(self, frame: int, n: int | None) -> xr.Dataset | None:
        return self.worms


def _find(given: Preparation, at: float | None) -> tuple[float, int]:
    """A moment, the last one if not given, and its frame."""
    low, high = given.times[0], given.times[-1]
    at = high if at is None else at
    at = check.number("at", at, f"a moment of the recording, from {low:g} to {high:g} s", lambda t: low <= t <= high)
    frame = int(np.abs(given.times - at).argmin())
    if abs(given.times[frame] - at) > STEP / 2:
        raise ValueError(f"at must be the time of a frame, got {at:g}; the nearest is {given.times[frame]:g} s")
    return at, frame


def branch(
    source: Source | Preparation,
    at: float | None = None,
    protocol: Action | Iterable[Action] = (),
    seconds: float = 2.0,
    seed: int = 0,
    particles: int | None = None,
    control: bool = False,
    every: float = 0.05,
    record: Iterable[str] = tuple(RECORDABLE),
    progress: bool = True,
) -> xr.Dataset:
    """Let the worms of one moment live on under an experiment: a run with a dimension `sample`.

    Parameters
    ----------
    source
        A `Worm`, which starts anew; a run of one, or a `Posterior`.
    at
        The moment, s: a frame of the run or of the recording; the last one if not given.
    protocol
        What is done to them; times count from that moment.
    seconds
        How long.
    seed
        Of the noise, which is another one than that of a run with this seed. A run's noise goes on as strong as it was.
    particles
        How many worms; of a posterior, as many as it holds draws if not given, of others one.
    control
        Let the same worms live on with the same noise and without the experiment too; the two are then along a leading
        dimension `arm`, "experiment" and "control".
    every
        Seconds between the frames kept.
    record
        What to keep, as for `Worm.simulate`.
    progress
        Show a progress bar if it takes long.
    """
    given = prepare(source)
    at, frame = _find(given, at)
    if particles is not None:
        particles = check.whole("particles", particles)
        if given.most is not None and particles > given.most:
            raise ValueError(f"particles must be at most {given.most}, as many as the source holds, got {particles}")
    n = particles or given.most or 1
    initial = given.start(frame, n)
    if initial is not None:
        initial = initial.assign_coords(time=given.times[frame])
    own = int(np.random.SeedSequence([check.whole("seed", seed, least=0), 4]).generate_state(1)[0])

    def live(actions: Action | Iterable[Action]) -> xr.Dataset:
        run = given.worm.simulate(seconds, own, n, actions, given.noise, initial, record, every, progress)
        objects = run["objects"]  # the same for all samples
        many = run if "sample" in run.dims else run.drop_vars("objects").expand_dims("sample").assign(objects=objects)
        return many.assign_attrs(branched_at=at)

    return beside(live(protocol), live(())) if control else live(protocol)


def beside(experiment: xr.Dataset, control: xr.Dataset) -> xr.Dataset:
    """A branch and its control along a leading dimension `arm`."""
    runs = [run.drop_vars("objects") for run in (experiment, control)]
    arms = xr.Variable("arm", ["experiment", "control"])
    return xr.concat(runs, arms, join="outer", combine_attrs="override").assign(objects=experiment["objects"])


def difference(fan: xr.Dataset) -> xr.Dataset:
    """Experiment less control, worm by worm, of a branch with control=True: exactly 0 until the experiment begins."""
    if "arm" not in fan.dims:
        raise ValueError("fan must be a branch with control=True")
    numbers = fan[[name for name in fan if "arm" in fan[name].dims and fan[name].dtype.kind == "f" and name != "current"]]
    return (numbers.sel(arm="experiment") - numbers.sel(arm="control")).assign_attrs(fan.attrs)


def _frame(state: np.ndarray) -> xr.Dataset:
    """States (sample, 994) as a frame for `Worm.simulate`."""
    rods = state[:, BODY_ROW:MUSCLE_ROW].reshape(len(state), geo.RODS, 6)
    muscle = state[:, MUSCLE_ROW:].reshape(len(state), 2, geo.SEGMENTS)
    frame = xr.Dataset(
        {
            "voltage": (("sample", "neuron"), state[:, :N]),
            "calcium": (("sample", "neuron"), state[:, N:BODY_ROW]),
            "body": (("sample", "rod", "coord"), rods[:, :, :3]),
            "velocity": (("sample", "rod", "coord"), rods[:, :, 3:]),
            "muscle": (("sample", "side", "segment"), muscle),
        },
        {"neuron": list(NEURONS)},
    )
    return frame if len(state) > 1 else frame.isel(sample=0)
