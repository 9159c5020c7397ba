"""How the project's kernels are compiled: one decorator, so that all of them are fast in the same way and never out of date."""

import functools
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.codegen import get_host_cpu_features

numba.config.SLP_VECTORIZE = 1  # a quarter faster: LLVM packs straight-line code too
if numba.config.CPU_FEATURES is None and "+avx512f" in get_host_cpu_features():
    # A sixth faster: LLVM keeps to half-width vectors on processors with AVX-512 unless told not to. It is too late for that if
    # another package has made numba compile something before.
    numba.config.CPU_FEATURES = get_host_cpu_features() + ",-prefer-256-bit"

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
    return compiled


@kernel
def aligned(size: int) -> np.ndarray:
    """An empty array that begins at a multiple of 64 bytes: vectors of 512 bits that straddle cache lines cost twice."""
    room = np.empty(size + 8)
    first = (-(room.ctypes.data // 8)) % 8
    return room[first : first + size]
