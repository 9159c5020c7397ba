"""The particle filter against Kalman, and at its edges."""

import tracemalloc

import numba
import numpy as np
import particles
import pytest
from particles import distributions, state_space_models
from scipy import stats

from vpc import resampling
from vpc.autoregressive import Autoregressive, LinearGaussian, random_weights
from vpc.smc import SMC
from vpc.summaries import FixedLag, Predicted, quantiles, weighted_mean, weighted_sd


class Bootstrap(LinearGaussian):
    """The twin without its proposal for time 0."""

    propose = None


WEIGHTS = random_weights(2, species=3, filled=0.9, mean=0.2)
TWIN = Bootstrap(WEIGHTS, process_noise=0.5, observation_noise=0.8)
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


@pytest.mark.parametrize("model", [Autoregressive, LinearGaussian])
def test_a_proposal_keeps_the_evidence_unbiased(model):
    """With draws of time 0 that see y, Z agrees with the bootstrap's, or with Kalman's, to 3 standard errors."""
    informed = model(WEIGHTS, process_noise=0.3, observation_noise=0.2, d=0.0)
    y, times = informed.simulate(5, steps=4, every=2)[2], np.array([0, 2, 4])
    y[1, 0] = y[0, 1] = np.nan
    found = np.array([SMC(informed, y, times, 64, seed).run().log_evidence for seed in range(2000)])
    if model is LinearGaussian:
        reference = np.array([informed.kalman(y, times).log_evidence])
    else:
        blind = type("Blind", (model,), {"propose": None})(WEIGHTS, process_noise=0.3, observation_noise=0.2, d=0.0)
        reference = np.array([SMC(blind, y, times, 2000, seed).run().log_evidence for seed in range(300)])
    ratio, other = np.exp(found - reference[0]), np.exp(reference - reference[0])
    assert abs(ratio.mean() - other.mean()) < 3 * np.hypot(ratio.std() / np.sqrt(2000), other.std() / np.sqrt(len(other)))


def test_the_first_frame_of_the_papers_model():
    """30 dimensions that no draw from the prior fits: 200 particles find the evidence that quadrature of each species gives."""
    model = Autoregressive()
    y = model.simulate(0)[2][:1]
    x = np.linspace(-6, 6, 200_001)
    each = stats.norm.pdf(x) * stats.norm.pdf(y[0][:, None], model.observe(x), model.observation_noise)
    exact = np.log(np.trapezoid(each, x)).sum()
    found = np.array([SMC(model, y, particles=200, seed=seed).run().log_evidence for seed in range(200)])
    ratio = np.exp(found - exact)
    assert ratio.std() < 0.5 and abs(ratio.mean() - 1) < 3 * ratio.std() / np.sqrt(len(ratio))


def test_the_same_model_in_particles_gives_the_same_evidence():
    """Two samples of 400 log evidences: Kolmogorov & Smirnov's p above 0.01, which is also the error rate."""
    y = data(missing=False)
    transition = np.eye(3) + WEIGHTS

    class Theirs(state_space_models.StateSpaceModel):
        def PX0(self):
            return distributions.MvNormal(cov=np.eye(3))

        def PX(self, t, xp):
            return distributions.MvNormal(loc=xp @ transition.T, cov=0.25 * np.eye(3))

        def PY(self, t, xp, x):
            return distributions.MvNormal(loc=x, cov=0.64 * np.eye(3))

    def theirs() -> float:
        filter = particles.SMC(state_space_models.Bootstrap(Theirs(), y), N=100, resampling="systematic", ESSrmin=0.5)
        filter.run()
        return filter.logLt

    np.random.seed(0)  # noqa: NPY002 - `particles` draws from the global generator
    ours = [SMC(TWIN, y, None, 100, seed).run().log_evidence for seed in range(400)]
    assert stats.ks_2samp(ours, [theirs() for _ in range(400)]).pvalue > 0.01


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


COLLECT = {"sd": weighted_sd, "quantiles": Predicted(quantiles(0.1, 0.9)), "lagged": FixedLag(weighted_mean, 2)}


def settings(seed=3, **others):
    return {"particles": 600, "seed": seed, "collect": COLLECT} | others


def test_a_restored_filter_goes_on_the_same(tmp_path):
    y = data(missing=True)
    whole = SMC(TWIN, y, TIMES, **settings()).run()
    half = SMC(TWIN, y, TIMES, **settings())
    next(half), next(half)
    half.save(tmp_path / "half.zarr")
    rest = SMC(TWIN, y, TIMES, **settings()).run(checkpoint=tmp_path / "half.zarr")
    assert rest.frames == whole.frames
    np.testing.assert_array_equal(rest.x, whole.x)
    for name in whole.collected:
        np.testing.assert_array_equal(rest.collected[name], whole.collected[name])
    again = SMC(TWIN, y, TIMES, **settings()).restore(tmp_path / "half.zarr")  # now at its end
    assert again.run().log_evidence == whole.log_evidence and again.to_dataset().attrs["seconds"] > 0


def test_a_filter_refuses_what_another_has_saved(tmp_path):
    y = data(missing=False)
    path = SMC(TWIN, y, TIMES, **settings()).run().save(tmp_path / "saved.zarr")
    other = Bootstrap(WEIGHTS, process_noise=0.4, observation_noise=0.8)
    for name, filter in {
        "seed": SMC(TWIN, y, TIMES, **settings(seed=4)),
        "particles": SMC(TWIN, y, TIMES, **settings(particles=601)),
        "observations": SMC(TWIN, y + 1, TIMES, **settings()),
        "parameters": SMC(other, y, TIMES, **settings()),
        "collect": SMC(TWIN, y, TIMES, **settings(collect={})),
    }.items():
        with pytest.raises(ValueError, match=f"saved by another filter: its {name} is"):
            filter.restore(path)


def test_a_prediction_has_not_seen_the_frame():
    """Even if the particles have, because they were proposed with it in view."""
    model = LinearGaussian(np.zeros((1, 1)), process_noise=0.1, observation_noise=0.5)
    filter = SMC(model, [[1.0]], particles=20_000, collect={"before": Predicted(weighted_mean), "after": weighted_mean}).run()
    assert abs(filter.collected["before"][0][0]) < 0.03 and filter.collected["after"][0][0] == pytest.approx(0.8, abs=0.02)


def test_a_far_outlier_is_no_trouble():
    model = LinearGaussian(np.zeros((1, 1)), process_noise=0.1, observation_noise=0.5)
    y = np.array([[50.0]])
    exact = model.kalman(y, [0]).log_evidence
    assert SMC(model, y, particles=500).run().log_evidence == pytest.approx(exact, rel=0.01)


def test_a_filter_that_was_interrupted_says_so():
    """In the middle of its summaries, where a frame is half told."""
    calls = iter(range(10))

    def summary(weights, x):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return weighted_mean(weights, x)

    filter = SMC(TWIN, data(missing=False), TIMES, 10, collect={"mean": summary})
    with pytest.raises(KeyboardInterrupt):
        filter.run()
    with pytest.raises(ValueError, match="filter was interrupted while it summarised frame 2: make it anew, or restore it"):
        filter.run()


def test_threads_change_nothing():
    y, before = data(missing=True), numba.get_num_threads()
    runs = []
    try:
        for threads in (1, min(2, before)):
            numba.set_num_threads(threads)
            runs.append(SMC(TWIN, y, TIMES, **settings(particles=10_001)).run())
    finally:
        numba.set_num_threads(before)
    assert runs[0].frames == runs[1].frames
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    np.testing.assert_array_equal(runs[0].collected["quantiles"], runs[1].collected["quantiles"])


def test_memory_does_not_grow_with_frames():
    """Ten times the frames: the summaries grow, and nothing else does."""
    model = Bootstrap(WEIGHTS, process_noise=0.5, observation_noise=0.8)

    def peak(frames: int) -> int:
        y = np.zeros((frames, 3))
        tracemalloc.start()
        SMC(model, y, particles=20_000, collect={"mean": weighted_mean}).run()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(2)
    few, many = peak(20), peak(200)
    assert many - few < 180 * 1500 < 180 * 8 * 3 * 20_000 / 100  # bytes of a frame's summaries; a hundredth of its particles


def test_rows_of_nan_change_the_evidence_only_by_chance():
    """Predicted rows between observed ones, 1000 sweeps each: means of Z / Z_kalman within 3 standard errors of 1."""
    y = np.full((10, 3), np.nan)
    y[TIMES] = data(missing=False)
    exact = TWIN.kalman(y[TIMES], TIMES).log_evidence
    ratio = np.exp([SMC(TWIN, y, None, 64, seed).run().log_evidence - exact for seed in range(1000)])
    assert abs(ratio.mean() - 1) < 3 * ratio.std() / np.sqrt(len(ratio))


def test_progress_is_silent_without_a_terminal(capsys):
    SMC(TWIN, data(missing=False), TIMES, 10).run(progress=True)
    assert capsys.readouterr() == ("", "")


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
    """A model whose likelihood at step 1 is given, and whose particles may become NaN there, or change their shape."""

    def __init__(self, values, moved=None):
        self.values = np.asarray(values, dtype=float)
        self.moved = moved

    def initial(self, rng, n):
        return np.zeros((n, 2))

    def step(self, rng, x, t):
        return x if self.moved is None else self.moved

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
    lost = SMC(Odd([-np.inf, 0], np.array([[np.nan, 0], [0, 0]])), y[:2], particles=2).run()  # NaN, and marked as failed
    assert lost.log_evidence == pytest.approx(np.log(0.5))
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
        (
            lambda: SMC(Odd([0, np.nan]), np.zeros((3, 1)), particles=2).run(),
            "`log_likelihood` .* log weight of nan for particle 1 at frame 1",
        ),
        (
            lambda: SMC(Odd([0, np.inf]), np.zeros((3, 1)), particles=2).run(),
            "`log_likelihood` .* log weight of inf for particle 1 at frame 1",
        ),
        (
            lambda: SMC(Odd([0]), np.zeros((3, 1)), particles=2).run(),
            r"`log_likelihood` .* \(2,\), got \(1,\), at frame 1",
        ),
        (
            lambda: SMC(Odd([0, 0], np.zeros((2, 3))), np.zeros((3, 1)), particles=2).run(),
            r"`step` .* \(2, 2\), got \(2, 3\), at frame 1",
        ),
        (
            lambda: SMC(Odd([0, 0], np.full((2, 2), np.nan)), np.zeros((3, 1)), particles=2).run(),
            "`step` of the model gave NaN for particle 0 at frame 1",
        ),
        (
            lambda: SMC(Autoregressive(), np.zeros((3, 29))).run(),
            "`propose` .* at frame 0 .*: observations must have 30 species",
        ),
        (lambda: SMC(Odd([0]), np.zeros((3, 1)), np.array([5, 3, 1], np.uint64)), r"times\[1\] is 3"),
        (lambda: SMC(Odd([0]), np.zeros((3, 1)), collect={"ess": weighted_mean}), "collect must not use 'ess' as a name"),
        (lambda: SMC(Odd([0]), np.zeros((3, 1)), seed=2**64), "seed must be a whole number"),
    ],
)
def test_bad_input(act, message):
    with pytest.raises(ValueError, match=message):
        act()
