"""How the project's kernels are compiled: one decorator, so that all of them are fast in the same way and never out of date."""

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name
from numba.core.codegen import get_host_cpu_features

numba.config.SLP_VECTORIZE = 1  # a quarter faster: LLVM packs straight-line code too
if numba.config.CPU_FEATURES is None and "+avx512f" in get_host_cpu_features():
    # A sixth faster: LLVM keeps to half-width vectors on processors with AVX-512 unless told not to. It is too late for that if
    # another package has made numba compile something before.
    numba.config.CPU_FEATURES = get_host_cpu_features() + ",-prefer-256-bit"
# A folder for compiled code that machines share: in it, each kind of processor has its own. Processes that start together, as
# workers of a cluster do, then wait for each other, so that every kernel is compiled once.
SHARED_CACHE = os.environ.get("WORMSIM_CACHE")
if SHARED_CACHE:
    processor = hashlib.sha256(f"{get_host_cpu_name()} {get_host_cpu_features()}".encode()).hexdigest()[:12]
    numba.config.CACHE_DIR = str(Path(SHARED_CACHE) / processor)

# Fused multiply-adds and nothing else that changes results: no reordering. Division by zero gives inf, not an exception, which
# would keep LLVM from vectorising.
FLAGS = {"fastmath": {"contract"}, "error_model": "numpy", "cache": True, "nogil": True}


# Bodies in a block: 16, or a multiple of it, if this variable says so before the first import. Results do not depend on it.
LANES = int(os.environ.get("WORMSIM_LANES", "16"))
if LANES < 16 or LANES % 16:
    raise ValueError(f"WORMSIM_LANES must be a multiple of 16, got {LANES}")

one_at_a_time = threading.Lock()  # hold it in parallel kernels: some of numba's threading layers cannot be entered twice


@functools.cache
def _fingerprint(folder: Path) -> str:
    """A hash of all Python files of this package and in another's folder, and of what else compiled code depends on."""
    files = sorted({*Path(__file__).parent.glob("*.py"), *folder.glob("*.py")})
    return hashlib.sha256(b"".join(file.read_bytes() for file in files) + str(LANES).encode()).hexdigest()


def kernel(function: Callable | None = None, **options: Any) -> Any:
    """Compile a function with numba, cached on disk until any file that it may use changes.

    numba's own cache looks only at the file with the function itself, and so goes on using old code, and old constants, from
    the others. Options are numba's, on top of `FLAGS`.
    """
    if function is None:
        return functools.partial(kernel, **options)
    compiled = numba.njit(**FLAGS, **options)(function)
    compiled._cache._cache_file._source_stamp = _fingerprint(Path(function.__code__.co_filename).parent)
    if SHARED_CACHE:
        compiled.compile = functools.partial(_one_process_at_a_time, compiled.compile)
    return compiled


_depth, _compiling = 0, threading.RLock()


def _one_process_at_a_time(work: Callable, *arguments: Any) -> Any:
    """Do some work, within which there may be more of it, while no other process that shares the cache does any."""
    global _depth
    import fcntl

    folder = Path(numba.config.CACHE_DIR)
    folder.mkdir(parents=True, exist_ok=True)
    with _compiling, open(folder / "lock", "a") as file:
        if _depth == 0:
            with contextlib.suppress(OSError):  # of file systems that have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        _depth += 1
        try:
            return work(*arguments)
        finally:
            _depth -= 1


@kernel
def aligned(size: int) -> np.ndarray:
    """An empty array that begins at a multiple of 64 bytes: vectors of 512 bits that straddle cache lines cost twice."""
    room = np.empty(size + 8)
    first = (-(room.ctypes.data // 8)) % 8
    return room[first : first + size]
