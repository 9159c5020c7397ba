"""One way to do many things at once: `map(function, items)` of what `connect` gives, in order, on one core or on all.

Results do not depend on how they were computed: each item brings its own seed.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numba
from tqdm.auto import tqdm

from wormsim import check

from .connectome import nearest

__all__ = ["Cluster", "connect"]


class Cluster:
    """Where sweeps are run; this one runs them one after the other."""

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], progress: bool = False) -> list[Any]:
        """function(item) of each item, in order."""
        items = list(items)
        bar = tqdm(self._results(function, items), total=len(items), unit="task", disable=None if progress else True)
        return list(bar)

    def _results(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        return map(function, items)

    def close(self) -> None:
        """Let go of workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Threads(Cluster):
    """Threads of this process, each with one core: for what spends its time in compiled code."""

    def __init__(self, workers: int):
        self._pool = ThreadPoolExecutor(workers, initializer=_one_core)

    def _results(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        return self._pool.map(function, items) if len(items) > 1 else map(function, items)  # one alone may have all cores

    def close(self) -> None:
        """Let go of workers."""
        self._pool.shutdown(cancel_futures=True)


class Local(Cluster):
    """Processes of this machine, each with one core, by Dask."""

    def __init__(self, workers: int):
        from dask.distributed import Client, LocalCluster

        self._cluster = LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0")
        self._client = Client(self._cluster)

    def _results(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        futures = [self._client.submit(_on_one_core, function, item, pure=False) for item in items]
        return (future.result() for future in futures)

    def close(self) -> None:
        """Let go of workers."""
        self._client.close()
        self._cluster.close()


def _one_core() -> None:
    numba.set_num_threads(1)  # of the thread that calls it


def _on_one_core(function: Callable[[Any], Any], item: Any) -> Any:
    _one_core()
    return function(item)


def connect(kind: str = "threads", workers: int | None = None) -> Cluster:
    """A place to compute: "serial", "threads", or "local" for processes of this machine; by default with all its cores."""
    kinds: dict[str, Callable[[int], Cluster]] = {"serial": lambda _: Cluster(), "threads": Threads, "local": Local}
    if kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}; did you mean {nearest(str(kind), kinds)!r}?")
    return kinds[kind](len(os.sched_getaffinity(0)) if workers is None else check.whole("workers", workers))
