"""Notebooks run two at a time, as each keeps no more than one core busy for much of its time.

Tests that mostly wait run beside them.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from nbmake.pytest_items import NotebookItem

STARTED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that mostly wait behind the first notebook, which starts the others."""
    waiting = [item for item in items if item.get_closest_marker("waits")]
    busy = [item for item in items if item not in waiting]
    first = next(
        (k for k, item in enumerate(busy) if isinstance(item, NotebookItem)), len(busy)
    )
    items[:] = [*busy[: first + 1], *waiting, *busy[first + 1 :]]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """At the first notebook start all of them; each test then waits for its own."""
    if STARTED not in item.config.stash:
        item.config.stash[STARTED] = True
        pool = ThreadPoolExecutor(2)
        for notebook in item.session.items:
            if isinstance(notebook, NotebookItem):
                notebook.runtest = pool.submit(notebook.runtest).result
        item.config.add_cleanup(lambda: pool.shutdown(cancel_futures=True))  # if stopped early
