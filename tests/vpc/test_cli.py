"""The command line."""

import json

import pytest
import xarray as xr

import vpc
from vpc import __version__, bench, protocol
from vpc.cli import main
from vpc.store import open_dataset


@pytest.mark.parametrize("command", [[], ["demo"], ["simulate"], ["impute"], ["bench"], ["lab"], ["rig"]])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0 and "usage: vpc" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == f"vpc {__version__}"


def test_bad_input_is_one_line(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path), "--seconds", "-1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("vpc demo: seconds must be") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_simulate_writes_what_the_library_gives(tmp_path, capsys):
    out, actions = tmp_path / "run.zarr", tmp_path / "protocol.json"
    actions.write_text(protocol.dumps(vpc.VoltageClamp("AVAL", -20)))
    assert main(["simulate", "--seconds", "1", "--seed", "3", "--out", str(out), "--protocol", str(actions), "--json"]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert result["out"] == str(out) and result["failed"] == 0 and result["voltage_mv"][0] > -80
    run = open_dataset(out)
    xr.testing.assert_identical(run.load(), vpc.Worm().simulate(1, seed=3, protocol=vpc.VoltageClamp("AVAL", -20)))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_simulate_explains(tmp_path, capsys):
    assert main(["simulate", "--seconds", "3", "--n", "2", "--noise", "0.1", "--every", "0.05"]) == 0
    out = capsys.readouterr().out
    assert "2 worms for 3 s" in out and "0 failed" in out and "mV" in out and "Hz" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seconds", "0"], "seconds must be"),
        (["--variant", "lifely"], "did you mean 'lively'"),
        (["--medium", "3"], "medium must be from 0 to 1"),
        (["--protocol", "nowhere.json"], "nowhere.json"),
        (["--seconds", "0.1", "--out", "taken"], "taken exists and is not a result"),
    ],
)
def test_simulate_refuses_bad_input_in_one_line(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    assert main(["simulate", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("vpc simulate: ") and message in error and error.count("\n") == 1
    assert (tmp_path / "taken").read_text() == "mine"


def test_lab_names_a_missing_folder(tmp_path, capsys):
    assert main(["lab", str(tmp_path / "nowhere")]) == 1
    assert "there is no folder" in capsys.readouterr().err


def test_bench_measures_and_explains():
    """A short run of everything that `vpc bench body` does; its figures are for reading, not for tests."""
    result = json.loads(json.dumps(bench.body(seconds=0.05, progress=False)))
    assert result["agar_us"] > 0 and result["by_steps"]["times_faster"] > 1
    assert "RK45" in bench.body_table(result)


def test_bench_worm_measures_and_explains(monkeypatch):
    """With few worms for a tenth of a second in the place of many, and once instead of the quickest of some."""
    quickest, measured = bench._quickest, bench._worm_seconds
    monkeypatch.setattr(bench, "_worm_seconds", lambda worm, n, s, *way: n * s / 1.6 * measured(worm, 16, 0.1, *way))
    monkeypatch.setattr(bench, "_quickest", lambda run, repeats: quickest(run, 1))
    result = json.loads(json.dumps(bench.worm(progress=False)))
    assert result["numpy_us"] > 10 * result["quiet_us"] and result["thousand_worms_5_s"] > 0
    assert "1000 noisy worms" in bench.worm_table(result)


def test_impute_prints_the_contract(tmp_path, capsys):
    """A run on disk, its own worm, and a score beside the unconditioned one."""
    run = str(tmp_path / "run.zarr")
    assert main(["simulate", "--seconds", "0.5", "--variant", "lively", "--out", run, "--json"]) == 0
    capsys.readouterr()
    out = str(tmp_path / "post.zarr")
    small = ["--particles", "50", "--init-particles", "60", "--json"]
    assert main(["impute", run, "--out", out, *small]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"wall_seconds", "core_seconds", "log_evidence", "min_ess", "failed", "score", "score_unconditioned"} <= set(result)
    names = {"r_unobserved_motor", "r_unobserved_active", "nrmse_unobserved_motor", "r_body", "coverage90"}
    assert set(result["score"]) == set(result["score_unconditioned"]) == names
    assert vpc.open_posterior(out).worm.variant == "lively"
    assert main(["impute", "--preset", "noise", "--seconds", "0.5", *small]) == 0
    assert json.loads(capsys.readouterr().out)["particles"] == 50
    assert main(["impute", run, "--preset", "paper"]) == 2 and "not both" in capsys.readouterr().err
    assert main(["impute", out]) == 2 and "run must be the run of one worm" in capsys.readouterr().err
