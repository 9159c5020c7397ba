"""`Body`: determinism, failure, vector code, and what it refuses."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from test_exactness import bent_bodies

import wormsim
from wormsim import geometry as geo
from wormsim import kernel, mechanics


def smallest_gap(states: np.ndarray) -> float:
    """The smallest distance between neighbouring rods' ends, measured along the body; below 0 they cross."""
    normal = np.stack([np.cos(states[..., 2]), np.sin(states[..., 2])], axis=-1)
    forward = np.stack([normal[..., 1], -normal[..., 0]], axis=-1)[:, :-1]
    ends = [np.diff(states[..., :2] + side * geo.RADIUS[:, None] * normal, axis=1) for side in (1, -1)]
    return float(min((end * forward).sum(-1).min() for end in ends))


def run(states, muscle, steps=20, **options):
    body = wormsim.Body.from_state(states, **options)
    for _ in range(steps):
        body.step(muscle)
    return body


@pytest.fixture
def threads():
    """Set numba's threads, and put them back."""
    before = numba.get_num_threads()
    yield numba.set_num_threads
    numba.set_num_threads(before)


@pytest.mark.parametrize("medium", [1.0, 0.0])
def test_bitwise_the_same_for_any_threads_and_particle_count(threads, medium):
    states, muscle = bent_bodies(70), np.random.default_rng(0).uniform(0, 0.6, (70, 2, geo.SEGMENTS))
    posts = wormsim.square_posts(0.5, 0.05)
    whole = run(states, muscle, medium=medium, objects=posts)
    for count in sorted({1, min(2, numba.config.NUMBA_NUM_THREADS), numba.config.NUMBA_NUM_THREADS}):
        threads(count)
        again = run(states, muscle, medium=medium, objects=posts)
        assert (again.state == whole.state).all() and (again.velocity == whole.velocity).all()
    for part in (slice(0, 1), slice(5, 12), slice(3, 36), slice(16, 70)):
        few = run(states[part], muscle[part], medium=medium, objects=posts)
        assert (few.state == whole.state[part]).all()


def test_a_failed_body_is_frozen_and_its_neighbours_go_on():
    states, muscle = bent_bodies(20), np.full((20, 2, geo.SEGMENTS), 0.2)
    muscle[7, 0] = 30.0  # far beyond what a muscle does
    body, alone = run(states, muscle), run(np.delete(states, 7, 0), np.delete(muscle, 7, 0))
    assert not body.ok[7] and body.ok.sum() == 19
    assert np.isfinite(body.state).all() and (body.velocity[7] == 0).all()
    frozen = body.state[7]
    assert smallest_gap(body.state) > 0, "a failed body is kept as it was before its rods crossed"
    body.step(np.zeros_like(muscle))
    assert (body.state[7] == frozen).all()
    alone.step(np.zeros((19, 2, geo.SEGMENTS)))
    assert (np.delete(body.state, 7, 0) == alone.state).all()


def test_folded_bodies_are_not_ok():
    states = geo.straight(3)
    states[1, 24:, 2] += 1.2  # rods cross
    body = wormsim.Body.from_state(states)
    body.step(np.zeros((3, 2, geo.SEGMENTS)))
    assert body.ok.tolist() == [True, False, True]
    assert (body.state[1] == states[1]).all()


def test_resuming_from_state_and_velocity_is_bitwise_the_same():
    states, muscle = bent_bodies(5), np.full((5, 2, geo.SEGMENTS), 0.3)
    straight_through = run(states, muscle, 20)
    half = run(states, muscle, 10)
    resumed = wormsim.Body.from_state(half.state, half.velocity, half.ok)
    for _ in range(10):
        resumed.step(muscle)
    assert (resumed.state == straight_through.state).all()


def test_the_kernel_is_vectorised():
    """Packed arithmetic on 256 or 512 bits, in the loop that does most of the work."""
    compiled = numba.njit(**{**kernel.FLAGS, "cache": False})(mechanics.eliminate.py_func)
    vector = numba.float64[::1]
    compiled.compile((vector, vector, vector, *[numba.float64] * 3, numba.boolean))
    assembly = compiled.inspect_asm(compiled.signatures[0])
    if not re.search(r"%[xyz]mm", assembly) or "avx2" not in numba.core.codegen.get_host_cpu_features():
        pytest.skip("this processor has no AVX2")
    packed = re.findall(r"v(?:f[n]?m(?:add|sub)\d+|mul|add|sub|div|sqrt)pd\s.*%[yz]mm", assembly)
    assert len(packed) > 200


def test_state_is_a_copy_that_cannot_be_written_by_mistake():
    body = wormsim.Body(2)
    with pytest.raises(ValueError, match="read-only"):
        body.state[0, 0, 0] = 1.0
    assert "2 particles" in repr(body)


MUSCLE = np.zeros((2, 2, geo.SEGMENTS))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wormsim.Body(0), "particles must be"),
        (lambda: wormsim.Body(2.5), "particles must be"),
        (lambda: wormsim.Body(medium=1.5), "medium must be a number from 0"),
        (lambda: wormsim.Body(medium="mud"), "medium must be a number from 0 .water. to 1 .agar., got 'mud'"),
        (lambda: wormsim.Body(medium=np.nan), "medium must be"),
        (lambda: wormsim.Body(2).step(MUSCLE[:1]), r"muscle must have shape \(2, 2, 48\), got \(1, 2, 48\)"),
        (lambda: wormsim.Body(2).step(MUSCLE, dt=-0.01), "dt must be a positive"),
        (lambda: wormsim.Body(2).step(MUSCLE, dt=np.inf), "dt must be a positive"),
        (lambda: wormsim.Body(2).step(MUSCLE, dt="soon"), "dt must be a positive"),
        (lambda: wormsim.Body(2).step(MUSCLE, substeps=0), "substeps must be"),
        (lambda: wormsim.Body(2).step(MUSCLE, substeps=1.5), "substeps must be"),
        (lambda: wormsim.Body(2).step(MUSCLE * np.nan), r"muscle must be finite, but muscle\[0, 0, 0\] is nan"),
        (lambda: wormsim.Body(2).step("flex"), "muscle must be an array of numbers"),
        (lambda: wormsim.Body.from_state(np.zeros((2, 48, 3))), r"state must have shape \(2, 49, 3\)"),
        (lambda: wormsim.Body.from_state(np.full((1, 49, 3), np.inf)), "state must be finite"),
        (lambda: wormsim.Body(objects=[[0, 0]]), "objects must be rows of x, y, radius"),
        (lambda: wormsim.Body(objects=[[0, 0, -1]]), "objects must have a positive radius"),
        (lambda: wormsim.Body(objects=[[0, 0, 1], [5, 5, 1], [0.5, 0, 1]]), r"objects\[0\] and objects\[2\] do"),
        (lambda: wormsim.crawl(-1), "seconds must be"),
        (lambda: wormsim.crawl(1, proprioception=np.nan), "proprioception must be"),
        (lambda: wormsim.square_posts(spacing=0.1, radius=0.1), "spacing must be more than twice the radius"),
        (lambda: wormsim.Body(2).step(MUSCLE, dt=1e6), "dt of 1000000.0 s needs 100000000 substeps"),
        (lambda: wormsim.Body(2).step(MUSCLE, substeps=10**9), "substeps must be a whole number from 1 to 100000"),
        (lambda: wormsim.Body.from_state(None), "state must have shape"),
        (lambda: wormsim.Body(objects=[[10, 20], [0.5, 4], [50, 0.6]]), "objects must be rows of x, y, radius"),
        (lambda: wormsim.Body(objects=np.ones((30_000, 3))), "objects must be at most"),
        (lambda: wormsim.crawl(1, objects=[[0.5, 0, 0.1]]), "objects must leave room for the worm"),
        (lambda: wormsim.crawl(1, seed="x"), "seed must be a whole number"),
        (lambda: wormsim.crawl(1, seed=-1), "seed must be a whole number of at least 0"),
        (lambda: wormsim.random_posts(gap=-0.3), "gap must be"),
        (lambda: wormsim.square_posts("x"), "spacing must be"),
        (lambda: wormsim.gait(wormsim.crawl(0.1), skip=5), "dataset is too short for a gait"),
        (lambda: wormsim.gait(wormsim.crawl(3).assign(ok=("time", np.arange(301) < 200))), "failed after 2.00 s"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("posts", [wormsim.square_posts, wormsim.hexagonal_posts, wormsim.random_posts])
def test_post_arrays_leave_room_and_hold_the_worm(posts):
    array = posts(0.4, 0.1, 3.0)
    gaps = np.hypot(*(array[:, None] - array[None])[..., :2].transpose(2, 0, 1)) + np.eye(len(array))
    assert len(array) > 20 and gaps.min() >= 0.2
    worm = wormsim.crawl(6, medium=0.1, objects=array)
    assert worm["ok"].all()
    body = worm["body"].values
    arm = geo.RADIUS[:, None] * np.stack([np.cos(body[..., 2]), np.sin(body[..., 2])], axis=-1)
    ends = np.concatenate([body[..., :2] + arm, body[..., :2] - arm], axis=1)
    depth = max((post[2] - np.hypot(*(ends - post[:2]).transpose(2, 0, 1))).max() for post in array)
    assert 0 < depth < 0.005, "it touches posts, and hardly enters them"


def test_objects_within_reach_of_a_neighbour_do_not_matter():
    """A fast body meets the same posts alone and beside a body that is near other posts."""
    states, velocity = geo.straight(2), np.zeros((2, geo.RODS, 3))
    states[1, :, 1] = 1.2
    velocity[0, :, 1] = 80.0
    posts, muscle = [[0.5, 0.85, 0.15]], np.zeros((2, 2, geo.SEGMENTS))
    both = wormsim.Body.from_state(states, velocity, objects=posts)
    alone = wormsim.Body.from_state(states[:1], velocity[:1], objects=posts)
    both.step(muscle, 0.01, substeps=1)
    alone.step(muscle[:1], 0.01, substeps=1)
    assert (both.state[0] == alone.state[0]).all()


@pytest.mark.parametrize("medium", [1.0, 0.0])
def test_bodies_that_touch_posts_do_the_same_alone(medium):
    """The number of Newton solves is a block's, but must not show in any body of it."""
    posts = wormsim.hexagonal_posts(0.4, 0.1)
    worm, frames = wormsim.crawl(3, medium, posts), np.arange(40, 300, 9)
    states, muscle = worm["body"].values[frames], worm["muscle"].values[frames]
    velocity = (states - worm["body"].values[frames - 1]) / 0.01

    def end(part: slice) -> np.ndarray:
        body = wormsim.Body.from_state(states[part], velocity[part], medium=medium, objects=posts)
        for _ in range(10):
            body.step(muscle[part], 0.002)
        return body.state

    together = end(slice(None))
    touching = [bool(wormsim.reference.contact(state, posts).any()) for state in together]
    assert any(touching) and not all(touching)
    assert all((end(slice(i, i + 1))[0] == state).all() for i, state in enumerate(together))


def test_bodies_may_be_stepped_from_several_threads():
    def drive(seed: int) -> np.ndarray:
        body = wormsim.Body(200)
        for _ in range(5):
            body.step(np.random.default_rng(seed).uniform(0, 0.5, (200, 2, geo.SEGMENTS)))
        return body.state

    with ThreadPoolExecutor(3) as pool:
        first, second, again = pool.map(drive, (1, 2, 1))
    assert (first == again).all() and not (first == second).all()


def test_plot_is_there_when_asked_for():
    code = "import sys, wormsim; assert 'bokeh' not in sys.modules; wormsim.plot.animate; wormsim.reference.velocity"
    subprocess.run([sys.executable, "-c", code], check=True)
