"""The screen: what it measures, against other ways to the same numbers, and that its ranking is not chance."""

import json

import numba
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import vpc
from vpc import screen as screening
from vpc import screen_bench
from vpc.branching import branch, difference
from vpc.connectome import NEURONS
from vpc.experiments import experiment
from vpc.screen import EVERY, KINDS, forward_velocity, ranking, screen
from vpc.store import open_dataset, save_dataset
from wormsim import geometry as geo

WORM = vpc.Worm()
FEW = ["DB1", "VB1", "AVAL", "AVBL", "SMDVL"]


@pytest.fixture(scope="module")
def run() -> xr.Dataset:
    """Noisy worms in mid-crawl."""
    return WORM.simulate(3, n=20, noise={"all": 0.05, "DB": 0.2, "VB": 0.2}, every=0.5, progress=False)


@pytest.fixture(scope="module")
def screened(run) -> xr.Dataset:
    return screen(run, seconds=1.0, particles=20, neurons=FEW, progress=False)


def moving(velocity, turn: float = 0.0, steps: int = 200) -> np.ndarray:
    """Frames of a straight body, head at its front, that glides with a velocity (ahead, to the left) and turns, rad/s."""
    angle = turn * EVERY * np.arange(steps + 1)
    ahead = np.stack([-np.cos(angle), -np.sin(angle)], axis=-1)
    left = np.stack([np.sin(angle), -np.cos(angle)], axis=-1)
    middle = 0.5 * (ahead[1:] + ahead[:-1]), 0.5 * (left[1:] + left[:-1])
    way = EVERY * (velocity[0] * middle[0] + velocity[1] * middle[1])
    centre = np.concatenate([np.zeros((1, 2)), way.cumsum(axis=0)])
    along = 0.5 * geo.LENGTH - np.arange(geo.RODS) * geo.SEGMENT_LENGTH
    body = np.zeros((steps + 1, geo.RODS, 3))
    body[:, :, :2] = centre[:, None] + along[:, None] * ahead[:, None]
    return body


@pytest.mark.parametrize("turn", [0.0, 0.5, -2.0])
def test_forward_velocity_of_known_motions(turn):
    for velocity in [(0.2, 0.0), (-0.1, 0.0), (0.0, 0.3), (0.15, -0.2)]:
        found = forward_velocity(moving(velocity, turn), EVERY)
        assert found.shape == (200,)
        np.testing.assert_allclose(found, velocity[0], rtol=0.01, atol=1e-12)  # a chord is shorter than its arc


def test_the_crawling_worm_goes_forward():
    """As fast as the crow flies, which `test_worm` asks of the default worm too."""
    run = WORM.simulate(10, every=EVERY, progress=False)
    late = run["body"].values[20:]
    crow = np.hypot(*(late[-1] - late[0])[:, :2].mean(axis=0)) / 8
    assert forward_velocity(late, EVERY).mean() == pytest.approx(crow, rel=0.1) and crow > 0.15


def test_effects_are_those_of_a_branch_with_control(run, screened):
    """By the run's own path, with the interval of scipy's paired test."""
    assert screened["effect"].dims == ("kind", "neuron") and screened["effect"].shape == (4, 5)
    assert screened["kind"].values.tolist() == list(KINDS) and screened["effect"].attrs["units"] == "mm/s"
    rest = float(WORM.equilibrium.sel(neuron="DB1"))
    for kind, action in {
        "clamp up": vpc.VoltageClamp("DB1", rest + 20),
        "clamp down": vpc.VoltageClamp("DB1", rest - 20),
        "inject": vpc.CurrentClamp("DB1", 5),
        "ablate": vpc.Ablate("DB1"),
    }.items():
        fan = branch(run, None, [action], 1.0, control=True, every=EVERY, progress=False)
        arms = [forward_velocity(fan["body"].sel(arm=arm).values, EVERY).mean(axis=1) for arm in ("experiment", "control")]
        test = stats.ttest_rel(*arms)
        one = screened.sel(kind=kind, neuron="DB1")
        assert float(one["effect"]) == pytest.approx((arms[0] - arms[1]).mean(), rel=1e-12)
        assert [float(one["low"]), float(one["high"])] == pytest.approx(list(test.confidence_interval()), rel=1e-9)
        assert (test.pvalue < 0.05) == bool(one["low"] > 0 or one["high"] < 0)
        assert float(screened["control"]) == pytest.approx(arms[1].mean(), rel=1e-12)
    assert (screened["failed"] == 0).all()


def test_a_neuron_as_effect(run):
    settings = {"seconds": 0.5, "particles": 20, "progress": False}
    found = screen(run, "AVAL", neurons=["AVAL", "DB1"], kinds=["clamp up", "inject"], **settings)
    rest = float(WORM.equilibrium.sel(neuron="AVAL"))
    held = found["effect"].sel(kind="clamp up", neuron="AVAL") + found["control"]
    assert float(held) == pytest.approx(rest + 20, abs=1e-9) and found["effect"].attrs["units"] == "mV"
    fan = branch(run, None, vpc.CurrentClamp("DB1", 5), 0.5, control=True, every=EVERY, progress=False)
    by_hand = difference(fan)["voltage"].sel(neuron="AVAL").isel(time=slice(1, None)).mean()
    assert float(found["effect"].sel(kind="inject", neuron="DB1")) == pytest.approx(float(by_hand), rel=1e-9)


def test_reversal_is_a_share_of_the_time(run):
    """Nothing goes backwards in this model unless it is made to; a wave held in the head can."""
    found = screen(run, "reversal", seconds=1.0, particles=20, neurons=FEW, kinds="clamp down", progress=False)
    share = found["effect"] + found["control"]
    assert float(share.min()) >= 0 and float(share.max()) <= 1 and found["effect"].attrs["units"] == "1"
    fan = branch(run, None, (), 1.0, every=EVERY, record=["body"], progress=False)
    assert float(found["control"]) == (forward_velocity(fan["body"].values, EVERY) < 0).mean()


def test_the_same_seed_gives_the_same_screen_on_any_number_of_threads(run, screened):
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        again = screen(run, seconds=1.0, particles=20, neurons=FEW, progress=False)
    finally:
        numba.set_num_threads(before)
    xr.testing.assert_identical(again, screened)
    part = screen(run, seconds=1.0, particles=20, neurons=["SMDVL", "DB1"], kinds=["ablate", "inject"], progress=False)
    xr.testing.assert_equal(part, screened.sel(part.coords))
    other = screen(run, seconds=1.0, particles=20, seed=1, neurons=["DB1"], kinds="ablate", progress=False)
    assert other["effect"].item() != float(screened["effect"].sel(kind="ablate", neuron="DB1"))


def test_a_neuron_that_nobody_hears_has_no_effect(run):
    here = list(NEURONS).index("CANL")
    assert WORM.connectome.chemical[here].sum() == WORM.connectome.gap[here].sum() == 0
    found = screen(run, seconds=0.5, particles=20, neurons=["CANL"], progress=False)
    for part in ("effect", "low", "high"):
        assert (found[part] == 0).all()
    assert not ranking(found)["clear"].any()


def test_neurons_that_are_gone_are_nan_and_not_ranked():
    found = screen(WORM.ablate("AVAL"), seconds=0.3, particles=3, neurons=["AVAL", "DB1"], progress=False)
    assert found["effect"].sel(neuron="AVAL").isnull().all() and found["effect"].sel(neuron="DB1").notnull().all()
    assert found.attrs["ablated"] == "AVAL" and set(ranking(found)["neuron"]) == {"DB1"}


def test_failed_worms_are_left_out(run, monkeypatch):
    monkeypatch.setattr(screening, "INJECT", 1000.0)
    found = screen(run, seconds=0.3, particles=20, neurons=["AVAL"], kinds=["inject", "ablate"], progress=False)
    assert found["failed"].values.tolist() == [[1.0], [0.0]] and np.isnan(found["effect"].values[0, 0])
    assert found.attrs["inject_pa"] == 1000 and np.isfinite(found["effect"].values[1, 0])
    some = np.array([1.0, np.nan, 2.0, 4.0])
    mean = screening._mean(some)
    low, high = stats.t.interval(0.95, 2, 7 / 3, stats.sem([1, 2, 4]))
    assert mean == pytest.approx((7 / 3, low, high, 0.25))
    assert np.isnan(screening._mean(some[:1]).low)


def test_the_ranking(screened):
    table = ranking(screened)
    assert list(table) == ["neuron", "kind", "effect", "low", "high", "clear"] and len(table) == 20
    assert (np.diff(table["effect"].abs()) <= 0).all() and (table["low"] <= table["effect"]).all()
    first = table.iloc[0]
    assert first["effect"] == float(screened["effect"].sel(kind=first["kind"], neuron=first["neuron"]))
    pd.testing.assert_series_equal(table["clear"], ~((table["low"] <= 0) & (table["high"] >= 0)), check_names=False)
    with pytest.raises(ValueError, match="screened must be what `screen` returned"):
        ranking(xr.Dataset())


def test_the_strongest_effects_are_the_same_for_another_seed(run):
    """The full screen, of 302 neurons, has 100 particles and a posterior: see notebook 09."""
    names = ["DB", "VB", "AVA", "AVB", "PVC", "SMD", "DA1", "VD1", "DD1", "ASHL"]
    first, second = (
        screen(run, seconds=2.0, particles=20, seed=seed, neurons=names, kinds="clamp down", progress=False)["effect"][0]
        for seed in (0, 1)
    )
    top = np.argsort(-np.abs(first.values))[:20]
    assert len(first) == 32 and stats.spearmanr(first[top], second[top]).statistic >= 0.8


def test_of_a_posterior_and_saved(tmp_path):
    _, recording = experiment("noise", WORM, seconds=0.5)
    posterior = vpc.impute(WORM, recording, particles=20, draws=20, progress=False)
    settings = {"seconds": 0.2, "particles": 20, "neurons": ["DB1"], "kinds": "ablate", "progress": False}
    found = screen(posterior, at=0.4, **settings)
    fan = posterior.branch(0.4, vpc.Ablate("DB1"), seconds=0.2, control=True, every=EVERY, progress=False)
    experimental, control = (forward_velocity(one, EVERY).mean() for one in fan["body"].values)
    assert found["effect"].item() == pytest.approx(experimental - control, rel=1e-9)
    expected = {"of": "speed", "branched_at": 0.4, "seconds": 0.2, "particles": 20, "seed": 0, "clamp_mv": 20, "inject_pa": 5}
    assert expected.items() <= found.attrs.items() and found.attrs["source"].startswith("Posterior of 302 neurons")
    xr.testing.assert_identical(open_dataset(save_dataset(found, tmp_path / "screen.zarr")).load(), found)
    with pytest.raises(ValueError, match="particles must be at most 20"):
        screen(posterior, **settings | {"particles": 21})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"effect": "sped"}, r"effect must be speed, reversal or a neuron, got 'sped'; did you mean 'speed'\?"),
        ({"effect": None}, "effect must be speed"),
        ({"kinds": ["clamp"]}, r"kinds must be any of clamp up, .* got 'clamp'; did you mean 'clamp up'\?"),
        ({"kinds": []}, "kinds must be any of clamp up, .* got none"),
        ({"neurons": []}, "neurons must name at least one"),
        ({"neurons": ["AVALL"]}, r"'AVALL' is no neuron.*'AVAL'\?"),
        ({"seconds": 0.25}, "seconds must be a multiple of every = 0.1 s, got 0.25"),
        ({"particles": 0}, "particles must be a whole number"),
        ({"at": 1.0}, "at must be a moment of the recording"),
        ({"source": "worm"}, "source must be a Worm, a run of one, or a Posterior, got str"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        screen(**{"source": WORM, "neurons": ["DB1"], "progress": False} | change)


def test_the_bench_measures_and_explains():
    result = json.loads(json.dumps(screen_bench.screen(progress=False, neurons=["DB"], particles=4)))
    assert result["neurons"] == 7 and all(row["rank_correlation"] > 0 for row in result["rows"])
    assert "core-s" in screen_bench.screen_table(result)
