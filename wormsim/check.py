"""Refusing bad input with a message that names the argument, what was expected and what came."""

from collections.abc import Callable

import numpy as np


def number(name: str, value: object, rule: str, accept: Callable[[float], bool]) -> float:
    """The value as a float that obeys a rule: accept(value) says so, `rule` completes "must be ..."."""
    try:
        result = float(value) if not isinstance(value, str | bytes) else np.nan  # type: ignore[arg-type]
    except (TypeError, ValueError):
        result = np.nan
    if not (np.isfinite(result) and accept(result)):
        raise ValueError(f"{name} must be {rule}, got {value!r}")
    return result


def whole(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """The value as a whole number within limits."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least or (most and value > most):
        limit = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {limit}, got {value!r}")
    return int(value)


def array(name: str, value: object, shape: tuple[int, ...]) -> np.ndarray:
    """The value as a finite float64 array of a shape."""
    try:
        result = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers of shape {shape}, got {type(value).__name__}") from None
    if result.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {result.shape}")
    if not np.isfinite(result.sum()) and not np.isfinite(result).all():  # the sum is four times quicker
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(result))[0])
        raise ValueError(f"{name} must be finite, but {name}[{', '.join(map(str, where))}] is {result[where]}")
    return result
