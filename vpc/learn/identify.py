"""Which parameters do the data determine? Evidence along each of them and across pairs, around a point, and what it means.

In free coordinates (`vpc.learn.priors`) the prior has an sd of 1 in each direction. If the evidence falls like -u H u / 2
around its peak, the posterior's covariance is about (1 + H)^-1. The contraction of a parameter is its sd there: 1 if nothing
was learned.
"""

from collections.abc import Sequence
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
FALL = 5.0  # nats
DETERMINED, WEAKLY = 0.5, 0.9  # contractions
TIED = 0.8  # correlation of two parameters that are known only together
MOST_PAIRS = 10


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
            )
        for a, b in combinations(map(str, data["parameter"].values), 2):
            tie = float(data["correlation"].sel(parameter=a, other=b))
            if abs(tie) > TIED:
                other = "fall" if tie < 0 else "rise"
                lines.append(f"{a} and {b} are tied: a rise of one is made up for by a {other} of the other ({tie:.2f}).")
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
        points = self.target.space.value(self.centre + offsets)
        items = [Sweep(tuple(point.tolist()), seed) for point in points for seed in self.seeds]
        found = [value for value, _ in self.cluster.map(self.target, items, self.progress)]
        return np.array(found).reshape(len(points), len(self.seeds))


def _along(size: int, which: int, steps: np.ndarray) -> np.ndarray:
    offsets = np.zeros((len(steps), size))
    offsets[:, which] = steps
    return offsets


def _report(look: _Look, pairs: bool) -> Report:
    space, size = look.target.space, len(look.centre)
    coarse = look.inside(np.concatenate([_along(size, k, COARSE) for k in range(size)])).reshape(size, len(COARSE), size)
    rough = look(coarse.reshape(-1, size)).mean(axis=1).reshape(size, -1)
    reach = np.array([_reach(coarse[k, :, k], rough[k]) for k in range(size)])
    fine = look.inside(np.concatenate([_along(size, k, FINE * reach[k]) for k in range(size)])).reshape(size, len(FINE), size)
    each = look(fine.reshape(-1, size)).reshape(size, len(FINE), -1)
    scatter = float(np.sqrt(np.where(np.isfinite(each), each, np.nan).var(axis=2, ddof=1).mean()))
    bends = np.array([_bend(fine[k, :, k], each[k].mean(axis=1)) for k in range(size)])
    slope, curvature = bends[:, 0], np.diag(np.maximum(bends[:, 1], 0.0))
    chosen = list(combinations(range(min(size, 5)), 2))[:MOST_PAIRS] if pairs else []
    grid, slices = np.array([-1.0, -0.5, 0.0, 0.5, 1.0]), []
    for i, j in chosen:
        rows, columns = (side.ravel() for side in np.meshgrid(grid * reach[i], grid * reach[j], indexing="ij"))
        offsets = look.inside(_along(size, i, rows) + _along(size, j, columns))
        values = look(offsets).mean(axis=1)
        slices.append(values.reshape(len(grid), len(grid)))
        curvature[i, j] = curvature[j, i] = _twist(offsets[:, i], offsets[:, j], values, curvature[[i, j], [i, j]])
    covariance = np.linalg.inv(np.eye(size) + _positive(curvature))
    sd = np.sqrt(np.diag(covariance))
    peak = np.clip(covariance @ slope, -1.5 * reach, 1.5 * reach)  # where the quadratic has its top, if it is near
    values = np.concatenate([coarse[np.arange(size), :, np.arange(size)], fine[np.arange(size), :, np.arange(size)]], axis=1)
    profile = np.concatenate([rough, each.mean(axis=2)], axis=1)
    order = np.argsort(values, axis=1)
    places = [space.priors[label].value(look.centre[k] + values[k, order[k]]) for k, label in enumerate(space.labels)]
    ends = [space.value(look.centre + peak + side * 1.645 * sd) for side in (-1, 1)]
    drop = [float(rough[k].max() - rough[k, [0, -1]].max()) for k in range(size)]
    data: dict[str, Any] = {
        "value": (("parameter", "place"), np.array(places)),
        "profile": (("parameter", "place"), np.take_along_axis(profile, order, axis=1), {"units": "nats"}),
        "curvature": (("parameter", "other"), curvature),
        "contraction": ("parameter", sd),
        "correlation": (("parameter", "other"), covariance / np.outer(sd, sd)),
        "at": ("parameter", space.value(look.centre)),
        "low": ("parameter", np.clip(ends[0], space.low, space.high)),
        "high": ("parameter", np.clip(ends[1], space.low, space.high)),
        "prior_sd": ("parameter", [prior.sd for prior in space.priors.values()]),
        "fall": ("parameter", drop),
    }
    coords = {"parameter": list(space.labels), "other": list(space.labels)}
    if slices:
        names = [f"{space.labels[i]}, {space.labels[j]}" for i, j in chosen]
        sides = [[space.priors[space.labels[k]].value(look.centre[k] + grid * reach[k]) for k in pair] for pair in chosen]
        data |= {"slice": (("pair", "row", "column"), np.array(slices)), "side": (("pair", "which", "row"), np.array(sides))}
        coords["pair"] = names
    return Report(xr.Dataset(data, coords, {"scatter": scatter}))


def _reach(offsets: np.ndarray, values: np.ndarray) -> float:
    """How far from the centre, at most 1, the evidence has fallen by some nats, on average of both sides."""
    top, found = values[offsets == 0].max(), []
    for side in (-1, 1):
        on = np.flatnonzero(side * offsets > 0)
        on = on[np.argsort(np.abs(offsets[on]))]
        far = [0.0, *np.abs(offsets[on])]
        fall = np.maximum.accumulate([0.0, *np.where(np.isfinite(values[on]), top - values[on], 1e6)])
        root = np.sqrt(np.maximum(fall, 0))  # a parabola is a straight line then
        found.append(float(np.interp(np.sqrt(FALL), root, far)) if fall[-1] > FALL else 1.0)
    return float(np.clip(np.mean(found), 0.005, 1.0))


def _bend(offsets: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Slope at the centre and curvature, less for a fall, of a parabola through places that are not far below the best."""
    good = np.isfinite(values)
    if good.sum() < 3:
        return 0.0, 1.0 / max(np.ptp(offsets), 1e-9) ** 2
    x, y = offsets[good], values[good]
    weights = 1 / (1 + np.maximum(0, y.max() - y) / FALL)
    square, slope, _ = np.polyfit(x, y, 2, w=weights)
    return float(slope), float(-2 * square)


def _twist(x: np.ndarray, y: np.ndarray, values: np.ndarray, own: Sequence[float] | np.ndarray) -> float:
    """The mixed curvature of two parameters, whose own are known."""
    good = np.isfinite(values)
    rest = values + 0.5 * own[0] * x**2 + 0.5 * own[1] * y**2
    columns = np.stack([np.ones_like(x), x, y, -x * y], axis=1)[good]
    weights = 1 / (1 + np.maximum(0, values[good].max() - values[good]) / FALL)
    return float(np.linalg.lstsq(columns * weights[:, None], rest[good] * weights, rcond=None)[0][3])


def _positive(matrix: np.ndarray) -> np.ndarray:
    """The nearest symmetric matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.maximum(values, 0)) @ vectors.T
