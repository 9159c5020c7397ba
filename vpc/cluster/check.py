"""Does a cluster work? A small workload on it, and what is wrong if not."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import connect
from .places import Cluster, OtherVersion, cores

__all__ = ["Finding", "check", "overhead"]

SLOW = 0.05  # s to write a small file and be sure of it: what a checkpoint does after each step
FILES = 5
BUSY, TRIES = 0.3, 3  # s of work on all workers at once, and how often: others may be busy for a moment
SHARE = 0.5  # of a core, that a worker must get
TASKS = 16  # of the trial
DECLARED = ("SLURM_CPUS_ON_NODE", "PBS_NCPUS", "NCPUS", "NSLOTS", "LSB_DJOB_NUMPROC")  # cores of a job, as queues tell it


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    good: bool
    told: str


def check(kind: str, **options: Any) -> Iterator[Finding]:
    """Look at one thing after the other, and stop at the first fault that leaves nothing more to look at."""
    begin = time.monotonic()
    try:
        with connect(kind, **options) as cluster:
            yield Finding("connect", True, f"asked for workers in {time.monotonic() - begin:.1f} s")
            yield from _workers(cluster, begin)
            yield from _trial(cluster)
    except OSError as error:  # a ClusterError, or of a worker that was lost
        what = "versions" if isinstance(error, OtherVersion) else "workers"
        yield Finding(what, False, str(error))


def _workers(cluster: Any, begin: float) -> Iterator[Finding]:
    """Are there workers, of this version, with the cores and the storage that they need?"""
    if not hasattr(cluster, "client"):
        return
    while True:
        cluster.map(abs, [0])  # waits for the first worker, and vets and mends the others
        present = cluster.present()
        if len(present) >= cluster.wanted or time.monotonic() > begin + cluster.timeout:
            break
        time.sleep(0.5)
    told = (
        f"{len(present)} after {time.monotonic() - begin:.1f} s, on {len({who['host'] for who in present.values()})} machine(s)"
    )
    few = len(present) < cluster.wanted
    yield Finding("workers", not few, told + (f", of {cluster.wanted}: {cluster.situation()}" if few else ""))
    yield Finding("versions", True, ", ".join(f"{name} {value}" for name, value in cluster.facts.items()))
    client, threads = cluster.client, cluster.threads
    homes = client.run(_home)
    wanted = Counter(homes.values())
    short = [(home, count * threads) for home, count in wanted.items() if count * threads > home[1]]
    told = "; ".join(f"{count} worker(s) of {threads} thread(s) on {home[1]} core(s)" for home, count in wanted.items())
    share = max(float(np.median(list(client.run(_busy).values()))) for _ in range(TRIES))
    if short:
        told = f"threads are oversubscribed: {told}. Ask the queue for as many cores as `cores` says, or use fewer threads"
    elif share < SHARE:
        told = f"a worker gets {share:.0%} of a core, so cores are shared with others; ask for whole ones"
    else:
        told += f"; each gets {share:.0%} of a core or more"
    yield Finding("threads", not short and share >= SHARE, told)
    folder = getattr(cluster, "folder", None)
    if folder is None:
        return
    token = folder / f".token-{os.getpid()}"
    token.write_text(str(begin))
    try:
        took = client.run(_storage, folder, token.name, on_error="return")
    finally:
        token.unlink()
    lost = [str(answer) for answer in took.values() if isinstance(answer, BaseException)]
    if lost:
        told = f"not all workers share {folder}: {lost[0]}. Give a folder that all nodes see; ask the site's support for it"
        yield Finding("storage", False, told)
        return
    worst = max(took.values())
    told = f"a small file takes {1e3 * worst:.1f} ms to write, at worst"
    if worst > SLOW:
        told = f"storage is slow: {told}, and should take less than {1e3 * SLOW:.0f} ms; give a faster folder than {folder}"
    yield Finding("storage", worst <= SLOW, told)


def _trial(cluster: Cluster) -> Iterator[Finding]:
    """Do sweeps give the same numbers as here, and at what price?"""
    from ..learn.experiments import ar_twin
    from ..learn.targets import Sweep

    twin = ar_twin(particles=50)
    items = [Sweep(tuple(twin.truth.tolist()), seed) for seed in range(TASKS)]
    same = cluster.map(twin.target, items) == [twin.target(item) for item in items]
    told = f"{TASKS} sweeps, bitwise as here" if same else "sweeps differ from those here: do the nodes have another processor?"
    yield Finding("results", same, told)
    yield Finding("overhead", True, f"{1e3 * overhead(cluster):.1f} ms a task")


def overhead(cluster: Cluster, tasks: int = 100) -> float:
    """Seconds that a task takes beside its own work."""
    cluster.map(abs, range(tasks))
    begin = time.perf_counter()
    cluster.map(abs, range(tasks))
    return (time.perf_counter() - begin) / tasks


def _home() -> tuple[str, int]:
    """Job or machine of this worker, and the cores that it has."""
    job = next((os.environ[name] for name in ("SLURM_JOB_ID", "PBS_JOBID", "JOB_ID", "LSB_JOBID") if name in os.environ), "")
    declared = [int(os.environ[name]) for name in DECLARED if os.environ.get(name, "").isdecimal()] if job else []
    return job or os.uname().nodename, min([cores(), *declared])


def _busy() -> float:
    """The share of a core that this process gets."""
    wall, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() < wall + BUSY:
        pass
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def _storage(folder: Path, token: str) -> float:
    """Seconds to write a small file safely, on this machine."""
    (folder / token).read_text()
    times = []
    for k in range(FILES):
        place = folder / f"{token}-{os.uname().nodename}-{os.getpid()}-{k}"
        begin = time.perf_counter()
        with place.open("wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        times.append(time.perf_counter() - begin)
        place.unlink()
    return float(np.median(times))
