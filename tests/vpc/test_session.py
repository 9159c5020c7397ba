"""The rig without its widgets: what a session does, what it refuses, and that its code repeats it to the last bit."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import vpc
from vpc.branching import difference
from vpc.experiments import experiment
from vpc.protocol import Change, Held, Pulses, excerpt, inputs
from vpc.session import PRESETS, Session, select


@pytest.fixture(scope="module")
def run():
    return vpc.Worm().simulate(2, seed=1, progress=False)


@pytest.fixture(scope="module")
def posterior():
    worm = vpc.Worm()
    _, seen = experiment("noise", worm, seconds=0.5)
    return vpc.impute(worm, seen, particles=50, draws=20, progress=False)


def test_a_run_is_a_branch_with_its_control(run):
    session = Session(run, seconds=0.4, at=1.0)
    session.clamp(["AVAL"], "voltage", -60.0, start=0.1, stop=0.3)
    session.run()
    fan = session.fan
    same = vpc.branch(run, 1.0, session.setup.protocol, 0.4, seed=0, control=True, every=0.02, progress=False)
    xr.testing.assert_identical(fan, same)
    apart = difference(fan)["voltage"].isel(sample=0).sel(neuron="AVAL")
    assert (apart.sel(time=slice(0, 0.095)) == 0).all() and (apart.sel(time=slice(0.105, 0.4)) != 0).all()


def test_modes_of_neurons(run):
    session = Session(run, seconds=0.4)
    session.clamp(["AVAL", "AVAR"], "voltage", -60.0)
    session.clamp(["AVAR"], "current", 5.0)
    assert session.setup.protocol == (vpc.VoltageClamp("AVAL", -60), vpc.CurrentClamp("AVAR", 5))
    session.clamp(["AVAL"], "ablated")
    session.clamp(["AVAR"], "free")
    assert session.setup.protocol == (vpc.Ablate("AVAL"),)
    session.clamp(["DB3"], "voltage", Pulses(-20, 0.05, 0.1), start=0.1, stop=0.3, holding=-50)
    held = session.setup.protocol[1]
    assert held == vpc.VoltageClamp("DB3", Held(-50, Pulses(-20, 0.05, 0.1), 0.1, 0.3))
    session.run()
    fan = session.fan
    voltage = fan["voltage"].sel(arm="experiment", neuron="DB3").isel(sample=0, time=slice(0, -1)).values
    commanded = inputs([held], 40).command[::2, 0]
    np.testing.assert_array_equal(voltage, commanded)


def test_parameters_are_tuned_for_the_whole_run(run):
    session = Session(run, seconds=0.1)
    session.tune(w_s=5.0)
    session.tune(medium=0.5)
    assert session.setup.protocol == (Change({"w_s": 5.0, "medium": 0.5}),)
    assert session.tuned("w_s") == 5 and session.tuned("w_m") == vpc.Worm().parameters["w_m"]
    session.tune(w_s=vpc.Worm().parameters["w_s"], medium=1.0)
    assert session.setup.protocol == ()


def test_branch_step_rewind_reset(run):
    session = Session(run, seconds=0.2)
    with pytest.raises(ValueError, match="run first"):
        session.branch(0.1)
    session.run()
    first = session.fan
    session.branch(0.1)
    assert session.depth == 1 and session.setup.at == 0.1
    session.run()
    then = session.fan
    start = first.sel(arm="experiment", time=0.1)["voltage"].values
    np.testing.assert_array_equal(then["voltage"].sel(arm="experiment").isel(time=0).values, start)
    session.step()
    assert session.depth == 2 and session.setup.at == 0.2
    with pytest.raises(ValueError, match="at must be from 0 to 0.2 s"):
        session.branch(5.0)
    assert session.depth == 2
    session.rewind()
    assert session.fan is then
    session.reset()
    assert session.depth == 0 and session.last is None
    with pytest.raises(ValueError, match="nothing to rewind"):
        session.rewind()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"at": 9}, "at must be from 0 to 2 s"),
        ({"seconds": 0}, "seconds must be from 0.02 to 60 s"),
        ({"particles": 0}, "particles must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"protocol": [vpc.VoltageClamp("AVAL", 0, start=3)]}, "goes beyond the run"),
        ({"protocol": [vpc.VoltageClamp("AVAL", 0), vpc.CurrentClamp("AVAL", 0)]}, "overlapping clamps"),
        ({"colour": 1}, "a setup has at, seconds"),
    ],
)
def test_what_is_refused_changes_nothing(run, change, says):
    session = Session(run, seconds=0.2)
    session.run()
    last, before = session.last, session.setup
    with pytest.raises(ValueError, match=says):
        session.change(**change)
    assert session.setup == before and session.last is last


def test_a_living_worm_obeys_within_a_frame(run):
    session = Session(run, at=1.0)
    frames = [session.live() for _ in range(3)]
    for one, other in itertools.pairwise(frames):
        np.testing.assert_array_equal(one["body"].values[-1], other["body"].values[0])
    session.clamp(["AVAL"], "voltage", -60.0)
    np.testing.assert_array_equal(session.live()["voltage"].sel(neuron="AVAL").values, -60.0)
    session.end_live()
    np.testing.assert_array_equal(session.live()["body"].values[0], frames[0]["body"].values[0])


def test_a_life_in_pieces_is_the_same_life(run):
    """With a protocol whose clamps begin and end within frames, and noise."""
    actions = [
        vpc.VoltageClamp("AVAL", Pulses(-20, 0.02, 0.05), start=0.01, stop=0.08),
        vpc.CurrentClamp("DB3", 5, start=0.02),
        Change({"w_s": 5.0}, start=0.04, stop=0.1),
    ]
    session = Session(run, at=1.0, seconds=0.12, protocol=actions)
    pieces = [session.live() for _ in range(4)]
    whole = vpc.Worm().simulate(0.12, 0, protocol=actions, initial=run.sel(time=1.0), progress=False)
    for name in ("voltage", "body"):
        joined = np.concatenate([piece[name].values[:-1] for piece in pieces])
        np.testing.assert_array_equal(joined, whole[name].values[:-1])


def test_excerpts_leave_out_what_is_not_on():
    assert excerpt([vpc.VoltageClamp("AVAL", 0, start=0.5)], 100, 0, 3) == []


def test_views_of_a_posterior(posterior):
    session = Session(posterior, at=0.3, seconds=0.2, particles=20)
    session.clamp(["AVAL"], "voltage", -60.0, stop=0.1)
    session.run()
    view = session.view(["AVAL", "DB3"])
    assert view.bands.shape == (2, 5, 11) and view.known.shape[:2] == (2, 5)
    assert np.all(np.diff(view.bands, axis=1) >= 0)
    assert np.nanmax(view.past) == pytest.approx(0) and view.seen.shape == (2, len(view.seen_time))
    assert np.isfinite(view.seen[0]).all() and np.isnan(view.seen[1]).all()  # AVAL is among the 49, DB3 is not
    np.testing.assert_array_equal(np.isfinite(view.command[0]), view.time < 0.095)
    assert np.isfinite(view.current[0, :, :5]).all() and np.isnan(view.current[1]).all()
    trust = session.trust()
    assert "of 50 at 0.3 s" in trust["effective sample size"] and "approximate" in trust["log evidence"]
    assert trust["failed in this run"] == "0.0 % of 20 worms"


def test_iv_of_an_isolated_neuron_is_ohms_law():
    session = Session(vpc.Worm(), seconds=0.2)
    found = session.iv("CANL", -100, 20, 8)
    assert float(found["conductance"]) == pytest.approx(0.1, rel=1e-9)
    assert float(found["reversal"]) == pytest.approx(-35, rel=1e-9)


def test_a_family_is_the_same_from_the_rig_and_level_by_level(posterior):
    session = Session(posterior, at=0.3, seconds=0.2, particles=5)
    found = session.iv("AVAL", -60, 20, 3)["current"].sel(stat="mean").values
    for level, current in zip((-60, -40, -20), found, strict=True):
        clamp = vpc.VoltageClamp("AVAL", level)
        run = vpc.branch(posterior, 0.3, clamp, 0.2, particles=5, every=0.01, record=["voltage"], progress=False)
        assert run["current"].sel(clamp="AVAL").isel(time=slice(10, 20)).mean("time").mean("sample") == current


@pytest.mark.parametrize("kind", ["worm", "run", "posterior"])
def test_code_repeats_a_run_in_another_process(kind, run, posterior, tmp_path):
    source = {"worm": vpc.Worm("lively", parameters={"w_s": 9.0}, ablated=["RIS"]), "run": run, "posterior": posterior}[kind]
    session = Session(source, seconds=0.2)
    session.clamp(["AVAL"], "voltage", Pulses(-20, 0.02, 0.05, -40), start=0.02, stop=0.15, holding=-50)
    session.clamp(["DB3"], "ablated")
    session.tune(medium=0.5)
    session.run()
    session.branch(0.1)
    session.clamp(["PLML"], "current", 5.0)
    session.run()
    fan = session.fan
    code = session.code(tmp_path)
    assert code == session.code(tmp_path)  # the source is saved once
    end = f"\nvpc.store.save_dataset(fan, {str(tmp_path / 'fan.zarr')!r})"
    subprocess.run([sys.executable, "-c", code + end], check=True, cwd=tmp_path)
    again = vpc.store.open_dataset(tmp_path / "fan.zarr")
    for name in ("voltage", "calcium", "body", "current"):
        np.testing.assert_array_equal(again[name].values, fan[name].values)


def test_code_and_curves_are_of_the_last_good_run(run, tmp_path):
    """Whatever has been set since, or has failed."""
    session = Session(run, seconds=0.2)
    session.run()
    code, view = session.code(tmp_path), session.view(["DB3"])
    for name in ("DB3", "DB4", "VB4"):
        session.clamp([name], "current", 1000.0)
    with pytest.raises(ValueError, match="all worms fail within 0.2 s: a voltage beyond 250 mV"):
        session.run()
    assert session.code(tmp_path) == code
    for one, other in zip(session.view(["DB3"]), view, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_living_worm_that_fails_is_told_and_begins_anew(run):
    session = Session(run, at=1.0)
    first = session.live()
    session.clamp(["DB3"], "current", 1000.0)
    with pytest.raises(ValueError, match="the worm has failed, and begins anew: a voltage beyond 250 mV"):
        for _ in range(20):
            session.live()
    session.clamp(["DB3"], "free")
    xr.testing.assert_identical(session.live(), first)


def test_a_life_with_a_very_short_protocol(run):
    session = Session(run, seconds=0.02, protocol=[vpc.VoltageClamp("AVAL", -60)])
    assert (session.live()["voltage"].sel(neuron="AVAL").values[:2] == -60).all()


def test_neurons_are_found():
    assert select("AVA") == ["AVAL", "AVAR"] and select("ava") == ["AVAL", "AVAR"]
    assert set(select("DB, VB")) == set(select(", ".join(PRESETS["B-type"]))) and len(select("DB, VB")) == 18
    assert len(select("observed", vpc.KATO_NEURONS)) == 49 and len(select("unobserved", vpc.KATO_NEURONS)) == 253
    assert set(select("observed motor", vpc.KATO_NEURONS)) == set(select("motor")) & set(vpc.KATO_NEURONS)
    assert select("nothing of the kind") == [] and len(select("Kato")) == 0
