"""Searches: killed and resumed, the same wherever they run, saved, and given what makes no sense."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from twins import BASE, Exact, exact, particles, record, seen

import vpc
from vpc import learn
from vpc.learn.targets import Sweep

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
import sys
sys.path.insert(0, {folder!r})
from twins import particles
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
        (lambda: learn.pmvo(WORM, record(WORM), ["w_ss"]), "'w_ss' is not a parameter of the worm; did you mean 'w_s'"),
        (lambda: learn.pmvo(WORM, record(WORM), ["w_m[AVA]"]), "w_m is one number for the whole worm"),
        (lambda: learn.pmvo(WORM, record(WORM), ["g_leak[AVX]"]), "did you mean 'AVA'"),
        (lambda: learn.pmvo(WORM, record(WORM), "w_s"), "parameters must be a list"),
        (lambda: learn.pmvo(WORM, record(WORM)), "parameters must say what to learn"),
        (lambda: learn.pmvo(WORM, record(WORM), ["w_s"], method="ensembl"), "did you mean 'ensemble'"),
        (lambda: learn.pmvo(WORM, record(WORM), ["w_s"], start={"w_s": -3.0}), "start lies outside the prior: w_s is -3"),
        (lambda: learn.pmvo(WORM, record(WORM), ["w_s"], start={"w_m": 3.0}), "it lacks w_s and has w_m too"),
        (lambda: learn.pmvo(WORM, record(WORM), ["w_s"], advantage="ranks"), "did you mean 'rank'"),
        (lambda: learn.pmvo(WORM, record(WORM), ["w_s"], rate=(1, 2, 3)), "rate must be a number or a pair"),
        (lambda: learn.pmvo(WORM, record(WORM), ["g_leak", "g_leak[AVA]"]), "both as a whole and for AVA"),
        (lambda: learn.pmvo(WORM, record(WORM), ["w_s"], particle=9), "did you mean 'particles'"),
        (lambda: learn.pmmh(WORM, record(WORM), ["w_s"], temperature=9), "temperature is not a setting"),
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
