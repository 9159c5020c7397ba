"""What parameters are learned from: a model that is made anew for each theta, and what was seen; a sweep gives its evidence."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from wormsim import check

from ..autoregressive import Autoregressive
from ..connectome import find, index, nearest
from ..filter import Filter
from ..imputation import SIZES
from ..methods import build, check_method, frames_ahead, frames_back
from ..model import StateSpaceModel
from ..parameters import PARAMETERS, Value, per_neuron
from ..recording import Recording
from ..sweep import model_of
from ..worm import Worm
from .priors import Prior, Space, flattened, lognormal, normal, rayleigh, split

__all__ = ["ArTarget", "Observations", "Sweep", "Target", "WormTarget", "target_of"]

RAYLEIGH = {"w_m": 9.0, "w_s": 10.3}  # scales of the paper's priors
OF_FILTER = ("method", "particles", "init_particles", "look_ahead", "look_back")
SETTINGS = (*OF_FILTER, "scaling", "factor", "sigma", "pose", "pose_spread")
WEIGHT_MEAN = 0.0185  # of the Rayleigh prior of each weight of the autoregressive model


class Sweep(NamedTuple):
    """One evaluation: where, with which seed, and how much the noise of what is seen is widened."""

    theta: tuple[float, ...]
    seed: int
    widen: float = 1.0


class Observations(NamedTuple):
    """What was seen of a model that is not a worm: (frame, ...), and the step of each frame."""

    values: np.ndarray
    times: np.ndarray


class Target:
    """A model with unknown parameters, and what was seen of it; calling it with a `Sweep` gives the evidence.

    For a model of one's own, override `model`. `look_ahead` and `look_back` are those of `vpc.methods.build`.
    """

    heavy = False  # whether a sweep spends its time in compiled code, so that threads can run several

    def __init__(
        self,
        space: Space,
        observations: Observations,
        method: str,
        particles: int,
        look_ahead: int | None = None,
        look_back: int = 0,
    ):
        self.space, self.observations = space, observations
        self.method, self.particles = check_method(method), check.whole("particles", particles, 2)
        self.look_ahead, self.look_back = frames_ahead(method, look_ahead), frames_back(method, look_back)

    def model(self, theta: np.ndarray, widen: float = 1.0) -> StateSpaceModel:
        """The model with parameters theta, whose noise of observation is widened."""
        raise NotImplementedError

    def filter(self, sweep: Sweep) -> Filter:
        """The filter of a sweep, at its first frame."""
        model = self.model(np.array(sweep.theta), sweep.widen)
        values, times = self.observations
        return build(self.method, model, values, times, self.particles, sweep.seed, None, self.look_ahead, self.look_back)

    def __call__(self, sweep: Sweep) -> tuple[float, str]:
        """log evidence, and why it is -inf if it is."""
        try:
            done = self.filter(sweep).run()
        except (ValueError, ArithmeticError) as error:
            return -np.inf, str(error)
        return float(done.log_evidence), done.failure.partition(": ")[2] or done.failure

    @property
    def identity(self) -> dict[str, Any]:
        """What two targets must share to be the same."""
        middle = tuple(prior.median for prior in self.space.priors.values())
        known = self.filter(Sweep(middle, 0))._identity()
        priors = json.dumps({label: str(prior) for label, prior in self.space.priors.items()})
        return {
            "version": version("virtual-patch-clamp"),
            "target": type(self).__qualname__,
            "method": self.method,
            **{name: known[name] for name in ("model", "parameters", "observations", "particles")},
            "look_ahead": self.look_ahead,
            "priors": hashlib.sha256(priors.encode()).hexdigest()[:16],
        }


class WormTarget(Target):
    """A worm and a recording; `settings` are `scaling`, `factor`, `sigma`, `pose` and `pose_spread` of `vpc.impute`.

    A bootstrap filter starts from the prior unless `init_particles` says otherwise. Noise, sigma and the prior of the start are
    learned from the worm as it is given, and kept for all theta.
    """

    heavy = True

    def __init__(
        self,
        worm: Worm,
        recording: Recording,
        parameters: Iterable[str] | Mapping[str, Any],
        method: str = "ensemble",
        particles: int | None = None,
        init_particles: int = 0,
        look_ahead: int | None = None,
        look_back: int = 0,
        **settings: Any,
    ):
        if not isinstance(recording, Recording):
            raise ValueError(f"recording must be a vpc.Recording, got {type(recording).__name__}")
        for name in settings:
            if name not in SETTINGS:
                known = ", ".join(SETTINGS)
                raise ValueError(
                    f"{name} is not a setting of a search or its filter: {known}; did you mean {nearest(name, SETTINGS)!r}?"
                )
        self.worm, self.recording = worm, recording
        self.settings = settings | {"candidates": check.whole("init_particles", init_particles, least=0)}
        space = Space(_priors(parameters, lambda name: worm_prior(worm, name)))
        seen = Observations(recording.values, recording.steps)
        particles = SIZES[check_method(method)][0] if particles is None else particles
        super().__init__(space, seen, method, particles, look_ahead, look_back)
        model_of(worm, recording, **self.settings)  # refuses bad settings now

    def model(self, theta: np.ndarray, widen: float = 1.0) -> StateSpaceModel:
        """The model that `vpc.impute` filters, of the worm with parameters theta."""
        return model_of(self.living(theta), self.recording, temperature=widen**2, corpus=self.worm, **self.settings)

    def living(self, theta: np.ndarray) -> Worm:
        """The worm with parameters theta."""
        return self.worm.with_parameters(**self.space.named(theta))


class ArTarget(Target):
    """The autoregressive model, or its twin. Parameters are weights, as "W[3,7]", all by default, and its other numbers."""

    def __init__(
        self,
        base: Autoregressive,
        observations: Observations,
        parameters: Iterable[str] | Mapping[str, Any] | None = None,
        method: str = "bootstrap",
        particles: int | None = None,
        look_ahead: int | None = None,
        look_back: int = 0,
    ):
        self.base = base
        if parameters is None:
            parameters = [f"W[{i},{j}]" for i, j in np.argwhere(np.triu(base.weights))]
        space = Space(_priors(parameters, self._prior))
        self._places = [self._place(label) for label in space.labels]
        particles = 200 if particles is None else particles
        super().__init__(space, Observations(*observations), method, particles, look_ahead, look_back)

    def _prior(self, label: str) -> Prior:
        place = self._place(label)
        if not isinstance(place, str):
            return rayleigh(mean=WEIGHT_MEAN, log=False)
        value = float(getattr(self.base, place))
        return lognormal(value, 0.3)

    def _place(self, label: str) -> str | tuple[int, int]:
        """The name of a number, or the place of a weight."""
        name, group = split(label)
        known = [name for name in self.base.parameters if name != "weights"]
        if name == "W" and group is not None:
            parts = group.split(",")
            size = len(self.base.weights)
            if len(parts) == 2 and all(part.strip().isdecimal() for part in parts):
                i, j = (int(part) for part in parts)
                if i < j < size:
                    return i, j
            raise ValueError(f"{label!r} is not a weight: W[i,j] has i < j < {size}")
        if label not in known:
            guess = nearest(label, [*known, "W[0,1]"])
            raise ValueError(f"{label!r} is not a parameter of {type(self.base).__name__}; did you mean {guess!r}?")
        return label

    def model(self, theta: np.ndarray, widen: float = 1.0) -> Autoregressive:
        """The model with parameters theta."""
        weights = self.base.weights.copy()
        changes: dict[str, Any] = {}
        for place, value in zip(self._places, theta, strict=True):
            if isinstance(place, str):
                changes[place] = float(value)
            else:
                weights[place], weights[place[::-1]] = value, -value
        noise = changes.pop("observation_noise", self.base.observation_noise)
        return replace(self.base, weights=weights, observation_noise=widen * noise, **changes)


def worm_prior(worm: Worm, label: str) -> Prior:
    """The prior of a worm's parameter if none is given: the paper's for w_m and w_s, around the worm's own value for others."""
    name, group = split(label)
    if name not in PARAMETERS:
        raise ValueError(f"{name!r} is not a parameter of the worm; did you mean {nearest(name, PARAMETERS)!r}?")
    known = PARAMETERS[name]
    if group is not None and not known.each:
        raise ValueError(f"{name} is one number for the whole worm, and cannot be learned for {group}")
    value = mean_of(worm.parameters[name], name, group)
    if name in RAYLEIGH and group is None:
        return rayleigh(scale=RAYLEIGH[name], high=known.high)
    if known.low >= 0 and value > 0:
        return lognormal(value, 0.3, known.low, known.high)
    return normal(value, 5.0 if known.unit == "mV" else 0.3 * max(1.0, abs(value)), known.low, known.high)


def mean_of(value: Value, name: str, group: str | None) -> float:
    """What some neurons have of a parameter, on average."""
    if not isinstance(value, Mapping):
        return float(value)
    return float(per_neuron(value, PARAMETERS[name].default)[index(find(group or "all"))].mean())


def _priors(parameters: Iterable[str] | Mapping[str, Any], default: Any) -> dict[str, Prior]:
    """Priors by label, of names alone, or of a mapping from names to priors or to {group: prior}; None is the default."""
    if isinstance(parameters, str):
        raise ValueError(f"parameters must be a list of names, such as [{parameters!r}], or a mapping from names to priors")
    flat = flattened(parameters) if isinstance(parameters, Mapping) else dict.fromkeys(parameters)
    flat = {label.replace(" ", ""): prior for label, prior in flat.items()}
    usual = {label: default(label) for label in flat}  # refuses unknown names
    return {label: usual[label] if prior is None else prior for label, prior in flat.items()}


def target_of(model: Any, recording: Any = None, parameters: Any = None, **settings: Any) -> Target:
    """A target, of a worm and a recording, of an autoregressive model and observations, or as it is."""
    if isinstance(model, Target):
        if recording is not None or parameters is not None or settings:
            raise ValueError("model is a target, which has its recording, parameters and settings already")
        return model
    if isinstance(model, Autoregressive):
        if not isinstance(recording, tuple) or len(recording) != 2:
            raise ValueError(f"recording must be vpc.learn.Observations(values, times), got {type(recording).__name__}")
        return ArTarget(model, Observations(*recording), parameters, **settings)
    if not isinstance(model, Worm):
        raise ValueError(f"model must be a vpc.Worm, an Autoregressive model or a vpc.learn.Target, got {type(model).__name__}")
    if parameters is None:
        raise ValueError('parameters must say what to learn, such as ["w_m", "w_s"]')
    return WormTarget(model, recording, parameters, **settings)
