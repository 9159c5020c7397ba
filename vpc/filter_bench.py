"""`vpc bench filters` and `vpc bench evidence`: what each way of filtering finds for the same money."""

import itertools
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, NamedTuple

import numba
import numpy as np
import pandas as pd
from tqdm.auto import tqdm

import vpc

from . import diagnose
from .bench import on_threads
from .ensemble import Ensemble
from .experiments import experiment
from .initialise import FACTOR
from .methods import build
from .sweep import model_of

# Kinds of truth: noise-free, or drawn from the filter's own model at some factor of its noise.
KINDS = {"noise-free": 0.0, "factor 0.2": 0.2, "factor 0.3": 0.3, "factor 1": 1.0}
WAYS: dict[str, dict[str, Any]] = {
    "bootstrap": {"method": "bootstrap", "init_particles": 0, "lag": 1.0},
    "bootstrap, refined start": {"method": "bootstrap", "init_particles": 5000, "lag": 1.0},
    "guided": {"method": "guided", "lag": 1.0},
    "farsighted": {"method": "farsighted", "lag": 1.0},
    "ensemble": {"method": "ensemble"},
}
PARTS = (*diagnose.GROUPS, "body")
BUDGET = 3.0  # core-seconds of a sweep, with all its summaries
REFERENCE = 2  # times the budget, for a guided filter to compare evidence with


class Way(NamedTuple):
    """How to find evidence: method, particles, seeds, and how far they look."""

    method: str
    particles: int
    seeds: int
    look: dict[str, int]


class Weighing(NamedTuple):
    """What is compared: worms whose w_s is multiplied by some scales, on some recordings, all at one factor of the noise."""

    factor: float
    recordings: tuple[int, ...]
    scales: tuple[float, ...]
    ways: dict[str, Way]


SCALES = (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4)
FARSIGHTED = Way("farsighted", 500, 2, {"look_ahead": 20})
ENSEMBLES = {
    "ensemble": Way("ensemble", 200, 5, {}),
    "relived": Way("ensemble", 200, 2, {"look_back": 10}),
    "many relived": Way("ensemble", 1000, 2, {"look_back": 10}),
}
WEIGHED = [
    Weighing(FACTOR, (0,), SCALES, {"bootstrap": Way("bootstrap", 100_000, 1, {}), "farsighted": FARSIGHTED, **ENSEMBLES}),
    Weighing(FACTOR, (1, 2, 3, 4, 5), (0.8, 1.0, 1.4), {"farsighted": FARSIGHTED, **ENSEMBLES}),
    Weighing(1.0, (0,), SCALES, {"guided": Way("guided", 10_000, 2, {}), **ENSEMBLES}),
]


def _sweep(worm: vpc.Worm, recording: vpc.Recording, particles: int, seed: int, **way: Any) -> tuple[vpc.Posterior, float]:
    begin = time.process_time()
    post = vpc.impute(worm, recording, particles=particles, seed=seed, progress=False, **way)
    return post, time.process_time() - begin


def _sizes(worm: vpc.Worm) -> dict[str, int]:
    """How many particles each way can have for the budget, by the cost of two small sweeps."""
    _, seen = experiment("noise", worm)
    out = {}
    for name, way in WAYS.items():
        vpc.impute(worm, seen, particles=32, seed=0, progress=False, **way)  # compile
        few, many = 100, 300
        costs = [min(_sweep(worm, seen, n, seed, **way)[1] for seed in range(2)) for n in (few, many)]
        each = (costs[1] - costs[0]) / (many - few)
        out[name] = max(20, 10 * round((BUDGET - costs[0]) / each / 10 + few / 10))
    return out


def _one_truth(kind: str, seed: int, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """Rows of all ways for one truth, each with two seeds."""
    numba.set_num_threads(1)
    worm, factor = vpc.Worm(), KINDS[kind]
    truth, seen = experiment("noise", worm, seed, factor=factor) if factor else experiment("paper", worm, seed)
    model = model_of(worm, seen, factor=factor or FACTOR)
    best = build("guided", model, seen.values, seen.steps, REFERENCE * sizes["guided"], 99).run().log_evidence
    rows = []
    for name, way in WAYS.items():
        found = [_sweep(worm, seen, sizes[name], again, factor=factor or FACTOR, **way) for again in (1, 2)]
        post, seconds = found[0]
        evidence = np.array([other.log_evidence for other, _ in found])
        common = {"kind": kind, "truth": seed, "way": name, "particles": sizes[name], "core_seconds": seconds}
        comparable = way.get("init_particles", 0) == 0
        common |= {"variance": evidence.var(ddof=1), "bias": evidence.mean() - best if comparable else np.nan}
        common |= {"min_ess": float(post.ess.min()), "median_ess": float(post.ess.median())}
        common["lines"] = float(post.dataset["lines"].median())
        for what in ("filtered", "smoothed"):
            table = diagnose.table(post.score(truth, what))
            rows += [common | {"what": what, "of": of, **table.loc[(of, "posterior")].to_dict()} for of in PARTS]
    blind = {"kind": kind, "truth": seed, "way": "unconditioned", "what": "filtered"}
    return rows + [blind | {"of": of, **table.loc[(of, "unconditioned")].to_dict()} for of in PARTS]


def _cost_of_an_ensemble(worm: vpc.Worm, members: int) -> dict[str, float]:
    """Core-seconds of 500 steps, with the summaries that `impute` makes and without; and what share the analysis has."""
    _, seen = experiment("noise", worm)
    model, moving = model_of(worm, seen), 0.0
    advance = model.advance

    def timed(*arguments: Any) -> np.ndarray:
        nonlocal moving
        begin = time.process_time()
        out = advance(*arguments)
        moving += time.process_time() - begin
        return out

    model.__dict__["advance"] = timed
    begin = time.process_time()
    Ensemble(model, seen.values, seen.steps, members).run()
    alone = time.process_time() - begin
    _, whole = _sweep(worm, seen, members, 0, method="ensemble", lag=0.0)
    return {"members": members, "alone": alone, "analysis": alone - moving, "imputed": whole, "share": (alone - moving) / whole}


def filters(progress: bool = True, truths: int = 10) -> dict[str, Any]:
    """Compare all ways at equal core-seconds on some truths of each kind."""
    with on_threads(1):
        worm = vpc.Worm()
        sizes = _sizes(worm)
        tries = {members: [_cost_of_an_ensemble(worm, members) for _ in range(3)] for members in (200, 1000)}
        costs = [min(found, key=lambda cost: cost["alone"]) for found in tries.values()]
    with ProcessPoolExecutor(numba.config.NUMBA_NUM_THREADS, get_context("spawn")) as pool:
        jobs = [pool.submit(_one_truth, kind, seed, sizes) for kind in KINDS for seed in range(truths)]
        silent = None if progress else True
        for job in tqdm(as_completed(jobs), total=len(jobs), desc="filtering", unit="truth", disable=silent):
            job.result()  # an error ends it
    rows = [row for job in jobs for row in job.result()]
    return {"budget": BUDGET, "truths": truths, "sizes": sizes, "ensemble": costs, "rows": _averaged(rows)}


def _averaged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over truths; the sd of the evidence is that over seeds."""
    frame = pd.DataFrame(rows).drop(columns=["truth", "n"])
    mean = frame.groupby(["kind", "way", "what", "of"], sort=False).mean(numeric_only=True).reset_index()
    mean["sd"] = np.sqrt(mean.pop("variance"))
    return mean.to_dict("records")


def filters_table(result: dict[str, Any]) -> str:
    """The result of `filters` for reading."""
    frame, budget, truths = pd.DataFrame(result["rows"]), result["budget"], result["truths"]
    lines = [f"Sweeps of {budget:g} core-seconds each, summaries included; means over {truths} truths of a kind."]
    for cost in result["ensemble"]:
        lines.append(
            f"Ensemble of {cost['members']}: {cost['alone']:.2f} core-s for 500 steps, {cost['imputed']:.2f} with summaries; "
            f"the analysis takes {100 * cost['share']:.1f} % of that (the quickest of three)."
        )
    order = [*WAYS, "unconditioned"]
    for kind, one in frame.groupby("kind", sort=False):
        first = one[(one["of"] == "body") & (one["what"] == "filtered")].set_index("way").reindex(order[:-1])
        names = {"core_seconds": "core-s", "sd": "sd log Z", "bias": "bias", "min_ess": "min ESS", "median_ess": "median ESS"}
        lines += ["", f"{kind}: the filter", _shown(first[["particles", *names, "lines"]].rename(columns=names))]
        wide = one.set_index(["way", "what", "of"])[["r", "nrmse", "crps", "coverage", "sd_ratio"]].unstack("of")
        for of in PARTS:
            part = wide.xs(of, axis=1, level="of").reindex(order, level=0)
            lines += ["", f"{kind}: {of}", _shown(part.dropna(axis=1, how="all"))]
    return "\n".join(lines)


def _shown(frame: pd.DataFrame) -> str:
    return frame.to_string(float_format=lambda x: f"{x:.3f}" if abs(x) < 10 else f"{x:.0f}", na_rep="")


def evidence(progress: bool = True) -> list[dict[str, Any]]:
    """How filters rank values of w_s; noise and prior are those of the truth.

    An estimate that is right on average is hardly ever much too high. So the best of all unbiased ones is what an approximation
    is compared with, and is itself a bound from below.
    """
    worm, out = vpc.Worm(), []
    jobs = [(weighing, recording) for weighing in WEIGHED for recording in weighing.recordings]
    for (factor, _, scales, ways), recording in tqdm(
        jobs, "weighing w_s", unit="recording", disable=None if progress else True
    ):
        _, seen = experiment("noise", worm, recording, factor=factor)
        rows: list[dict[str, float]] = []
        for scale in tqdm(scales, f"recording {recording}, factor {factor:g}", leave=False, disable=None if progress else True):
            model = model_of(worm, seen, factor=factor)
            model.worm = worm.with_parameters(w_s=scale * worm.parameters["w_s"])
            row = {"scale": scale}
            for name, (method, n, seeds, look) in ways.items():
                begin = time.process_time()
                found = [
                    build(method, model, seen.values, seen.steps, n, seed, **look).run().log_evidence for seed in range(seeds)
                ]
                row |= {name: float(np.mean(found)), f"{name} core_s": (time.process_time() - begin) / seeds}
                row |= {f"{name} sd": float(np.std(found, ddof=1)) if seeds > 1 else np.nan, f"{name} most": max(found)}
            row["best"] = max(row[f"{name} most"] for name in ways if name not in ENSEMBLES)
            rows.append(row)
        swapped = {name: _swapped(rows, name) for name in ways}
        sizes = {name: way.particles for name, way in ways.items()}
        out.append({"factor": factor, "recording": recording, "sizes": sizes, "rows": rows, "swapped": swapped})
    return out


def _swapped(rows: list[dict[str, float]], name: str) -> list[tuple[float, float, float]]:
    """Pairs of scales of which a filter prefers the first and the best estimates the second, and by how many nats these do."""
    pairs = itertools.permutations(rows, 2)
    return [(a["scale"], b["scale"], b["best"] - a["best"]) for a, b in pairs if a[name] > b[name] and a["best"] < b["best"]]


def evidence_table(result: list[dict[str, Any]]) -> str:
    """The result of `evidence` for reading."""
    lines = []
    for part in result:
        rows, ways = part["rows"], part["sizes"]
        top = max(row["best"] for row in rows)
        lines.append(
            f"Noise at a factor of {part['factor']:g}, recording {part['recording']}: log evidence of w_s times a scale, less "
            f"{top:.1f}, mean (and sd) over seeds; the best unbiased one is a lower bound"
        )
        lines.append("scale      best" + "".join(f"{f'{name}, {size:,}':>27}" for name, size in ways.items()))
        for row in rows:
            told = [f"{row[name] - top:17.1f} ({row[f'{name} sd']:7.1f})" for name in ways]
            lines.append(f"  {row['scale']:3.1f}  {row['best'] - top:8.1f}" + "".join(told))
        means = {name: np.mean([row[f"{name} core_s"] for row in rows]) for name in ways}
        lines.append("core-s " + ", ".join(f"{name} {mean:.1f}" for name, mean in means.items()))
        for name, swapped in part["swapped"].items():
            pairs = ", ".join(f"{first:g} above {second:g} (the best have it {by:.1f} below)" for first, second, by in swapped)
            lines.append(f"{name} ranks them " + (f"as the best do, but for {pairs}." if pairs else "as the best do."))
        lines.append("")
    return "\n".join(lines[:-1])
