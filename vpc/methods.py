"""Ways to filter, by name, for any model that has what they need.

- bootstrap: particles that move blindly and are weighted by what they meet, as in the paper. Evidence is unbiased, and noisy
- guided: particles that look a few frames ahead before they move (`vpc.guided`). Evidence is unbiased too
- farsighted: particles that live through many frames before they move (`vpc.farsighted`). Unbiased, and good far off too
- ensemble: members that are shifted, not weighted (`vpc.ensemble`). Nothing starves, and evidence and bands are approximate
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wormsim import check

from .connectome import nearest
from .ensemble import Ensemble
from .farsighted import Farsighted
from .filter import Filter
from .guided import Guided
from .model import StateSpaceModel, capability
from .relived import Relived
from .smc import SMC
from .summaries import Collector, Summary

__all__ = ["LOOK_AHEAD", "METHODS", "build", "check_method", "frames_ahead", "frames_back"]

KINDS: dict[str, Any] = {"bootstrap": SMC, "guided": Guided, "farsighted": Farsighted, "ensemble": Ensemble}
METHODS = tuple(KINDS)
LOOK_AHEAD = {"guided": 2, "farsighted": 10}  # frames, by default


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
    look_ahead: int | None = None,
    look_back: int = 0,
) -> Filter:
    """A filter for a model.

    `look_ahead` is how many frames `guided` and `farsighted` see ahead. `look_back` is how many frames members of an ensemble
    live again after each (`vpc.relived`), for evidence only: each costs as much as the sweep itself. Half a second ranks
    worms that are far apart; README has what it does, and with how many members.
    """
    missing = _missing(check_method(method), model)
    if missing:
        works = " and ".join(name for name in METHODS if not _missing(name, model))
        raise TypeError(f"method {method!r} needs {missing}, which {type(model).__name__} has not; what would work: {works}")
    back = frames_back(method, look_back)
    common: dict[str, Any] = {"particles": particles, "seed": seed, "collect": collect}
    if method in LOOK_AHEAD:
        return SMC(KINDS[method](model, observations, times, frames_ahead(method, look_ahead)), observations, times, **common)
    if back:
        return Ensemble(Relived(model, times, back), observations, times, doubt=0.0, **common)
    kind: type[Filter] = KINDS[method]
    return kind(model, observations, times, **common)


def frames_ahead(method: str, look_ahead: int | None) -> int:
    """How many frames a method looks ahead, if it does."""
    return LOOK_AHEAD.get(method, 2) if look_ahead is None else look_ahead


def frames_back(method: str, look_back: int) -> int:
    """How many frames a method looks back, or an error if it does not."""
    back = check.whole("look_back", look_back, least=0)
    if back and method != "ensemble":
        raise ValueError(f"look_back is for members of an ensemble, got {look_back!r} for method {method!r}")
    return back


def _missing(method: str, model: StateSpaceModel) -> str:
    """What a method needs beyond `initial`, `step` and `log_likelihood`, and a model has not, in words."""
    needs = getattr(KINDS[method], "needs", {})
    return " and ".join(f"{piece} (`{name}`)" for name, piece in needs.items() if not capability(model, name))
