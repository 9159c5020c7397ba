"""Tasks on Dask workers, whose loss changes nothing but the time it takes."""

import logging
import queue
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import cloudpickle
import dask
from dask._task_spec import Task
from distributed import Client, Future, KilledWorker, LocalCluster
from distributed.security import Security

from wormsim import check

from . import tasks
from .places import Cluster, ClusterError, OtherVersion, cores

__all__ = ["Existing", "Local", "Workers"]

POLL = 1.0  # s between two looks at the workers
TIMEOUT = 600.0  # s without a worker after which one gives up
PATIENCE = 10.0  # s without a worker after which one says so, or without an answer from the scheduler
GATHER = 5.0  # s to fetch results, at first
log = logging.getLogger("vpc.cluster")
# A worker is given one task at a time, so that none waits behind a slow one; a task may lose workers without being at fault.
# What Dask does to watch itself costs a twentieth of a core here, and its setting of malloc a quarter of a sweep's time.
DASK = {
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.allowed-failures": 10,
    "distributed.scheduler.work-stealing": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}


class Workers(Cluster):
    """Dask workers, each with one task at a time.

    A function travels once to each worker; an item and its result are all that moves for a task. The task of a worker that is
    lost is done by another. A worker with another version of the program is refused.
    """

    wanted = 1  # workers, when all are there
    _gives_up = True

    def __init__(self, threads: int, timeout: float):
        """Check the options; `_join` follows."""
        self.threads = check.whole("threads", threads)
        self.timeout = check.number("timeout", timeout, "seconds, more than 0", lambda x: x > 0)

    def _join(self, client: Client) -> None:
        self.client = client
        self.facts = tasks.facts()
        self._vetted: set[str] = set()
        self._packed, self._shared = b"", None
        self._abandoned: dict[str, Future] = {}
        self._patience = GATHER
        self._looked, self._last_seen = -POLL, time.monotonic()
        self._told = False

    @property
    def dashboard(self) -> str | None:  # type: ignore[override]
        """Address of a page that shows the workers."""
        return self.client.dashboard_link

    def _each(self, function: Callable[[Any], Any], items: list[Any]) -> Generator[tuple[int, Any], None, None]:
        self._last_seen = time.monotonic()
        self._tend()
        shared = self._share(function)
        name = f"{getattr(function, '__name__', type(function).__name__)}-{uuid.uuid4().hex}"
        keys = [f"{name}-{k}" for k in range(len(items))]
        # Data producers wait at the scheduler until a worker has time for them, however few they are.
        graph = {key: Task(key, tasks.run, shared, item, _data_producer=True) for key, item in zip(keys, items, strict=True)}
        waiting = {future.key: (k, future) for k, future in enumerate(self.client.get(graph, keys, sync=False))}
        done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        for _, future in waiting.values():
            future.add_done_callback(done.put)
        try:
            while waiting:
                self._tend()
                try:
                    batch = [done.get(timeout=POLL)]
                except queue.Empty:
                    continue
                while not done.empty():
                    batch.append(done.get())
                for future, result in self._gather(batch, done):
                    k, _ = waiting.pop(future.key)
                    future.release()  # or the task would be done again if its worker were lost
                    yield k, result
        finally:
            self._abandon([future for _, future in waiting.values()])

    def _share(self, function: Callable[[Any], Any]) -> Future:
        """The function, on its way to the workers: a task, so that it is done again if they are lost."""
        packed = cloudpickle.dumps(function)
        if self._shared is None or packed != self._packed or self._shared.status in ("cancelled", "lost", "error"):
            self._packed = packed
            self._shared = self.client.submit(tasks.load, packed, self.threads, pure=False)
        return self._shared

    def _gather(self, futures: list[Future], done: queue.SimpleQueue[Future]) -> list[tuple[Future, Any]]:
        """Results of tasks that are done; what is lost with a worker, and is computed again, comes back to `done`."""
        ready = []
        for future in futures:
            if future.status in ("error", "cancelled"):
                self._fail(future)
            ready.append(future) if future.status == "finished" else future.add_done_callback(done.put)
        try:
            found = self.client.sync(partial(self.client.gather, ready, asynchronous=True), callback_timeout=self._patience)
        except TimeoutError:
            self._patience *= 2  # there may be much to move
            for future in ready:
                future.add_done_callback(done.put)
            return []
        except CancelledError:
            raise self._lost() from None
        self._patience = GATHER
        if any(stamp != tasks.stamp() for stamp, _ in found):
            self._vet(self.present(), again=True)
            raise OtherVersion("a worker with another version of vpc has come and gone; its results are refused")
        return [(future, result) for future, (_, result) in zip(ready, found, strict=True)]

    def _fail(self, future: Future) -> None:
        """Raise what a task raised, or why it could not be done."""
        try:
            future.result()
        except KilledWorker:
            raise ClusterError(
                "a task has lost ten workers, one after the other: it may take longer than their walltime, need more memory "
                "than they have, or crash them"
            ) from None
        except CancelledError:
            raise self._lost() from None
        except (ImportError, AttributeError):
            self._vet(self.present(), again=True)  # a worker that does not know the task has another version
            raise

    def _lost(self) -> ClusterError:
        return ClusterError(f"the Dask scheduler is lost, and all tasks with it: {self.situation()}")

    def _abandon(self, futures: list[Future]) -> None:
        """Give up tasks. Dask cannot stop those that run: they are kept until they end, or their workers would seem idle."""
        if not futures or self.client.status != "running":
            return
        try:
            processing = self.client.sync(self.client.scheduler.processing, workers=None, callback_timeout=PATIENCE)
        except (OSError, TimeoutError):
            return
        running = {key for keys in processing.values() for key in keys}
        for future in futures:
            if future.key in running:
                self._abandoned[future.key] = future
                future.add_done_callback(lambda ended: self._abandoned.pop(ended.key, None))
        self.client.cancel([future for future in futures if future.key not in running])

    def _tend(self) -> None:
        """Look after the workers: refuse those of another version, replace lost ones, give up if there are none for long."""
        if time.monotonic() < self._looked + POLL:
            return
        while True:
            if self.client.status not in ("running", "connecting"):
                raise self._lost()
            present = self.present()
            self._mend(present)
            if present:
                self._looked = self._last_seen = time.monotonic()
                self._told = False
                self._vet(present)
                return
            waiting = time.monotonic() - self._last_seen
            if waiting > self.timeout:
                raise ClusterError(f"no worker for {self.timeout:g} s: {self.situation()}")
            if waiting > PATIENCE and not self._told:
                self._told = True
                log.warning("waiting for workers: %s", self.situation())
            time.sleep(0.05 if waiting < PATIENCE else POLL)

    def present(self) -> dict[str, Any]:
        """Workers by address."""
        if self.client.status != "running":
            return {}
        try:
            return dict(self.client.sync(self.client.scheduler.identity, n_workers=-1, callback_timeout=PATIENCE)["workers"])
        except (OSError, TimeoutError):
            return {}

    def _vet(self, present: dict[str, Any], again: bool = False) -> None:
        """Refuse workers whose program is not this one."""
        new = [address for address in present if again or address not in self._vetted]
        if not new:
            return
        reader = tasks.passport()
        try:
            answers = self.client.sync(self.client._run, reader, workers=new, on_error="return", callback_timeout=PATIENCE)
        except (OSError, TimeoutError):
            return  # the next look may succeed; till then the stamps of results tell
        for address, theirs in answers.items():
            if isinstance(theirs, BaseException):  # lost meanwhile
                continue
            ours, who = self.facts, present[address]
            differ = [f"{name} {value} (here {ours[name]})" for name, value in theirs.items() if value != ours[name]]
            if differ:
                raise OtherVersion(
                    f"worker {who['name']} at {who['host']} is refused, for its results could differ: it has "
                    f"{', '.join(differ)}; give it the same environment, as with the option python of a queue"
                )
            self._vetted.add(address)

    def _mend(self, present: dict[str, Any]) -> None:
        """Replace what is lost, if this is what one can do."""

    def situation(self) -> str:
        """What is known of workers, for messages."""
        return "start workers, or a new scheduler, and run again"

    def close(self) -> None:
        """Let go of workers."""
        self.client.close()


class Local(Workers):
    """Processes of this machine; Dask starts a new one for one that is lost."""

    def __init__(self, workers: int | None = None, threads: int = 1, timeout: float = TIMEOUT):
        super().__init__(threads, timeout)
        self.wanted = max(1, cores() // self.threads) if workers is None else check.whole("workers", workers)
        security = Security.temporary()  # other users of this machine cannot talk to the workers
        try:
            with dask.config.set(DASK):
                self._cluster = LocalCluster(
                    n_workers=self.wanted,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    protocol="tls://",
                    security=security,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
        except RuntimeError as error:
            remedy = 'in a script, connect only under `if __name__ == "__main__":`, for each worker imports the script'
            raise ClusterError(f"workers could not be started: {error} {remedy}") from None
        self._join(Client(self._cluster, security=security))

    def close(self) -> None:
        """Stop the workers."""
        try:
            super().close()
        finally:
            self._cluster.close()


class Existing(Workers):
    """The workers of a Dask scheduler that runs already."""

    def __init__(self, address: str, threads: int = 1, timeout: float = TIMEOUT, security: Security | None = None):
        super().__init__(threads, timeout)
        self._address = address
        try:
            client = Client(address, security=security, timeout=min(timeout, 30))
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(f"no Dask scheduler answers at {address}: {error}; start one with `dask scheduler`") from None
        self._join(client)

    def situation(self) -> str:
        """What is known of workers, for messages."""
        return f"see whether the scheduler at {self._address} runs and has workers"
