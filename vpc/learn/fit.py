"""`Fit`: what a search for parameters found, and how it went."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from wormsim import check

from ..smc import SMC
from ..smoothing import trace as trace_lines
from ..store import arviz_view, open_dataset, save_dataset
from .priors import named
from .targets import Sweep, Target

__all__ = ["Fit", "open_fit"]


class Fit:
    """The result of `pmvo`, `pmmh` or `parallel_tempering`.

    `dataset` holds `value` (step, parameter), where the search was; `objective`, what it climbed or sampled; `score`, log p(y,
    theta) as a sweep estimates it, NaN where that was not asked; and `evaluations`, sweeps so far. Parallel tempering has them
    for each `chain`, from hot to cold.
    """

    def __init__(self, dataset: xr.Dataset, target: Target | None = None, checkpoint: Path | None = None):
        self.dataset, self.target, self.checkpoint = dataset, target, checkpoint

    @property
    def best(self) -> dict[str, Any]:
        """The parameters with the best score, as `Worm.with_parameters(**best)` takes them."""
        return named(self._labels, self.dataset["best"].values)

    @property
    def best_score(self) -> float:
        """log p(y, theta) there, as it was estimated when it was found; the luckiest of many, so rather too high."""
        return self.dataset.attrs["best_score"]

    @property
    def trace(self) -> xr.Dataset:
        """Where the search was and what it was worth, step by step."""
        return self.dataset[[name for name in self.dataset if "step" in self.dataset[name].dims]]

    @property
    def evaluations(self) -> int:
        """How many sweeps it took."""
        return self.dataset.attrs["evaluations"]

    @property
    def failures(self) -> dict[str, int]:
        """Why sweeps gave no evidence, with counts."""
        return json.loads(self.dataset.attrs["failures"])

    @property
    def acceptance(self) -> xr.DataArray:
        """Share of proposals that were accepted; for each chain, if there are several."""
        return self._sampled()["accepted"].isel(step=slice(1, None)).mean("step")

    @property
    def swaps(self) -> xr.DataArray:
        """Of parallel tempering: share of swaps that were accepted, of each pair of chains."""
        if "swapped" not in self.dataset:
            raise ValueError("swaps are made by parallel tempering only")
        return self.dataset["swapped"].mean("step")

    @property
    def draws(self) -> xr.DataArray:
        """Draws (draw, parameter) from the posterior, in the order in which the (coldest) chain made them."""
        values = self._sampled()["value"]
        values = values.isel(chain=-1, drop=True) if "chain" in values.dims else values
        return values.isel(step=slice(1, None)).rename(step="draw")

    def _sampled(self) -> xr.Dataset:
        if "accepted" not in self.dataset:
            raise ValueError("this fit is an optimum: only pmmh and parallel_tempering draw from the posterior")
        return self.dataset

    def progress(self, points: int = 60) -> xr.Dataset:
        """The best so far, by score, against evaluations: at some moments, evenly spaced in the logarithm of these."""
        score, value = self.dataset["score"].values, self.dataset["value"].values
        if score.ndim == 2:  # the best of all chains
            which, steps = score.argmax(axis=1), np.arange(len(score))
            score, value = score[steps, which], value[steps, which]
        score = np.where((np.arange(len(score)) == 0) & np.isnan(score), -np.inf, score)  # a start leads until another is known
        known = np.flatnonzero(~np.isnan(score))
        leader = known[_running_argmax(score[known])]
        count = self.dataset["evaluations"].values[known]
        wanted = np.geomspace(max(1, count[0]), count[-1], points)
        places = np.unique(np.searchsorted(count, wanted - 0.5).clip(max=len(known) - 1))
        rows = leader[places]
        data = {"value": (("moment", "parameter"), value[rows]), "score": ("moment", score[rows])}
        return xr.Dataset(data | {"evaluations": ("moment", count[places])}, {"parameter": self.dataset["parameter"].values})

    def trajectories(self, n: int = 10) -> tuple[np.ndarray, xr.DataArray]:
        """Smoothed paths (path, frame, ...) of the state, one for each of some theta that the chain took, and these.

        Each theta keeps the seed of its sweep, which is run again, and one line of descent is drawn from it. How long the chain
        stayed at each is not told: weigh them by `theta.steps` to have the posterior.
        """
        data, target = self._sampled(), self.target
        if target is None:
            raise ValueError("the target is not known: open this fit with open_fit(path, target=...)")
        if target.method == "ensemble":
            raise ValueError(
                "an ensemble has no lines of descent; learn with method='bootstrap' or 'guided' to have trajectories"
            )
        one = data.isel(chain=-1) if "chain" in data.dims else data
        seeds = one["sweep_seed"].values
        taken = np.flatnonzero(np.concatenate([[True], seeds[1:] != seeds[:-1]]))
        stays = np.diff(np.append(taken, len(seeds)))
        some = np.linspace(0, len(taken) - 1, min(check.whole("n", n), len(taken))).round().astype(int)
        paths = []
        for step in taken[some]:
            seed, theta = int(seeds[step]), tuple(one["value"].values[step].tolist())
            filter = target.filter(Sweep(theta, seed))
            assert isinstance(filter, SMC)
            tree, rng = trace_lines(filter), np.random.default_rng([seed, 12])
            paths.append(tree.paths(rng.choice(len(filter.weights), 1, p=filter.weights))[0])
        values = one["value"].isel(step=taken[some]).rename(step="path")
        return np.stack(paths), values.assign_coords(steps=("path", stays[some]))

    def arviz(self) -> xr.DataTree:
        """The draws as ArviZ reads them, one variable for each parameter."""
        draws = self.draws
        posterior = xr.Dataset({str(p): draws.sel(parameter=p, drop=True) for p in draws["parameter"].values})
        return arviz_view(posterior)

    def save(self, path: str | Path) -> Path:
        """Write everything into a zarr folder, which is there whole or not at all."""
        return save_dataset(self.dataset, path)

    def __repr__(self) -> str:
        known, sizes = json.loads(self.dataset.attrs["settings"]), self.dataset.sizes
        shown = ", ".join(f"{p} {v:.4g}" for p, v in zip(self._labels[:6], self.dataset["best"].values, strict=False))
        more = " ..." if sizes["parameter"] > 6 else ""
        return f"<Fit by {known['search']}, {self.evaluations} sweeps: {shown}{more}; log p(y, theta) {self.best_score:.1f}>"

    @property
    def _labels(self) -> Sequence[str]:
        return [str(label) for label in self.dataset["parameter"].values]


def _running_argmax(values: np.ndarray) -> np.ndarray:
    """Where the largest value up to each place is, the first of equal ones."""
    before = np.concatenate([[-np.inf], np.maximum.accumulate(values)[:-1]])
    return np.maximum.accumulate(np.where(values > before, np.arange(len(values)), 0))


def open_fit(path: str | Path, target: Target | None = None) -> Fit:
    """Read a fit that `Fit.save` wrote; `trajectories` needs its target too."""
    if Path(path).is_file():
        raise ValueError(f"{path} is not a fit but may be a checkpoint: call its search again with checkpoint={str(path)!r}")
    dataset = open_dataset(path)
    if "best" not in dataset or "settings" not in dataset.attrs:
        raise ValueError(f"{path} is not a fit; vpc.store.open_dataset reads other results")
    for name, value in ({} if target is None else target.identity).items():
        if dataset.attrs.get(name) != value:
            raise ValueError(f"target is not that of {path}: its {name} is {value!r}, there {dataset.attrs.get(name)!r}")
    return Fit(dataset.load(), target)
