"""Summaries of weighted particles, against numpy's."""

import numpy as np
import pytest

from vpc.summaries import quantiles, weighted_mean, weighted_quantiles, weighted_sd


@pytest.fixture
def cloud():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(300, 0.3)) * (rng.random(300) < 0.8)
    return weights / weights.sum(), rng.standard_normal((300, 4, 2)) * 10.0 ** rng.integers(-3, 4, (4, 2))


def test_moments(cloud):
    weights, x = cloud
    np.testing.assert_allclose(weighted_mean(weights, x), np.average(x, axis=0, weights=weights))
    variance = np.average((x - np.average(x, axis=0, weights=weights)) ** 2, axis=0, weights=weights)
    np.testing.assert_allclose(weighted_sd(weights, x), np.sqrt(variance))


def test_quantiles(cloud):
    weights, x = cloud
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    expected = np.quantile(x, levels, axis=0, weights=weights, method="inverted_cdf")
    np.testing.assert_array_equal(weighted_quantiles(weights, x, levels), expected)
    np.testing.assert_array_equal(quantiles(*levels)(weights, x), expected)


def test_particles_without_weight_do_not_count(cloud):
    weights, x = cloud
    x[weights == 0] = np.nan
    for summary in (weighted_mean, weighted_sd, quantiles(0.5)):
        assert np.isfinite(summary(weights, x)).all()


def test_one_particle():
    one, x = np.ones(1), np.array([[3.0, -2.0]])
    assert weighted_mean(one, x).tolist() == [3, -2] and weighted_sd(one, x).tolist() == [0, 0]
    assert quantiles(0.05, 0.95)(one, x).tolist() == [[3, -2], [3, -2]]


def test_bad_input():
    for levels in ([0.0], [0.5, 0.2], [1.5]):
        with pytest.raises(ValueError, match="levels must be increasing numbers between 0 and 1"):
            weighted_quantiles(np.ones(1), np.ones((1, 1)), levels)
