"""CSV and NWB, read back."""

import csv
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pynwb
import pytest
import xarray as xr

import vpc
from vpc import curves
from vpc.export import SESSION_START, write_csv, write_nwb

WORM = vpc.Worm()
CLAMPS = [vpc.VoltageClamp("AVAL", -20, start=0.1, stop=0.3), vpc.VoltageClamp("AVAR", vpc.protocol.Ramp(-60, 0))]


@pytest.fixture(scope="module")
def run() -> xr.Dataset:
    return WORM.simulate(0.4, protocol=CLAMPS, record=["voltage"])


@pytest.fixture(scope="module")
def fan() -> xr.Dataset:
    return vpc.branch(WORM, protocol=CLAMPS, seconds=0.4, particles=3, control=True)


def table(path) -> dict[str, np.ndarray]:
    """Columns of a file; empty cells are NaN."""
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    return {name: np.array([float(row[k] or "nan") for row in rows]) for k, name in enumerate(head)}


def nwb(path) -> Iterator[tuple[pynwb.NWBFile, dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """A file that obeys the standard, and its responses and stimuli in SI units."""
    assert not pynwb.validate(path=str(path))
    with pynwb.NWBHDF5IO(path, "r") as io:
        file = io.read()
        parts = [
            {n: s.conversion * s.data[:] + s.offset for n, s in part.items()} for part in (file.acquisition, file.stimulus)
        ]
        yield file, *parts


def test_csv_of_a_run(run, tmp_path):
    path = write_csv(run, tmp_path / "deep" / "run.csv", ["DB3", "AVAL"])
    columns = table(path)
    assert list(columns) == ["time s", "DB3 mV", "AVAL mV", "AVAL pA", "AVAR pA"]
    np.testing.assert_array_equal(columns["time s"], run["time"])
    for name in ("DB3", "AVAL"):
        np.testing.assert_array_equal(columns[f"{name} mV"], run["voltage"].sel(neuron=name))
    for name in ("AVAL", "AVAR"):
        np.testing.assert_array_equal(columns[f"{name} pA"], run["current"].sel(clamp=name))
    assert np.isnan(columns["AVAL pA"][0]) and not np.isnan(columns["AVAL pA"][10])
    assert [entry.name for entry in path.parent.iterdir()] == ["run.csv"]


def test_csv_of_many_worms(fan, tmp_path):
    one = fan.sel(arm="experiment")
    columns = table(write_csv(one, tmp_path / "fan.csv", "DB3"))
    heads = [f"{what} {stat}" for what in ("DB3 mV", "AVAL pA", "AVAR pA") for stat in ("mean", "q05", "q95")]
    assert list(columns) == ["time s", *heads]
    voltage = one["voltage"].sel(neuron="DB3").values
    np.testing.assert_allclose(columns["DB3 mV mean"], voltage.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(columns["DB3 mV q05"], np.quantile(voltage, 0.05, axis=0), rtol=1e-14)
    np.testing.assert_allclose(columns["DB3 mV q95"], np.quantile(voltage, 0.95, axis=0), rtol=1e-14)
    np.testing.assert_allclose(columns["AVAR pA mean"], one["current"].sel(clamp="AVAR").values.mean(axis=0), rtol=1e-12)
    assert list(table(write_csv(fan.sel(arm="control"), tmp_path / "control.csv", "DB3"))) == ["time s", *heads[:3]]


def test_nwb_of_a_run(run, tmp_path):
    path = write_nwb(run, tmp_path / "run.nwb", ["DB3"])
    for file, responses, stimuli in nwb(path):
        assert set(responses) == {"AVAL current", "AVAL voltage", "AVAR current", "DB3 voltage"}
        assert set(stimuli) == {"AVAL command", "AVAR command"} and set(file.icephys_electrodes) == {"AVAL", "AVAR", "DB3"}
        for name in ("AVAL", "DB3"):
            volts = 1e-3 * run["voltage"].sel(neuron=name)
            np.testing.assert_allclose(responses[f"{name} voltage"], volts, rtol=1e-15)
        for name in ("AVAL", "AVAR"):
            amperes = 1e-12 * run["current"].sel(clamp=name)
            np.testing.assert_allclose(responses[f"{name} current"], amperes, rtol=1e-15)
        expected = np.full(41, np.nan)
        expected[10:30] = -0.02
        np.testing.assert_allclose(stimuli["AVAL command"], expected, rtol=1e-15)
        np.testing.assert_allclose(stimuli["AVAR command"], [*np.linspace(-0.06, 0, 40), np.nan], rtol=1e-12, atol=1e-15)
        kinds = {name: type(series).__name__ for name, series in (file.acquisition | file.stimulus).items()}
        assert kinds["AVAL current"] == "VoltageClampSeries" and kinds["DB3 voltage"] == "CurrentClampSeries"
        assert kinds["AVAL command"] == "VoltageClampStimulusSeries"
        held = file.acquisition["AVAL current"]
        assert held.unit == "amperes" and file.acquisition["DB3 voltage"].unit == file.stimulus["AVAL command"].unit == "volts"
        assert (
            held.rate == 100 and held.starting_time == 0 and held.electrode.name == "AVAL" and "simulated" in held.description
        )
        assert held.electrode.device.name == "virtual patch clamp" and list(file.devices) == ["virtual patch clamp"]
        assert file.session_start_time == SESSION_START == datetime(2000, 1, 1, tzinfo=UTC)
        assert "simulated" in file.session_description and file.protocol == run.attrs["protocol"]
        rows = file.intracellular_recordings.to_dataframe()
        first = rows.iloc[0]
        assert first[("responses", "response")].timeseries.name == "AVAL current" and len(rows) == 4
        assert first[("stimuli", "stimulus")].timeseries.name == "AVAL command"


def test_nwb_of_many_worms(fan, tmp_path):
    """Each has its own series; at 50 ms a frame, and a date of its own."""
    one = fan.sel(arm="experiment").assign_attrs(session_start_time="2026-01-02T03:04:05+00:00")
    for file, responses, stimuli in nwb(write_nwb(one, tmp_path / "fan.nwb")):
        assert set(file.icephys_electrodes) == {"AVAL", "AVAR"} and len(responses) == 9 and len(stimuli) == 6
        for k in range(3):
            amperes = 1e-12 * one["current"].sel(clamp="AVAR").values[k]
            np.testing.assert_allclose(responses[f"AVAR current of worm {k}"], amperes, rtol=1e-15)
            assert file.acquisition[f"AVAR current of worm {k}"].sweep_number == k
        assert file.acquisition["AVAR current of worm 0"].rate == 20
        assert file.session_start_time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_nwb_of_a_level_of_a_family_and_of_uneven_frames(tmp_path):
    seen = curves.record_family(WORM, vpc.StepFamily("CANL", -60, 30, 2), 0.1).isel(level=1, time=[0, 1, 3, 7])
    for file, responses, _ in nwb(write_nwb(seen, tmp_path / "level.nwb")):
        assert set(responses) == {"CANL current of worm 0"}
        np.testing.assert_allclose(responses["CANL current of worm 0"], 0.1e-12 * (-30 + 35), rtol=1e-12)
        np.testing.assert_allclose(file.acquisition["CANL current of worm 0"].timestamps[:], [0, 0.01, 0.03, 0.07])


@pytest.mark.parametrize("write", [write_csv, write_nwb])
def test_bad_input_leaves_the_old_file(write, run, fan, tmp_path):
    path = write(run, tmp_path / "file.nwb", ["DB3"])
    old = path.read_bytes()
    bad = [
        (run, ["DB33"], "neurons must be among those of the run, got 'DB33'; did you mean 'DB3'?"),
        (fan, ["DB3"], r"holds several along 'arm': write each, as run.sel\(arm='experiment'\)"),
        (curves.record_family(WORM, vpc.StepFamily("CANL", 0, 1, 2), 0.1), ["CANL"], "several along 'level'"),
        (run.drop_vars("voltage"), ["DB3"], "run must be a run or a branch that holds the voltage"),
        ("run.zarr", ["DB3"], "run must be a run or a branch that holds the voltage"),
    ]
    for source, neurons, message in bad:
        with pytest.raises(ValueError, match=message):
            write(source, path, neurons)
    assert path.read_bytes() == old and [entry.name for entry in tmp_path.iterdir()] == ["file.nwb"]
    with pytest.raises(ValueError, match="neurons must be named, as nothing is under voltage clamp"):
        write_nwb(fan.sel(arm="control"), path)


def test_a_writer_that_breaks_off_leaves_the_old_file(run, tmp_path, monkeypatch):
    path = write_nwb(run, tmp_path / "run.nwb")
    old = path.read_bytes()
    monkeypatch.setattr(pynwb.NWBHDF5IO, "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_nwb(run, path)
    assert path.read_bytes() == old and [entry.name for entry in tmp_path.iterdir()] == ["run.nwb"]


def test_without_pynwb_one_is_told_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynwb", None)
    with pytest.raises(ImportError, match=r"pip install virtual-patch-clamp\[data\]"):
        write_nwb(run, tmp_path / "run.nwb")
    assert list(tmp_path.iterdir()) == []
