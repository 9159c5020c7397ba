"""Independent sweeps side by side, each on one thread of numba's: on threads of this process, or in processes of their own."""

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numba

import wormsim  # noqa: F401 - in a new process, before any package that makes numba compile: see conftest.py
from vpc.cluster import connect


def each(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """What a function gives for each item, in order: for what spends its time in kernels, which release Python's lock."""
    with connect("threads") as cluster:
        return cluster.map(function, items)


def apart(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """The same in processes, for what spends its time in Python: a function of a module, or a partial one."""
    items = list(items)
    return list(_processes().map(function, items, chunksize=-(-len(items) // 20)))


def _alone() -> None:
    numba.set_num_threads(1)


@functools.cache
def _processes() -> ProcessPoolExecutor:
    """As many as there are cores, for all tests; new ones rather than copies, which GNU's OpenMP does not survive."""
    return ProcessPoolExecutor(numba.config.NUMBA_NUM_THREADS, get_context("spawn"), _alone)
