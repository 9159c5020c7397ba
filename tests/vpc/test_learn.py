"""Learning: against Kalman's evidence on the linear-Gaussian twin, by simulation-based calibration, and killed and resumed."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from parallel import apart
from scipy import stats
from twins import BASE, PRIORS, TURN, seen

import vpc
from vpc import learn
from vpc.autoregressive import Autoregressive
from vpc.learn import priors
from vpc.learn.pmvo import ADVANTAGES, _pairs
from vpc.learn.search import Search
from vpc.learn.targets import Sweep


def particles(n=60, **data):
    return learn.ArTarget(BASE, seen(**data), PRIORS, particles=n)


class Exact(learn.ArTarget):
    """The twin with Kalman's evidence."""

    def __call__(self, sweep):
        model = self.model(np.array(sweep.theta), sweep.widen)
        return model.kalman(*self.observations).log_evidence, ""


def exact(**data):
    return Exact(BASE, seen(**data), PRIORS)


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


# The same result, however it is computed.

SMALL = {
    "pmvo": (learn.pmvo, {"steps": 6, "samples": 3, "sweeps": 2}),
    "pmmh": (learn.pmmh, {"steps": 12, "sweeps": 2, "adapt": True}),
    "pt": (learn.parallel_tempering, {"steps": 6, "temperatures": (2.0, 1.0)}),
}


@pytest.mark.parametrize("name", list(SMALL))
def test_killed_anywhere_and_resumed_is_bitwise_the_same(name, tmp_path):
    """The journal is cut after each line, and within one: what is resumed from it ends as if nothing had happened."""
    search, plan = SMALL[name]
    whole, file = search(particles(), **plan, seed=3, checkpoint=tmp_path / "a.jsonl", progress=False), tmp_path / "a.jsonl"
    text = file.read_bytes()
    ends = [k + 1 for k, byte in enumerate(text) if byte == ord("\n")]
    for cut in [*ends, ends[2] + 7, len(text) - 1]:
        other = tmp_path / f"{cut}.jsonl"
        other.write_bytes(text[:cut])
        again = search(particles(), **plan, seed=3, checkpoint=other, progress=False)
        assert again.dataset.identical(whole.dataset)
        assert other.read_bytes() == text


def test_a_chain_can_go_on_for_longer(tmp_path):
    short = learn.pmmh(particles(), steps=5, checkpoint=tmp_path / "a.jsonl", progress=False)
    longer = learn.pmmh(particles(), steps=9, checkpoint=tmp_path / "a.jsonl", progress=False)
    assert longer.trace.isel(step=slice(0, 6)).equals(short.trace)
    assert longer.dataset.identical(learn.pmmh(particles(), steps=9, progress=False).dataset)


SCRIPT = """
import sys, numpy as np
sys.path.insert(0, {folder!r})
from test_learn import SMALL, particles
from vpc import learn
learn.pmvo(particles(), steps=4000, samples=3, checkpoint={path!r}, progress=False)
"""


def test_a_process_that_is_killed_loses_a_step_at_most(tmp_path):
    """SIGKILL in the middle of a search; the journal's complete lines are those of an undisturbed one."""
    path = tmp_path / "a.jsonl"
    script = SCRIPT.format(folder=str(Path(__file__).parent), path=str(path))
    process = subprocess.Popen([sys.executable, "-c", script])
    end = time.monotonic() + 300
    while not (path.exists() and path.read_bytes().count(b"\n") > 40):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    lines = path.read_bytes().split(b"\n")[:-1]
    fresh = tmp_path / "b.jsonl"
    with pytest.raises(Stop):
        learn.pmvo(
            particles(), steps=4000, samples=3, checkpoint=fresh, progress=False, watch=lambda trace: stop_after(trace, 40)
        )
    other = fresh.read_bytes().split(b"\n")[:-1]
    assert lines[: len(other)] == other[: len(lines)]


class Stop(Exception):
    """Enough."""


def stop_after(trace, steps):
    if trace.sizes["step"] > steps:
        raise Stop


@pytest.mark.parametrize("kind", ["threads", "local"])
def test_where_it_runs_does_not_matter(kind):
    plan = {"steps": 4, "samples": 3, "progress": False}
    with vpc.cluster.connect("serial") as here, vpc.cluster.connect(kind, workers=2) as there:
        one, other = (learn.pmvo(particles(), **plan, cluster=cluster) for cluster in (here, there))
    assert one.dataset.identical(other.dataset)


def test_paths_of_a_tempered_chain_are_those_of_its_states():
    """States may come by a swap, or be the start: each has the seed of the sweep that gave its evidence."""
    target = particles()
    fit = learn.parallel_tempering(target, steps=60, temperatures=(2.0, 1.0), width=1.0, sweeps=1, progress=False)
    _, theta = fit.trajectories(1000)
    cold = fit.dataset.isel(chain=-1)
    assert int(theta.steps.sum()) == 61
    for value, seed, score in zip(cold["value"].values, cold["sweep_seed"].values, cold["score"].values, strict=True):
        again = target(Sweep(tuple(value.tolist()), int(seed)))[0] + target.space.log_prior(value)
        assert again == pytest.approx(score, abs=1e-9)


def test_a_fit_is_saved_and_opened(tmp_path):
    fit = learn.parallel_tempering(particles(), steps=4, progress=False)
    fit.save(tmp_path / "fit.zarr")
    again = learn.open_fit(tmp_path / "fit.zarr")
    assert again.dataset.identical(fit.dataset)
    assert again.best == fit.best
    assert repr(again) == repr(fit)
    way = fit.progress(5)
    assert (np.diff(way["score"]) >= 0).all()
    assert way["score"].values[-1] == fit.best_score
    with pytest.raises(ValueError, match="open_fit.path, target="):
        again.trajectories()
    with pytest.raises(ValueError, match="not a fit"):
        vpc.store.save_dataset(fit.dataset.drop_vars("best"), tmp_path / "x.zarr")
        learn.open_fit(tmp_path / "x.zarr")
    with pytest.raises(ValueError, match="target is not that of"):
        learn.open_fit(tmp_path / "fit.zarr", particles(61))
    learn.pmmh(particles(), steps=1, checkpoint=tmp_path / "c.zarr", progress=False)
    with pytest.raises(ValueError, match="may be a checkpoint"):
        learn.open_fit(tmp_path / "c.zarr")


def test_progress_shows_objective_and_parameters(capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    traces = []
    learn.pmvo(exact(), steps=3, watch=traces.append)
    shown = capfd.readouterr().err
    assert "pmvo" in shown
    assert "objective" in shown
    assert "process_noise" in shown
    assert traces[-1].sizes["step"] == 4


# Bad input.

WORM = vpc.Worm()


def nothing_lives(self, sweep):
    return -np.inf, "body has left the plane" if sweep.seed % 2 else "a voltage is beyond 250 mV"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: learn.pmvo(WORM, record(), ["w_ss"]), "'w_ss' is not a parameter of the worm; did you mean 'w_s'"),
        (lambda: learn.pmvo(WORM, record(), ["w_m[AVA]"]), "w_m is one number for the whole worm"),
        (lambda: learn.pmvo(WORM, record(), ["g_leak[AVX]"]), "did you mean 'AVA'"),
        (lambda: learn.pmvo(WORM, record(), "w_s"), "parameters must be a list"),
        (lambda: learn.pmvo(WORM, record()), "parameters must say what to learn"),
        (lambda: learn.pmvo(WORM, record(), ["w_s"], method="ensembl"), "did you mean 'ensemble'"),
        (lambda: learn.pmvo(WORM, record(), ["w_s"], start={"w_s": -3.0}), "start lies outside the prior: w_s is -3"),
        (lambda: learn.pmvo(WORM, record(), ["w_s"], start={"w_m": 3.0}), "it lacks w_s and has w_m too"),
        (lambda: learn.pmvo(WORM, record(), ["w_s"], advantage="ranks"), "did you mean 'rank'"),
        (lambda: learn.pmvo(WORM, record(), ["w_s"], rate=(1, 2, 3)), "rate must be a number or a pair"),
        (lambda: learn.pmvo(WORM, record(), ["g_leak", "g_leak[AVA]"]), "both as a whole and for AVA"),
        (lambda: learn.pmvo(WORM, record(), ["w_s"], particle=9), "did you mean 'particles'"),
        (lambda: learn.pmmh(WORM, record(), ["w_s"], temperature=9), "temperature is not a setting"),
        (lambda: learn.pmvo(WORM, 3, ["w_s"]), "recording must be a vpc.Recording"),
        (lambda: learn.pmvo(3, 3, ["w_s"]), "model must be a vpc.Worm"),
        (lambda: learn.pmvo(BASE, seen(), ["W[1,0]"]), "W.i,j. has i < j < 2"),
        (lambda: learn.pmvo(BASE, seen(), ["process_nois"]), "did you mean 'process_noise'"),
        (lambda: learn.pmvo(BASE, 3), "recording must be vpc.learn.Observations"),
        (lambda: learn.pmvo(particles(), seen()), "model is a target"),
        (lambda: learn.pmmh(particles(), width=0), "width must be a positive number"),
        (lambda: learn.parallel_tempering(particles(), temperatures=(2, 3, 1)), "that fall to 1"),
        (lambda: learn.parallel_tempering(particles(), temperatures=2.0), "that fall to 1"),
        (lambda: learn.pmvo(exact(), steps=2, progress=False).draws, "this fit is an optimum"),
        (lambda: vpc.cluster.connect("thread"), "did you mean 'threads'"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def record():
    from vpc.experiments import experiment

    return experiment("noise", WORM, seconds=0.2).recording


def test_when_every_draw_fails_the_reasons_are_counted(monkeypatch):
    monkeypatch.setattr(Exact, "__call__", nothing_lives)
    with pytest.raises(
        ValueError, match=r"all 9 draws from the prior failed.* x a voltage is beyond 250 mV.*Narrow the priors"
    ):
        learn.pmvo(exact(), progress=False)
    with pytest.raises(ValueError, match=r"start failed.*1 x "):
        learn.pmmh(exact(), start={"W": {"0,1": 0.3}, "process_noise": 0.4}, progress=False)


def test_bad_arguments_leave_no_checkpoint(tmp_path):
    for bad in ({"checks": 0}, {"draws": 0}, {"start": {"W": {"0,1": 9.9}, "process_noise": -1.0}}, {"rate": -1}):
        with pytest.raises(ValueError, match="must be|outside"):
            learn.pmvo(particles(), **bad, checkpoint=tmp_path / "a.jsonl", progress=False)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_whose_points_are_others_is_refused(tmp_path):
    file = tmp_path / "a.jsonl"
    learn.pmvo(particles(), steps=2, samples=2, checkpoint=file, progress=False)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], lines[2], *lines[2:]]))
    with pytest.raises(ValueError, match="its line 2 has other points"):
        learn.pmvo(particles(), steps=2, samples=2, checkpoint=file, progress=False)


def test_a_checkpoint_that_two_have_written_at_once(tmp_path):
    """As when a cluster gives a task to another worker while the first still runs."""
    file, plan = tmp_path / "a.jsonl", {"steps": 3, "samples": 2, "progress": False}
    wanted = learn.pmvo(particles(), **plan, checkpoint=file)
    head, *lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([head, lines[0], lines[0], lines[1], lines[2], lines[1], lines[2]]))
    assert learn.pmvo(particles(), **plan, checkpoint=file).dataset.identical(wanted.dataset)


def test_when_nothing_but_the_start_lives(monkeypatch):
    """Samples that all fail move nothing, and the result says so."""
    real, start = Exact.__call__, {"W": {"0,1": 0.3}, "process_noise": 0.4}
    calls = iter(range(1000))
    monkeypatch.setattr(Exact, "__call__", lambda self, sweep: (-np.inf, "no") if next(calls) else real(self, sweep))
    with pytest.warns(UserWarning, match=r"its start is all it found: \d+ x no"):
        fit = learn.pmvo(exact(), steps=3, start=start, advantage="rank", progress=False)
    assert fit.best == start
    assert np.isnan(fit.trace["objective"].values).all()


def test_samples_that_fail_are_survived(monkeypatch):
    """Half of the plane gives no evidence: the search stays in the other, and counts."""
    real = Exact.__call__
    monkeypatch.setattr(
        Exact, "__call__", lambda self, sweep: (-np.inf, "too quick") if sweep.theta[0] > 0.3 else real(self, sweep)
    )
    fit = learn.pmvo(exact(), steps=30, progress=False)
    assert fit.best["W"]["0,1"] < 0.32
    assert fit.failures["too quick"] > 0
    assert np.isfinite(fit.trace["objective"].values[1:]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "settings"),
        ({"steps": 3}, "settings"),
        ({"target": particles(61)}, "particles is 60, here 61"),
        ({"target": particles(seed=9)}, "observations"),
    ],
)
def test_a_checkpoint_of_another_search_is_left_alone(change, words, tmp_path):
    file = tmp_path / "a.jsonl"
    learn.pmvo(particles(), steps=2, samples=2, checkpoint=file, progress=False)
    before = file.read_bytes()
    settings = {"target": particles(), "steps": 2, "samples": 2, "checkpoint": file, "progress": False} | change
    with pytest.raises(ValueError, match=f"is of another search.*{words}"):
        learn.pmvo(settings.pop("target"), **settings)
    assert file.read_bytes() == before


def test_a_checkpoint_of_another_version_or_program_is_left_alone(tmp_path):
    file = tmp_path / "a.jsonl"
    learn.pmvo(particles(), steps=2, samples=2, checkpoint=file, progress=False)
    old = file.read_text().replace(vpc.__version__, "0.0.1", 1)
    for text, words in [
        (old, "its version is '0.0.1'"),
        ("my diary\n", "is not a checkpoint"),
        ('{"a": 1}\n', "is not a checkpoint"),
    ]:
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            learn.pmvo(particles(), steps=2, samples=2, checkpoint=file, progress=False)
        assert file.read_text() == text


# The worm.


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
    target = learn.WormTarget(WORM, record(), {"w_s": None, "g_leak": {"AVA": None, "DB": priors.lognormal(90, 0.1)}})
    assert target.space.labels == ("w_s", "g_leak[AVA]", "g_leak[DB]")
    worm = target.living(np.array([8.0, 70.0, 110.0]))
    assert worm.parameters["w_s"] == 8.0
    assert dict(worm.parameters["g_leak"]) == {"all": 100.0, "AVA": 70.0, "DB": 110.0}
    assert str(target.space.priors["g_leak[AVA]"]) == "lognormal(100.0, 0.3) from 1 to 100000.0, log"


def test_evidence_of_the_target_is_that_of_the_model():
    """And the noise stays that of the worm as it was given."""
    from vpc.methods import build
    from vpc.sweep import model_of

    seen = record()
    target = learn.WormTarget(WORM, seen, ["w_s"])
    model = model_of(WORM, seen)
    model.worm = WORM.with_parameters(w_s=12.0)
    expected = build("ensemble", model, seen.values, seen.steps, 200, 5).run().log_evidence
    assert target(Sweep((12.0,), 5)) == (expected, "")
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
