"""Which parameters do the data determine? Evidence along each of them and across pairs, around a point, and what it means.

In free coordinates (`vpc.learn.priors`) the prior has an sd of 1 in each direction. If the evidence falls like -u H u / 2
around its peak, the posterior's covariance is about (1 + H)^-1. The contraction of a parameter is its sd there: 1 if nothing
was learned.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr

from wormsim import check

from ..cluster import Cluster, connect
from .targets import Sweep, Target, target_of

__all__ = ["Report", "identifiability"]

COARSE = np.array([-1.0, -0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3, 1.0])  # prior sd, to find out how sharp the evidence is
FINE = np.array([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5])  # in units of where it has fallen by some nats
FALL, NEAR = 5.0, 50.0  # nats
DETERMINED, WEAKLY = 0.5, 0.9  # contractions
TIED = 0.8  # correlation of two parameters that are known only together
PAIRED = 5  # parameters whose pairs are looked at


@dataclass(frozen=True)
class Report:
    """What `identifiability` found; print it.

    `dataset` holds `profile` (parameter, place) at `value`, `slice` (pair, row, column), `curvature` of the log evidence by
    free coordinates, `contraction` and `correlation`.
    """

    dataset: xr.Dataset

    def verdict(self, parameter: str) -> str:
        """determined, weakly determined or not determined."""
        contraction = float(self.dataset["contraction"].sel(parameter=parameter))
        return ["determined", "weakly determined", "not determined"][int(np.searchsorted([DETERMINED, WEAKLY], contraction))]

    def __str__(self) -> str:
        data, lines = self.dataset, []
        for label in map(str, data["parameter"].values):
            one = data.sel(parameter=label)
            low, high, before = float(one["low"]), float(one["high"]), float(one["prior_sd"])
            lines.append(
                f"{label} is {self.verdict(label)}: {float(one['at']):.4g}, about {low:.4g} to {high:.4g}; its sd is "
                f"{float(one['contraction']):.2f} of the prior's, which is {before:.3g}. The evidence falls by at least "
                f"{float(one['fall']):.1f} nats within one of these, and a sweep scatters by {data.attrs['scatter']:.1f}."
                + " That is too much to tell: take more sweeps or particles."
                * (float(one["unsure"]) > 1)
            )
        for a, b in combinations(map(str, data["parameter"].values), 2):
            tie = float(data["correlation"].sel(parameter=a, other=b))
            if abs(tie) > TIED:
                other = "fall" if tie < 0 else "rise"
                lines.append(f"{a} and {b} are tied: a rise of one is made up for by a {other} of the other ({tie:.2f}).")
        if data.sizes["parameter"] > PAIRED or "pair" not in data:
            lines.append("Pairs beyond these were not looked at: what is tied to others is known less well than it seems.")
        lost = [label for label in map(str, data["parameter"].values) if self.verdict(label) == "not determined"]
        lines.append(
            f"The data do not determine {', '.join(lost)}." if lost else "The data say something about every parameter."
        )
        return "\n".join(lines)


def identifiability(
    model: Any,
    recording: Any = None,
    parameters: Any = None,
    *,
    at: dict[str, Any],
    sweeps: int = 2,
    pairs: bool = True,
    seed: int = 0,
    cluster: Cluster | None = None,
    progress: bool = True,
    **settings: Any,
) -> Report:
    """Look at the evidence around a point, such as `fit.best`.

    Parameters
    ----------
    model, recording, parameters, settings
        As in `vpc.learn.pmvo`.
    at
        The point.
    sweeps
        How many at each place; two or more, to know their scatter.
    pairs
        Look across pairs too, of the first five parameters.
    seed, cluster, progress
        As everywhere.
    """
    target = target_of(model, recording, parameters, **settings)
    sweeps = check.whole("sweeps", sweeps, least=2)
    centre = target.space.free(target.space.point(at, "at"))
    own = connect("threads" if target.heavy else "serial") if cluster is None else None
    look = _Look(target, centre, sweeps, seed, cluster or own or Cluster(), progress)
    try:
        return _report(look, pairs)
    finally:
        if own:
            own.close()


class _Look:
    """Mean log evidence at places, relative to a centre, with a seed for each sweep; the same seeds at all places."""

    def __init__(self, target: Target, centre: np.ndarray, sweeps: int, seed: int, cluster: Cluster, progress: bool):
        self.target, self.centre, self.cluster, self.progress = target, centre, cluster, progress
        self.seeds = [int(s >> np.uint64(1)) for s in np.random.SeedSequence([seed, 10]).generate_state(sweeps, np.uint64)]

    def inside(self, offsets: np.ndarray) -> np.ndarray:
        """Offsets as they are, but not beyond the bounds."""
        space = self.target.space
        return np.clip(self.centre + offsets, space.free(space.low), space.free(space.high)) - self.centre

    def __call__(self, offsets: np.ndarray) -> np.ndarray:
        """log evidence (place, sweep)."""
        space = self.target.space
        points = np.clip(space.value(self.centre + offsets), space.low, space.high)
        items = [Sweep(tuple(point.tolist()), seed) for point in points for seed in self.seeds]
        found = [value for value, _ in self.cluster.map(self.target, items, self.progress)]
        return np.array(found).reshape(len(points), len(self.seeds))


def _along(size: int, which: int, steps: np.ndarray) -> np.ndarray:
    offsets = np.zeros((len(steps), size))
    offsets[:, which] = steps
    return offsets


def _report(look: _Look, pairs: bool) -> Report:
    space, size = look.target.space, len(look.centre)
    own = np.arange(size)
    coarse = look.inside(np.concatenate([_along(size, k, COARSE) for k in range(size)])).reshape(size, len(COARSE), size)
    rough = look(coarse.reshape(-1, size)).reshape(size, len(COARSE), -1)
    if not np.isfinite(rough[:, COARSE == 0]).any():
        raise ValueError("at gives no evidence: all its sweeps fail; start from a point that lives, such as fit.best")
    scatter = _scatter(rough)
    fall = max(FALL, 4 * scatter / np.sqrt(rough.shape[2]))
    reach = np.array([_reach(coarse[k, :, k], rough[k].mean(axis=1), fall) for k in own])
    fine = look.inside(np.concatenate([_along(size, k, FINE * reach[k]) for k in range(size)])).reshape(size, len(FINE), size)
    each = look(fine.reshape(-1, size)).reshape(size, len(FINE), -1)
    bends = np.array([_bend(fine[k, :, k], each[k], fall) for k in own])
    slope, unsure, curvature = bends[:, 0], bends[:, 2], np.diag(np.maximum(bends[:, 1] - 2 * bends[:, 2], 0.0))
    chosen = list(combinations(range(min(size, PAIRED)), 2)) if pairs else []
    grid, slices = np.array([-1.0, -0.5, 0.0, 0.5, 1.0]), []
    for i, j in chosen:
        rows, columns = (side.ravel() for side in np.meshgrid(grid * reach[i], grid * reach[j], indexing="ij"))
        offsets = look.inside(_along(size, i, rows) + _along(size, j, columns))
        values = look(offsets).mean(axis=1)
        slices.append(values.reshape(len(grid), len(grid)))
        twist = _twist(offsets[:, i], offsets[:, j], values, bends[[i, j], 1], fall)
        most = np.sqrt(curvature[i, i] * curvature[j, j])
        curvature[i, j] = curvature[j, i] = np.clip(twist, -most, most)
    covariance = np.linalg.inv(np.eye(size) + _positive(curvature))
    sd = np.sqrt(np.diag(covariance))
    known = np.diag(curvature) > 0  # where the evidence is all noise its slope is too
    step = covariance @ (np.where(known, slope, 0.0) - look.centre)  # to the top of the parabola, with a prior N(0, 1)
    peak = np.clip(look.centre + np.where(known, np.clip(step, -reach, reach), step), -3, 3)
    values = np.concatenate([coarse[own, :, own], fine[own, :, own]], axis=1)
    profile = np.concatenate([rough.mean(axis=2), each.mean(axis=2)], axis=1)
    order = np.argsort(values, axis=1)
    places = [space.priors[label].value(look.centre[k] + values[k, order[k]]) for k, label in enumerate(space.labels)]
    ends = [space.value(peak + side * 1.645 * sd) for side in (-1, 1)]
    sides = rough.mean(axis=2)
    data: dict[str, Any] = {
        "value": (("parameter", "place"), np.array(places)),
        "profile": (("parameter", "place"), np.take_along_axis(profile, order, axis=1), {"units": "nats"}),
        "curvature": (("parameter", "other"), curvature),
        "bend": ("parameter", np.diag(curvature)),
        "unsure": ("parameter", unsure),
        "contraction": ("parameter", sd),
        "correlation": (("parameter", "other"), covariance / np.outer(sd, sd)),
        "at": ("parameter", space.value(look.centre)),
        "low": ("parameter", np.clip(ends[0], space.low, space.high)),
        "high": ("parameter", np.clip(ends[1], space.low, space.high)),
        "prior_sd": ("parameter", [prior.sd for prior in space.priors.values()]),
        "fall": ("parameter", sides.max(axis=1) - sides[:, [0, -1]].max(axis=1)),
    }
    coords = {"parameter": list(space.labels), "other": list(space.labels)}
    if slices:
        edges = [[space.priors[space.labels[k]].value(look.centre[k] + grid * reach[k]) for k in pair] for pair in chosen]
        data |= {"slice": (("pair", "row", "column"), np.array(slices)), "side": (("pair", "which", "row"), np.array(edges))}
        coords["pair"] = [f"{space.labels[i]}, {space.labels[j]}" for i, j in chosen]
    return Report(xr.Dataset(data, coords, {"scatter": scatter}))


def _scatter(values: np.ndarray) -> float:
    """sd of sweeps (..., sweep) at a place, of places that are not far below the best."""
    good = values.mean(axis=-1) > values.mean(axis=-1).max() - NEAR
    return float(np.sqrt(values[good].var(axis=-1, ddof=1).mean())) if good.any() else np.inf


def _reach(offsets: np.ndarray, values: np.ndarray, enough: float) -> float:
    """How far from the centre, at most 1, the evidence has fallen by some nats, on average of both sides."""
    top, found = values[offsets == 0].max(), []
    for side in (-1, 1):
        on = np.flatnonzero(side * offsets > 0)
        on = on[np.argsort(np.abs(offsets[on]))]
        far = [0.0, *np.abs(offsets[on])]
        fall = np.maximum.accumulate([0.0, *np.where(np.isfinite(values[on]), top - values[on], 1e6)])
        root = np.sqrt(np.maximum(fall, 0))  # a parabola is a straight line then
        found.append(float(np.interp(np.sqrt(enough), root, far)) if fall[-1] > enough else 1.0)
    return float(np.clip(np.mean(found), 0.005, 1.0))


def _bend(offsets: np.ndarray, values: np.ndarray, fall: float) -> tuple[float, float, float]:
    """Slope at the centre and curvature of a parabola through (place, sweep), and the standard error of the latter.

    Places that are far below the best count for less, and what all places of a sweep have in common for nothing.
    """
    good = np.isfinite(values).all(axis=1)
    if good.sum() < 4:
        return 0.0, 1.0 / max(np.ptp(offsets), 1e-9) ** 2, 0.0
    x, y = offsets[good], values[good] - values[good].mean(axis=0)
    weights = 1 / (1 + np.maximum(0, y.mean(axis=1).max() - y.mean(axis=1)) / fall)
    shape = np.stack([np.ones_like(x), x, -0.5 * x**2], axis=1) * weights[:, None]
    inverse = np.linalg.pinv(shape)
    each = inverse @ (y * weights[:, None])  # a parabola for each sweep
    rest = shape @ each - y * weights[:, None]
    noise = np.sqrt(np.square(rest).sum() / max(1, rest.size - each.size))
    error = noise * np.sqrt(np.square(inverse[2]).sum() / y.shape[1])
    return float(each[1].mean()), float(each[2].mean()), float(error)


def _twist(x: np.ndarray, y: np.ndarray, values: np.ndarray, own: np.ndarray, fall: float) -> float:
    """The mixed curvature of two parameters, whose own are known."""
    good = np.isfinite(values)
    rest = values + 0.5 * own[0] * x**2 + 0.5 * own[1] * y**2
    columns = np.stack([np.ones_like(x), x, y, -x * y], axis=1)[good]
    weights = 1 / (1 + np.maximum(0, values[good].max() - values[good]) / fall)
    return float(np.linalg.lstsq(columns * weights[:, None], rest[good] * weights, rcond=None)[0][3])


def _positive(matrix: np.ndarray) -> np.ndarray:
    """The nearest symmetric matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.maximum(values, 0)) @ vectors.T
