"""Independent sweeps side by side: each on one thread of numba's, which releases Python's lock."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba


def each(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """What a function gives for each item, in order."""
    with ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, initializer=lambda: numba.set_num_threads(1)) as pool:
        return list(pool.map(function, items))
