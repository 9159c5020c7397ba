"""The rig's controls, moved as a hand would move them, without a browser."""

import json

import numpy as np
import pytest

import vpc
from vpc.connectome import find
from vpc.protocol import loads
from vpc.waveforms import FORMS, described


@pytest.fixture(scope="module")
def run():
    return vpc.Worm().simulate(2, seed=1, progress=False)


@pytest.fixture
def rig(run):
    return vpc.ClampRig(run, ["AVAL", "DB3"], seconds=0.4)


def shown(rig):
    """The panels of the scope, and what it was given to draw."""
    return [panel["label"] for panel in rig.scope.spec["panels"]], np.frombuffer(rig.scope.data, np.float32)


def test_a_clamp_by_hand(rig):
    assert rig.chosen == ["AVAL"] and rig.drawn == ["AVAL", "DB3"]
    assert shown(rig)[0] == ["voltage (mV)", "302 neurons"]
    rig.mode.value = "voltage"
    assert rig.note.value == "" and rig.level.description == "level (mV)"
    assert shown(rig)[0] == ["voltage (mV)", "command", "clamp (pA)", "302 neurons"]
    before, version = shown(rig)[1], rig.scope.spec["version"]
    rig.level.value = -60
    assert rig.session.setup.protocol == (vpc.VoltageClamp("AVAL", -60),)
    assert rig.scope.spec["version"] > version and not np.array_equal(shown(rig)[1], before)
    rig.start.value, rig.stop.value, rig.holding.value = "0.1", "0.3", "-50"
    same = vpc.branch(rig.session.source, rig.session.setup.at, loads(rig.protocol.value), 0.4, control=True, every=0.02)
    np.testing.assert_array_equal(rig.session.fan["voltage"].values, same["voltage"].values)
    rig.mode.value = "current"
    assert rig.level.description == "level (pA)" and isinstance(rig.session.setup.protocol[0], vpc.CurrentClamp)
    rig.mode.value = "free"
    assert rig.session.setup.protocol == () and json.loads(rig.protocol.value) == []


def test_controls_follow_the_session(rig):
    rig.protocol.value = '[{"kind": "CurrentClamp", "neuron": "DB3", "pa": 7}]'
    assert rig.mode.value == "free"
    rig.neurons.value = ["DB3"]
    assert rig.mode.value == "current" and rig.level.value == 7
    rig.parameters["w_s"].value = 5
    assert rig.session.tuned("w_s") == 5 and rig.mode.value == "current"
    rig.reset_button.click()
    assert rig.mode.value == "free" and rig.parameters["w_s"].value == vpc.Worm().parameters["w_s"]


def test_a_browser_that_rounds_a_slider_changes_nothing(rig):
    rig.protocol.value = (
        '[{"kind": "CurrentClamp", "neuron": "AVAL", "pa": 7.3}, {"kind": "Change", "parameters": {"w_s": 9.876}}]'
    )
    setup, rig.level.value, rig.parameters["w_s"].value = rig.session.setup, 7.5, 9.9
    assert rig.session.setup is setup
    rig.level.value = 8
    assert rig.session.mode("AVAL") == ("current", 8.0)


def test_neurons_are_found_by_words_and_presets(rig):
    rig.search.value = "motor GABA"
    assert set(rig.neurons.options) == set(find("motor")) & set(find("GABA"))
    rig.preset.value = "Kato 49"
    assert set(rig.neurons.options) == set(vpc.KATO_NEURONS) and len(rig.neurons.value) == 1
    rig.search.value = "nothing of the kind"
    assert rig.neurons.options == () and rig.chosen == []
    rig.search.value = ""
    assert len(rig.neurons.options) == 302


@pytest.mark.parametrize(
    ("control", "value", "says"),
    [
        ("start", "soon", "start must be a number"),
        ("stop", "9", "goes beyond the run"),
        ("holding", "high", "holding must be a number"),
        ("settings", "x=", "settings of a sine must be like"),
        ("protocol", "[{", "protocol is not JSON"),
        ("protocol", '[{"kind": "Ablate", "neuron": "AVAX"}]', "did you mean"),
        ("seconds", "-1", "seconds must be from"),
        ("particles", "many", "particles must be a whole number"),
        ("seed", "1.5", "seed must be a whole number"),
        ("watch", "XYZ", "watch must name neurons"),
    ],
)
def test_nonsense_marks_the_field_and_loses_nothing(rig, control, value, says):
    rig.mode.value = "voltage"
    rig.form.value = "sine"
    last, setup, field = rig.session.last, rig.session.setup, getattr(rig, control)
    good = field.value
    field.value = value
    assert says in rig.note.value and "vpc-bad" in field._dom_classes
    assert rig.session.last is last and rig.session.setup == setup
    field.value = good
    assert rig.note.value == "" and "vpc-bad" not in field._dom_classes


def test_a_failed_run_leaves_the_rig_usable(rig):
    fan = rig.session.fan
    rig.protocol.value = json.dumps([{"kind": "CurrentClamp", "neuron": n, "pa": 1000} for n in ("DB3", "DB4", "VB4")])
    assert "all worms fail within 0.4 s: a voltage beyond 250 mV" in rig.note.value
    assert rig.session.fan is fan
    rig.reset_button.click()
    assert rig.note.value == "" and np.array_equal(rig.session.fan["voltage"].values, fan["voltage"].values)


def test_branch_step_and_rewind(rig):
    rig.canvas.frame = 5
    assert rig.cursor == pytest.approx(5 / rig.canvas.fps, abs=0.011)
    rig.branch_button.click()
    assert rig.note.value == "" and rig.session.depth == 1 and rig.session.setup.at == rig.at.value
    rig.step_button.click()
    assert rig.session.depth == 2
    rig.rewind_button.click()
    rig.rewind_button.click()
    assert rig.session.depth == 0 and rig.rewind_button.disabled


def test_an_iv_curve(rig):
    rig.neurons.value = ["CANL"]
    rig.iv_text.value = "-100, 20, 6"
    rig.iv_button.click()
    assert rig.note.value == "" and "0.1 nS, -35.0 mV" in rig.curve.spec["x"]["label"]
    rig.iv_text.value = "all of it"
    rig.iv_button.click()
    assert "three numbers" in rig.note.value


def test_exports(rig, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rig.mode.value = "voltage"
    for button, name in ((rig.csv_button, "rig.csv"), (rig.nwb_button, "rig.nwb")):
        button.click()
        assert name in rig.note.value and (tmp_path / name).exists()
    rig.code_button.click()
    assert "vpc.branch(" in rig.code.value and list(tmp_path.glob("source-*.zarr"))


def test_a_living_worm_answers_in_its_next_frame(rig):
    rig.live.value = True
    rig.advance(), rig.advance()
    before = np.frombuffer(rig.canvas.body, np.float32)
    rig.mode.value = "voltage"
    rig.level.value = -70
    rig.advance(), rig.advance()
    voltage = shown(rig)[1]
    assert -70 in voltage and not np.array_equal(np.frombuffer(rig.canvas.body, np.float32), before)
    rig.live.value = False
    assert shown(rig)[0][-1] == "302 neurons"


@pytest.mark.parametrize("form", [form for form in FORMS if form != "csv"])
def test_every_form_works_with_its_first_settings(form):
    command = described(form, 5.0, FORMS[form][1])
    vpc.VoltageClamp("AVAL", command).command(command, "mv", 200, 100)
