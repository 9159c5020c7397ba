"""What the past looked like, given all that was seen later. Three ways, each of which runs a filter to its end:

- `trace`: the lines of descent of the particles that are left. Exact as particles grow, free, but all lines meet within a few
  resamplings: the far past is one path.
- `fixed_lag`: the past as the frames up to some lag later see it. Does not collapse if the lag is short; biased by what even
  later frames would have said.
- `backward`: paths drawn backwards through all particles by the density of the transition (Godsill, Doucet & West 2004, JASA).
  Does not collapse, and costs particles x frames for each path; needs a model with `log_transition`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from wormsim import check

from .model import capability
from .resampling import multinomial, reweighted
from .smc import SMC
from .summaries import FixedLag, Summary

__all__ = ["Ancestry", "backward", "fixed_lag", "trace"]


class Ancestry:
    """A tree of particles in single precision, from which lines that died out are cut (Jacob, Murray & Rubenthaler 2015).

    It holds about frames + particles x log(particles) states, not particles x frames.
    """

    def __init__(self) -> None:
        self.states: list[np.ndarray] = []  # of each frame, those with descendants
        self.parents: list[np.ndarray] = []  # of each state, its place in the frame before

    def add(self, x: np.ndarray, ancestors: np.ndarray | None) -> None:
        """Add a frame, whose particles come from these of the frame before; None: each from its own."""
        parents = np.arange(len(x)) if ancestors is None else ancestors
        self.states.append(x.astype(np.float32))
        self.parents.append(parents)
        for k in range(len(self.states) - 2, -1, -1):
            alive, self.parents[k + 1] = np.unique(self.parents[k + 1], return_inverse=True)
            if len(alive) == len(self.states[k]):
                break
            self.states[k], self.parents[k] = self.states[k][alive], self.parents[k][alive]

    @property
    def lines(self) -> np.ndarray:
        """How many particles of each frame have descendants in the last."""
        return np.array([len(states) for states in self.states])

    def paths(self, particles: np.ndarray) -> np.ndarray:
        """Where some particles of the last frame come from, (path, frame, ...)."""
        out = np.empty((len(particles), len(self.states), *self.states[-1].shape[1:]), np.float32)
        now = particles
        for k in range(len(self.states) - 1, -1, -1):
            out[:, k] = self.states[k][now]
            now = self.parents[k][now]
        return out


def trace(filter: SMC) -> Ancestry:
    """Run a filter and keep the lines of descent of its particles."""
    _check_fresh(filter)
    tree = Ancestry()
    for _ in filter:
        tree.add(filter.x, filter.ancestors)
    return tree


def fixed_lag(filter: SMC, lag: int, collect: Mapping[str, Summary]) -> dict[str, list[Any]]:
    """Run a filter, and summarise each of its frames as seen `lag` steps later, or at the end."""
    _check_fresh(filter)
    added = {name: FixedLag(summary, lag) for name, summary in collect.items()}
    for _ in filter:
        for collector in added.values():
            collector.update(filter)
    return {name: collector.values for name, collector in added.items()}


def backward(filter: SMC, paths: int, seed: int = 0) -> np.ndarray:
    """Run a filter, and draw paths (path, frame, ...) of the past given everything that was seen."""
    check.whole("paths", paths)
    density = capability(filter.model, "log_transition", needed_for="backward simulation")
    assert density is not None
    _check_fresh(filter)
    history = [(filter.x, filter.weights) for _ in filter]
    if filter.failure or not history:
        raise ValueError(f"filter has nothing to draw from: {filter.failure or 'there are no frames'}")
    rng = np.random.default_rng(check.whole("seed", seed, least=0))
    x, weights = history[-1]
    out = np.empty((paths, len(history), *x.shape[1:]))
    out[:, -1] = x[multinomial(rng, weights, paths)]
    for k in range(len(history) - 2, -1, -1):
        x, weights = history[k]
        first, last = filter.times[k], filter.times[k + 1]
        for path in range(paths):
            given, likely = reweighted(weights, density(x, out[path, k + 1], first, last))
            if not -np.inf < likely < np.inf:
                raise ValueError(f"`log_transition` of the model gives {likely} from frame {k} to the next for every particle")
            out[path, k] = x[multinomial(rng, given, 1)[0]]
    return out


def _check_fresh(filter: SMC) -> None:
    if filter.index:
        raise ValueError(f"filter must be at its first frame, and is at frame {filter.index}: make a new one")
