"""How long a map takes on how many workers: a model of a few numbers, measured, and checked with workers that only sleep.

A map takes a while to begin and to end (`latency`). Each worker is idle for a while between two tasks (`gap`). The scheduler is
busy for a while with each task (`overhead`), which matters once that is more than the workers' own time:

    seconds = latency + max(rounds x (seconds of a task + gap), tasks x overhead + seconds of a task)

with as many rounds as the busiest worker has tasks.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil
from tqdm.auto import tqdm

from . import connect
from .places import Cluster

__all__ = ["Costs", "cluster", "cluster_table", "costs", "efficiency", "moved", "seconds_of"]

SLEEP = 0.25  # s: as long as a sweep of the paper's size takes


class Costs(NamedTuple):
    """What a cluster takes beside the work, s."""

    latency: float  # of a map
    gap: float  # of a worker between two tasks
    overhead: float  # of the scheduler for a task


def seconds_of(tasks: int, workers: int, seconds: float, costs: Costs) -> float:
    """How long a map of some tasks takes, each of which takes some seconds."""
    rounds = math.ceil(tasks / workers)
    return costs.latency + max(rounds * (seconds + costs.gap), tasks * costs.overhead + seconds)


def efficiency(tasks: int, workers: int, seconds: float, costs: Costs) -> float:
    """The share of the workers' time that is spent on tasks."""
    return tasks * seconds / (workers * seconds_of(tasks, workers, seconds, costs))


def costs(one: Cluster, many: Cluster, repeats: int = 10) -> Costs:
    """Measure with one worker and with many, by tasks that do nothing."""
    latency = _took(one, [0.0], repeats)
    gap = (_took(one, [0.0] * 51, 3) - latency) / 50
    overhead = (_took(many, [0.0] * 201, 3) - latency) / 200
    return Costs(latency, gap, overhead)


def moved(place: Cluster, function: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """Bytes that go through this machine's loopback interface for a task, when the function is there already."""
    place.map(function, items[:2])
    before = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
    place.map(function, items)
    return (psutil.net_io_counters(pernic=True)["lo"].bytes_sent - before) / len(items)


def cluster(progress: bool = True, workers: Sequence[int] = (1, 2, 4, 8, 16), sweeps: int = 32) -> dict[str, Any]:
    """Costs of this machine's processes, bytes that they move, two against one, and the model against many that sleep."""
    from ..learn.experiments import PAPER_FILTER, worm_twin
    from ..learn.targets import Sweep

    target = worm_twin(**PAPER_FILTER).target
    items = [Sweep((9.0, 10.3), seed) for seed in range(sweeps)]
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    with tqdm(total=len(workers) + 2, desc="clusters", disable=None if progress else True) as bar:
        for count in (1, 2):
            with connect("local", workers=count) as place:
                place.map(target, items[: 2 * count])  # compile
                begin = time.perf_counter()
                place.map(target, items)
                found[f"seconds_{count}"] = time.perf_counter() - begin
                if count == 2:
                    found["bytes_a_sweep"] = moved(place, target, items)
            bar.update()
        with connect("local", workers=1) as one:
            for count in reversed(workers):
                with connect("local", workers=count) as many:
                    many.map(time.sleep, [0.1] * (4 * count))
                    if not rows:
                        known = costs(one, many)
                    for tasks in (8, 4 * count):
                        took = _took(many, [SLEEP] * tasks, 3)
                        rows.append({"workers": count, "tasks": tasks, "seconds": took})
                bar.update()
    for row in rows:
        row["model"] = seconds_of(row["tasks"], row["workers"], SLEEP, known)
        row["efficiency"] = row["tasks"] * SLEEP / row["workers"] / row["seconds"]
    return found | {
        "sweeps": sweeps,
        "speedup": found["seconds_1"] / found["seconds_2"],
        "costs": known._asdict(),
        "rows": rows[::-1],
    }


def cluster_table(result: dict[str, Any]) -> str:
    """The result of `cluster` for reading."""
    one, two = result["seconds_1"], result["seconds_2"]
    lines = [
        f"{result['sweeps']} sweeps of the paper's size: {one:.1f} s with one worker, {two:.1f} s with two: "
        f"{result['speedup']:.2f} times as fast; {result['bytes_a_sweep'] / 1e3:.1f} kB moved for each",
        "costs: " + ", ".join(f"{name} {1e3 * value:.1f} ms" for name, value in result["costs"].items()),
        f"tasks that sleep for {SLEEP:g} s:",
        f"{'workers':>9}{'tasks':>7}{'seconds':>9}{'model':>8}{'efficiency':>12}",
    ]
    lines += [
        f"{row['workers']:9d}{row['tasks']:7d}{row['seconds']:9.3f}{row['model']:8.3f}{row['efficiency']:12.2f}"
        for row in result["rows"]
    ]
    return "\n".join(lines)


def _took(place: Cluster, naps: Sequence[float], repeats: int) -> float:
    """Seconds of a map of tasks that sleep, the median of some."""
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        place.map(time.sleep, naps)
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:]))  # the first brings the function
