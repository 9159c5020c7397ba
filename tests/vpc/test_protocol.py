"""Clamps, currents, stimuli, ablations and changes: what they do, and what they refuse."""

import numpy as np
import pytest

import vpc
from vpc import protocol, reference
from vpc.connectome import index


def test_a_clamped_neuron_holds_its_voltage():
    run = vpc.Worm().simulate(2, n=3, noise=0.2, protocol=vpc.VoltageClamp("AVAL", -20, start=0.5, stop=1.5))
    held = run["voltage"].sel(neuron="AVAL", time=slice(0.5, 1.5))
    assert np.abs(held + 20).max() < 1e-9
    assert (np.abs(run["voltage"].sel(neuron="AVAL", time=slice(1.51, None)) + 20) > 1e-3).any()
    current = run["current"].sel(clamp="AVAL")
    assert current.attrs["units"] == "pA" and np.isfinite(current.sel(time=slice(0.5, 1.49))).all()
    assert np.isnan(current.sel(time=slice(None, 0.49))).all() and np.isnan(current.sel(time=slice(1.5, None))).all()


def test_the_holding_current_is_what_the_equations_say():
    run = vpc.Worm().simulate(1, protocol=vpc.VoltageClamp("AVAL", 10))
    for frame in (0, 50, 99):
        now = run.isel(time=frame)
        stretch = reference.unit_stretch(vpc.Worm(), now["body"].values)
        g, i = reference.conductance_and_current(vpc.Worm(), now["voltage"].values, stretch)
        n = index("AVAL")[0]
        assert float(now["current"].sel(clamp="AVAL")) == pytest.approx(1e-3 * (10 * g[n] - i[n]), rel=1e-9)


def test_a_clamp_is_the_limit_of_a_stiff_feedback_current():
    """A second electrode that injects g (command - V) with a large g: voltages and current approach the clamp's as 1/g."""
    worm, n = vpc.Worm(parameters={"w_m": 0}), index("AVAL")[0]
    run = worm.simulate(0.5, protocol=vpc.VoltageClamp("AVAL", 0))
    apart = []
    for stiffness in (1e6, 1e7):  # pS, against some 1e3 of its own
        voltage = run["voltage"].values[0].copy()
        voltage[n] = 0
        for _ in range(50):
            # The feedback as a leak towards the command, in the same two stages as any conductance.
            def inputs(v, stiffness=stiffness):
                g, i = reference.conductance_and_current(worm, v)
                g[n] += stiffness  # and stiffness * 0 mV to i
                return g, i

            mid = reference.relaxed(worm, voltage, 0.005, *inputs(voltage))
            voltage = reference.relaxed(worm, voltage, 0.01, *inputs(mid))
        apart.append(np.abs(voltage - run["voltage"].values[50]).max())
        current = 1e-3 * stiffness * (0 - voltage[n])
        _, i = reference.conductance_and_current(worm, run["voltage"].values[50])
        assert current == pytest.approx(-1e-3 * i[n], rel=20e3 / stiffness)
    assert apart[0] < 0.05 and apart[1] < 0.15 * apart[0]


def test_a_failed_worm_has_no_holding_current():
    worm = vpc.Worm("paper", parameters={"i_on": 1.4, "i_p": 3.0, "w_m": 9})
    run = worm.simulate(5, protocol=vpc.VoltageClamp("AVAL", 0))
    assert not run["ok"][-1] and np.isnan(run["current"].values[~run["ok"].values]).all()


def test_a_ramp_gives_a_straight_iv_curve_of_an_isolated_neuron():
    """CANL has no connections: its current is g_leak (V - E_leak), 100 pS from -35 mV."""
    run = vpc.Worm().simulate(1, protocol=vpc.VoltageClamp("CANL", protocol.Ramp(-80, 20)))
    voltage, current = run["voltage"].sel(neuron="CANL")[:-1], run["current"].sel(clamp="CANL")[:-1]
    np.testing.assert_allclose(current, 1e-3 * 100 * (voltage + 35), atol=1e-9)


def test_an_injected_current_charges_an_isolated_neuron():
    """V = E_leak + I/g (1 - exp(-t g/C))."""
    start = vpc.Worm().equilibrium.to_dataset(name="voltage")
    run = vpc.Worm().simulate(1, protocol=vpc.CurrentClamp("CANL", 2, start=0.2), initial=start)
    time = np.clip(run["time"].values - 0.2, 0, None)
    np.testing.assert_allclose(run["voltage"].sel(neuron="CANL"), -35 + 20 * (1 - np.exp(-10 * time)), atol=1e-4)


@pytest.mark.parametrize(
    ("wave", "expected"),
    [
        (3.0, [3, 3, 3, 3]),
        ((1, 2, 3, 4), [1, 2, 3, 4]),
        (np.array([1.0, 2, 3, 4]), [1, 2, 3, 4]),
        (protocol.Ramp(0, 3), [0, 1, 2, 3]),
        (protocol.Steps((1, 5)), [1, 1, 5, 5]),
        (protocol.Pulses(2, width=0.01, period=0.02, base=-1), [2, -1, 2, -1]),
        (protocol.Sine(2, frequency=25, offset=1), [1, 3, 1, -1]),
    ],
)
def test_waveforms(wave, expected):
    given = protocol.inputs((vpc.CurrentClamp("AVAL", wave, start=0.02, stop=0.06),), total=10)
    np.testing.assert_allclose(given.current[:, 0], [0, 0, *expected, 0, 0, 0, 0], atol=1e-12)


def test_noise_is_the_same_for_the_same_seed():
    one, same, other = (protocol.Noise(1, mean=5, seed=seed).sample(np.arange(1000)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other) and abs(one.mean() - 5) < 0.15 and abs(one.std() - 1) < 0.1


def test_a_stimulus_excites_its_group_on_top_of_clamps():
    actions = (vpc.Stimulus("posterior touch", 3, start=0.1, stop=0.3), vpc.CurrentClamp("PLML", 1))
    given = protocol.inputs(actions, total=50)
    np.testing.assert_array_equal(given.current[20], [4, 3])
    run = vpc.Worm().simulate(0.5, protocol=actions)
    assert float(run["voltage"].sel(neuron="PLMR", time=0.3)) > float(run["voltage"].sel(neuron="PLMR", time=0.1)) + 5


def test_ablation_and_changes_hold_for_their_time():
    run = vpc.Worm().simulate(3, protocol=[vpc.Ablate("AVBL", start=1, stop=2), vpc.Change({"w_s": 0.0}, start=1)])
    np.testing.assert_allclose(run["voltage"].sel(neuron="AVBL", time=slice(1.01, 2.0)), -35, atol=1e-9)
    assert float(run["voltage"].sel(neuron="AVBL", time=3.0)) > -30
    control = vpc.Worm().simulate(3)
    np.testing.assert_array_equal(run["voltage"].sel(time=slice(None, 0.99)), control["voltage"].sel(time=slice(None, 0.99)))
    assert np.abs(run["body"] - control["body"]).sel(time=3.0).max() > 0.01
    changed = vpc.Worm().simulate(1, protocol=vpc.Change({"w_s": 12.0}))
    np.testing.assert_array_equal(changed["voltage"], vpc.Worm(parameters={"w_s": 12.0}).simulate(1)["voltage"])


def test_families():
    family = vpc.StepFamily("AVAL", first=-60, increment=20, count=4, start=0.1, stop=0.5)
    np.testing.assert_array_equal(family.levels, [-60, -40, -20, 0])
    assert [actions[0].mv for actions in family] == [-60, -40, -20, 0] and len(family) == 4
    assert isinstance(next(iter(vpc.StepFamily("AVAL", 0, 1, 2, clamp="current")))[0], vpc.CurrentClamp)
    currents = [float(vpc.Worm().simulate(0.5, protocol=actions)["current"].sel(time=0.4)[0]) for actions in family]
    assert np.all(np.diff(currents) > 0.5)  # AVA's many gap junctions: more than 25 pS


def test_json_and_back():
    actions = (
        vpc.VoltageClamp("AVAL", -20, start=0.5, stop=1),
        vpc.VoltageClamp("AVAR", protocol.Ramp(-80, 20)),
        vpc.CurrentClamp("PLML", (1.0, 2.0), start=0, stop=0.02),
        vpc.CurrentClamp("PLMR", protocol.Noise(1, seed=3)),
        vpc.Stimulus("salt", 3.0),
        vpc.Ablate("DB3", start=2),
        vpc.Change({"w_s": 3.0, "C": {"AVA": 12.0}}),
    )
    assert protocol.loads(protocol.dumps(actions)) == actions
    assert protocol.loads(protocol.dumps(vpc.Stimulus("salt", np.int64(3)))) == (vpc.Stimulus("salt", 3.0),)
    family = vpc.StepFamily("AVAL", np.float32(-60), np.int64(20), np.int64(4))
    assert protocol.loads(protocol.dumps(family)) == family


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: vpc.VoltageClamp("AVAX", 0), "'AVAX' is not one of the 302 neurons; did you mean 'AVAL'"),
        (lambda: vpc.VoltageClamp("AVAL", 1000), "mv of VoltageClamp must be a number from -200 to 200"),
        (lambda: vpc.VoltageClamp("AVAL", "high"), "mv of VoltageClamp"),
        (lambda: vpc.CurrentClamp("AVAL", [1, np.nan]), "pa of CurrentClamp must be finite"),
        (lambda: vpc.CurrentClamp("AVAL", 1, start=-1), "start of CurrentClamp must be 0 s or later"),
        (lambda: vpc.CurrentClamp("AVAL", 1, start=2, stop=1), "stop of CurrentClamp must be after its start"),
        (lambda: vpc.Stimulus("tuch", 1), "group of Stimulus .* did you mean"),
        (lambda: vpc.Change({"w_s": -1}), "w_s must be from 0 to 1000"),
        (lambda: protocol.Sine(1, 80), "frequency of Sine must be between 0 and 50 Hz"),
        (lambda: protocol.Pulses(1, 0.2, 0.1), "period of Pulses must be longer"),
        (lambda: vpc.StepFamily("AVAL", 0, 1, 0), "count of StepFamily"),
        (lambda: vpc.StepFamily("AVAL", "x", 1, 2), "first of StepFamily must be a finite number"),
        (lambda: vpc.VoltageClamp(["AVAL"], 0), "neuron of VoltageClamp must be one name"),
        (lambda: vpc.Ablate(["AVAL"]), "neuron of Ablate must be one name"),
        (lambda: vpc.Stimulus(["PLML"], 5), "group of Stimulus must be one name"),
        (lambda: vpc.Change("w_s"), "parameters of Change must be a mapping"),
        (lambda: vpc.Change({"F": 5}), "F is the microscope's"),
        (lambda: protocol.Ramp(0, np.nan), "end of Ramp must be a finite number"),
        (lambda: protocol.Steps(3), "values of Steps must be a sequence"),
        (lambda: protocol.loads("5"), "protocol must be a list of actions"),
        (lambda: protocol.loads('{"kind": "Ramp", "begin": 0, "end": 1}'), "protocol must be a sequence"),
        (lambda: protocol.loads('[{"kind": ["a"]}]'), "unknown kind"),
        (lambda: vpc.StepFamily("AVAL", 0, 100, 9), "mv of VoltageClamp"),
        (lambda: protocol.loads("{"), "protocol is not JSON"),
        (lambda: protocol.loads('[{"kind": "VoltageClmp"}]'), "unknown kind 'VoltageClmp'; did you mean 'VoltageClamp'"),
        (lambda: protocol.loads('[{"kind": "Ablate"}]'), "bad entry of kind Ablate"),
    ],
)
def test_bad_actions(act, message):
    with pytest.raises(ValueError, match=message):
        act()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([vpc.VoltageClamp("AVAL", 0, stop=0.6), vpc.VoltageClamp("AVAL", 5, start=0.5)], "overlapping clamps on AVAL"),
        ([vpc.VoltageClamp("AVAL", 0), vpc.CurrentClamp("AVAL", 5, start=0.5)], "overlapping clamps on AVAL"),
        ([vpc.CurrentClamp("AVAL", (1, 2, 3))], "one value for each of its 100 steps of 0.01 s, got 3"),
        ([vpc.VoltageClamp("AVAL", 0, start=2)], "beyond the run: .* the run ends at 1 s"),
        ([vpc.Ablate("AVAL", stop=3)], "beyond the run"),
        ([vpc.VoltageClamp("AVAL", 0, start=0.5, stop=0.501)], "shorter than a step"),
        (["AVAL"], "protocol must be a sequence of clamps"),
        (vpc.StepFamily("AVAL", 0, 1, 2), "simulate each `for protocol in family`"),
        ([vpc.VoltageClamp("AVAL", protocol.Ramp(0, 1e9))], r"mv of VoltageClamp\('AVAL'\) must stay within -200 to 200"),
        ([vpc.Ablate("AVAL", start=0.5), vpc.VoltageClamp("AVAL", 0)], "clamps AVAL while it is ablated"),
    ],
)
def test_bad_protocols(actions, message):
    with pytest.raises(ValueError, match=message):
        vpc.Worm().simulate(1, protocol=actions)


def test_clamps_one_after_the_other_are_fine():
    run = vpc.Worm().simulate(1, protocol=[vpc.VoltageClamp("AVAL", 0, stop=0.5), vpc.VoltageClamp("AVAL", 5, start=0.5)])
    np.testing.assert_allclose(run["voltage"].sel(neuron="AVAL")[[0, 49, 50, 100]], [0, 0, 5, 5], atol=1e-9)
