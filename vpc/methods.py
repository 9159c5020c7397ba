"""Ways to filter, by name, for any model that has what they need.

- bootstrap: particles that move blindly and are weighted by what they meet, as in the paper. Evidence is unbiased, and noisy
- guided: particles that look a few frames ahead before they move (`vpc.guided`). Evidence is unbiased too
- ensemble: members that are shifted, not weighted (`vpc.ensemble`). Nothing starves, and evidence and bands are approximate
- bridged: members that are shifted as far as they must be, and weighted for the rest (`vpc.bridged`). Approximate too
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .bridged import Bridged
from .connectome import nearest
from .ensemble import Ensemble
from .filter import Filter
from .guided import Guided
from .model import StateSpaceModel, capability
from .smc import SMC
from .summaries import Collector, Summary

__all__ = ["ENSEMBLES", "METHODS", "NEEDS", "build", "check_method"]

# What a model must have beyond `initial`, `step` and `log_likelihood`.
NEEDS: dict[str, dict[str, str]] = {
    "bootstrap": {},
    "guided": {"predict": "Gaussian noise of what is seen", "linearise": "the Jacobian of what is seen by the noise"},
    "ensemble": {"predict": "Gaussian noise of what is seen"},
    "bridged": {"predict": "Gaussian noise of what is seen"},
}
METHODS = tuple(NEEDS)
ENSEMBLES = {"ensemble": Ensemble, "bridged": Bridged}  # their evidence is not unbiased, and they have no lines of descent


def check_method(method: object) -> str:
    """A method that there is, or an error that names those that there are."""
    if method not in METHODS:
        known, guess = ", ".join(METHODS), nearest(str(method), METHODS)
        raise ValueError(f"method must be one of {known}, got {method!r}; did you mean {guess!r}?")
    return str(method)


def build(
    method: str,
    model: StateSpaceModel,
    observations: np.ndarray,
    times: np.ndarray,
    particles: int = 1000,
    seed: int = 0,
    collect: Mapping[str, Summary | Collector] | None = None,
    look_ahead: int = 2,
) -> Filter:
    """A filter for a model; `look_ahead` is how many frames `guided` sees ahead."""
    missing = _missing(check_method(method), model)
    if missing:
        works = " and ".join(name for name in METHODS if not _missing(name, model))
        raise TypeError(f"method {method!r} needs {missing}, which {type(model).__name__} has not; what would work: {works}")
    common: dict[str, Any] = {"particles": particles, "seed": seed, "collect": collect}
    if method in ENSEMBLES:
        return ENSEMBLES[method](model, observations, times, **common)
    return SMC(Guided(model, observations, times, look_ahead) if method == "guided" else model, observations, times, **common)


def _missing(method: str, model: StateSpaceModel) -> str:
    """What a method needs and a model has not, in words."""
    return " and ".join(f"{piece} (`{name}`)" for name, piece in NEEDS[method].items() if not capability(model, name))
