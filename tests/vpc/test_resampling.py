"""Resampling schemes: expectation, variance, edges."""

import numpy as np
import pytest
from scipy import stats

from vpc import resampling
from vpc.resampling import SCHEMES


def counts(scheme: str, weights: np.ndarray, n: int, repeats: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([np.bincount(SCHEMES[scheme](rng, weights, n), minlength=len(weights)) for _ in range(repeats)])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("n", [50, 37])
def test_offspring_have_the_right_expectation(scheme, n):
    """Mean of 20,000 draws against n w, for each of 50 particles: an error rate of 1e-4 in all for each case."""
    weights = np.random.default_rng(1).dirichlet(np.full(50, 0.5))
    found = counts(scheme, weights, n, 20_000)
    assert (found.sum(axis=1) == n).all()
    fraction = n * weights % 1  # no scheme can have less variance than a draw with this probability
    error = np.sqrt(np.maximum(found.var(axis=0), fraction * (1 - fraction)) / len(found))
    assert (np.abs(found.mean(axis=0) - n * weights) < stats.norm.isf(1e-4 / 2 / 50) * error + 1e-9).all()


def test_variances_are_in_order():
    """Of sums over offspring: residual, stratified and systematic have less than multinomial."""
    rng = np.random.default_rng(2)
    weights, values = rng.dirichlet(np.ones(100)), np.sort(rng.standard_normal(100))
    spread = {scheme: (counts(scheme, weights, 100, 5000) @ values).var() for scheme in SCHEMES}
    assert spread["residual"] < 0.8 * spread["multinomial"]
    assert spread["stratified"] < 0.5 * spread["multinomial"] and spread["systematic"] < 0.5 * spread["multinomial"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_edges(scheme):
    rng = np.random.default_rng(0)
    draw = SCHEMES[scheme]
    np.testing.assert_array_equal(draw(rng, np.array([1.0]), 5), np.zeros(5))
    np.testing.assert_array_equal(draw(rng, np.array([0.0, 1.0, 0.0]), 4), np.ones(4))
    equal = draw(rng, np.full(1000, 1e-3), 1000)
    assert (np.diff(equal) >= 0).all() and equal.max() < 1000
    if scheme != "multinomial":
        np.testing.assert_array_equal(np.unique(draw(rng, np.full(8, 1 / 8), 8)), np.arange(8))
    for _ in range(300):  # a particle without weight never has offspring
        weights = rng.dirichlet(np.full(20, 0.05)) * (rng.random(20) < 0.5)
        if weights.sum() > 0:
            assert (weights[draw(rng, weights / weights.sum(), 30)] > 0).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_same_generator_same_ancestors(scheme):
    weights = np.random.default_rng(3).dirichlet(np.ones(64))
    np.testing.assert_array_equal(*(SCHEMES[scheme](np.random.default_rng(7), weights, 64) for _ in range(2)))


def test_reweighted():
    half = np.array([0.5, 0.5])
    weights, total = resampling.reweighted(half, np.log([2.0, 6.0]) - 1000)
    np.testing.assert_allclose(weights, [0.25, 0.75])
    assert total == pytest.approx(np.log(4) - 1000)
    weights, total = resampling.reweighted(half, np.array([-np.inf, 0.0]))
    assert weights.tolist() == [0, 1] and total == pytest.approx(np.log(0.5))
    weights, total = resampling.reweighted(np.array([0.0, 1.0]), np.array([5.0, 0.0]))
    assert weights.tolist() == [0, 1] and total == 0
    weights, total = resampling.reweighted(half, np.full(2, -np.inf))
    assert weights.tolist() == [0.5, 0.5] and total == -np.inf
    assert np.isnan(resampling.reweighted(half, np.array([0.0, np.nan]))[1])
    assert resampling.reweighted(half, np.array([0.0, np.inf]))[1] == np.inf


def test_adaptive_policy():
    rng = np.random.default_rng(0)
    even, uneven = np.full(10, 0.1), np.array([1.0] + [0.0] * 9)
    sometimes = resampling.adaptive(resampling.systematic, 0.5)
    assert sometimes(rng, even) is None and sometimes(rng, uneven).tolist() == [0] * 10
    assert resampling.adaptive(resampling.systematic, 0)(rng, uneven) is None
    assert resampling.adaptive(resampling.systematic, 1)(rng, even).tolist() == list(range(10))


def test_effective_sample_size():
    assert resampling.effective_sample_size(np.full(10, 0.1)) == pytest.approx(10)
    assert resampling.effective_sample_size(np.array([1.0, 0, 0])) == pytest.approx(1)
