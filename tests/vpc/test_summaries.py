"""Summaries of weighted particles, against numpy's."""

import numba
import numpy as np
import pytest

from vpc.summaries import describe, quantiles, weighted_mean, weighted_sd


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
    np.testing.assert_array_equal(quantiles(*levels)(weights, x), expected)


@pytest.mark.parametrize("kind", ["normal", "ties", "outlier", "infinite", "constant", "huge", "tiny"])
def test_quantiles_of_awkward_numbers(kind):
    """Against numpy's, for 3000 particles: with equal values, one far away, all the same, and at the ends of the range."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3000, 5))
    x = {
        "normal": x,
        "ties": np.round(x),
        "outlier": np.where(np.arange(3000)[:, None] == 7, 1e12, x),
        "infinite": np.where(np.arange(3000)[:, None] % 1000 == 7, np.inf, x),
        "constant": np.ones_like(x),
        "huge": 1e308 * np.clip(x, -1, 1),
        "tiny": 1e-310 * x,
    }[kind]
    levels = (0.001, 0.05, 0.3, 0.5, 0.95, 0.999)
    for weights in (np.full(3000, 1 / 3000), rng.dirichlet(np.full(3000, 0.1))):
        expected = np.quantile(x, levels, axis=0, weights=weights, method="inverted_cdf")
        np.testing.assert_array_equal(quantiles(*levels)(weights, x), expected)


def test_threads_change_nothing():
    rng = np.random.default_rng(2)
    weights, x, before = rng.dirichlet(np.ones(3000)), rng.standard_normal((3000, 200)), numba.get_num_threads()
    found = []
    try:
        for threads in (1, min(2, before)):
            numba.set_num_threads(threads)
            found.append(describe(weights, x, np.arange(1, 200, 2), (0.1, 0.5)))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(*found)


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
            quantiles(*levels)(np.ones(1), np.ones((1, 1)))
