"""Branches from a worm, a run or a posterior, and what an experiment changes."""

import numpy as np
import pytest
import xarray as xr

import vpc
from vpc.branching import STATE, difference, prepare
from vpc.experiments import experiment
from vpc.protocol import Pulses
from vpc.store import open_dataset, save_dataset

WORM = vpc.Worm()
NOISE = {"all": 0.05, "DB": 0.2}


@pytest.fixture(scope="module")
def sources() -> dict[str, vpc.branching.Source]:
    """A worm; a run of one worm and of three, with noise; and a posterior with 20 draws."""
    _, seen = experiment("paper", WORM, 0, 0.3)
    return {
        "worm": WORM,
        "run": WORM.simulate(0.5, 1, noise=NOISE, every=0.05),
        "runs": WORM.simulate(0.5, 1, n=3, noise=NOISE, every=0.05),
        "posterior": vpc.impute(WORM, seen, particles=40, draws=20, progress=False),
    }


KINDS = ("worm", "run", "runs", "posterior")


def test_a_worm_starts_anew(sources):
    fan = vpc.branch(WORM, seconds=0.2, particles=3)
    assert fan.sizes["sample"] == 3 and fan["time"].values.tolist() == [0.0, 0.05, 0.1, 0.15, 0.2]
    assert np.abs(fan["voltage"].isel(time=0) + 20).max() < 1
    xr.testing.assert_identical(fan.isel(sample=[0]), vpc.branch(WORM, 0, seconds=0.2))
    other = vpc.branch(WORM, seconds=0.2, seed=1)
    assert (other["voltage"].values != fan["voltage"].values[:1]).any()


@pytest.mark.parametrize("particles", [1, 2])
def test_without_noise_a_branch_is_the_run_that_went_on(particles):
    """Bitwise, in every number that makes a state; and again from a branch of the branch."""
    worm = vpc.Worm(objects=[[0.5, 0.3, 0.1]])
    run = worm.simulate(0.6, 3, every=0.05)
    fan = vpc.branch(run, 0.2, seconds=0.4, particles=particles, control=True)
    again = vpc.branch(fan.sel(arm="control"), 0.2, seconds=0.2)
    for branched, begin in ((fan.sel(arm="experiment"), 0.2), (again, 0.4)):
        assert branched.sizes["sample"] == particles
        np.testing.assert_array_equal(branched["objects"], run["objects"])
        rest = run.sel(time=slice(begin - 0.005, None))
        for name in STATE:
            for k in range(particles):
                np.testing.assert_array_equal(branched[name].values[k], rest[name].values)


def test_a_branch_begins_with_the_frame_and_its_noise_is_another(sources):
    run = sources["run"]
    fan = vpc.branch(run, 0.25, seconds=0.25, seed=1, particles=2)
    for name in STATE:
        np.testing.assert_array_equal(fan[name].isel(time=0, sample=1), run[name].sel(time=0.25))
    assert fan.attrs["noise"] == run.attrs["noise"] and fan.attrs["branched_at"] == 0.25 and fan.attrs["first_step"] == 25
    moved = fan["voltage"].isel(time=-1).values
    assert (moved[0] != moved[1]).all() and (moved[0] != run["voltage"].values[-1]).all()
    xr.testing.assert_identical(vpc.branch(run, seconds=0.1), vpc.branch(run, 0.5, seconds=0.1))


def test_worms_of_many_are_the_same_whatever_their_number(sources):
    for kind, most in (("runs", 3), ("posterior", 20)):
        source = sources[kind]
        every, few = vpc.branch(source, 0.2, seconds=0.1), vpc.branch(source, 0.2, seconds=0.1, particles=2)
        assert every.sizes["sample"] == most and prepare(source).most == most
        xr.testing.assert_identical(few, every.isel(sample=slice(2)))
        one = vpc.branch(source, 0.2, seconds=0.1, particles=1)
        xr.testing.assert_identical(one, every.isel(sample=[0]))
    begin = sources["runs"]["voltage"].sel(time=0.2).values
    np.testing.assert_array_equal(vpc.branch(sources["runs"], 0.2, seconds=0.1)["voltage"].values[:, 0], begin)


def test_a_posterior_branches_as_its_method_does(sources):
    post = sources["posterior"]
    fan = vpc.branch(post, 0.2, seconds=0.1)
    xr.testing.assert_identical(fan, post.branch(0.2, seconds=0.1))
    np.testing.assert_array_equal(fan["voltage"].values[:, 0], post.dataset["draws"].sel(time=0.2).values[:, :302])


def test_a_run_on_disk_branches_as_the_run_does(sources, tmp_path):
    saved = open_dataset(save_dataset(sources["runs"], tmp_path / "run.zarr"))
    xr.testing.assert_identical(vpc.branch(saved, 0.2, seconds=0.1), vpc.branch(sources["runs"], 0.2, seconds=0.1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "action",
    [
        vpc.VoltageClamp("DB3", 0, start=0.2),
        vpc.CurrentClamp("DB3", Pulses(20, 0.05, 0.1), start=0.2),
        vpc.Stimulus("DB", 5, start=0.2),
        vpc.Ablate("DB3", start=0.2),
        vpc.Change({"w_m": 2.0, "medium": 0.5}, start=0.2),
    ],
    ids=lambda action: type(action).__name__,
)
def test_nothing_differs_before_the_experiment_begins(sources, kind, action):
    """Exactly 0 in every worm and number before; after it, not, in voltage nor body."""
    fan = vpc.branch(sources[kind], protocol=action, seconds=0.5, control=True, every=0.01)
    apart = difference(fan)
    assert {*STATE, "fluorescence"} <= set(apart) and "current" not in apart
    for name in apart:
        assert (apart[name].sel(time=slice(None, 0.195)) == 0).all()
    for name in ("voltage", "body"):
        assert (np.abs(apart[name].isel(time=-1)).max(set(apart[name].dims) - {"sample", "time"}) > 0).all()
    assert fan["arm"].values.tolist() == ["experiment", "control"] and apart.attrs == fan.attrs


def test_the_experiment_does_not_depend_on_having_a_control(sources):
    clamp = vpc.VoltageClamp("AVAL", 0)
    both = vpc.branch(sources["runs"], 0.2, clamp, seconds=0.2, control=True)
    alone = vpc.branch(sources["runs"], 0.2, clamp, seconds=0.2)
    xr.testing.assert_identical(both.sel(arm="experiment", drop=True), alone)
    assert both["current"].sel(arm="control").isnull().all() and np.isfinite(alone["current"].isel(time=0)).all()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("worm", {"at": 1}, "at must be a moment .*, got 1"),
        ("run", {"at": 0.7}, "at must be a moment of the recording, from 0 to 0.5 s, got 0.7"),
        ("run", {"at": 0.22}, "at must be the time of a frame, got 0.22; the nearest is 0.2 s"),
        ("run", {"at": "soon"}, "at must be a moment"),
        ("run", {"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ("run", {"particles": 0}, "particles must be a whole number of at least 1, got 0"),
        ("runs", {"particles": 4}, "particles must be at most 3, as many as the source holds, got 4"),
        ("posterior", {"particles": 21}, "particles must be at most 20, as many as the source holds, got 21"),
        ("run", {"seconds": 0.02}, "seconds must be a multiple of every = 0.05 s"),
        ("run", {"protocol": vpc.StepFamily("AVAL", 0, 1, 2)}, "for protocol in family"),
        ("run", {"protocol": vpc.VoltageClamp("AVAL", 0, start=3)}, "protocol goes beyond the run"),
    ],
)
def test_bad_settings(sources, kind, settings, message):
    with pytest.raises(ValueError, match=message):
        vpc.branch(sources[kind], **settings)


def test_bad_sources(sources):
    run, post = sources["run"], sources["posterior"]
    with pytest.raises(ValueError, match=r"source must be a Worm, a run of one, or a Posterior, got str"):
        vpc.branch("run.zarr")
    with pytest.raises(ValueError, match=r"source must be a Worm, a run of one, or a Posterior, got Dataset"):
        vpc.branch(xr.Dataset())
    with pytest.raises(ValueError, match=r"source is a run without calcium, body, velocity, muscle: simulate it with all"):
        vpc.branch(WORM.simulate(0.1, record=["voltage"]))
    with pytest.raises(ValueError, match="wiring of its own; branch from the Worm"):
        vpc.branch(run.assign_attrs(connectome="mine"))
    with pytest.raises(ValueError, match="this posterior has no draws to branch from"):
        vpc.branch(vpc.Posterior(post.dataset.isel(draw=slice(0)), WORM))
    with pytest.raises(ValueError, match="source is the dataset of a posterior: give the Posterior"):
        vpc.branch(post.dataset)
    fan = vpc.branch(run, seconds=0.05, control=True)
    with pytest.raises(ValueError, match=r"source must be one run: choose one with source.sel\(arm='experiment'\)"):
        vpc.branch(fan)
    with pytest.raises(ValueError, match="fan must be a branch with control=True"):
        difference(fan.sel(arm="control"))


def test_one_can_branch_until_the_first_worm_fails():
    worm = vpc.Worm("paper", parameters={"i_on": 1.4, "i_p": 3.0, "w_m": 9})
    run = worm.simulate(5, every=0.05)
    assert not run["ok"][-1]
    last = float(prepare(run).times[-1])
    assert (
        last == float(run["time"][run["ok"]][-1]) and np.isfinite(vpc.branch(run, seconds=0.05)["voltage"].values[0, 0]).all()
    )
    with pytest.raises(ValueError, match="at must be a moment of the recording"):
        vpc.branch(run, 5.0)
