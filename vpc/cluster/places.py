"""Where tasks are run within this process: one after the other, or in threads."""

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Self

import numba
from tqdm.auto import tqdm

from wormsim import check

__all__ = ["Cluster", "ClusterError", "OtherVersion", "Threads", "cores"]


class ClusterError(ConnectionError):
    """Workers cannot be had, are lost, or are not what they should be."""


class OtherVersion(ClusterError):
    """A worker whose program is not this one."""


class Cluster:
    """Where tasks are run; this one runs them one after the other."""

    dashboard: str | None = None  # address of a page that shows the workers

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], progress: bool = False, late: float = 0.0) -> list[Any]:
        """function(item) of each item, in order.

        The slowest items, up to a share `late` of them, are given up when the others are done, and are None; only where workers
        differ in speed: on Dask.
        """
        items = list(items)
        enough = len(items) - int(check.number("late", late, "a share from 0 to below 1", lambda x: 0 <= x < 1) * len(items))
        results, got = [None] * len(items), 0
        silent = None if progress else True
        with tqdm(total=len(items), unit="task", disable=silent) as bar, closing(self._each(function, items)) as each:
            for k, result in each:
                results[k], got = result, got + 1
                bar.update()
                if got >= enough and self._gives_up:
                    break
        return results

    _gives_up = False

    def _each(self, function: Callable[[Any], Any], items: list[Any]) -> Generator[tuple[int, Any], None, None]:
        """Numbers of items and their results, as they come."""
        yield from enumerate(map(function, items))

    def close(self) -> None:
        """Let go of workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Threads(Cluster):
    """Threads of this process, each with one core: for what spends its time in compiled code."""

    def __init__(self, workers: int | None = None):
        self._pool = ThreadPoolExecutor(cores() if workers is None else check.whole("workers", workers), initializer=_one_core)

    def _each(self, function: Callable[[Any], Any], items: list[Any]) -> Generator[tuple[int, Any], None, None]:
        yield from enumerate(
            self._pool.map(function, items) if len(items) > 1 else map(function, items)
        )  # one may have all cores

    def close(self) -> None:
        """Let go of workers."""
        self._pool.shutdown(cancel_futures=True)


def cores() -> int:
    """Of this machine, that this process may use."""
    return len(os.sched_getaffinity(0))


def _one_core() -> None:
    numba.set_num_threads(1)  # of the thread that calls it
