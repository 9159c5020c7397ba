"""What all searches share: evaluations that go through one map and into a journal, a start, and progress.

A search is a deterministic function of its seed and of what its evaluations gave. So the journal of these is all that a
checkpoint needs: a search that is resumed runs again from its beginning, and takes from the journal what is there. It cannot
end otherwise than it would have, and a kill loses no more than the step under way.
"""

import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from wormsim import check

from ..cluster import Cluster, ClusterError, connect
from .fit import Fit
from .targets import Sweep, Target

__all__ = ["Journal", "Search"]

MARK = "checkpoint of vpc.learn"
SECONDS_PER_PICTURE = 0.5  # that a search is watched by
STREAM = 8  # of random numbers that belong to learning
Watch = Callable[[xr.Dataset], None]


class Journal:
    """A file of JSON, a line for each evaluation, after one that says of what; a torn last line is as if it were not there."""

    def __init__(self, path: str | Path, identity: dict[str, Any]):
        path = Path(path)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.{os.getpid()}")
            new.write_text(json.dumps({MARK: identity}) + "\n")
            os.replace(new, path)
        self._check(path, identity)
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(path, len(whole.encode()))
        written: dict[str, list[Any]] = {}
        for line in whole.splitlines()[1:]:
            # A cluster's task that was thought lost may have been done twice at the same time, and written twice the same.
            written.setdefault(json.loads(line)[0], json.loads(line))
        self._path, self._lines = path, list(written.values())
        self._file = path.open("a")
        self._next = 0

    @staticmethod
    def _check(path: Path, identity: dict[str, Any]) -> None:
        """Refuse what another program or another search wrote, and leave it as it is."""
        try:
            with path.open() as file:
                known = json.loads(file.readline())[MARK]
        except (OSError, ValueError, KeyError, TypeError):
            raise ValueError(f"checkpoint {path} exists and is not a checkpoint of a search; choose another name") from None
        for name in {**identity, **known}:
            if known.get(name) != identity.get(name):
                raise ValueError(
                    f"checkpoint {path} is of another search: its {name} is {known.get(name)!r}, here {identity.get(name)!r}; "
                    "it was left as it is, choose another name"
                )

    def get(self, items: list[Sweep], compute: Callable[[list[Sweep]], list[Any]]) -> list[Any]:
        """What is written of the next evaluation, or what is computed and written now."""
        known = hashlib.sha256(repr(items).encode()).hexdigest()[:16]
        if self._next < len(self._lines):
            written, results = self._lines[self._next]
            if written != known:
                raise ValueError(f"checkpoint {self._path} is of another search: its line {self._next + 2} has other points")
        else:
            results = compute(items)
            self._file.write(json.dumps([known, results]) + "\n")
            self._file.flush()
        self._next += 1
        return results

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Search:
    """The machinery of one search. `layout` names the dimensions, after the steps, of what it records.

    Parameters
    ----------
    target
        What is evaluated.
    settings
        All that the search depends on, with its name: a checkpoint of others is refused.
    start, draws
        Where to begin, or of how many draws from the prior the best is taken.
    seed
        Of all its randomness.
    sweeps
        How many are averaged in an evaluation.
    checkpoint
        A file that is written after each evaluation, and from which an interrupted search goes on.
    cluster
        Of `vpc.cluster.connect`; by default the cores of this machine, for worms.
    progress
        Show a bar with the objective and the parameters.
    watch
        Called with the trace twice a second, and at the end, as `vpc.plot.Convergence` is.
    """

    layout: ClassVar[dict[str, tuple[str, ...]]] = {"value": ("parameter",)}

    def __init__(
        self,
        target: Target,
        settings: dict[str, Any],
        start: Mapping[str, Any] | None = None,
        draws: int = 9,
        seed: int = 0,
        sweeps: int = 1,
        checkpoint: str | Path | None = None,
        cluster: Cluster | None = None,
        progress: bool = True,
        watch: Watch | None = None,
    ):
        self.target, self.seed = target, check.whole("seed", seed, least=0)
        self.sweeps = check.whole("sweeps", sweeps)
        self._start, self._draws = None if start is None else target.space.point(start), check.whole("draws", draws)
        beginning = {"draws": self._draws} if self._start is None else {"start": self._start.tolist()}
        self.settings = {**settings, **beginning, "seed": self.seed, "sweeps": self.sweeps}
        self._known = {**target.identity, "settings": json.dumps(self.settings)}
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._journal = Journal(checkpoint, self._known) if checkpoint is not None else None
        self._own = connect("threads" if target.heavy else "serial") if cluster is None else None
        self._cluster = cluster or self._own or Cluster()
        self._progress, self._watch = progress, watch
        self.evaluations = 0  # sweeps so far
        self._calls = 0
        self.failures: Counter[str] = Counter()
        self._rows: list[dict[str, Any]] = []
        self._beginning: dict[str, Any] = {}
        self._bar: Any = None
        self._total, self._shown = 0, time.monotonic()

    def __enter__(self) -> "Search":
        return self

    def __exit__(self, *_: object) -> None:
        if self._journal:
            self._journal.close()
        if self._own:
            self._own.close()

    def rng(self, step: int) -> np.random.Generator:
        """Random numbers of a step; 0 is the start."""
        return np.random.default_rng([self.seed, STREAM, step])

    def evaluate(self, points: np.ndarray, widen: float = 1.0, sweeps: int | None = None, **how: Any) -> np.ndarray:
        """log evidences (point,), each of the mean of the sweeps that came; NaN if none did."""
        came = [row[~np.isnan(row)] for row in self.each(points, widen, sweeps, **how)]
        return np.array([log_mean(row) if len(row) else np.nan for row in came])

    def each(
        self, points: np.ndarray, widen: float = 1.0, sweeps: int | None = None, common: bool = False, late: float = 0.0
    ) -> np.ndarray:
        """log evidences (point, sweep); with seeds in common, if they are only compared with each other: luck cancels then.

        Of the slowest, up to a share `late` is given up, and is NaN.
        """
        count = self.sweeps if sweeps is None else sweeps
        items = [
            Sweep(tuple(theta.tolist()), seed, widen)
            for k, theta in enumerate(points)
            for seed in self.seeds(self._calls, 0 if common else k, count)
        ]
        results = self._journal.get(items, partial(self._compute, late)) if self._journal else self._compute(late, items)
        self._calls += 1
        self.evaluations += len(items)
        self.failures.update(why for _, why in results if why)
        return np.array([value for value, _ in results], dtype=float).reshape(len(points), count)

    def _compute(self, late: float, items: list[Sweep]) -> list[Any]:
        try:
            found = self._cluster.map(self.target, items, progress=False, late=late)
        except ClusterError as error:
            kept = (
                f"run again with checkpoint {self._checkpoint} to go on from there" if self._checkpoint else "nothing was kept"
            )
            raise ClusterError(f"{error}\n{kept}") from None
        return [[np.nan, "given up as late"] if result is None else list(result) for result in found]

    def seeds(self, call: int, point: int, count: int) -> list[int]:
        """Seeds of the sweeps of a point in a call of `evaluate`."""
        state = np.random.SeedSequence([self.seed, STREAM + 1, call, point]).generate_state(count, np.uint64)
        return [int(number >> np.uint64(1)) for number in state]

    @property
    def last_call(self) -> int:
        """The number of the last call of `evaluate`."""
        return self._calls - 1

    def begin(self, widen: float = 1.0) -> tuple[np.ndarray, float, int]:
        """Where to start: as given, or at the best of some draws from the prior; its log evidence, and the seed of a sweep."""
        space, rng = self.target.space, self.rng(0)
        points = space.draw(rng, self._draws) if self._start is None else self._start[None]
        each = self.each(points, widen)
        values = log_mean(each)
        if not (values > -np.inf).any():
            whose = f"all {len(points)} draws from the prior" if self._start is None else "start"
            raise ValueError(f"{whose} failed, sweep by sweep: {self._reasons}. Narrow the priors, or give a start that lives")
        objective = values + space.log_prior(points)
        best = int(np.argmax(objective))
        self._beginning = {"start_value": (("draw", "parameter"), points), "start_objective": ("draw", objective)}
        seed = self.seeds(self.last_call, best, self.sweeps)[chosen(each[best], rng.random())]
        return points[best], float(values[best]), seed

    @property
    def _reasons(self) -> str:
        return "; ".join(f"{number} x {why}" for why, number in self.failures.most_common())

    def steps(self, total: int) -> Iterator[int]:
        """Count from 1 to a total, with a bar."""
        self._total = total
        with tqdm(
            range(1, total + 1), self.settings["search"], unit="step", disable=None if self._progress else True
        ) as self._bar:
            yield from self._bar

    def record(self, **row: Any) -> None:
        """Keep what there is to know of a step: value and objective at least; show it in the bar and to `watch`."""
        step = len(self._rows)
        self._rows.append({**row, "evaluations": self.evaluations})
        if self._bar is not None and not self._bar.disable:
            theta, objective = np.atleast_2d(row["value"])[-1], np.atleast_1d(row["objective"])[-1]
            shown = ", ".join(f"{n} {v:.4g}" for n, v in zip(self.target.space.labels[:4], theta, strict=False))
            self._bar.set_postfix_str(f"objective {objective:.1f}; {shown}{' ...' * (len(theta) > 4)}", refresh=False)
        if self._watch and step and (step == self._total or time.monotonic() > self._shown + SECONDS_PER_PICTURE):
            self._watch(self.trace())
            self._shown = time.monotonic()

    def trace(self) -> xr.Dataset:
        """All steps so far."""
        data = {}
        for name in self._rows[-1]:
            rows = np.array([row[name] for row in self._rows])
            data[name] = (("step", *self.layout.get(name, ())), rows)
        return xr.Dataset(data, {"parameter": list(self.target.space.labels)})

    def fit(self, **variables: Any) -> Fit:
        """The result: the trace, the best of it by its score, the start, and other variables."""
        trace = self.trace()
        score = np.where(np.isnan(trace["score"]), -np.inf, trace["score"])
        best = np.unravel_index(int(np.argmax(score)), score.shape)
        if score[best] == -np.inf:
            warnings.warn(f"every check of the search failed, so that its start is all it found: {self._reasons}", stacklevel=3)
        found = trace.assign(self._beginning | variables | {"best": ("parameter", trace["value"].values[best])})
        known = {**self._known, "best_score": float(score[best]), "evaluations": self.evaluations}
        known["failures"] = json.dumps(dict(self.failures))
        return Fit(found.assign_attrs(known), self.target, self._checkpoint)


def log_mean(values: np.ndarray) -> np.ndarray:
    """log of the mean of exp(values) along the last axis."""
    top = values.max(axis=-1)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.exp(values - safe[..., None]).mean(axis=-1))


def chosen(values: np.ndarray, share: float) -> int:
    """One of some sweeps, by its share in the sum of their evidences; `share` is uniform from 0 to 1."""
    weights = np.exp(values - values.max())
    return int(np.searchsorted(np.cumsum(weights), share * weights.sum()).clip(max=len(values) - 1))


def schedule(name: str, value: float | tuple[float, float], total: int) -> np.ndarray:
    """Values (step,) from the first to the last of a pair, evenly in their logarithm; or one value throughout."""
    ends = (value, value) if np.ndim(value) == 0 else tuple(value)  # type: ignore[arg-type]
    if len(ends) != 2:
        raise ValueError(f"{name} must be a number or a pair of them, first and last, got {value!r}")
    first, last = (check.number(name, end, "a positive number, or a pair of them", lambda x: x > 0) for end in ends)
    return np.geomspace(first, last, total)
