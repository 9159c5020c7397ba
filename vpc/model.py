"""What a filter needs to know of a model: three functions over particles, which lie along axis 0 of an array.

A model may offer more: a fused `advance(rng, x, first, last)` over several steps. It is found if it is there; `capability` says
so, or gives an error that names what is missing.
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
        raise TypeError(f"{needed_for} needs a model with a method `{name}`, and {type(model).__name__} has none")
    return method
