"""The particle filter against Kalman, and at its edges."""

import numpy as np
import pytest

from vpc import resampling
from vpc.autoregressive import Autoregressive, LinearGaussian, random_weights
from vpc.smc import SMC, weighted_mean, weighted_sd

TWIN = LinearGaussian(random_weights(2, species=3, filled=0.9, mean=0.2), process_noise=0.5, observation_noise=0.8)
TIMES = np.array([0, 1, 3, 4, 9])


def data(missing: bool) -> np.ndarray:
    y = TWIN.simulate(5, steps=9, every=1)[2][TIMES]
    if missing:
        y[1, 0] = y[3] = np.nan
    return y


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("scheme", resampling.SCHEMES)
def test_the_evidence_is_unbiased(scheme, threshold, missing):
    """Mean of Z / Z_kalman over 2000 sweeps within 3 standard errors of 1: 24 cases, an error rate of 0.3 % each."""
    y = data(missing)
    exact = TWIN.kalman(y, TIMES).log_evidence
    found = [SMC(TWIN, y, TIMES, 64, seed, scheme, threshold).run().log_evidence for seed in range(2000)]
    ratio = np.exp(np.array(found) - exact)
    assert abs(ratio.mean() - 1) < 3 * ratio.std() / np.sqrt(len(ratio))
    assert ratio.std() > 0.01  # or the test says nothing


def test_filtered_moments_are_kalmans():
    """Means and variances of 200 sweeps, within 4 Monte Carlo standard errors."""
    y = data(missing=True)
    exact = TWIN.kalman(y, TIMES)
    collect = {"mean": weighted_mean, "square": lambda w, x: weighted_mean(w, x**2)}
    runs = [SMC(TWIN, y, TIMES, 2000, seed, collect=collect).run().collected for seed in range(200)]
    for name, truth in (("mean", exact.mean), ("square", exact.mean**2 + np.diagonal(exact.covariance, axis1=1, axis2=2))):
        values = np.array([run[name] for run in runs])
        # A filter's mean is biased by 1 / particles of its variance: allow for that.
        error = values.std(axis=0) / np.sqrt(len(values)) + 2 * values.var(axis=0)
        assert np.abs((values.mean(axis=0) - truth) / error).max() < 4


def test_a_copied_filter_goes_on_the_same():
    y = data(missing=False)
    whole = SMC(TWIN, y, TIMES, 100, seed=3, collect={"sd": weighted_sd}).run()
    half = SMC(TWIN, y, TIMES, 100, seed=3, collect={"sd": weighted_sd})
    next(half), next(half)
    rest = half.copy().run()
    assert rest.frames == whole.frames and len(half.frames) == 2
    np.testing.assert_array_equal(rest.x, whole.x)
    np.testing.assert_array_equal(rest.collected["sd"], whole.collected["sd"])


def test_rows_of_nan_are_predictions():
    """In a model without dynamics between them they change nothing, to the last bit."""

    class Still:
        def initial(self, rng, n):
            return rng.standard_normal((n, 1))

        def step(self, rng, x, t):
            return x

        def log_likelihood(self, y, x, t):
            return np.where(np.isnan(y), 0, -0.5 * (y - x) ** 2).sum(axis=1)

    y = np.array([[0.3], [0.1], [-0.2]])
    plain = SMC(Still(), y, [0, 2, 4], 50, threshold=0).run()
    gaps = np.full((5, 1), np.nan)
    gaps[[0, 2, 4]] = y
    assert SMC(Still(), gaps, particles=50, threshold=0).run().log_evidence == plain.log_evidence


def test_frames_tell_what_happened():
    filter = SMC(Autoregressive(), Autoregressive().simulate(1)[2], np.arange(0, 201, 10), 200, seed=1)
    frames = list(filter)
    assert [frame.time for frame in frames] == list(range(0, 201, 10)) and frames[-1].log_evidence == filter.log_evidence
    assert all(1 <= frame.ess <= 200 and 1 <= frame.ancestors <= 200 for frame in frames)
    assert not frames[0].resampled and any(frame.resampled for frame in frames)


class Odd:
    """A model whose likelihood is given."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=float)

    def initial(self, rng, n):
        return np.zeros((n, 2))

    def step(self, rng, x, t):
        return x

    def log_likelihood(self, y, x, t):
        return self.values if t == 1 else np.zeros(len(x))


def test_edges():
    y = np.zeros((3, 1))
    dead = SMC(Odd([-np.inf] * 4), y, particles=4)
    assert len(list(dead)) == 2 and dead.log_evidence == -np.inf and "frame 1 (step 1)" in dead.failure
    assert dead.frames[-1].failed == 1
    some = SMC(Odd([-np.inf, 0, 0, -np.inf]), y, particles=4, threshold=0).run()
    assert some.weights.tolist() == [0, 0.5, 0.5, 0] and some.log_evidence == pytest.approx(np.log(0.5))
    assert some.frames[1].failed == 0.5
    assert SMC(Odd([0.5]), y, particles=1).run().log_evidence == 0.5
    assert list(SMC(Odd([0]), np.zeros((0, 1)), particles=1)) == []
    assert len(list(SMC(Odd([0]), np.zeros((1, 1)), particles=1))) == 1


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: SMC(Odd([0]), np.zeros(3)), "observations must have frames along axis 0"),
        (lambda: SMC(Odd([0]), np.zeros((3, 1)), [0, 1]), "times must be 3 whole numbers"),
        (lambda: SMC(Odd([0]), np.zeros((3, 1)), [0, 2, 2]), r"times must be increasing, from 0 on, but times\[2\] is 2"),
        (lambda: SMC(Odd([0]), np.zeros((3, 1)), particles=0), "particles must be a whole number"),
        (lambda: SMC(Odd([0]), np.zeros((3, 1)), resampling="systemic"), "did you mean 'systematic'"),
        (lambda: SMC(Odd([0]), np.zeros((3, 1)), threshold=2), "threshold must be from 0"),
        (lambda: SMC(Odd([0, np.nan]), np.zeros((3, 1)), particles=2).run(), "log_likelihood .* nan for particle 1 at frame 1"),
        (lambda: SMC(Odd([0, np.inf]), np.zeros((3, 1)), particles=2).run(), "log_likelihood .* inf for particle 1 at frame 1"),
        (
            lambda: SMC(Odd([0]), np.zeros((3, 1)), particles=2).run(),
            r"`log_likelihood` .* \(2,\), got \(1,\), at frame 1",
        ),
    ],
)
def test_bad_input(act, message):
    with pytest.raises(ValueError, match=message):
        act()
