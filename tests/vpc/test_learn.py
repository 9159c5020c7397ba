"""Learning: against Kalman's evidence on the linear-Gaussian twin, and by simulation-based calibration."""

import functools
import json

import numpy as np
import pytest
from parallel import apart
from scipy import stats
from twins import BASE, TURN, exact, particles, record, seen

import vpc
from vpc import learn
from vpc.autoregressive import Autoregressive
from vpc.learn import priors
from vpc.learn.pmvo import ADVANTAGES, _pairs
from vpc.learn.search import Search
from vpc.learn.targets import Sweep


@functools.cache
def grid_moments():
    """Posterior mean, variance and peak of both parameters by Kalman's evidence on a grid."""
    target = exact()
    axes = [prior.quantile((np.arange(60) + 0.5) / 60) for prior in target.space.priors.values()]  # even in prior probability
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    log_weights = np.array([target(Sweep(tuple(point), 0))[0] for point in points])
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ points
    return mean, weights @ np.square(points - mean), points[np.argmax(log_weights + target.space.log_prior(points))]


def batch_error(draws, batches=20):
    """Standard error of the mean of correlated draws (draw, parameter)."""
    size = len(draws) // batches
    means = draws[: size * batches].reshape(batches, size, -1).mean(axis=1)
    return means.std(axis=0, ddof=1) / np.sqrt(batches)


# Priors.


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (priors.rayleigh(mean=2.0), stats.rayleigh(scale=2 / np.sqrt(np.pi / 2))),
        (priors.rayleigh(scale=3.0, log=False), stats.rayleigh(scale=3.0)),
        (priors.normal(1.0, 2.0), stats.norm(1, 2)),
        (priors.lognormal(3.0, 0.5), stats.lognorm(0.5, scale=3)),
        (priors.uniform(-1.0, 4.0), stats.uniform(-1, 5)),
        (priors.normal(0.0, 1.0, low=-1.0, high=3.0), stats.truncnorm(-1, 3)),
    ],
)
def test_priors_are_what_they_say(prior, law):
    """Densities are scipy's; free coordinates have mean 0 and sd 1, and their density integrates to 1."""
    x = law.rvs(500, random_state=1)
    np.testing.assert_allclose(prior.log_density(x), law.logpdf(x), rtol=1e-9)
    draws = learn.priors.Space({"a": prior}).draw(np.random.default_rng(0), 4000)[:, 0]
    assert stats.kstest(draws, law.cdf).pvalue > 1e-3  # error rate 0.1 %
    np.testing.assert_allclose(prior.value(prior.free(x)), x, rtol=1e-9, atol=1e-9)
    free = prior.free(prior.quantile((np.arange(100_000) + 0.5) / 100_000))
    assert abs(free.mean()) < 0.01
    assert abs(free.std() - 1) < 0.02
    u = np.linspace(-12, 12, 200_001)
    with np.errstate(over="ignore"):
        density = np.exp(priors.Space({"a": prior}).log_free_prior(u[:, None]))
    assert abs(np.trapezoid(density, u) - 1) < 1e-3
    assert prior.log_density(prior.low - 1) == -np.inf


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: priors.rayleigh(), "either a mean or a scale"),
        (lambda: priors.rayleigh(mean=-1), "mean must be a positive number"),
        (lambda: priors.normal(0, 0), "sd must be a positive number"),
        (lambda: priors.uniform(2, 1), "low must be less than high"),
        (lambda: priors.normal(0, 1, log=True), "needs positive numbers"),
        (lambda: priors.lognormal(1, 0.1, low=90, high=91), "leave nothing"),
        (lambda: priors.Space({}), "at least one parameter"),
        (lambda: priors.Space({"a": 3}), "must be one of vpc.learn.priors"),
    ],
)
def test_bad_priors_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# Searches.


def test_the_raw_gradient_is_that_of_the_mean():
    """For f = -(u - a)^2 / 2 that of its mean under N(phi, s^2) is a - phi: within 4 standard errors of 20,000 estimates."""
    rng, a, phi, s = np.random.default_rng(0), np.array([2.0, -1.0]), np.array([0.5, 0.0]), 0.3
    found = []
    for _ in range(20_000):
        u = phi + s * _pairs(rng, 4, 2)
        f = -0.5 * np.square(u - a).sum(axis=1) + 7.0
        found.append((ADVANTAGES["raw"](f)[:, None] * (u - phi)).mean(axis=0) / s**2)
    error = np.mean(found, axis=0) - (a - phi)
    assert (np.abs(error) < 4 * np.std(found, axis=0) / np.sqrt(len(found))).all()


@pytest.mark.parametrize(("n", "size"), [(8, 2), (7, 3), (6, 10)])
def test_samples_come_in_pairs_at_right_angles(n, size):
    """And each number of them is a standard Gaussian: Kolmogorov & Smirnov, error rate 0.1 %."""
    rng = np.random.default_rng(0)
    many = np.array([_pairs(rng, n, size) for _ in range(2000)])
    half = (n + 1) // 2
    np.testing.assert_array_equal(many[:, half:], -many[:, : n - half])
    for first in range(0, half, size):
        block = many[0, first : min(first + size, half)]
        angles = block @ block.T
        np.testing.assert_allclose(angles, np.diag(np.diag(angles)), atol=1e-9)
    assert stats.kstest(many[:, 0, 0], "norm").pvalue > 1e-3
    assert stats.kstest(many[:, half - 1, -1], "norm").pvalue > 1e-3


@pytest.mark.parametrize("advantage", list(ADVANTAGES))
def test_pmvo_finds_the_peak(advantage):
    """With exact evidence, the best of the grid, to a tenth of the posterior's sd, by evidence within 0.05 nats."""
    target = exact()
    _, variance, peak = grid_moments()
    fit = learn.pmvo(target, steps=300, advantage=advantage, rate=(0.1, 0.003), width=(0.3, 0.1), progress=False)
    found = target.space.point(fit.best)
    assert (np.abs(found - peak) < 0.3 * np.sqrt(variance)).all()
    worth = [target(Sweep(tuple(x), 0))[0] + target.space.log_prior(x) for x in (found, peak)]
    assert worth[0] > worth[1] - 0.05
    assert fit.best_score == pytest.approx(worth[0])
    assert fit.trace["value"].dims == ("step", "parameter")
    assert fit.evaluations == 9 + 300 * 8 + 10 * 4


def test_temperature_and_widening_end_at_the_true_objective():
    target = exact()
    fit = learn.pmvo(target, steps=200, temperature=(50.0, 1.0), widen=(2.0, 1.0), progress=False)
    _, variance, peak = grid_moments()
    assert (np.abs(target.space.point(fit.best) - peak) < 0.3 * np.sqrt(variance)).all()


@pytest.mark.parametrize("search", ["pmmh", "pmmh, adaptive", "parallel tempering"])
def test_posteriors_are_kalmans(search):
    """Means and variances by particles within 4 standard errors of the grid's: 12 numbers in all, an error rate of 0.1 %."""
    if search == "parallel tempering":
        ladder = {"temperatures": (3.0, 1.5, 1.0), "width": (1.0, 0.8, 0.6)}
        fit = learn.parallel_tempering(particles(), steps=3000, **ladder, progress=False)
        assert 0.3 < fit.swaps.values.min() <= fit.swaps.values.max() < 1
        assert fit.acceptance.shape == (3,)
    else:
        fit = learn.pmmh(particles(), steps=5000, width=0.6, adapt=search != "pmmh", progress=False)
        assert 0.1 < float(fit.acceptance) < 0.7
    draws = fit.draws.values[len(fit.draws) // 10 :]
    mean, variance, _ = grid_moments()
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * batch_error(draws)).all()
    squares = np.square(draws - draws.mean(axis=0))
    assert (np.abs(squares.mean(axis=0) - variance) < 4 * batch_error(squares)).all()
    assert list(fit.arviz()["posterior"].data_vars) == ["W[0,1]", "process_noise"]


def _rank(search, k):
    """The rank of a truth among 9 draws, of both parameters."""
    truth = exact().space.draw(np.random.default_rng([k, 3]), 1)[0]
    common = {"draws": 1, "seed": k, "progress": False}
    if search == "pmmh":
        fit = learn.pmmh(particles(40, theta=truth, seed=k), steps=160, width=0.8, **common)
    else:
        ladder = {"temperatures": (2.5, 1.0), "width": (1.2, 0.8)}
        fit = learn.parallel_tempering(particles(40, theta=truth, seed=k), steps=80, **ladder, **common)
    draws = fit.draws.values
    kept = draws[np.linspace(len(draws) // 4, len(draws) - 1, 9).astype(int)]
    return (kept < truth).sum(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("search", ["pmmh", "parallel tempering"])
def test_calibration(search):
    """Simulation-based calibration (Talts et al. 2018): ranks of 200 truths among 9 draws are uniform, p > 0.01, 4 times."""
    ranks = apart(functools.partial(_rank, search), range(200))
    for column in np.array(ranks).T:
        assert stats.chisquare(np.bincount(column, minlength=10)).pvalue > 0.01


def test_trajectories_are_smoothed_paths():
    """With parameters all but known, the mean of 600 paths is Kalman's smoothed mean: 14 numbers within 4.5 standard errors."""
    known = {"W": {"0,1": priors.normal(0.3, 1e-4)}, "process_noise": priors.lognormal(0.4, 1e-4)}
    target = learn.ArTarget(BASE, seen(), known, particles=300)
    fit = learn.pmmh(target, steps=600, progress=False)
    paths, theta = fit.trajectories(1000)
    assert theta.sizes == {"path": len(paths), "parameter": 2}
    assert 300 < len(paths) <= int(theta.steps.sum()) == 601
    first, paths = paths[0], np.repeat(paths, theta.steps, axis=0)
    error = paths.mean(axis=0) - BASE.kalman(*seen()).smoothed_mean
    spread = np.stack([batch_error(paths[:, k]) for k in range(paths.shape[1])])
    assert (np.abs(error) < 4.5 * spread).all()
    again, _ = fit.trajectories(3)
    np.testing.assert_array_equal(again[0], first)


# The worm.

WORM = vpc.Worm()


def test_synapses_by_the_neurons_that_make_them():
    """g_syn of a group scales the synapses that it makes, as scaling their counts in the wiring does."""
    from vpc.connectome import find, index
    from vpc.neurons import conductances

    synapses, _, _ = conductances(WORM.connectome, WORM.parameters)
    changed, _, _ = conductances(WORM.connectome, WORM.with_parameters(g_syn={"GABA": 25.0, "AVA": 5.0}).parameters)
    factor = np.ones(302)
    factor[index(find("GABA"))], factor[index(find("AVA"))] = 2.5, 0.5
    np.testing.assert_allclose(changed, synapses * factor[None, :])


def test_parameters_of_groups_reach_the_worm():
    target = learn.WormTarget(WORM, record(WORM), {"w_s": None, "g_leak": {"AVA": None, "DB": priors.lognormal(90, 0.1)}})
    assert target.space.labels == ("w_s", "g_leak[AVA]", "g_leak[DB]")
    worm = target.living(np.array([8.0, 70.0, 110.0]))
    assert worm.parameters["w_s"] == 8.0
    assert dict(worm.parameters["g_leak"]) == {"all": 100.0, "AVA": 70.0, "DB": 110.0}
    assert str(target.space.priors["g_leak[AVA]"]) == "lognormal(100.0, 0.3) from 1 to 100000.0, log"


def test_evidence_of_the_target_is_that_of_the_model():
    """And the noise stays that of the worm as it was given."""
    from vpc.methods import build
    from vpc.sweep import model_of

    seen = record(WORM)
    target = learn.WormTarget(WORM, seen, ["w_s"])
    model = model_of(WORM, seen)
    model.worm = WORM.with_parameters(w_s=12.0)
    expected = build("ensemble", model, seen.values, seen.steps, 200, 5).run().log_evidence
    assert target(Sweep((12.0,), 5)) == (expected, "")
    back = learn.WormTarget(WORM, seen, ["w_s"], particles=40, look_back=2)
    expected = build("ensemble", model, seen.values, seen.steps, 40, 5, look_back=2).run().log_evidence
    assert back(Sweep((12.0,), 5)) == (expected, "") and back.identity != target.identity
    with pytest.raises(ValueError, match="look_back is for members of an ensemble, got 2 for method 'guided'"):
        learn.WormTarget(WORM, seen, ["w_s"], method="guided", look_back=2)
    assert target(Sweep((2000.0,), 5))[0] == -np.inf  # beyond what the worm allows, and told why
    assert "from 0 to 1000" in target(Sweep((2000.0,), 5))[1]


def test_the_command(capsys):
    from vpc.cli import main

    assert main(["learn", "--model", "ar", "--method", "pmmh", "--steps", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (one,) = result["restarts"]
    assert 20 * 5 < one["evaluations"] <= 20 * 5 + 3 * 5  # what is proposed beyond a bound costs nothing
    assert one["gap"] < 0
    assert len(result["truth"]["W"]) == 44
    assert main(["learn", "--model", "ar", "--method", "pmmh", "--samples", "3"]) == 2
    assert "--samples is for pmvo" in capsys.readouterr().err
    assert main(["learn", "--preset", "nose"]) == 2
    assert "did you mean 'noise'" in capsys.readouterr().err


def test_a_model_of_ones_own():
    """Whoever overrides `model` can search."""

    class Mine(learn.Target):
        def model(self, theta, widen=1.0):
            return Autoregressive(TURN, process_noise=float(theta[0]), observation_noise=0.5 * widen)

    mine = Mine(priors.Space({"noise": priors.uniform(0.1, 1.0)}), seen(), "bootstrap", 50)
    fit = learn.pmvo(mine, steps=3, progress=False)
    assert 0.1 <= fit.best["noise"] <= 1.0
    with Search(mine, {"search": "none"}) as search:
        assert search.evaluate(np.array([[0.2], [0.3]])).shape == (2,)
