"""The command line."""

import json

import pytest

from vpc import __version__, bench
from vpc.cli import main


@pytest.mark.parametrize("command", [[], ["demo"], ["bench"], ["lab"]])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0 and "usage: vpc" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.strip() == f"vpc {__version__}"


def test_demo_prints_one_json_object_and_nothing_else(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "page"), "--seconds", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (tmp_path / "page" / "index.html").stat().st_size > 1e5
    assert result["gaits"]["In water"]["frequency"] == pytest.approx(2.2, rel=0.05)
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["index.html"]


def test_json_has_no_nan(tmp_path, capsys):
    """Too short for a gait on agar: null, which every JSON parser reads."""
    assert main(["demo", "--out", str(tmp_path), "--seconds", "1.5", "--seed", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert result["gaits"]["On agar"]["frequency"] is None


def test_bad_input_is_one_line(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path), "--seconds", "-1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("vpc demo: seconds must be") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_lab_names_a_missing_folder(tmp_path, capsys):
    assert main(["lab", str(tmp_path / "nowhere")]) == 1
    assert "there is no folder" in capsys.readouterr().err


def test_bench_measures_and_explains():
    """A short run of everything that `vpc bench body` does; its figures are for reading, not for tests."""
    result = json.loads(json.dumps(bench.body(seconds=0.05, progress=False)))
    assert result["agar_us"] > 0 and result["by_steps"]["times_faster"] > 1
    assert "RK45" in bench.table(result)
