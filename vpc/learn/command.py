"""`vpc learn`: searches for parameters, from several starts, on all cores or on a cluster."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from wormsim import check

from ..cluster import Cluster, ClusterError, connect
from ..connectome import find
from ..options import cluster_of
from ..store import open_dataset
from .experiments import (
    AR,
    PAPER_FILTER,
    PAPER_STEPS,
    WORM_STEPS,
    Restart,
    Twin,
    ar_twin,
    default_point,
    run_twin,
    worm_twin,
)
from .priors import flattened

__all__ = ["learn", "told"]


def learn(options: argparse.Namespace) -> dict[str, Any]:
    """Search, and judge what was found by the truth."""
    chosen = {name: value for name in ("steps", "samples", "sweeps") if (value := getattr(options, name)) is not None}
    if options.method != "pmvo" and options.samples is not None:
        raise ValueError(f"--samples is for pmvo, and {options.method} has none")
    filter: dict[str, Any] = {"method": options.filter} if options.filter else {}
    filter |= {"particles": options.particles} if options.particles is not None else {}
    check.whole("--restarts", options.restarts)
    if options.model == "ar":
        if options.paper or options.run:
            raise ValueError("--paper and a run are for the worm; with --model ar the settings are the paper's already")
        if options.neurons or options.drawn or options.held_out or options.from_default:
            raise ValueError("--neurons, --drawn, --held-out and --from-default are for the worm, not for --model ar")
        twin, plan = ar_twin(options.truth, **filter), AR[options.method] | chosen
    else:
        if options.paper and options.method != "pmvo":
            raise ValueError(f"--paper is for pmvo, not for {options.method}")
        filter = (PAPER_FILTER if options.paper else {}) | filter
        twin = _worm(options, filter)
        usual = WORM_STEPS if options.method == "pmvo" else {}
        plan = (PAPER_STEPS if options.paper else usual) | chosen
        if options.from_default:
            space = twin.target.space
            plan |= {"start": space.named(default_point(space))}
    seeds = range(options.seed, options.seed + options.restarts)
    task = {"search": options.method, "plan": plan, "checkpoint": _absolute(options.checkpoint), "out": _absolute(options.out)}
    where = cluster_of(options)
    if where and not options.cluster and options.restarts == 1:
        raise ValueError(f"--{next(iter(where))} is of a cluster: say which with --cluster")
    if options.restarts > 1 or options.cluster:
        with connect(options.cluster or "local", **where) as cluster:
            if options.restarts > 1:  # a task is a search, else a sweep
                found = _all(cluster, Restart(twin, **task), seeds, not options.json)
            else:
                found = [Restart(twin, **task, inside=cluster, progress=not options.json)(options.seed)]
    else:
        found = [Restart(twin, **task, inside=None, progress=not options.json)(options.seed)]
    return {
        "model": options.model,
        "method": options.method,
        "filter": {"method": twin.target.method, "particles": twin.target.particles},
        "plan": json.loads(json.dumps(plan)),
        "truth": twin.target.space.named(twin.truth),
        "truth_score": twin.worth(twin.truth),
        "restarts": found,
    }


def _all(cluster: Cluster, restart: Restart, seeds: range, progress: bool) -> list[Any]:
    """All searches, or where to go on if workers are lost."""
    try:
        return cluster.map(restart, seeds, progress)
    except ClusterError as error:
        kept = (
            "run again with the same --checkpoint to go on" if restart.checkpoint else "nothing was kept without --checkpoint"
        )
        raise ClusterError(f"{error}\n{kept}") from None


def _absolute(path: str | None) -> str | None:
    """A path that workers in other folders understand."""
    return None if path is None else str(Path(path).absolute())


def _worm(options: argparse.Namespace, filter: dict[str, Any]) -> Twin:
    """The worm that is learned: of a run, or of an experiment."""
    if options.run:
        if options.drawn or options.held_out or options.neurons:
            raise ValueError("--drawn, --held-out and --neurons are for experiments that are made here, not for a run")
        return run_twin(open_dataset(options.run).load(), options.parameters, **filter)
    neurons = [name for what in options.neurons for name in find(what)] if options.neurons else None
    judged = {"neurons": neurons, "drawn": options.drawn, "held_out": options.held_out} | filter
    return worm_twin(options.parameters, options.preset, options.truth, options.seconds, **judged)


def told(result: dict[str, Any]) -> str:
    """The result for reading."""
    lines = [f"{result['method']} on the {result['model']}: log p(y, theta) of what was found, less that of the truth, in nats"]
    truth = flattened(result["truth"])
    few = len(truth) <= 6
    for one in result["restarts"]:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in flattened(one["best"]).items()) if few else ""
        lines.append(
            f"  seed {one['seed']}: {one['gap']:9.1f}   {shown}   {one['evaluations']} sweeps, {one['core_seconds']:.0f} core-s"
        )
    if few:
        lines.append("  truth:             " + ", ".join(f"{name} {value:.4g}" for name, value in truth.items()))
    if len(result["restarts"]) > 1:
        gaps = [one["gap"] for one in result["restarts"]]
        low, middle, high = np.quantile(gaps, [0.25, 0.5, 0.75])
        lines.append(f"  median {middle:.1f}, quartiles {low:.1f} and {high:.1f}")
    return "\n".join(lines)
