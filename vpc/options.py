"""Options that commands share, or that are many."""

import argparse
from typing import Any

__all__ = ["add_cluster", "add_learning", "cluster_of"]

# Of `vpc.cluster.connect`: the type, and what it is.
CLUSTER: dict[str, tuple[type, str]] = {
    "workers": (int, "of this machine, for threads and local (default: one for each core)"),
    "config": (str, "YAML file of dask-jobqueue, for slurm, pbs, sge and lsf"),
    "jobs": (int, "of the queue (default: 1)"),
    "cores": (int, "of each job (default: 1)"),
    "threads": (int, "of each worker; a job has cores / threads workers (default: 1)"),
    "memory": (str, "of each job, such as 8GB (default: 2 GB for each worker)"),
    "walltime": (str, "of each job, such as 01:00:00 (default: 00:30:00)"),
    "queue": (str, "or partition of the jobs"),
    "account": (str, "that the jobs are charged to"),
    "interface": (str, "of the network, such as ib0"),
    "python": (str, "that workers run (default: this one)"),
    "folder": (str, "for logs, keys and compiled kernels, that all nodes see (default: vpc-cluster)"),
    "timeout": (float, "s without any worker before giving up (default: 600)"),
}


def add_cluster(command: argparse.ArgumentParser) -> None:
    """Where to compute."""
    group = command.add_argument_group("cluster")
    for name, (kind, about) in CLUSTER.items():
        group.add_argument(f"--{name}", type=kind, help=about)


def cluster_of(options: argparse.Namespace) -> dict[str, Any]:
    """What was given of a cluster's options."""
    return {name: value for name in CLUSTER if (value := getattr(options, name)) is not None}


def add_learning(command: argparse.ArgumentParser) -> None:
    """What `vpc learn` takes."""
    command.add_argument("run", nargs="?", help="a run of a worm that `vpc simulate --out` wrote; or make data with --preset")
    command.add_argument(
        "--model", choices=["ar", "worm"], default="worm", help="the autoregressive model or the worm (default)"
    )
    command.add_argument("--method", choices=["pmvo", "pmmh", "pt"], default="pmvo", help="how to search (default: pmvo)")
    command.add_argument("--steps", type=int, help="of each search (default: the paper's for ar, 30 for the worm)")
    command.add_argument("--samples", type=int, help="of pmvo, for each step (default: 20 for ar, 4 for the worm)")
    command.add_argument("--sweeps", type=int, help="that are averaged in an evaluation (default: the paper's for ar, else 1)")
    command.add_argument("--restarts", type=int, default=1, help="searches with seeds one after the other (default: 1)")
    command.add_argument(
        "--cluster", help="where to compute, as `vpc cluster --kind` says (default: all cores of this machine)"
    )
    add_cluster(command)
    command.add_argument("--seed", type=int, default=0, help="of the first search (default: 0)")
    command.add_argument("--truth", type=int, default=0, help="seed of the data that are learned from (default: 0)")
    command.add_argument("--parameters", nargs="+", default=["w_m", "w_s"], help="of the worm (default: w_m w_s)")
    command.add_argument("--preset", default="noise", help="of the worm's data: noise (default), paper, all or start")
    command.add_argument("--seconds", type=float, default=5.0, help="of the worm's data (default: 5)")
    command.add_argument("--neurons", nargs="+", help="that are seen of the worm: names, classes or all (default: the 49)")
    command.add_argument("--drawn", action="store_true", help="draw the worm's true parameters from their priors")
    command.add_argument("--held-out", type=float, default=0.0, help="seconds more of the worm's data, to judge by")
    command.add_argument("--from-default", action="store_true", help="start at the default worm, not at the best of 9 draws")
    command.add_argument(
        "--filter", help="bootstrap, guided, farsighted or ensemble (default: bootstrap for ar, ensemble for the worm)"
    )
    command.add_argument("--particles", type=int, help="of the filter (default: 200)")
    command.add_argument("--paper", action="store_true", help="the worm as in the paper: 500 steps, 90 bootstrap particles")
    command.add_argument("--checkpoint", help="file, one for each restart, from which interrupted searches go on: fit.jsonl")
    command.add_argument("--out", help="zarr folder, one for each restart, to write the whole search into: fit.zarr")
