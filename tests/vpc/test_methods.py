"""The guided, the farsighted and the ensemble filter: against Kalman, against plain formulas, and on the worm."""

import copy
from functools import partial

import numba
import numpy as np
import pytest
import xarray as xr
from parallel import apart, each

import vpc
from vpc import ensemble
from vpc.autoregressive import Autoregressive, LinearGaussian, random_weights
from vpc.ensemble import Ensemble
from vpc.experiments import experiment
from vpc.farsighted import Farsighted
from vpc.guided import Guided
from vpc.initialise import learned_prior
from vpc.methods import METHODS, build
from vpc.observe import fluorescence_of
from vpc.smc import SMC
from vpc.summaries import FixedLag, weighted_mean
from vpc.sweep import FromPrior, WormModel

WORM = vpc.Worm()
WEIGHTS = random_weights(2, species=3, filled=0.9, mean=0.2)
TWIN = LinearGaussian(WEIGHTS, process_noise=0.5, observation_noise=0.8)
TIMES = np.array([0, 1, 3, 4, 9])
Y = TWIN.simulate(5, steps=9, every=1)[2][TIMES]


def _twin(y, kind, look_ahead, seed):
    """The log evidence of a guided sweep of the twin, or of a blind one without look ahead."""
    model = kind(TWIN, y, TIMES, look_ahead) if look_ahead else TWIN
    return SMC(model, y, TIMES, 32, seed).run().log_evidence


@pytest.mark.parametrize(("kind", "look_ahead"), [(Guided, 1), (Guided, 2), (Guided, 4), (Farsighted, 2)])
@pytest.mark.parametrize("missing", [False, True])
def test_the_evidence_of_those_who_look_ahead_is_unbiased(kind, look_ahead, missing):
    """Mean of Z / Z_kalman over 5000 sweeps within 3 standard errors of 1: 8 cases, an error rate of 0.3 % each."""
    y = Y.copy()
    if missing:
        y[1, 0] = y[3] = np.nan
    exact = TWIN.kalman(y, TIMES).log_evidence
    ratio = np.exp(np.array(apart(partial(_twin, y, kind, look_ahead), range(5000))) - exact)
    assert abs(ratio.mean() - 1) < 3 * ratio.std() / np.sqrt(len(ratio))
    blind = np.exp(np.array(apart(partial(_twin, y, kind, 0), range(500))) - exact)
    assert 0.01 < ratio.std() < 0.7 * blind.std()  # and less noisy than without a look ahead


def test_looking_ahead_where_nothing_is_to_be_seen():
    """The last frames are predictions, and one particle is enough to run."""
    y = Y.copy()
    y[3:] = np.nan
    exact = TWIN.kalman(y, TIMES).log_evidence
    for method in ("guided", "farsighted"):
        assert abs(build(method, TWIN, y, TIMES, 4000).run().log_evidence - exact) < 0.1
        assert np.isfinite(build(method, TWIN, y, TIMES, 1).run().log_evidence)


def test_guided_means_are_kalmans():
    """Filtered means of all frames, over 400 sweeps, within 4 standard errors of the exact ones."""
    found = [
        SMC(Guided(TWIN, Y, TIMES, 2), Y, TIMES, 200, seed, collect={"mean": weighted_mean}).run().collected["mean"]
        for seed in range(400)
    ]
    error = np.mean(found, axis=0) - TWIN.kalman(Y, TIMES).mean
    assert (np.abs(error) < 4 * np.std(found, axis=0) / np.sqrt(len(found))).all()


def test_ensembles_converge_to_kalman():
    """Errors of mean, covariance, smoothed mean and evidence fall like 1 / sqrt(members): log-log slopes of -0.5 +- 0.12."""
    exact, sizes, errors = TWIN.kalman(Y, TIMES), (200, 800, 3200, 12_800), []
    collect = {
        "mean": weighted_mean,
        "covariance": lambda w, x: np.cov(x.T, aweights=w),
        "later": FixedLag(weighted_mean, 100),
    }
    for size in sizes:
        runs = [Ensemble(TWIN, Y, TIMES, size, seed, collect).run() for seed in range(30)]
        parts = [
            [run.collected["mean"] - exact.mean for run in runs],
            [run.collected["covariance"] - exact.covariance for run in runs],
            [run.collected["later"] - exact.smoothed_mean for run in runs],
            [run.log_evidence - exact.log_evidence for run in runs],
        ]
        errors.append([np.sqrt(np.mean(np.square(part))) for part in parts])
    slopes = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    np.testing.assert_allclose(slopes, -0.5, atol=0.12)
    assert (np.array(errors[-1]) < 0.05).all()


def test_a_shift_is_the_formula():
    """The kernel against numpy: covariances, taper, gain; members that failed do not count; states of an earlier frame too."""
    rng = np.random.default_rng(0)
    members, columns, seen = 101, 300, 11
    mixed = rng.standard_normal((5, columns))
    x = rng.standard_normal((members, 5)) @ mixed + rng.standard_normal((members, columns)) + 50
    h = x[:, :seen] / 3 + 0.1 * rng.standard_normal((members, seen))
    living = np.delete(np.arange(members), [3, 70])
    y, sd = h.mean(axis=0) + 0.5, np.linspace(0.3, 1, seen)
    filter = ensemble.Ensemble(Autoregressive(), np.empty((0, 1)), particles=members)
    demands, log_density = ensemble.compare(h[living], y, sd)
    filter._revision = living, demands
    new, _ = filter.revise(x, np.arange(members))
    np.testing.assert_array_equal(filter.revise(x[::-1], members - 1 - np.arange(members))[0], new)

    n = len(living)
    both = np.cov(np.hstack([x, h])[living].T)
    doubt = 4 * np.outer(np.diag(both), np.diag(both)) / ((n - 1) * both**2)
    tapered = both * np.maximum(0, 1 - doubt)
    s = np.where(np.eye(seen), both[columns:, columns:], tapered[columns:, columns:]) + np.diag(sd**2)
    errors = sd * np.linalg.solve(np.linalg.cholesky(s) + np.diag(sd), (h[living] - h[living].mean(axis=0)).T).T
    missed = y + errors - h[living]
    shift = missed @ np.linalg.solve(s, tapered[columns:, :columns])
    np.testing.assert_allclose(new[living] - x[living], shift, atol=2e-5 * np.abs(shift).max())
    np.testing.assert_array_equal(new[[3, 70]], x[[3, 70]])
    error = y - h[living].mean(axis=0)
    expected = -0.5 * (error @ np.linalg.solve(s, error) + np.linalg.slogdet(2 * np.pi * s)[1])
    np.testing.assert_allclose(log_density, expected, rtol=1e-10)


def test_shifts_leave_the_right_covariance():
    """P - Cxy S^-1 Cyx, whatever the noise, where every correlation is believed; the mean is Kalman's."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 3)) + 2
    sd, y = np.array([0.01, 1, 30]), np.array([1.0, 2, 3])
    demands, _ = ensemble.compare(x, y, sd)
    new = ensemble.shift(x, demands)
    p = np.cov(x.T)
    gain = p @ np.linalg.inv(p + np.diag(sd**2))
    np.testing.assert_allclose(new.mean(axis=0), x.mean(axis=0) + gain @ (y - x.mean(axis=0)), rtol=0.05)
    np.testing.assert_allclose(np.cov(new.T), p - gain @ p, atol=0.05 * np.abs(np.diag(p)).max())


def test_every_method_serves_the_papers_autoregressive_model():
    """30 species, 200 particles: the bootstrap filter is lost, the guided one is not, and the ensemble loses only the start.

    There it must bend a prior of sd 1 through a curved observation, which costs it some 60 nats and the first two frames.
    """
    model = Autoregressive()
    truth, times, y = model.simulate(0)
    found = {
        method: [build(method, model, y, times, 200, seed, {"mean": weighted_mean}).run() for seed in range(5)]
        for method in METHODS
    }
    evidence = {method: np.array([run.log_evidence for run in runs]) for method, runs in found.items()}
    error = {
        method: np.sqrt(np.mean([np.square(run.collected["mean"] - truth[times])[3:] for run in runs]))
        for method, runs in found.items()
    }
    assert evidence["bootstrap"].std() > 100 and evidence["guided"].std() < 5 and evidence["ensemble"].std() < 10
    assert evidence["bootstrap"].max() < 500 and evidence["guided"].min() > 1500
    assert 20 < evidence["guided"].mean() - evidence["ensemble"].mean() < 100
    assert 1000 < evidence["farsighted"].min() < evidence["guided"].min()  # 200 second lives are less than a Jacobian
    assert error["guided"] < 0.5 * error["bootstrap"] and error["ensemble"] < 1.2 * error["guided"]


# The worm.


def model_of(kind, seconds=5.0, neurons=None, factor=0.2, seed=0):
    """A truth drawn from the filter's own model, a recording of it, and the model."""
    prior = learned_prior(WORM)
    run, rec = experiment("noise", WORM, seed, seconds, factor)
    if neurons:
        rec = vpc.Recording(rec.values[:, [rec.neurons.index(name) for name in neurons]], neurons, rec.time)
    return run, rec, kind(WORM, rec, fluorescence_of(WORM, rec, prior.sigma), prior, factor * prior.noise)


def test_given_noise_is_used_and_what_a_worm_shows_is_foretold():
    """Noise given as 0 for all 302 neurons is a quiet worm, bitwise; so are fluorescences foretold, and J is the derivative."""
    _, rec = experiment("all", WORM, 0, 0.5)
    prior = learned_prior(WORM)
    model, quiet = (
        WormModel(WORM, rec, fluorescence_of(WORM, rec, prior.sigma), prior, noise) for noise in (prior.noise, 0 * prior.noise)
    )
    x, rng = model.draw(np.random.default_rng(0), 20), np.random.default_rng(1)
    zeros = np.zeros((20, 302, 10))
    np.testing.assert_array_equal(model.advance(rng, x, 0, 10, noise=zeros), quiet.advance(rng, x, 0, 10))
    times = np.array([5, 10])
    shown, jacobian, first = model.linearise(x, 0, times)
    assert shown.shape == (20, 2, 302) and jacobian.shape == (20, 302, 2, 10) and first == 5
    for k, time in enumerate(times):
        np.testing.assert_allclose(shown[:, k], model.predict(quiet.advance(rng, x, 0, int(time)))[0], rtol=1e-12)
    assert (jacobian[:, :, 0, 5:] == 0).all()  # noise after a frame does nothing to it

    for name, step, tolerance in (("DB3", 9, 1e-3), ("AVAL", 1, 0.05), ("SMDVL", 5, 0.05)):
        neuron, moved = vpc.connectome.index([name])[0], zeros.copy()
        moved[:, neuron, step] = 1e-3
        change = (model.predict(model.advance(rng, x, 0, 10, noise=moved))[0] - shown[:, 1])[:, neuron] / 1e-3
        np.testing.assert_allclose(change, jacobian[:, neuron, 1, step], rtol=tolerance)  # what others give back is left out


def _swept(method, model, rec, n, seed):
    return build(method, model, rec.values, rec.steps, n, seed).run()


def _evidence(*sweep):
    return _swept(*sweep).log_evidence


@pytest.mark.parametrize("method", ["guided", "farsighted"])
def test_worms_that_look_ahead_have_the_evidence_of_blind_ones(method):
    """Few neurons for half a second: mean Z of 100 such sweeps and of 40 large bootstrap ones agree to 3 standard errors."""
    _, rec, model = model_of(FromPrior, 0.5, ["AVAL", "RIML", "VB1", "SMDVL"], factor=0.5)
    guided = np.array(each(partial(_evidence, method, model, rec, 64), range(100)))
    blind = np.array(each(partial(_evidence, "bootstrap", model, rec, 512), range(40)))
    ratio, other = np.exp(guided - blind.mean()), np.exp(blind - blind.mean())
    se = np.hypot(ratio.std() / np.sqrt(len(ratio)), other.std() / np.sqrt(len(other)))
    assert abs(ratio.mean() - other.mean()) < 3 * se
    small = np.array(each(partial(_evidence, "bootstrap", model, rec, 64), range(60)))
    assert guided.std() < 0.8 * small.std()


@pytest.mark.parametrize("method", ["guided", "farsighted", "ensemble"])
def test_the_same_seed_gives_the_same_posterior_on_any_number_of_threads(method):
    _, rec = experiment("noise", WORM, 0, 0.5)
    before, found = numba.get_num_threads(), []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            found.append(vpc.impute(WORM, rec, method, 500, seed=3, progress=False).dataset)
    finally:
        numba.set_num_threads(before)
    xr.testing.assert_equal(*found)


@pytest.mark.parametrize("method", ["farsighted", "ensemble"])
def test_a_filter_goes_on_from_a_checkpoint(method, tmp_path):
    _, rec, model = model_of(WormModel, 0.5)
    collect = {"later": FixedLag(weighted_mean, 20), "now": weighted_mean}
    whole = build(method, model, rec.values, rec.steps, 50, 1, collect).run()
    half = build(method, model, rec.values, rec.steps, 50, 1, collect)
    for _ in range(5):
        next(half)
    other = half.copy()
    half.save(tmp_path / "half.zarr")
    again = build(method, model, rec.values, rec.steps, 50, 1, collect).restore(tmp_path / "half.zarr").run()
    for run in (again, other.run()):
        assert run.log_evidence == whole.log_evidence
        for name in collect:
            np.testing.assert_array_equal(run.collected[name], whole.collected[name])
    with pytest.raises(ValueError, match="saved by another filter"):
        SMC(model, rec.values, rec.steps, 50, 1, collect=collect).restore(tmp_path / "half.zarr")


class Frail(LinearGaussian):
    """Members fail now and then, or all at once."""

    share = 0.3

    def advance(self, rng, x, first, last, ancestors=None, noise=None):
        x = super().advance(rng, x, first, last, ancestors)
        x[rng.random(len(x)) < self.share] = np.nan
        return x

    def drive(self, x, first, last, noise=None, ancestors=None):
        """What decides is one of the numbers that are given, in 3 of 10."""
        x = super().drive(x, first, last, noise, ancestors)
        if noise is not None:
            x[noise[:, 0, 0] < -0.5244] = np.nan
        return x

    def log_likelihood(self, y, x, t):
        return np.where(np.isnan(x[:, 0]), -np.inf, super().log_likelihood(y, x, t))


def test_members_that_fail_are_replaced():
    """The evidence counts the share that lives, as in a particle filter; the others stand in for what is lost."""
    frail = Frail(WEIGHTS, process_noise=0.5, observation_noise=0.8)
    filter = Ensemble(frail, Y, TIMES, 4000, 0, {"mean": weighted_mean, "later": FixedLag(weighted_mean, 3)}).run()
    exact = TWIN.kalman(Y, TIMES)
    assert abs(filter.log_evidence - exact.log_evidence - 4 * np.log(0.7)) < 0.3
    np.testing.assert_allclose(filter.collected["mean"], exact.mean, atol=0.1)
    assert np.isfinite(filter.collected["later"]).all()
    assert all(frame.failed == pytest.approx(0.3, abs=0.05) for frame in filter.frames[1:])
    frail.__class__.share = 1.0
    lost = Ensemble(frail, Y, TIMES, 100, 0).run()
    frail.__class__.share = 0.3
    assert lost.log_evidence == -np.inf and "at frame 1 (step 1)" in lost.failure


def test_particles_that_fail_do_not_bias_those_that_look_far():
    """Some fail by their noise, and none without: mean Z of 2000 sweeps within 3 standard errors of that of blind ones."""
    frail = Frail(WEIGHTS, process_noise=0.5, observation_noise=0.8)
    frail.advance = lambda rng, x, first, last, ancestors=None: frail.drive(
        x, first, last, rng.standard_normal((len(x), 3, 1)), ancestors
    )
    ahead, blind = (
        np.array([build(method, frail, Y, TIMES, n, seed).run().log_evidence for seed in range(sweeps)])
        for method, n, sweeps in (("farsighted", 32, 2000), ("bootstrap", 2000, 100))
    )
    top = blind.max()
    ahead, blind = np.exp(ahead - top), np.exp(blind - top)
    se = np.hypot(ahead.std() / np.sqrt(len(ahead)), blind.std() / np.sqrt(len(blind)))
    assert abs(ahead.mean() - blind.mean()) < 3 * se


def test_evidence_that_can_be_learned_from():
    """sd of log Z over seeds at the truth: at most 3 nats for 200 members, and 6 for 1000 guided particles."""
    _, rec, model = model_of(FromPrior)
    for method, n, most in (("ensemble", 200, 3), ("guided", 1000, 6)):
        sweep = partial(_evidence, method, model, rec, n)
        assert np.std(each(sweep, range(6)), ddof=1) < most


def test_farsighted_particles_rank_worms():
    """w_s 20 % less is likelier than 40 % more, which the ensemble does not find, and the truth is likeliest.

    Evidence that is right on average is hardly ever too high: 60 particles that look ahead prove more of the wrong worms than
    2000 that do not.
    """
    _, rec, model = model_of(FromPrior)
    worm, found, blind = model.worm, [], []
    for scale in (1.4, 0.8, 1.0):
        model.worm = worm.with_parameters(w_s=scale * worm.parameters["w_s"])
        found.append(max(each(partial(_evidence, "farsighted", copy.copy(model), rec, 60), range(2))))
        blind.append(_evidence("bootstrap", copy.copy(model), rec, 2000, 0))
    assert found[0] < found[1] - 100 < found[2] - 200
    assert found[0] > blind[0] + 500 and found[1] > blind[1]


def _imputed(factor, what, seed, **settings):
    """r of unobserved motor neurons and of the body, and coverage, of a default posterior; and of a blind worm."""
    run, rec = experiment("noise", WORM, seed, factor=factor)
    post = vpc.impute(WORM, rec, factor=factor, progress=False, **settings)
    assert post.dataset.attrs["method"] == "ensemble" and not post.evidence_is_unbiased
    found = vpc.diagnose.medians(post.score(run, what))
    return [[one["r_unobserved_motor"], one["r_body"], one["coverage90"]] for one in found.values()]


def test_what_is_imputed_from_a_noisy_worm():
    """Ten truths at factor 0.3, smoothed: mean r of unobserved motor neurons and body, and coverage; beside a blind worm's."""
    rows = each(partial(_imputed, 0.3, "smoothed"), range(10))
    (motor, body, coverage), (blind, blind_body, _) = np.mean(rows, axis=0)
    assert motor >= 0.94 and body >= 0.95 and 0.85 <= coverage <= 0.95
    assert motor > blind + 0.1 and body > blind_body + 0.1


def test_what_is_imputed_where_little_can_be_known():
    """Ten truths at factor 1, 300 members, filtered. With drawn errors and more doubt 1000 have 0.47, 0.60 and 0.90."""
    rows = each(lambda seed: _imputed(1.0, "filtered", seed, particles=300, lag=0.0), range(10))
    (motor, body, coverage), (blind, blind_body, _) = np.mean(rows, axis=0)
    assert motor >= 0.45 and body >= 0.58 and 0.87 <= coverage <= 0.93
    assert motor > blind + 0.1 and body > blind_body + 0.1


# Bad input.


class Counts:
    """A model without Gaussian noise and without derivatives."""

    def initial(self, rng, n):
        return rng.standard_normal((n, 2))

    def step(self, rng, x, t):
        return x

    def log_likelihood(self, y, x, t):
        return np.zeros(len(x))


class Smooth(Counts):
    def predict(self, x):
        return x, np.ones(2)


def test_a_method_names_what_a_model_lacks():
    y, times = np.zeros((3, 2)), np.arange(3)
    lacks = r"method 'ensemble' needs Gaussian noise of what is seen \(`predict`\), which Counts has not; what would work: boot"
    with pytest.raises(TypeError, match=lacks):
        build("ensemble", Counts(), y, times)
    with pytest.raises(TypeError, match="the Jacobian of what is seen by the noise .*what would work: bootstrap and ensemble"):
        build("guided", Smooth(), y, times)
    with pytest.raises(
        TypeError, match="the ensemble Kalman filter needs a model with a method `predict`, and Counts has none"
    ):
        Ensemble(Counts(), y, times, 10).run()
    with pytest.raises(
        ValueError, match="method must be one of bootstrap, guided, farsighted, ensemble, got 'enseble'; did you mean"
    ):
        build("enseble", Counts(), y, times)
    with pytest.raises(TypeError, match=r"Gaussian noise that can be given \(`drive`\), which Smooth has not"):
        build("farsighted", Smooth(), y, times)
    with pytest.raises(ValueError, match="look_ahead must be"):
        Guided(TWIN, Y, TIMES, 0)
    build("ensemble", Smooth(), y, times, 10).run()
