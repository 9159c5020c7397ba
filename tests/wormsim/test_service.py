"""The body as a service: bitwise the same, several clients at once, and nothing a client sends stops it."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zmq
from test_exactness import bent_bodies

import wormsim
from wormsim import geometry as geo
from wormsim import mechanics
from wormsim import service as protocol


@pytest.fixture
def service(tmp_path):
    with wormsim.Service(f"ipc://{tmp_path}/body", workers=2) as running:
        yield running


@pytest.fixture
def ask(service):
    """Send frames as they are and get the answer, decoded."""
    client = zmq.Context.instance().socket(zmq.DEALER)
    client.setsockopt(zmq.LINGER, 0)
    client.connect(service.address)

    def send(*frames: bytes) -> tuple[int, str]:
        client.send_multipart(frames)
        assert client.poll(10_000), "no answer"
        header, *rest = client.recv_multipart()
        return protocol.HEADER.unpack(header)[2], rest[0].decode(errors="replace") if rest else ""

    yield send
    client.close()


def header(version=protocol.VERSION, kind=protocol.STEP, particles=1, substeps=1, dt=0.01, medium=1.0, magic=protocol.MAGIC):
    return protocol.HEADER.pack(magic, version, kind, 7, particles, substeps, dt, medium)


def frames(particles=1, muscle=None, **changes):
    """A request that is right but for the changes."""
    state, still = geo.straight(particles), np.zeros((particles, geo.RODS, 3))
    muscle = np.zeros((particles, 2, geo.SEGMENTS)) if muscle is None else muscle
    parts = [state.tobytes(), still.tobytes(), bytes([1] * particles), muscle.tobytes(), b""]
    return [header(**{"particles": particles, **changes}), *parts]


def still_serves(service) -> bool:
    body = wormsim.RemoteBody(service.address, timeout=20)
    body.step(np.zeros((1, 2, geo.SEGMENTS)))
    body.close()
    return bool(body.ok.all())


@pytest.mark.parametrize("medium", [1.0, 0.0])
def test_bitwise_the_same_as_in_process(service, medium):
    states, muscle = bent_bodies(37), np.random.default_rng(0).uniform(0, 0.6, (37, 2, geo.SEGMENTS))
    muscle[5, 0] = 40.0  # this one fails
    posts = wormsim.hexagonal_posts(0.5, 0.1)
    options = {"medium": medium, "objects": posts}
    here = wormsim.Body.from_state(states, **options)
    there = wormsim.RemoteBody.from_state(states, address=service.address, **options)
    for _ in range(10):
        here.step(muscle)
        there.step(muscle)
    assert (here.state == there.state).all() and (here.velocity == there.velocity).all()
    assert (here.ok == there.ok).all() and not here.ok[5]


def test_four_clients_at_once(service):
    muscle = np.random.default_rng(0).uniform(0, 0.6, (4, 50, 2, geo.SEGMENTS))

    def drive(client: int) -> np.ndarray:
        body = wormsim.RemoteBody(service.address, 50)
        for _ in range(20):
            body.step(muscle[client])
        body.close()
        return body.state

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(drive, range(4)))
    for client, result in enumerate(results):
        body = wormsim.Body(50)
        for _ in range(20):
            body.step(muscle[client])
        assert (body.state == result).all()


@pytest.mark.parametrize(
    ("request_frames", "message"),
    [
        ([b"hello?"], "not a wormsim request"),
        ([os.urandom(200), os.urandom(3)], "not a wormsim request"),
        ([b""], "not a wormsim request"),
        ([header(magic=b"FISH")], "not a wormsim request"),
        ([header(version=99)], "protocol version 99 asked for, but this service speaks version 1"),
        ([header(kind=17)], "unknown kind of request: 17"),
        ([header()], "a step has 6 frames"),
        (frames(particles=2)[:1] + frames(particles=1)[1:], "state of 2 particles must have 2352 bytes, got 1176"),
        (frames(1)[:1] + [b"x" * 1175] + frames(1)[2:], "state of 1 particles must have 1176 bytes, got 1175"),
        ([header(particles=900_000), *frames(1)[1:]], "state of 900000 particles must have 1058400000 bytes, got 1176"),
        ([header(particles=0), b"", b"", b"", b"", b""], "particles must be a whole number of at least 1"),
        (frames(1, muscle=np.full((1, 2, 48), np.nan)), "muscle must be finite"),
        (frames(1)[:5] + [b"12345"], "objects must be rows of three float64"),
        (frames(1)[:5] + [np.array([[0, 0, 1], [1, 0, 1.0]]).tobytes()], "objects must not overlap"),
        (frames(1, dt=-1.0), "dt must be a positive"),
        (frames(1, medium=7.0), "medium must be a number"),
        (frames(1, substeps=0), "substeps must be"),
        (frames(1, substeps=2**32 - 1), "particles times substeps must be at most"),
        (frames(1)[:5] + [np.tile([0, 0, 1.0], (40_000, 1)).tobytes()], "objects must be at most"),
    ],
)  # fmt: skip
def test_bad_requests_get_a_clear_error_and_the_next_is_served(service, ask, request_frames, message):
    kind, text = ask(*request_frames)
    assert kind == protocol.ERROR and message in text
    assert still_serves(service)


def zmtp_hello(path: str) -> socket.socket:
    """A raw connection that has shaken hands as ZeroMQ's DEALER would, to send what ZeroMQ never would."""
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(10)
    raw.connect(path)
    raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    ready = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    raw.sendall(bytes([4, len(ready)]) + ready)
    received = b""
    while b"READY" not in received:
        received += raw.recv(1000)
    return raw


def test_a_frame_of_a_gigabyte_is_cut_off(service):
    """Whoever announces more than the limit is disconnected before any of it is stored."""
    raw = zmtp_hello(service.address.removeprefix("ipc://"))
    raw.sendall(b"\x02" + struct.pack(">Q", 2**30) + b"some of it")
    with contextlib.suppress(ConnectionResetError):
        assert raw.recv(1000) == b""
    assert still_serves(service)


def test_clients_that_die_in_mid_request(service):
    raw = zmtp_hello(service.address.removeprefix("ipc://"))
    raw.sendall(b"\x01\x28" + header())  # the first frame of several, and no more
    raw.close()
    raw = zmtp_hello(service.address.removeprefix("ipc://"))
    raw.sendall(b"\x03" + struct.pack(">Q", 100_000) + b"half a frame")
    raw.close()
    client = zmq.Context.instance().socket(zmq.DEALER)
    client.connect(service.address)
    client.send_multipart(frames(500))
    client.close(linger=100)  # gone before the answer
    noise = socket.socket(socket.AF_UNIX)
    noise.connect(service.address.removeprefix("ipc://"))
    noise.sendall(os.urandom(1000))
    noise.close()
    assert still_serves(service)


def test_other_bodies_can_be_served(tmp_path):
    """A service can do anything with a body; when it raises, the client hears of it."""

    def numb(body, muscle, dt, substeps):
        if muscle.any():
            raise RuntimeError("this worm has no muscles")

    with wormsim.Service(f"ipc://{tmp_path}/numb", step=numb) as service:
        body = wormsim.RemoteBody(service.address)
        body.step(np.zeros((1, 2, geo.SEGMENTS)))
        with pytest.raises(wormsim.ServiceError, match="RuntimeError: this worm has no muscles"):
            body.step(np.ones((1, 2, geo.SEGMENTS)))
        body.step(np.zeros((1, 2, geo.SEGMENTS)))
        assert (body.state == geo.straight()).all()


def test_a_block_of_bodies_compiles_nothing_new(service):
    """Whole blocks from the wire are read-only arrays, for which numba would compile a second kernel."""
    here, there = wormsim.Body(32), wormsim.RemoteBody(service.address, 32)
    compiled = len(mechanics.advance.signatures)
    for body in (here, there):
        body.step(np.full((32, 2, geo.SEGMENTS), 0.2))
    assert (here.state == there.state).all() and len(mechanics.advance.signatures) == max(compiled, 1)


def test_a_busy_service_still_greets(tmp_path):
    busy, released = threading.Event(), threading.Event()

    def slow(body, muscle, dt, substeps):
        busy.set()
        released.wait(20)

    with (
        wormsim.Service(f"ipc://{tmp_path}/slow", step=slow) as service,
        wormsim.RemoteBody(service.address) as body,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(body.step, np.zeros((1, 2, geo.SEGMENTS)))
        assert busy.wait(10)
        wormsim.RemoteBody(service.address, timeout=5).close()
        released.set()
        waiting.result()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ([b"what?"], "is not a wormsim service"),
        ([header(version=2, kind=protocol.RESULT)], "speaks protocol version 2"),
        ([protocol.HEADER.pack(protocol.MAGIC, 1, protocol.ERROR, 1, 0, 0, 0.0, 0.0)], "answered: "),
        ([protocol.HEADER.pack(protocol.MAGIC, 1, protocol.RESULT, 1, 0, 0, 0.0, 0.0)], "answered with frames of"),
    ],
)
def test_odd_answers_are_service_errors(tmp_path, reply, message):
    fake = zmq.Context.instance().socket(zmq.ROUTER)
    fake.bind(f"ipc://{tmp_path}/fake")

    def serve() -> None:
        for answer in ([protocol.HEADER.pack(protocol.MAGIC, 1, protocol.RESULT, 1, 0, 0, 0.0, 0.0)], reply):
            client, *_ = fake.recv_multipart()
            fake.send_multipart([client, *[part.replace(struct.pack("<Q", 1), struct.pack("<Q", number)) for part in answer]])

    with ThreadPoolExecutor(1) as pool:
        number = 1
        served = pool.submit(serve)
        body = wormsim.RemoteBody(f"ipc://{tmp_path}/fake", timeout=10)
        number = 2
        with pytest.raises(wormsim.ServiceError, match=message):
            body.step(np.zeros((1, 2, geo.SEGMENTS)))
        served.result()
    body.close()
    fake.close()


def test_a_file_in_the_way_is_kept(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="exists and is not a socket"):
        wormsim.Service(f"ipc://{tmp_path}/thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_no_service_no_hanging(tmp_path):
    with pytest.raises(wormsim.ServiceError, match="did not answer within 0.2 s; is `wormsim serve"):
        wormsim.RemoteBody(f"ipc://{tmp_path}/nobody", timeout=0.2)
    with pytest.raises(ValueError, match="address 'nonsense' cannot be connected to"):
        wormsim.RemoteBody("nonsense")


@pytest.mark.parametrize("bind", ["ipc://@hidden", "tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://10.1.2.3:80", "nonsense"])
def test_only_loopback(bind):
    with pytest.raises(ValueError, match="bind must be ipc://PATH or tcp://127.0.0.1:PORT"):
        wormsim.Service(bind)


def test_tcp_on_loopback_and_one_service_an_address(tmp_path):
    with wormsim.Service("tcp://127.0.0.1:*") as service:
        assert still_serves(service)
    with wormsim.Service(f"ipc://{tmp_path}/taken") as service:
        with pytest.raises(ValueError, match="another service answers"):
            wormsim.Service(service.address)
        assert os.stat(f"{tmp_path}/taken").st_mode & 0o077 == 0
        assert still_serves(service)


def test_command_line(tmp_path):
    """`wormsim serve` serves, and stops when told to."""
    address = f"ipc://{tmp_path}/served"
    command = [sys.executable, "-m", "wormsim", "serve", "--bind", address, "--workers", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert "serves bodies" in process.stderr.readline()
        body = wormsim.RemoteBody(address, 3)
        body.step(np.full((3, 2, geo.SEGMENTS), 0.1))
        body.close()
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() == 0
    refused = subprocess.run([*command[:5], "tcp://0.0.0.0:1"], capture_output=True, text=True)
    assert refused.returncode == 2 and "bind must be" in refused.stderr and "Traceback" not in refused.stderr
