"""What a filter needs to know of a model: three functions over particles, which lie along axis 0 of an array.

Methods give new arrays, and leave x as it is. A model may offer more. What it has is found, not asked for; what something needs
and the model has not is named in an error.

- `advance(rng, x, first, last, ancestors)`: several steps in one call, of x[ancestors] if ancestors are given
- `propose(rng, x, y, first, last, ancestors)`: the same with y in view, and the log of p / q for each particle, where q is the
  density it drew from and p the model's. At the first frame, x was drawn by `initial`, and p is the density of that
- `propose_start(rng, x, y, look_ahead)`: the same at the first frame, with some later frames in view
- `foresee(x, t)`: log of how well each particle at step t is going to explain later frames, up to a constant
- `predict(x)`: what is seen of each particle (particle, seen) without noise, and the sd (seen,) of its noise, which is Gaussian
- `confine(x)`: bring particles, in place, back to where states can be, such as concentrations that are positive
- `noise_shape(steps)`: (sources, parts) of the Gaussian noise of some steps, of which parts of one source act much alike, and
  `drive(x, first, last, noise, ancestors)`: `advance` with all of the noise (particle, source, part) given, or none
- `linearise(x, first, times)`: how later frames depend on the noise on the way to them; see `vpc.guided`
- `explain()`: why particles failed in the last step, in words
- `log_transition(x, new, first, last)`: log p(new at last | x at first), for each particle of x and one state `new`
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

__all__ = ["StateSpaceModel", "capability"]


class StateSpaceModel(Protocol):
    """A stochastic process in steps 0, 1, 2 ..., some of which are observed."""

    def initial(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw n particles at step 0."""

    def step(self, rng: np.random.Generator, x: np.ndarray, t: int) -> np.ndarray:
        """Draw the particles at step t + 1, of those at step t."""

    def log_likelihood(self, y: np.ndarray, x: np.ndarray, t: int) -> np.ndarray:
        """log p(y | x) of each particle at step t; -inf for one that has failed. What is NaN in y was not observed."""


def capability(model: Any, name: str, needed_for: str = "") -> Callable | None:
    """A method that a model may have; None if it has not, or an error if something needs it."""
    method = getattr(model, name, None)
    if method is None and needed_for:
        why = getattr(model, f"no_{name}", "")  # a model that cannot have it may say why
        raise TypeError(
            f"{needed_for} needs a model with a method `{name}`, and {type(model).__name__} has none{': ' * bool(why)}{why}"
        )
    return method
