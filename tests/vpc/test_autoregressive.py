"""The AR model against its moments, and Kalman against the joint Gaussian of everything at once."""

import numpy as np
import pytest
from scipy import stats

from vpc.autoregressive import Autoregressive, LinearGaussian, random_weights


def test_weights_are_as_the_paper_has_them():
    weights = random_weights(0)
    assert weights.shape == (30, 30) and np.count_nonzero(np.triu(weights)) == 44
    np.testing.assert_array_equal(weights, -weights.T)
    assert (weights[np.triu_indices(30)] >= 0).all()
    drawn = np.concatenate([w[w > 0] for w in map(random_weights, range(100))])
    assert drawn.mean() == pytest.approx(0.0185, rel=0.03)
    assert stats.kstest(drawn, "rayleigh", args=(0, 0.0185 / np.sqrt(np.pi / 2))).pvalue > 1e-4


def test_steps_have_the_right_moments():
    """5 steps of 40,000 particles from one point; an error rate of about 1e-4."""
    model, rng = Autoregressive(), np.random.default_rng(1)
    start = rng.standard_normal(30)
    ends = model.advance(rng, np.tile(start, (40_000, 1)), 3, 8)
    transition = np.eye(30) + model.weights
    mean, covariance = start, np.zeros((30, 30))
    for _ in range(5):
        mean, covariance = transition @ mean, transition @ covariance @ transition.T + 1e-4 * np.eye(30)
    assert np.abs((ends.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / len(ends))).max() < 4.7
    found = np.cov(ends.T)
    error = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / len(ends))
    assert np.abs((found - covariance) / error).max() < 5.5


def test_a_particle_does_not_depend_on_its_company():
    model = Autoregressive()
    x = np.random.default_rng(0).standard_normal((37, 30))
    many = model.advance(np.random.default_rng(5), x, 0, 10)
    few = model.advance(np.random.default_rng(5), x[:5], 0, 10)
    np.testing.assert_array_equal(many[:5], few)
    assert not np.array_equal(many[0], model.advance(np.random.default_rng(6), x, 0, 10)[0])
    np.testing.assert_array_equal(x, np.random.default_rng(0).standard_normal((37, 30)))  # not changed


@pytest.mark.parametrize("model", [Autoregressive(), LinearGaussian()], ids=lambda model: type(model).__name__)
def test_likelihood_counts_what_was_seen(model):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 30)), rng.standard_normal(30)
    y[::3] = np.nan
    each = stats.norm.logpdf(y[~np.isnan(y)], model.observe(x)[:, ~np.isnan(y)], model.observation_noise)
    np.testing.assert_allclose(model.log_likelihood(y, x, 0), each.sum(axis=1))
    np.testing.assert_array_equal(model.log_likelihood(np.full(30, np.nan), x, 0), 0)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_kalman_equals_the_joint_gaussian(missing):
    """All times at once, of 4 species at irregular times: evidence, filtered and smoothed moments to 1e-8."""
    model = LinearGaussian(random_weights(2, species=4, filled=0.6, mean=0.2), process_noise=0.3, observation_noise=0.5)
    _, _, seen = model.simulate(3, steps=12, every=1)
    times = np.array([0, 1, 4, 5, 12])
    y = seen[times]
    y[np.random.default_rng(0).random(y.shape) < missing] = np.nan
    if missing:
        y[2] = np.nan
    # Covariance of all x_t from the recursion written out: x = sum of transitions of independent shocks.
    transition = np.eye(4) + model.weights
    power = [np.linalg.matrix_power(transition, k) for k in range(13)]
    root = np.zeros((5 * 4, 13 * 4))
    for row, t in enumerate(times):
        for column, block in enumerate([power[t]] + [0.3 * power[t - k] for k in range(1, t + 1)]):
            root[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = block
    joint = root @ root.T
    exact = model.kalman(y, times)

    def given(frames: int) -> tuple[np.ndarray, np.ndarray, float]:
        values = y[:frames].ravel()
        use = np.flatnonzero(~np.isnan(values))
        spread = joint[np.ix_(use, use)] + 0.25 * np.eye(len(use))
        gain = np.linalg.solve(spread, joint[use]).T
        density = stats.multivariate_normal(np.zeros(len(use)), spread).logpdf(values[use]) if len(use) else 0.0
        return gain @ values[use], joint - gain @ joint[use], density

    for frame in range(5):
        mean, covariance, _ = given(frame + 1)
        part = slice(4 * frame, 4 * frame + 4)
        np.testing.assert_allclose(exact.mean[frame], mean[part], atol=1e-8)
        np.testing.assert_allclose(exact.covariance[frame], covariance[part, part], atol=1e-8)
    mean, covariance, density = given(5)
    np.testing.assert_allclose(exact.smoothed_mean.ravel(), mean, atol=1e-8)
    for frame in range(5):
        part = slice(4 * frame, 4 * frame + 4)
        np.testing.assert_allclose(exact.smoothed_covariance[frame], covariance[part, part], atol=1e-8)
    assert exact.log_evidence == pytest.approx(density, abs=1e-8)


def test_bad_input():
    with pytest.raises(ValueError, match="weights must have shape"):
        Autoregressive(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="process_noise must be a positive number"):
        Autoregressive(process_noise=0)
