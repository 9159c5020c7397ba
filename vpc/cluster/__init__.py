"""One way to do many things at once: `map(function, items)` of what `connect` gives, on one core, on all, or on many nodes.

    with vpc.cluster.connect("slurm", jobs=10, cores=48) as cluster:
        fit = vpc.learn.pmvo(worm, recording, ["w_m", "w_s"], cluster=cluster)

Results do not depend on where they are computed: each item brings its own seed.
"""

import inspect
from collections.abc import Callable
from typing import Any

from ..connectome import nearest
from .places import Cluster, ClusterError, Threads

__all__ = ["KINDS", "QUEUES", "Cluster", "ClusterError", "connect"]

QUEUES = ("slurm", "pbs", "sge", "lsf")
KINDS = ("serial", "threads", "local", *QUEUES)


def connect(kind: str = "threads", **options: Any) -> Cluster:
    """A place to compute.

    Parameters
    ----------
    kind
        "serial"; "threads" of this process; "local" for processes of this machine; "slurm", "pbs", "sge" or "lsf" for jobs of
        a cluster; or the address of a Dask scheduler that runs already, such as "tcp://10.0.0.1:8786".
    options
        "threads" and "local": `workers`, by default one for each core. All of Dask: `timeout`, s without any worker after which
        `map` gives up; `threads`, cores of each worker, which has one task at a time. Queues: see `vpc.cluster.queues.Queue`.
    """
    place: Callable[..., Cluster]
    if kind in ("local", *QUEUES) or "://" in str(kind):
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise ClusterError(f"{kind!r} needs Dask: pip install virtual-patch-clamp[cluster]") from None
    if kind in QUEUES:
        from .queues import Queue

        return Queue(kind, **options)
    if kind in ("serial", "threads"):
        place = Cluster if kind == "serial" else Threads
    elif kind == "local":
        from .workers import Local as place
    elif "://" in str(kind):
        from .workers import Existing

        options, place = {"address": kind} | options, Existing
    else:
        guess = nearest(str(kind), KINDS)
        raise ValueError(f"kind must be {', '.join(KINDS)} or tcp://..., got {kind!r}; did you mean {guess!r}?")
    known = [] if place is Cluster else list(inspect.signature(place).parameters)
    for name in options:
        if name not in known:
            told = f"did you mean {nearest(name, known)!r}?" if known else "it has none"
            raise ValueError(f"{name} is not an option of {kind!r}: {told}")
    return place(**options)
