"""What is known of a worm before anything is recorded: a corpus of noise-free simulations, and what it teaches.

48 worms live for 5 s. Their voltages and calcium give each neuron's prior at the start of a recording; how much they move gives
the process noise, in one of two scalings; how much their fluorescence moves gives the noise of the observations.

- "settled": noise in proportion to how much a neuron moves after the first 2 s
- "paper": in proportion to its range from the start on, as Warrington, Spencer & Wood do. This counts the relaxation from
  -20 mV as signal, so that quiet neurons get private noise that nothing seen can tell

The most lively neuron gets 5 mV a step times a factor.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from wormsim import check
from wormsim import geometry as geo

from .cluster import Cluster
from .connectome import NEURONS, index, nearest
from .parameters import plain
from .worm import Worm

if TYPE_CHECKING:
    from .recording import Recording

__all__ = ["FACTOR", "SCALINGS", "Prior", "draw_start", "learned_prior", "noise_profile", "pose_along", "poses"]

RUNS, SECONDS, SETTLED = 48, 5.0, 2.0  # s
CORPUS = 48_302  # a seed of its own, so that no truth is in the corpus by accident
LEAST_SIGMA = 1e-3  # of the noise of fluorescence
MOST_NOISE, LEAST_NOISE = 5.0, 0.0005  # mV a step
LEAST_CALCIUM = 1e-3  # uM
SCALINGS = ("settled", "paper")
FACTOR = 0.2  # of the process noise, where nothing is said
FACTORS, WIDTHS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0), (0.5, 0.7, 1.0, 1.4, 2.0)  # to choose from by evidence


class Prior(NamedTuple):
    """What a corpus says of each neuron (302,)."""

    voltage: np.ndarray  # mean, mV
    voltage_sd: np.ndarray
    calcium: np.ndarray  # mean, uM
    calcium_sd: np.ndarray
    noise: np.ndarray  # sd of the process noise, mV a step of 10 ms, at a factor of 1
    sigma: np.ndarray  # sd of the observation noise, in units of fluorescence


def learned_prior(worm: Worm, scaling: str = "settled") -> Prior:
    """The prior that a worm's corpus gives; kept, so that it is simulated once for each worm."""
    if scaling not in SCALINGS:
        guess = nearest(str(scaling), SCALINGS)
        raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, got {scaling!r}; did you mean {guess!r}?")
    return _learn(_Hashed(worm), scaling)


class _Hashed:
    """A worm that equals another one if the two live alike."""

    def __init__(self, worm: Worm):
        self.worm = worm
        parameters = json.dumps(plain(worm.parameters), sort_keys=True)
        wiring = (worm.connectome.chemical.tobytes(), worm.connectome.gap.tobytes())
        self.key = (parameters, *wiring, worm.ablated, worm.objects.tobytes())

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.key == other.key


@functools.lru_cache(maxsize=64)
def _learn(hashed: _Hashed, scaling: str) -> Prior:
    run = hashed.worm.simulate(SECONDS, CORPUS, RUNS, record=["voltage", "calcium"], progress=False)
    run = run.isel(sample=run["ok"].all("time").values)
    if run.sizes["sample"] == 0:
        raise ValueError("worm fails within 5 s in each of 48 noise-free runs, so that nothing can be learned from them")
    everything = run[["voltage", "calcium", "fluorescence"]]
    settled = everything.sel(time=slice(SETTLED, None))
    chosen = settled if scaling == "settled" else everything
    voltage = chosen["voltage"]
    extent = voltage.std(["sample", "time"])
    if scaling == "paper":
        extent = (voltage.max("time") - voltage.min("time")).mean("sample")
    variance = everything["fluorescence"].var(["sample", "time"]).values
    prior = Prior(
        voltage.mean(["sample", "time"]).values,
        voltage.std(["sample", "time"]).values,
        chosen["calcium"].mean(["sample", "time"]).values,
        chosen["calcium"].std(["sample", "time"]).values,
        np.maximum(MOST_NOISE * extent.values / max(float(extent.max()), 1e-12), LEAST_NOISE),
        np.maximum(np.sqrt(0.02 * np.sqrt(1.1 * variance / (variance.max() + 0.1))), LEAST_SIGMA),
    )
    for values in prior:
        values.flags.writeable = False  # it is handed out again
    return prior


def draw(prior: Prior, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Voltages and calcium (n, neuron) from a prior, each neuron by itself."""
    shape = n, len(prior.voltage)
    voltage = prior.voltage + prior.voltage_sd * rng.standard_normal(shape)
    calcium = prior.calcium + prior.calcium_sd * rng.standard_normal(shape)
    return voltage, np.maximum(calcium, LEAST_CALCIUM)


def draw_start(worm: Worm, seed: int = 0, scaling: str = "settled") -> xr.Dataset:
    """A frame for `Worm.simulate(initial=...)`, drawn from the learned prior: straight, but with its neurons in mid-life."""
    rng = np.random.default_rng([check.whole("seed", seed, least=0), 1])  # other uses of a seed have streams of their own
    voltage, calcium = draw(learned_prior(worm, scaling), rng, 1)
    return xr.Dataset({"voltage": ("neuron", voltage[0]), "calcium": ("neuron", calcium[0])}, {"neuron": list(NEURONS)})


def noise_profile(
    worm: Worm,
    recording: "Recording",
    factors: Sequence[float] = FACTORS,
    widths: Sequence[float] = WIDTHS,
    scaling: str = "settled",
    method: str = "ensemble",
    particles: int = 200,
    seed: int = 1,
    progress: bool = True,
    cluster: Cluster | None = None,
) -> xr.Dataset:
    """How well factors of the process noise, and of the corpus's sigma, explain a recording: log evidence (factor, width).

    The best are among the attributes `factor` and `width`, and `sigma` (observed) is what `vpc.impute` takes. A filter that
    loses the worm gives -inf. Differences of a few nats are within the noise of the filter.
    On a `cluster`, of `vpc.cluster.connect`, one sweep is one task.
    """
    corpus = learned_prior(worm, scaling).sigma[index(recording.neurons)]
    weigh = _Weigh(worm, recording, scaling, corpus, method, particles, seed)
    evidences = (cluster or Cluster()).map(weigh, [(factor, width) for factor in factors for width in widths], progress)
    found = np.array(evidences).reshape(len(factors), len(widths))
    row, column = divmod(int(found.argmax()), len(widths))
    best = {"factor": float(factors[row]), "width": float(widths[column])}
    data = {"log_evidence": (("factor", "width"), found, {"units": "nats"}), "sigma": ("observed", best["width"] * corpus)}
    coords = {"factor": list(factors), "width": list(widths), "observed": list(recording.neurons)}
    return xr.Dataset(data, coords, best | {"scaling": scaling, "method": method})


@dataclass(frozen=True)
class _Weigh:
    """log evidence of a factor of the process noise and of one of sigma: a task for a cluster."""

    worm: Worm
    recording: "Recording"
    scaling: str
    sigma: np.ndarray
    method: str
    particles: int
    seed: int

    def __call__(self, noise: tuple[float, float]) -> float:
        from .methods import build
        from .sweep import model_of

        factor, width = noise
        model = model_of(self.worm, self.recording, self.scaling, factor, width * self.sigma)
        seen = self.recording
        return build(self.method, model, seen.values, seen.steps, self.particles, self.seed).run().log_evidence


def pose_along(points: np.ndarray) -> np.ndarray:
    """A body (49, 3) in mm and rad that lies along a curve through points (n, 2), head first, dorsal side to its right.

    The curve may be as long as a tracker makes it; the body is 1 mm long and starts at its first point.
    """
    from scipy.interpolate import make_interp_spline

    places = np.asarray(points, dtype=float)
    if places.ndim != 2 or places.shape[1] != 2 or len(places) < 4 or not np.isfinite(places).all():
        raise ValueError(f"points must be at least 4 places (x, y) in mm, got shape {places.shape}")
    along = np.concatenate([[0], np.hypot(*np.diff(places, axis=0).T).cumsum()])
    if (np.diff(along) <= 0).any():
        raise ValueError("points must differ from one to the next")
    curve = make_interp_spline(along, places, k=3)
    fine = np.linspace(0, along[-1], 2001)
    length = np.concatenate([[0], np.hypot(*np.diff(curve(fine), axis=0).T).cumsum()])
    at = np.interp(np.linspace(0, min(geo.LENGTH, length[-1]), geo.RODS), length, fine)
    tangent = curve.derivative()(at)
    # Lay rods of the right distance along the tangents: a curve that is too short or too long is then followed by its shape.
    direction = np.unwrap(np.arctan2(tangent[:, 1], tangent[:, 0]))
    middle = 0.5 * (direction[1:] + direction[:-1])
    steps = geo.SEGMENT_LENGTH * np.stack([np.cos(middle), np.sin(middle)], axis=1)
    out = np.empty((geo.RODS, 3))
    out[:, :2] = places[0] + np.concatenate([np.zeros((1, 2)), steps.cumsum(axis=0)])
    out[:, 2] = direction + np.pi / 2
    return out


def poses(pose: np.ndarray | None, spread: float, rng: np.random.Generator, n: int) -> np.ndarray:
    """n bodies (n, 49, 3) around one (straight by default), bent by smooth random angles of sd `spread` rad at their ends."""
    start = geo.straight()[0] if pose is None else check.array("pose", pose, (geo.RODS, 3))
    if spread == 0:
        return np.broadcast_to(start, (n, geo.RODS, 3))
    where = np.linspace(0, 1, geo.RODS)
    waves = np.cos(np.pi * np.arange(4)[:, None] * where)  # a turn of the whole, and bends of growing number
    bends = spread / np.sqrt(len(waves)) * rng.standard_normal((n, len(waves))) @ waves
    out = np.empty((n, geo.RODS, 3))
    out[:, :, 2] = np.unwrap(start[:, 2]) + bends
    direction = 0.5 * (out[:, 1:, 2] + out[:, :-1, 2]) - np.pi / 2
    distance = np.hypot(*np.diff(start[:, :2], axis=0).T)
    steps = distance[None, :, None] * np.stack([np.cos(direction), np.sin(direction)], axis=2)
    out[:, :, :2] = start[0, :2] + np.concatenate([np.zeros((n, 1, 2)), steps.cumsum(axis=1)], axis=1)
    return out
