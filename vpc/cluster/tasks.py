"""What is done on a worker: unpack a function once, run it on item after item, and say what the worker is."""

import functools
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle
import numba

__all__ = ["Shared", "facts", "load", "passport", "run", "stamp"]


class Shared(NamedTuple):
    """A function, on a worker: it comes once, items come one by one."""

    function: Callable[[Any], Any]
    threads: int  # that numba may use


def load(packed: bytes, threads: int) -> Shared:
    """Unpack a function."""
    return Shared(cloudpickle.loads(packed), threads)


def run(shared: Shared, item: Any) -> tuple[str, Any]:
    """The function of an item, with the stamp of the program that computed it."""
    numba.set_num_threads(min(shared.threads, numba.config.NUMBA_NUM_THREADS))
    return stamp(), shared.function(item)


def passport() -> Callable[[], dict[str, str]]:
    """A function that says what results depend on.

    It is made within this one so that it travels as code: a worker with another vpc, or none, can run it too.
    """

    def facts() -> dict[str, str]:
        import hashlib
        import platform
        from importlib import metadata, util
        from pathlib import Path

        known = {"python": ".".join(platform.python_version_tuple()[:2])}
        for name in ("virtual-patch-clamp", "numpy", "scipy", "numba", "llvmlite"):
            try:
                known[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                known[name] = "missing"
        text = hashlib.sha256()
        for package in ("vpc", "wormsim"):
            spec = util.find_spec(package)
            for folder in (spec.submodule_search_locations or []) if spec else []:
                for file in sorted([*Path(folder).rglob("*.py"), *Path(folder).rglob("*.csv")]):
                    text.update(file.read_bytes())
        return known | {"sources of vpc": text.hexdigest()[:12]}

    return facts


facts = passport()


@functools.cache
def stamp() -> str:
    """All facts in a few letters."""
    return hashlib.sha256(repr(facts()).encode()).hexdigest()[:12]
