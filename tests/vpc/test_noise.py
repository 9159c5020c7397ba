"""The random numbers: known answers, distribution, independence of everything but their place."""

import numpy as np
import pytest
from scipy import stats

from vpc import noise
from wormsim.blocks import LANES

# Random123's known answers for Philox4x32-7: counter, key, result.
KNOWN = [
    ([0] * 4, [0] * 2, [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A],
    ),
]


def draw(slots=range(LANES), step=0, stream=0, seed=0, rows=304) -> np.ndarray:
    out = np.empty(rows * LANES)
    noise.gaussians(out, np.array(slots, dtype=np.uint64), step, stream, noise.key(seed))
    return out.reshape(rows, LANES)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, expected):
    assert [int(word) for word in noise.philox(*map(np.uint64, [*counter, *key]))] == expected


def test_box_and_muller_in_single_precision():
    """Against the formula in double precision."""
    found = draw()
    words = np.array([noise.philox(*map(np.uint64, [3, 0, group, 0]), *noise.key(0)) for group in range(76)], dtype=float)
    radius, turn = np.sqrt(-2 * np.log((words[:, [0, 2]] + 0.5) / 2**32)), (words[:, [1, 3]] + 0.5) / 2**32
    # The quadrant counts from -45 degrees, so that angles are shifted by that much.
    angle = 2 * np.pi * turn - np.pi / 4
    first, second = radius * np.cos(angle), radius * np.sin(angle)
    lane = found[:, 3].reshape(76, 4)
    np.testing.assert_allclose(np.hypot(lane[:, :2], lane[:, 2:]), radius, rtol=2e-6, atol=1e-4)
    quadratures = np.stack([np.abs(first), np.abs(second)])
    np.testing.assert_allclose(
        np.sort([np.abs(lane[:, :2]), np.abs(lane[:, 2:])], axis=0), np.sort(quadratures, axis=0), atol=1e-4
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_they_are_standard_gaussians(seed):
    """Moments and distribution of 3 million, and tails; an error rate of 1e-4 for each of the tests."""
    x = np.concatenate([draw(step=step, seed=seed).ravel() for step in range(600)])
    assert abs(x.mean()) * np.sqrt(len(x)) < 3.9
    assert abs(x.var() - 1) * np.sqrt(len(x) / 2) < 3.9
    assert abs((x**3).mean()) / np.sqrt(15 / len(x)) < 3.9
    assert abs((x**4).mean() - 3) / np.sqrt(96 / len(x)) < 3.9
    assert stats.kstest(x[:: len(x) // 500_000], "norm").pvalue > 1e-4
    beyond = (np.abs(x) > 4).sum()
    assert stats.poisson.cdf(beyond, len(x) * 2 * stats.norm.sf(4)) > 5e-5
    assert stats.poisson.sf(beyond, len(x) * 2 * stats.norm.sf(4)) > 5e-5


def test_they_are_independent():
    """Of neurons, of worms, and from step to step: largest of 3 x 300 correlations of 2000 numbers, error rate below 1e-3."""
    steps = np.array([draw(step=step) for step in range(2000)])
    for one, other in (
        (steps[:, :300, 0], steps[:, 1:301, 0]),
        (steps[:, :300, 0], steps[:, :300, 1]),
        (steps[:-1, :300, 0], steps[1:, :300, 0]),
    ):
        correlations = (one * other).mean(axis=0)
        assert np.abs(correlations).max() * np.sqrt(len(one)) < 5


def test_they_depend_on_slot_step_stream_and_seed_only():
    plain = draw()
    shuffled = draw(slots=np.arange(LANES)[::-1])
    np.testing.assert_array_equal(shuffled[:, ::-1], plain)
    for other in (draw(step=1), draw(stream=1), draw(seed=1), draw(slots=np.arange(LANES) + LANES)):
        assert (other == plain).mean() < 1e-3  # single precision may repeat a number
    np.testing.assert_array_equal(draw(rows=8), plain[:8])
