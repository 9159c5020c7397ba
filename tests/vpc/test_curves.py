"""Families of steps: Ohm's law, rates, waveforms, and the same numbers from Python and from the command line."""

import itertools
import json

import numpy as np
import pytest
import xarray as xr

import vpc
from vpc import curves, protocol
from vpc.cli import main
from vpc.protocol import Held, Noise, Ramp, Samples, Sine, Steps, from_csv
from vpc.store import open_dataset, save_dataset

WORM = vpc.Worm()
PASSIVE = ("CANL", "CANR", "VC6")  # without connections: a leak of 0.1 nS that reverses at -35 mV


@pytest.mark.parametrize("neuron", PASSIVE)
@pytest.mark.parametrize("holding", [None, -60.0])
def test_ohms_law_in_voltage_clamp(neuron, holding):
    family = vpc.StepFamily(neuron, -80, 20, 6, start=0.1, stop=0.3, holding=holding)
    seen = curves.record_family(WORM, family, 0.4, particles=2)
    level, current = seen["level"], seen["current"].sel(clamp=neuron)
    step = current.sel(time=slice(0.095, 0.295))
    assert step.sizes["time"] == 20 and current.attrs["units"] == "pA" and level.attrs["units"] == "mV"
    np.testing.assert_allclose(step, (0.1 * (level + 35)).broadcast_like(step), rtol=1e-13, atol=1e-13)
    before = current.sel(time=slice(0, 0.095))
    assert before.isnull().all() if holding is None else np.allclose(before, 0.1 * (holding + 35), rtol=1e-13)
    curve = curves.iv(seen, (0.1, 0.3))
    for stat in ("mean", "q05", "q95"):
        np.testing.assert_allclose(curve["current"].sel(stat=stat), 0.1 * (level + 35), rtol=1e-13, atol=1e-13)
    assert float(curve["conductance"]) == pytest.approx(0.1, rel=1e-13)
    assert float(curve["reversal"]) == pytest.approx(-35, rel=1e-13)
    assert curve["current"].attrs["units"] == "pA" and curve["conductance"].attrs["units"] == "nS"


@pytest.mark.parametrize("neuron", PASSIVE)
def test_ohms_law_in_current_clamp(neuron):
    """After 4 s, 40 time constants, V = E + I / G."""
    seen = curves.record_family(WORM, vpc.StepFamily(neuron, -4, 2, 5, clamp="current"), 5, particles=2)
    assert "current" not in seen and seen["level"].attrs["units"] == "pA"
    curve = curves.iv(seen, (4, 5))
    expected = -35 + seen["level"] / 0.1
    np.testing.assert_allclose(curve["voltage"].sel(stat="mean"), expected, rtol=1e-12)
    assert float(curve["conductance"]) == pytest.approx(0.1, rel=1e-12)
    assert float(curve["reversal"]) == pytest.approx(-35, rel=1e-12)


def test_a_window_after_the_step_sees_the_capacitor_discharge():
    """The mean of E + (level - E) exp(-10 t) over the 10 steps that begin 0.1 s after the neuron is free again."""
    family = vpc.StepFamily("CANL", -75, 40, 3, stop=0.2)
    seen = curves.record_family(WORM, family, 0.4)
    time = 0.1 + 0.01 * np.arange(10)
    voltage = seen["voltage"].sel(neuron="CANL", time=slice(0.295, 0.395)).mean("time")
    expected = -35 + (seen["level"] + 35) * np.exp(-10 * time).mean()
    np.testing.assert_allclose(voltage.isel(sample=0), expected, atol=1e-3)


def test_a_neuron_in_the_circuit_conducts_more():
    """AVAL's many gap junctions; quantiles over worms that differ enclose the mean."""
    run = WORM.simulate(0.2, n=5, noise=0.2)
    curve = curves.iv(curves.record_family(run, vpc.StepFamily("AVAL", -60, 20, 4), 0.2), (0.1, 0.2))
    mean, low, high = (curve["current"].sel(stat=stat) for stat in ("mean", "q05", "q95"))
    assert float(curve["conductance"]) > 0.5 and ((low < mean) & (mean < high)).all()


def sines(frequencies: list[float], amplitude: float = 2.0) -> xr.Dataset:
    """What a family of sines would be: the current into CANL swings so often."""
    runs = [
        vpc.branch(WORM, protocol=vpc.CurrentClamp("CANL", Sine(amplitude, f)), seconds=3, record=["voltage"], every=0.01)
        for f in frequencies
    ]
    seen = xr.concat([run[["voltage", "ok"]].sel(neuron=["CANL"]) for run in runs], xr.Variable("level", frequencies))
    seen = seen.assign_coords(equilibrium=WORM.equilibrium.sel(neuron=["CANL"]))
    return seen.assign_attrs(family_neuron="CANL", family_clamp="current")


def test_a_sine_rises_as_often_as_its_frequency():
    """In a second there are as many rises, wherever the second begins; and none above what the sine reaches."""
    seen = sines([1.0, 2.0, 3.0, 5.0, 10.0, 20.0])
    for begin in (1.0, 1.13, 1.5, 2.0):
        rate = curves.fi(seen, (begin, begin + 1))["rate"]
        assert rate.attrs["units"] == "Hz"
        for stat in ("mean", "q05", "q95"):
            np.testing.assert_allclose(rate.sel(stat=stat), seen["level"], rtol=1e-12)
    assert (curves.fi(seen, (1, 2), threshold=0.0)["rate"] == 0).all()


def test_no_rise_is_lost_between_windows():
    """Rises in windows side by side add up, even with one step in each."""
    seen = sines([5.0])
    edges = np.round(np.arange(1, 2.005, 0.01), 2)
    small = [0.01 * curves.fi(seen, (a, b))["rate"].sel(stat="mean").item() for a, b in itertools.pairwise(edges)]
    assert sum(small) == pytest.approx(5) and set(np.round(small, 9)) == {0.0, 1.0}


def test_rates_of_other_neurons_use_their_own_equilibrium():
    family = vpc.StepFamily("AVBL", 0, 5, 2, clamp="current")
    seen = curves.record_family(WORM, family, 1, neurons=["DB3", "AVBL"])
    assert seen["neuron"].values.tolist() == ["AVBL", "DB3"]
    xr.testing.assert_equal(
        seen["equilibrium"], WORM.equilibrium.sel(neuron=["AVBL", "DB3"]).assign_coords(equilibrium=seen["equilibrium"])
    )
    by_hand = curves.fi(seen, (0, 1), "DB3", threshold=float(WORM.equilibrium.sel(neuron="DB3")))
    xr.testing.assert_identical(curves.fi(seen, (0, 1), "DB3"), by_hand)


def test_failed_worms_are_left_out():
    seen = sines([5.0])
    two = xr.concat([seen, seen], "sample", data_vars="all")
    two["voltage"] = two["voltage"].copy()
    two["voltage"].values[:, 1, 150:] = np.nan
    xr.testing.assert_identical(
        curves.fi(two, (1, 2))["rate"].sel(stat="mean"), curves.fi(seen, (1, 2))["rate"].sel(stat="mean")
    )
    values = [curves.iv(one, (1, 2))["voltage"].sel(stat="mean") for one in (seen, two)]
    xr.testing.assert_identical(*values)


def test_a_flat_family_has_no_reversal():
    """Steps that are over, while the neuron is held again; and levels that are all the same."""
    seen = curves.record_family(WORM, vpc.StepFamily("CANL", -60, 20, 3, stop=0.1, holding=-55), 0.2)
    curve = curves.iv(seen, (0.1, 0.2))
    assert float(curve["conductance"]) == pytest.approx(0, abs=1e-12)
    same = curves.iv(curves.record_family(WORM, vpc.StepFamily("CANL", -60, 0, 2), 0.1), (0, 0.1))
    assert "conductance" not in same and same.sizes["level"] == 2
    np.testing.assert_allclose(same["current"].sel(stat="mean"), -2.5)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda seen: curves.record_family(WORM, vpc.VoltageClamp("CANL", 0), 1),
            "family must be a StepFamily, got VoltageClamp",
        ),
        (
            lambda seen: curves.record_family(WORM, vpc.StepFamily("CANL", 0, 1, 2), 0.1, neurons=["AVAX"]),
            "did you mean 'AVAL'",
        ),
        (
            lambda seen: curves.record_family(WORM, vpc.StepFamily("CANL", 0, 1, 2, start=1), 0.1),
            "protocol goes beyond the run",
        ),
        (lambda seen: curves.iv(seen, (0.0, 0.4)), "window must lie within 0 to 0.3 s and end after it begins"),
        (lambda seen: curves.iv(seen, (0.2, 0.1)), "window must lie within 0 to 0.3 s and end after it begins"),
        (lambda seen: curves.iv(seen, 0.1), r"window must have shape \(2,\)"),
        (lambda seen: curves.iv(seen, ("a", "b")), "window must be an array of numbers"),
        (lambda seen: curves.iv(seen, (0.101, 0.102)), "window must hold a step of 0.01 s"),
        (lambda seen: curves.iv(seen, (0.0, 0.1)), "window must lie within the time of the clamp"),
        (lambda seen: curves.iv(seen, (0.05, 0.2)), "window must lie within the time of the clamp"),
        (lambda seen: curves.iv(xr.Dataset(), (0, 1)), "family must be what record_family returned"),
        (lambda seen: curves.fi("family.zarr", (0, 1)), "family must be what record_family returned"),
        (lambda seen: curves.fi(seen, (0.0, 0.2), "AVAL"), "neuron 'AVAL' was not recorded; it can be any of CANL"),
    ],
)
def test_bad_families_and_windows(act, message):
    with pytest.raises(ValueError, match=message):
        act(curves.record_family(WORM, vpc.StepFamily("CANL", 0, 1, 2, start=0.1), 0.3))


# Waveforms.


@pytest.mark.parametrize(
    ("wave", "expected"),
    [
        (Samples((0, 0.02), (1, 3)), [1, 2, 3, 3, 3, 3]),
        (Samples([0.02, 0.03], np.array([1, 5])), [1, 1, 1, 5, 5, 5]),
        (Samples((0.04,), (7,)), [7] * 6),
        (Held(-60, 5), [5] * 6),
        (Held(-60, 5, 0.02, 0.04), [-60, -60, 5, 5, -60, -60]),
        (Held(1, Ramp(0, 3), 0.02), [1, 1, 0, 1, 2, 3]),
        (Held(1, Samples((0, 0.01), (4, 8)), 0.01, 0.05), [1, 4, 8, 8, 8, 1]),
        (Held(1, Held(2, 3, 0.01, 0.02), 0.02, 0.05), [1, 1, 2, 3, 2, 1]),
    ],
)
def test_what_waveforms_command(wave, expected):
    given = protocol.inputs((vpc.CurrentClamp("AVAL", wave, start=0.02, stop=0.08),), total=10)
    np.testing.assert_allclose(given.current[:, 0], [0, 0, *expected, 0, 0], atol=1e-12)


def test_families_with_holding():
    family = vpc.StepFamily("AVAL", -40, 20, 3, start=0.1, stop=0.3, holding=-60)
    commands = [protocol.inputs(actions, 40).command[:, 0] for actions in family]
    for level, command in zip([-40, -20, 0], commands, strict=True):
        np.testing.assert_array_equal(command, [-60] * 10 + [level] * 20 + [-60] * 10)
    held = protocol.inputs(next(iter(vpc.StepFamily("AVAL", 1, 1, 1, start=0.1, clamp="current", holding=-1))), 20)
    np.testing.assert_array_equal(held.current[:, 0], [-1] * 10 + [1] * 10)


@pytest.mark.parametrize(
    "what",
    [
        vpc.StepFamily("AVAL", -60, 20, 4, start=0.1, stop=0.5, holding=-55),
        vpc.StepFamily(
            "AVAL", np.float32(-60), 20, 4, start=np.float32(0.5), stop=np.int64(1), clamp="current", holding=np.int64(0)
        ),
        (
            vpc.VoltageClamp("AVAL", Samples((0, 0.1, 0.5), (-60, 0.1, -60)), start=1),
            vpc.VoltageClamp("AVAR", Held(-60, Sine(10, 2, offset=-30), 0.1, 0.5)),
            vpc.CurrentClamp("PLML", Held(0, Held(1, Noise(1, seed=3)), 0.1)),
            vpc.CurrentClamp("PLMR", Held(0.5, Steps((1, 2)))),
        ),
    ],
)
def test_json_and_back(what):
    assert protocol.loads(protocol.dumps(what)) == what


@pytest.mark.parametrize(
    ("text", "times", "values"),
    [
        ("time,mV\n0,-60\n0.1,-20\n0.5,1e1\n", (0, 0.1, 0.5), (-60, -20, 10)),
        ("0,-60\n0.1,-20\n", (0, 0.1), (-60, -20)),
        ("\ufefftime (s), command\r\n0, 1\r\n\r\n2, 3\r\n", (0, 2), (1, 3)),
        ("t,v\n0,5", (0,), (5,)),
    ],
)
def test_commands_from_a_file(tmp_path, text, times, values):
    path = tmp_path / "command.csv"
    path.write_text(text, encoding="utf-8")
    assert from_csv(path) == from_csv(str(path)) == Samples(times, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "times of Samples must not be empty"),
        ("time,mV\n", "times of Samples must not be empty"),
        ("time,mV\n0,1\n0,2\n", "times of Samples must increase"),
        ("time,mV\n0,high\n", "could not convert"),
        ("time,mV\n0,nan\n", "values of Samples must be finite"),
        ("time,mV,pA\n0,1,2\n", "there is a row 'time,mV,pA'"),
        ("time;mV\n0;1\n", "there is a row 'time;mV'"),
    ],
)
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "command.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"command.csv must have two columns of numbers, .*{message}"):
        from_csv(path)
    with pytest.raises(OSError, match="nowhere"):
        from_csv(tmp_path / "nowhere.csv")


def run_held(wave):
    return lambda: WORM.simulate(0.3, protocol=vpc.VoltageClamp("AVAL", wave))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: Samples((0, 1), (1,)), "Samples must have as many values as times, got 1 and 2"),
        (lambda: Samples((0, 0), (1, 2)), "times of Samples must increase"),
        (lambda: Samples((), ()), "times of Samples must not be empty"),
        (lambda: Samples(("now",), (1,)), "times of Samples must be an array of numbers"),
        (lambda: Samples("0", (1,)), "times of Samples must be a sequence of numbers, got '0'"),
        (lambda: Samples((0,), 1), "values of Samples must be a sequence of numbers, got 1"),
        (lambda: Samples((0,), (np.inf,)), "values of Samples must be finite"),
        (lambda: Samples((0,), ((1, 2),)), "values of Samples must have shape"),
        (lambda: Held("x", 1), "holding of Held must be a finite number"),
        (lambda: Held(0, "x"), "command of Held must be a finite number or a waveform, got 'x'"),
        (lambda: Held(0, 1, -1), "start of Held must be 0 s or later"),
        (lambda: Held(0, 1, 2, 1), "stop of Held must be after its start at 2 s"),
        (lambda: Held(0, 1, 0, np.nan), "stop of Held must be a finite number"),
        (run_held(Held(-60, 0, 0.5)), "does not fit its clamp: .* the clamp lasts 0.3 s"),
        (run_held(Held(-60, 0, 0.1, 0.5)), "does not fit its clamp"),
        (run_held(Held(-60, 0, 0.1, 0.101)), "does not fit its clamp: .* needs a step of 0.01 s or more"),
        (run_held(Held(-60, 500)), r"mv of VoltageClamp\('AVAL'\) must stay within -200 to 200 mv"),
        (lambda: vpc.StepFamily("AVAL", 0, 100, 9, holding=-60), "mv of VoltageClamp must be a number from -200 to 200"),
        (lambda: vpc.StepFamily("AVAL", 0, 1, 9, holding=-600), "mv of VoltageClamp must be a number from -200 to 200"),
        (lambda: vpc.StepFamily("AVAL", 0, 1, 9, holding="x"), "holding of StepFamily must be a finite number"),
        (lambda: vpc.StepFamily("AVAL", 0, 1, 9, start=2, stop=1), "stop of VoltageClamp must be after its start"),
        (lambda: vpc.StepFamily("AVAL", 0, 1, 9, stop="x"), "stop of StepFamily must be a finite number"),
        (
            lambda: protocol.loads('[{"kind": "VoltageClamp", "neuron": "AVAL", "mv": {"kind": "Held"}}]'),
            "bad entry of kind Held",
        ),
    ],
)
def test_bad_waveforms(act, message):
    with pytest.raises(ValueError, match=message):
        act()


# The command line.


@pytest.mark.parametrize("clamp", ["voltage", "current"])
def test_a_family_gives_the_same_numbers_everywhere(clamp, tmp_path, capsys):
    """Bitwise, from `branch` level by level, from `record_family` and from the command line."""
    run = WORM.simulate(0.4, 2, n=3, noise=0.1, every=0.05)
    family = vpc.StepFamily("AVAL", -60, 25, 4, start=0.05, stop=0.2, clamp=clamp, holding=-10)
    save_dataset(run, tmp_path / "run.zarr")
    (tmp_path / "family.json").write_text(protocol.dumps(family))
    seen = curves.record_family(run, family, 0.25, 0.3, seed=5, particles=2)
    name, unit = ("current", "clamp") if clamp == "voltage" else ("voltage", "neuron")
    for level, actions in zip(family.levels, family, strict=True):
        one = vpc.branch(run, 0.3, actions, 0.25, 5, 2)
        for what, dim in (("voltage", "neuron"), (name, unit)):
            same = seen[what].sel({"level": level, dim: "AVAL"}, drop=True).sel(time=one["time"])
            np.testing.assert_array_equal(same, one[what].sel({dim: "AVAL"}))
    command = ["clamp", str(tmp_path / "run.zarr"), "--protocol", str(tmp_path / "family.json"), "--at", "0.3"]
    command += ["--seconds", "0.25", "--seed", "5", "--particles", "2", "--window", "0.1", "0.2"]
    assert main([*command, "--out", str(tmp_path / "family.zarr"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    xr.testing.assert_identical(open_dataset(tmp_path / "family.zarr").load(), seen)
    curve = curves.iv(seen, (0.1, 0.2))
    assert printed["level"] == family.levels.tolist() and printed["worms"] == 2 and printed["failed"] == 0
    for stat in ("mean", "q05", "q95"):
        assert printed[stat] == curve[name].sel(stat=stat).values.tolist()
    assert printed["conductance"] == float(curve["conductance"]) and printed["reversal"] == float(curve["reversal"])
    assert main(command) == 0
    told = capsys.readouterr().out
    assert f"conductance {printed['conductance']:.4g} nS" in told and f"{printed['mean'][2]:.3f}" in told


def test_clamp_branches_as_the_library_does(tmp_path, capsys):
    actions, out = tmp_path / "clamp.json", str(tmp_path / "fan.zarr")
    clamp = vpc.VoltageClamp("CANL", 0, start=0.1)
    actions.write_text(protocol.dumps(clamp))
    command = ["clamp", "worm", "--protocol", str(actions), "--seconds", "0.2", "--particles", "2", "--control"]
    assert main([*command, "--out", out, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    fan = vpc.branch(WORM, protocol=clamp, seconds=0.2, particles=2, control=True)
    xr.testing.assert_identical(open_dataset(out).load(), fan)
    assert printed["clamp"] == ["CANL"] and printed["mean"][0] == pytest.approx(3.5) and printed["out"] == out
    assert next(iter(printed["changed_most"])) == "CANL" and len(printed["changed_most"]) == 5
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "2 worms from 0 s on, for 0.2 s; 0 runs failed" in told and "3.500" in told and "changed most" in told


def test_clamp_takes_a_posterior(tmp_path, capsys):
    from vpc.experiments import experiment

    post = vpc.impute(WORM, experiment("paper", WORM, 0, 0.2)[1], particles=40, draws=10, progress=False)
    post.save(tmp_path / "post.zarr")
    (tmp_path / "none.json").write_text("[]")
    command = ["clamp", str(tmp_path / "post.zarr"), "--protocol", str(tmp_path / "none.json"), "--at", "0.1"]
    assert main([*command, "--seconds", "0.1", "--out", str(tmp_path / "fan.zarr"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["worms"] == 10 and printed["at"] == 0.1
    xr.testing.assert_identical(open_dataset(tmp_path / "fan.zarr").load(), post.branch(0.1, seconds=0.1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere", "--protocol", "one.json"], "there is no nowhere"),
        (["worm", "--protocol", "nowhere.json"], "nowhere.json"),
        (["worm", "--protocol", "one.json", "--window", "0", "1"], "--window is for a family of steps, and one.json"),
        (["worm", "--protocol", "family.json", "--control"], "--control is for one experiment, and family.json"),
        (["worm", "--protocol", "family.json", "--window", "1", "0"], "window must lie within 0 to 2 s"),
        (["worm", "--protocol", "one.json", "--particles", "0"], "particles must be a whole number"),
        (["worm", "--protocol", "one.json", "--out", "one.json"], "one.json exists and is not a result"),
        (["worm", "--protocol", "bad.json"], "protocol is not JSON"),
    ],
)
def test_clamp_refuses_bad_input_in_one_line(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.json").write_text(protocol.dumps(vpc.VoltageClamp("AVAL", 0)))
    (tmp_path / "family.json").write_text(protocol.dumps(vpc.StepFamily("CANL", 0, 1, 2)))
    (tmp_path / "bad.json").write_text("{")
    assert main(["clamp", *options, "--json"]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("vpc clamp: ") and message in told.err and told.err.count("\n") == 1 and told.out == ""
    with pytest.raises(SystemExit):
        main(["clamp", "--help"])
    assert "usage: vpc clamp" in capsys.readouterr().out
