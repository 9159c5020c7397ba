"""Recordings, and what is wrong with some."""

import warnings

import numpy as np
import pytest

import vpc
from vpc.observe import fluorescence_of


@pytest.fixture(scope="module")
def run():
    return vpc.Worm().simulate(1, seed=0)


def test_a_recording_of_a_simulation(run):
    rec = vpc.Recording.from_simulation(run)
    assert rec.neurons == tuple(vpc.KATO_NEURONS) and len(rec.time) == 21 and rec.seconds == 1
    np.testing.assert_array_equal(rec.steps, np.arange(0, 101, 5))
    np.testing.assert_array_equal(rec.values, run["fluorescence"].sel(neuron=list(rec.neurons)).values[::5])
    noisy = vpc.Recording.from_simulation(run, ["AVAL", "DB3"], every=0.1, noise=0.2, seed=1)
    error = noisy.values - run["fluorescence"].sel(neuron=["AVAL", "DB3"]).values[::10]
    assert 0.1 < error.std() < 0.3 and noisy.values.shape == (11, 2)
    assert repr(rec) == "<Recording of 49 neurons, 21 frames over 1 s>"


def test_irregular_times_are_kept_to_the_step():
    rec = vpc.Recording(np.random.default_rng(0).random((4, 1)), ["AVAL"], [0.5, 0.551, 0.649, 0.7])
    assert rec.steps.tolist() == [0, 5, 15, 20]
    np.testing.assert_allclose(rec.time, [0.5, 0.55, 0.65, 0.7])


def test_likelihood_is_a_hill_curve_with_gaussian_noise(run):
    """Against scipy; with NaN left out, and widened by a temperature."""
    from scipy import stats

    worm = vpc.Worm(parameters={"F": {"all": 10, "DB3": 5}, "Kd": {"AVAL": 2}, "D": 0.5})
    rec = vpc.Recording(np.array([[4.0, np.nan, 3.0]]), ["AVAL", "AVAR", "DB3"], [0.0])
    sigma = np.full(302, 0.3)
    seen = fluorescence_of(worm, rec, sigma, temperature=4.0)
    x = np.abs(np.random.default_rng(0).standard_normal((6, 994)))
    names = list(run["neuron"].values)
    a, b = (x[:, 302 + names.index(name)] for name in ("AVAL", "DB3"))
    expected = stats.norm.logpdf(4.0, 10 * a / (a + 2) + 0.5, 0.6) + stats.norm.logpdf(3.0, 5 * b / (b + 1) + 0.5, 0.6)
    np.testing.assert_allclose(seen.log_likelihood(rec.values[0], x), expected)
    np.testing.assert_allclose(seen.each(rec.values[0], x[:, seen.columns]).sum(axis=1), expected)
    x[2] = np.nan
    assert seen.log_likelihood(rec.values[0], x)[2] == -np.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], ["AVAX"], [0]), "'AVAX' is not one of the 302 neurons; did you mean"),
        (([[1.0, 2.0]], ["AVAL", "AVAL"], [0]), "neurons must be named once each, but AVAL came twice"),
        (([[1.0]], [], [0]), "neurons must name at least one"),
        (([1.0], ["AVAL"], [0]), "fluorescence must have one column for each of 1 neurons"),
        (([[1.0], [np.inf]], ["AVAL"], [0, 1]), "fluorescence must not be infinite; use NaN"),
        (([[np.nan]], ["AVAL"], [0]), "fluorescence must hold at least one number"),
        (([[1.0], [2.0]], ["AVAL"], [0, 0.001]), r"time must increase by at least 0.01 s a frame, but time\[1\] is 0.001"),
        (([[1.0], [2.0]], ["AVAL"], [0]), "time must have shape"),
    ],
)
def test_bad_recordings(arguments, message):
    with pytest.raises(ValueError, match=message):
        vpc.Recording(*arguments)


def test_bad_simulations(run):
    with pytest.raises(ValueError, match="run must be the run of one worm"):
        vpc.Recording.from_simulation(vpc.Worm().simulate(0.1, n=2))
    late = vpc.Recording.from_simulation(run.sel(time=slice(0.1, None)), every=0.03)
    assert late.time[:2].tolist() == [0.1, 0.13] and late.steps[1] == 3
    with pytest.raises(ValueError, match="every must be a multiple of 0.01 s"):
        vpc.Recording.from_simulation(run, every=0.015)
    with pytest.raises(ValueError, match="noise must be a number from 0 on"):
        vpc.Recording.from_simulation(run, noise=-1)


def test_what_looks_wrong_is_said():
    with pytest.warns(UserWarning, match="the fluorescence of AVAR is constant"):
        vpc.Recording([[1.0, 2.0], [1.5, 2.0]], ["AVAL", "AVAR"], [0, 0.1])
    with pytest.warns(UserWarning, match=r"frames are up to 0.5 s apart; a voltage is forgotten after 0.1 s"):
        vpc.Recording([[1.0], [2.0]], ["AVAL"], [0, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vpc.Recording([[1.0], [2.0]], ["AVAL"], [0, 0.25])


@pytest.mark.parametrize("values", [(-3.0, 1.0), (2.0, 500.0)])
def test_absurd_fluorescence_is_refused(values):
    rec = vpc.Recording(np.array(values)[:, None], ["AVAL"], [0, 0.1])
    with pytest.raises(ValueError, match="fluorescence of AVAL must lie between D = 0 and D . F = 10, .* rescale"):
        fluorescence_of(vpc.Worm(), rec, np.ones(302))
