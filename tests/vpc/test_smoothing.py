"""Smoothers against Kalman's, and what each costs."""

import numpy as np
import pytest

from vpc.autoregressive import LinearGaussian, random_weights
from vpc.smc import SMC
from vpc.smoothing import Ancestry, backward, fixed_lag, trace
from vpc.summaries import weighted_mean

TWIN = LinearGaussian(random_weights(2, species=3, filled=0.9, mean=0.2), process_noise=0.5, observation_noise=0.8)
TIMES = np.array([0, 1, 3, 4, 9])
Y = TWIN.simulate(5, steps=9, every=1)[2][TIMES]
Y[1, 0] = np.nan
MOMENTS = {"mean": weighted_mean, "square": lambda w, x: weighted_mean(w, x**2)}


def by_trace(seed: int) -> tuple[np.ndarray, np.ndarray]:
    filter = SMC(TWIN, Y, TIMES, 1000, seed)
    paths = trace(filter).paths(np.arange(1000)).astype(float)
    return weighted_mean(filter.weights, paths), weighted_mean(filter.weights, paths**2)


def by_long_lag(seed: int) -> tuple[np.ndarray, np.ndarray]:
    found = fixed_lag(SMC(TWIN, Y, TIMES, 1000, seed), 10, MOMENTS)
    return np.array(found["mean"]), np.array(found["square"])


def by_backward(seed: int) -> tuple[np.ndarray, np.ndarray]:
    paths = backward(SMC(TWIN, Y, TIMES, 300, seed), 60, seed)
    return paths.mean(axis=0), (paths**2).mean(axis=0)


@pytest.mark.parametrize("smoother", [by_trace, by_long_lag, by_backward])
def test_smoothed_moments_are_kalmans(smoother):
    """Means and squares of 100 runs within 4 Monte Carlo standard errors, allowing for a bias of 1 / particles."""
    exact = TWIN.kalman(Y, TIMES)
    squares = exact.smoothed_mean**2 + np.diagonal(exact.smoothed_covariance, axis1=1, axis2=2)
    runs = [smoother(seed) for seed in range(100)]
    for part, truth in enumerate((exact.smoothed_mean, squares)):
        values = np.array([run[part] for run in runs])
        error = values.std(axis=0) / np.sqrt(len(values)) + 0.1 * values.var(axis=0)
        assert np.abs((values.mean(axis=0) - truth) / error).max() < 4
    spread = np.sqrt(np.diagonal(exact.covariance, axis1=1, axis2=2))
    assert np.abs(exact.mean - exact.smoothed_mean)[0].max() > 0.1 * spread[0].max()  # or filtering would pass as well


def test_no_lag_is_filtering():
    filter = SMC(TWIN, Y, TIMES, 200, seed=1, collect=MOMENTS)
    found = fixed_lag(filter, 0, MOMENTS)
    np.testing.assert_array_equal(found["mean"], filter.collected["mean"])


def test_ancestry_prunes_dead_lines_and_keeps_paths():
    """Against all particles kept and indexed through all ancestors, the slow way."""
    rng, n, frames = np.random.default_rng(0), 50, 40
    tree, states, ancestors = Ancestry(), [], []
    for k in range(frames):
        x = rng.standard_normal((n, 2)).astype(np.float32)
        parents = None if k % 3 == 0 else np.sort(rng.integers(0, n, n))
        tree.add(x, parents)
        states.append(x)
        ancestors.append(np.arange(n) if parents is None else parents)
    now, expected = np.arange(n), np.empty((n, frames, 2), np.float32)
    for k in range(frames - 1, -1, -1):
        expected[:, k] = states[k][now]
        now = ancestors[k][now]
    np.testing.assert_array_equal(tree.paths(np.arange(n)), expected)
    assert tree.lines[-1] == n and tree.lines[0] < 6 and (np.diff(tree.lines) >= 0).all()
    assert all(states.dtype == np.float32 for states in tree.states)


def test_the_tree_stays_small():
    """200 frames of 500 particles: fewer than 20 % of all states are kept."""
    tree = trace(SMC(TWIN, np.zeros((200, 3)), particles=500))
    assert tree.lines.sum() < 0.2 * 200 * 500


def test_bad_input():
    class NoDensity:
        no_log_transition = "its noise does not reach all of its state"

    filter = SMC(TWIN, Y, TIMES, 10)
    filter.model = NoDensity()
    with pytest.raises(TypeError, match=r"needs .* `log_transition`, and NoDensity has none: its noise does not"):
        backward(filter, 5)
    late = SMC(TWIN, Y, TIMES, 10)
    next(late)
    with pytest.raises(ValueError, match="filter must be at its first frame, and is at frame 1"):
        trace(late)
    with pytest.raises(ValueError, match="lag must be a whole number"):
        fixed_lag(SMC(TWIN, Y, TIMES, 10), -1, MOMENTS)
