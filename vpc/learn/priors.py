"""What is thought of parameters before anything was seen, and the coordinates in which they are searched for.

A search goes on in free coordinates: u = (g(theta) - centre) / scale, where g is the logarithm or nothing, and centre and scale
are mean and sd of g(theta) under the prior. So a step of 0.1 is a tenth of the prior's sd, whatever the parameter's unit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from wormsim import check

__all__ = ["Prior", "Space", "lognormal", "normal", "rayleigh", "uniform"]

GRID = (np.arange(2000) + 0.5) / 2000  # of probabilities, over which moments are taken


@dataclass(frozen=True)
class Prior:
    """A distribution of one number within bounds; made by `rayleigh`, `normal`, `lognormal` or `uniform`."""

    law: Any = field(repr=False, compare=False)
    name: str
    low: float
    high: float
    log: bool

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low must be less than high, got {self.low!r} and {self.high!r} for {self.name}")
        if not self._mass[1] > self._mass[0]:
            raise ValueError(f"bounds of {self.low:g} and {self.high:g} leave nothing of {self.name}")
        if self.log and self.low < 0:
            raise ValueError(f"{self.name} cannot have a log transform from {self.low:g} on: it needs positive numbers")

    @cached_property
    def _mass(self) -> np.ndarray:
        return self.law.cdf([self.low, self.high])

    @cached_property
    def _log_mass(self) -> float:
        return float(np.log(self._mass[1] - self._mass[0]))

    def log_density(self, x: np.ndarray | float) -> np.ndarray:
        """log p(x); -inf beyond the bounds."""
        x = np.asarray(x, dtype=float)
        inside = (x >= self.low) & (x <= self.high)
        return np.where(inside, self.law.logpdf(np.where(inside, x, self.median)) - self._log_mass, -np.inf)

    def quantile(self, share: np.ndarray | float) -> np.ndarray:
        """The number below which a share of the prior lies."""
        return np.clip(self.law.ppf(self._mass[0] + np.asarray(share) * (self._mass[1] - self._mass[0])), self.low, self.high)

    @cached_property
    def median(self) -> float:
        """The middle."""
        return float(self.quantile(0.5))

    @cached_property
    def sd(self) -> float:
        """Of the number itself."""
        return float(self.quantile(GRID).std())

    @cached_property
    def frame(self) -> tuple[float, float]:
        """Centre and scale of the free coordinate."""
        values = self.quantile(GRID)
        values = np.log(values) if self.log else values
        return float(values.mean()), float(values.std())

    def free(self, x: np.ndarray | float) -> np.ndarray:
        """The free coordinate of a number."""
        centre, scale = self.frame
        with np.errstate(divide="ignore"):
            return ((np.log(x) if self.log else np.asarray(x, dtype=float)) - centre) / scale

    def value(self, u: np.ndarray | float) -> np.ndarray:
        """The number at a free coordinate."""
        centre, scale = self.frame
        g = centre + scale * np.asarray(u, dtype=float)
        return np.exp(g) if self.log else g

    def log_slope(self, u: np.ndarray | float) -> np.ndarray:
        """log of d value / d u."""
        centre, scale = self.frame
        u = np.asarray(u, dtype=float)
        return np.log(scale) + (centre + scale * u if self.log else np.zeros_like(u))

    def __str__(self) -> str:
        support = self.law.support()
        bounds = "" if (self.low, self.high) == support else f" from {self.low!r} to {self.high!r}"
        return f"{self.name}{bounds}{', log' * self.log}"


def rayleigh(
    mean: float | None = None, scale: float | None = None, low: float = 0.0, high: float = np.inf, log: bool = True
) -> Prior:
    """Of positive numbers, by its mean or its scale (the mode)."""
    if (mean is None) == (scale is None):
        raise ValueError(f"rayleigh needs either a mean or a scale, got mean={mean!r}, scale={scale!r}")
    if scale is None:
        scale = check.number("mean", mean, "a positive number", lambda x: x > 0) / np.sqrt(np.pi / 2)
    scale = check.number("scale", scale, "a positive number", lambda x: x > 0)
    return Prior(stats.rayleigh(scale=scale), f"rayleigh(scale={float(scale)!r})", low, high, log)


def normal(mean: float, sd: float, low: float = -np.inf, high: float = np.inf, log: bool = False) -> Prior:
    """Gaussian."""
    mean = check.number("mean", mean, "a number", np.isfinite)
    sd = check.number("sd", sd, "a positive number", lambda x: x > 0)
    return Prior(stats.norm(mean, sd), f"normal({mean!r}, {sd!r})", low, high, log)


def lognormal(median: float, sd: float, low: float = 0.0, high: float = np.inf, log: bool = True) -> Prior:
    """Of positive numbers whose logarithm is Gaussian, with some sd: 0.1 is about 10 %."""
    median = check.number("median", median, "a positive number", lambda x: x > 0)
    sd = check.number("sd", sd, "a positive number", lambda x: x > 0)
    return Prior(stats.lognorm(sd, scale=median), f"lognormal({median!r}, {sd!r})", low, high, log)


def uniform(low: float, high: float, log: bool = False) -> Prior:
    """Any number between two."""
    low, high = check.number("low", low, "a number", np.isfinite), check.number("high", high, "a number", np.isfinite)
    if not low < high:
        raise ValueError(f"low must be less than high, got {low!r} and {high!r}")
    return Prior(stats.uniform(low, high - low), f"uniform({low!r}, {high!r})", low, high, log)


class Space:
    """Some parameters, in an order, with their priors. A point is an array (parameter,), many are (n, parameter)."""

    def __init__(self, priors: Mapping[str, Prior]):
        if not priors:
            raise ValueError("parameters must name at least one parameter to learn")
        for label, prior in priors.items():
            if not isinstance(prior, Prior):
                raise ValueError(
                    f"the prior of {label} must be one of vpc.learn.priors, such as rayleigh(mean=9), got {prior!r}"
                )
            whole, group = split(label)
            if group is not None and whole in priors:
                raise ValueError(f"{whole} is to be learned both as a whole and for {group}; name {whole}[all] for the others")
        self.priors = dict(priors)
        self.labels = tuple(priors)
        which: dict[Prior, list[int]] = {}
        for place, prior in enumerate(priors.values()):
            which.setdefault(prior, []).append(place)
        self._groups = [(prior, np.array(places)) for prior, places in which.items()]
        self.low, self.high = (np.array([getattr(prior, end) for prior in priors.values()]) for end in ("low", "high"))

    def __len__(self) -> int:
        return len(self.labels)

    def _each(self, method: str, values: np.ndarray) -> np.ndarray:
        values = np.asarray(values, dtype=float)
        out = np.empty(values.shape)
        for prior, places in self._groups:
            out[..., places] = getattr(prior, method)(values[..., places])
        return out

    def log_prior(self, theta: np.ndarray) -> np.ndarray:
        """log p(theta) of one point or of many; -inf beyond the bounds."""
        return self._each("log_density", theta).sum(axis=-1)

    def free(self, theta: np.ndarray) -> np.ndarray:
        """Free coordinates of points."""
        return self._each("free", theta)

    def value(self, u: np.ndarray) -> np.ndarray:
        """Points at free coordinates."""
        return self._each("value", u)

    def log_free_prior(self, u: np.ndarray) -> np.ndarray:
        """log density of free coordinates."""
        return self.log_prior(self.value(u)) + self._each("log_slope", u).sum(axis=-1)

    def inside(self, theta: np.ndarray) -> np.ndarray:
        """Whether points are within the bounds."""
        return np.all((theta >= self.low) & (theta <= self.high), axis=-1)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Points (n, parameter) from the prior."""
        return self._each("quantile", rng.random((n, len(self))))

    def point(self, values: Mapping[str, Any], name: str = "start") -> np.ndarray:
        """The point that a nested or a flat mapping names; an error if it is incomplete or outside the prior."""
        flat = flattened(values)
        missing, unknown = sorted(set(self.labels) - set(flat)), sorted(set(flat) - set(self.labels))
        if missing or unknown:
            wrong = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(unknown)} too"] * bool(unknown)
            raise ValueError(
                f"{name} must have the parameters that are learned, {', '.join(self.labels)}; it {' and '.join(wrong)}"
            )
        theta = np.array([float(flat[label]) for label in self.labels])
        for label, prior, value in zip(self.labels, self.priors.values(), theta, strict=True):
            if not prior.log_density(value) > -np.inf:
                raise ValueError(f"{name} lies outside the prior: {label} is {value:g}, and its prior is {prior}")
        return theta

    def named(self, theta: Sequence[float] | np.ndarray) -> dict[str, Any]:
        """A point as a mapping, as `Worm.with_parameters` takes it."""
        return named(self.labels, theta)


def named(labels: Sequence[str], theta: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Values by name; what has groups, such as "g_leak[AVA]", is nested."""
    out: dict[str, Any] = {}
    for label, value in zip(labels, theta, strict=True):
        name, group = split(label)
        if group is None:
            out[name] = float(value)
        else:
            out.setdefault(name, {})[group] = float(value)
    return out


def split(label: str) -> tuple[str, str | None]:
    """Name and group of a label: "g_leak[AVA]" is g_leak of AVA, and "w_s" is of the whole worm."""
    name, bracket, rest = label.partition("[")
    return (name, rest.removesuffix("]")) if bracket and rest.endswith("]") else (label, None)


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping in which values of groups go by labels such as "g_leak[AVA]"."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        out |= {f"{name}[{group}]": v for group, v in value.items()} if isinstance(value, Mapping) else {name: value}
    return out
