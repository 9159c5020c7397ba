"""`vpc rig`, up to where Voilà takes over; `test_rig_browser.py` goes on from there."""

import ast

import pytest
import xarray as xr

from vpc import rig_app
from vpc.cli import main
from vpc.store import save_dataset


@pytest.mark.parametrize(("name", "reader"), [("draws", "vpc.open_posterior"), ("voltage", "vpc.store.open_dataset")])
def test_the_cell_opens_what_was_named(name, reader, tmp_path, monkeypatch):
    """Whatever the folder is called: a quote and a backslash do not end the literal."""
    monkeypatch.chdir(tmp_path)
    path = save_dataset(xr.Dataset({name: ("time", [1.0, 2.0])}), """it's "my\\run".zarr""")
    moved, shown = ast.parse(rig_app.cell(str(path))).body[-2:]
    assert ast.literal_eval(moved.value.args[0]) == str(tmp_path)
    (opened,) = shown.value.args
    assert ast.unparse(opened.func) == reader and ast.literal_eval(opened.args[0]) == str(tmp_path / path)
    assert rig_app.cell(None).endswith("\nvpc.ClampRig()")


@pytest.mark.parametrize(
    ("options", "message"),
    [(["nowhere.zarr"], "there is no nowhere.zarr"), (["--port", "70000"], "port must be from 1 to 65535")],
)
def test_bad_input_is_one_line(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["rig", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"vpc rig: {message}") and error.count("\n") == 1


def test_says_what_to_install_without_voila(monkeypatch, capsys):
    monkeypatch.setattr(rig_app, "find_spec", lambda name: None)
    assert main(["rig"]) == 1
    assert "pip install virtual-patch-clamp[notebooks]" in capsys.readouterr().err
