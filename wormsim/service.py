"""The body behind ZeroMQ: `Service` answers steps of whole batches, `RemoteBody` is a `Body` that asks it.

Every request carries all it needs and the service keeps nothing between requests, so clients may come, go and die as
they like, and another body (another worm, another language) needs only to speak these frames:

    request   header | state (n, 49, 3) | velocity (n, 49, 3) | ok (n) | muscle (n, 2, 48) | objects (m, 3)
    answer    header | state            | velocity            | ok                    or      header | message

Arrays are raw little-endian float64, ok is bytes of 0 and 1. The header (`HEADER`) holds a magic word, the protocol's version,
the kind of message, the request's number, n, the substeps, dt in s and the medium. Nothing is ever unpickled.
"""

import os
import re
import socket
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numba
import numpy as np
import zmq

from . import geometry as geo
from .body import Body

HEADER = struct.Struct("<4sHHQIIdd")
MAGIC, VERSION = b"WORM", 1
HELLO, STEP, RESULT, ERROR = range(4)
LARGEST_FRAME = 256 * 2**20  # bytes; a state frame of 220,000 bodies. Larger claims are cut off by ZeroMQ itself.

MOST_WORK = 20_000_000  # particles times substeps in one request: half a minute on one core

ROD_BYTES = geo.RODS * 3 * 8
MUSCLE_BYTES = 2 * geo.SEGMENTS * 8


class ServiceError(RuntimeError):
    """The service answered with an error, or not at all."""


class BadRequest(ValueError):
    """A request that cannot be understood."""


Step = Callable[[Body, np.ndarray, float, int], None]


def step_body(body: Body, muscle: np.ndarray, dt: float, substeps: int) -> None:
    """What a service does with a request unless it is given something else to do."""
    body.step(muscle, dt, substeps)


def answer(frames: Sequence[bytes], step: Step = step_body) -> list[bytes]:
    """The frames that answer a request's frames; never an exception."""
    number = 0
    try:
        if len(frames[0]) != HEADER.size or not frames[0].startswith(MAGIC):
            raise BadRequest(f"not a wormsim request: the first frame must be a header of {HEADER.size} bytes")
        _, version, kind, number, particles, substeps, dt, medium = HEADER.unpack(frames[0])
        if version != VERSION:
            raise BadRequest(f"protocol version {version} asked for, but this service speaks version {VERSION}")
        if kind == HELLO:
            return [HEADER.pack(MAGIC, VERSION, RESULT, number, 0, 0, 0.0, 0.0)]
        if kind != STEP:
            raise BadRequest(f"unknown kind of request: {kind}")
        if len(frames) != 6:
            raise BadRequest(f"a step has 6 frames (header, state, velocity, ok, muscle, objects), got {len(frames)}")
        sizes = {"state": ROD_BYTES, "velocity": ROD_BYTES, "ok": 1, "muscle": MUSCLE_BYTES}
        for (name, size), frame in zip(sizes.items(), frames[1:5], strict=True):
            if len(frame) != particles * size:
                raise BadRequest(f"{name} of {particles} particles must have {particles * size} bytes, got {len(frame)}")
        if particles * substeps > MOST_WORK:
            raise BadRequest(
                f"particles times substeps must be at most {MOST_WORK}, got {particles} times {substeps}; ask for less at once"
            )
        if len(frames[5]) % 24:
            raise BadRequest(f"objects must be rows of three float64 (x, y, radius), got {len(frames[5])} bytes")
        state, velocity = (np.frombuffer(frame, "<f8").reshape(particles, geo.RODS, 3) for frame in frames[1:3])
        ok = np.frombuffer(frames[3], np.uint8)
        muscle = np.frombuffer(frames[4], "<f8").reshape(particles, 2, geo.SEGMENTS)
        objects = np.frombuffer(frames[5], "<f8").reshape(-1, 3)
        body = Body.from_state(state, velocity, ok, medium=medium, objects=objects)
        step(body, muscle, dt, substeps)
        header = HEADER.pack(MAGIC, VERSION, RESULT, number, particles, substeps, dt, medium)
        return [header, body.state.tobytes(), body.velocity.tobytes(), body.ok.astype(np.uint8).tobytes()]
    except Exception as error:  # whatever a request does, the next one is served
        header = HEADER.pack(MAGIC, VERSION, ERROR, number, 0, 0, 0.0, 0.0)
        return [header, f"{type(error).__name__}: {error}".encode()]


def _check_bind(address: str) -> None:
    """Refuse an address that other machines could reach, or where somebody already answers."""
    if not re.fullmatch(r"ipc://[^@].*|tcp://(127(\.\d+){3}|localhost|\[::1\]):(\d+|\*)", address):
        raise ValueError(
            f"bind must be ipc://PATH or tcp://127.0.0.1:PORT, got {address!r}; "
            "to reach it from another machine, forward the port through SSH"
        )
    if address.startswith("ipc://") and os.path.exists(address[6:]):
        if not stat.S_ISSOCK(os.stat(address[6:]).st_mode):
            raise ValueError(f"bind: {address[6:]!r} exists and is not a socket; choose another path")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(address[6:])
            except OSError:
                return  # left over by a service that is gone
        raise ValueError(f"bind: another service answers at {address!r}; stop it or choose another path")


class Service:
    """Serve bodies at an address until stopped; as a context manager, in a thread of its own.

    Parameters
    ----------
    bind
        `ipc://PATH`, or `tcp://127.0.0.1:PORT` (`*` picks a free port; see `.address`). Loopback only.
    workers
        Requests worked on at once, each on one core.
    step
        What to do with a request's body, muscle, dt and substeps: the door for other bodies.
    """

    def __init__(self, bind: str, workers: int = 1, step: Step = step_body):
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        _check_bind(bind)
        self.workers = workers
        self._step = step
        self._context = zmq.Context()
        self._clients = self._context.socket(zmq.ROUTER)
        self._clients.setsockopt(zmq.MAXMSGSIZE, LARGEST_FRAME)
        self._clients.setsockopt(zmq.LINGER, 1000)
        self._clients.setsockopt(zmq.IPV6, "::1" in bind)
        mask = os.umask(0o077)  # an ipc socket is for its owner
        try:
            self._clients.bind(bind)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ValueError(f"bind: cannot listen at {bind!r}: {error}") from None
        finally:
            os.umask(mask)
        self.address = self._clients.getsockopt_string(zmq.LAST_ENDPOINT)
        self._done = self._context.socket(zmq.PULL)
        self._done.bind("inproc://done")
        self._local = threading.local()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until `stop` is called."""
        poller = zmq.Poller()
        poller.register(self._done, zmq.POLLIN)
        pending = 0
        with ThreadPoolExecutor(self.workers, "wormsim", initializer=self._prepare_worker) as pool:
            while not self._stopping.is_set():
                # Requests beyond twice the workers wait in the sockets, not in memory.
                poller.register(self._clients, zmq.POLLIN if pending < 2 * self.workers else 0)
                ready = dict(poller.poll(100))
                if self._done in ready:
                    self._clients.send_multipart(self._done.recv_multipart())
                    pending -= 1
                if self._clients in ready:
                    client, *request = self._clients.recv_multipart()
                    if len(request) == 1:  # a greeting, or garbage: no work, and no waiting behind others' work
                        self._clients.send_multipart([client, *answer(request, self._step)])
                    else:
                        pool.submit(self._work, client, request)
                        pending += 1
        while self._done.poll(0):  # what the workers finished meanwhile
            self._clients.send_multipart(self._done.recv_multipart())
        self._context.destroy(linger=1000)

    def _prepare_worker(self) -> None:
        numba.set_num_threads(1)  # of this thread: the workers are the parallelism
        self._local.done = self._context.socket(zmq.PUSH)
        self._local.done.connect("inproc://done")

    def _work(self, client: bytes, request: list[bytes]) -> None:
        self._local.done.send_multipart([client, *answer(request or [b""], self._step)])

    def stop(self) -> None:
        """Finish what is being worked on, then stop; `run` returns."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> "Service":
        self._thread = threading.Thread(target=self.run, name="wormsim service", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class RemoteBody(Body):
    """A `Body` whose steps are computed by a `Service`.

    Parameters
    ----------
    address
        Where the service listens.
    particles, medium, objects
        As in `Body`.
    timeout
        Seconds to wait for an answer.
    """

    def __init__(
        self,
        address: str,
        particles: int = 1,
        medium: float = 1.0,
        objects: Sequence | np.ndarray = (),
        timeout: float = 30.0,
    ):
        super().__init__(particles, medium, objects)
        self.address = address
        self.timeout = timeout
        self._number = 0
        self._socket: zmq.Socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IPV6, "[" in address)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise ValueError(f"address {address!r} cannot be connected to: {error}") from None
        try:
            self._ask(HELLO)
        except ServiceError:
            self.close()
            raise

    def _advance(self, muscle: np.ndarray, dt: float, substeps: int) -> None:
        arrays = (self.state, self.velocity, self.ok.astype(np.uint8), muscle, self.objects)
        if self.particles * ROD_BYTES > LARGEST_FRAME:
            raise ValueError(f"particles must be at most {LARGEST_FRAME // ROD_BYTES} for a service, got {self.particles}")
        frames = self._ask(STEP, substeps, dt, *arrays)
        sizes = [self.particles * size for size in (ROD_BYTES, ROD_BYTES, 1)]
        if [len(frame) for frame in frames] != sizes:
            raise ServiceError(f"{self.address} answered with frames of {[len(frame) for frame in frames]} bytes, not {sizes}")
        state, velocity = (np.frombuffer(frame, "<f8").reshape(self.particles, geo.RODS, 3) for frame in frames[:2])
        self.restore(state, velocity, np.frombuffer(frames[2], np.uint8))

    def _ask(self, kind: int, substeps: int = 0, dt: float = 0.0, *arrays: np.ndarray) -> list[bytes]:
        """Send a request and return the answer's arrays; a late answer to an earlier request is passed over."""
        self._number += 1
        header = HEADER.pack(MAGIC, VERSION, kind, self._number, self.particles, substeps, dt, self.medium)
        self._socket.send_multipart([header, *(np.ascontiguousarray(array).tobytes() for array in arrays)])
        while self._socket.poll(int(self.timeout * 1000)):
            reply, *frames = self._socket.recv_multipart()
            if len(reply) != HEADER.size or not reply.startswith(MAGIC):
                raise ServiceError(f"{self.address} is not a wormsim service: its answer has no proper header")
            _, version, answered, number, *_ = HEADER.unpack(reply)
            if version != VERSION:
                raise ServiceError(f"{self.address} speaks protocol version {version}, this client version {VERSION}")
            if number != self._number:
                continue
            if answered == ERROR:
                raise ServiceError(f"{self.address} answered: {b''.join(frames[:1]).decode(errors='replace')}")
            return frames
        raise ServiceError(
            f"{self.address} did not answer within {self.timeout} s; is `wormsim serve --bind {self.address}` running?"
        )

    def __enter__(self) -> "RemoteBody":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
