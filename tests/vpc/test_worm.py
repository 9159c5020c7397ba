"""The worm as a whole: how it crawls, what its variants do, and that results depend on nothing but the seed."""

import copy
import json
import pickle

import numba
import numpy as np
import pytest
import xarray as xr
from compiled import WIDE, hashed
from parallel import each

import vpc
import wormsim

NOISE = {"all": 0.05, "DB": 0.2, "VB": 0.2}  # mV a step


def centre(run: xr.Dataset) -> np.ndarray:
    return run["body"].values[:, :, :2].mean(axis=1)


def net_speed(run: xr.Dataset, skip: float) -> float:
    """mm/s, as the crow flies."""
    path = centre(run.sel(time=slice(skip, None)))
    return float(np.hypot(*(path[-1] - path[0])) / (run["time"][-1] - skip))


def turning(run: xr.Dataset, skip: float) -> float:
    """Degrees a second by which the path, averaged over a period, turns."""
    path, step = centre(run.sel(time=slice(skip, None))), float(run["time"][1] - run["time"][0])
    period = round(1 / wormsim.gait(run, skip).frequency / step)
    way = path[period:] - path[:-period]
    heading = np.unwrap(np.arctan2(way[:, 1], way[:, 0]))
    return float(np.degrees(abs(heading[-1] - heading[0])) / (len(heading) * step))


@pytest.mark.parametrize("noise", [0.0, NOISE])
def test_the_default_worm_crawls(noise):
    """60 s on agar, ten seeds."""

    def crawls(seed: int) -> None:
        run = vpc.Worm().simulate(60, seed=seed, noise=noise)
        gait = wormsim.gait(run, skip=10)
        assert 0.38 < gait.frequency < 0.50 and 0.55 < gait.wavelength < 0.80
        assert net_speed(run, 10) > 0.19 and gait.curvature < 12 and turning(run, 10) < 1
        assert run["voltage"].min() > -80 and run["voltage"].max() < 10
        assert run["ok"].all() and run["failure"] == ""

    each(crawls, range(10))


def test_without_stretch_it_goes_flat():
    run = vpc.Worm(parameters={"w_s": 0}).simulate(10)
    bend = wormsim.curvature(run.sel(time=slice(5, None))["body"].values)
    assert np.abs(bend).max() < 1 and np.ptp(bend, axis=0).max() < 0.05
    assert net_speed(run, 5) < 0.002
    assert run["voltage"].sel(neuron=["DB3", "VB5"]).isel(time=-1).mean() == pytest.approx(-4.5, abs=1.5)


@pytest.mark.parametrize("w_m", [7.7, 9.0, 10.4])
@pytest.mark.parametrize("w_s", [8.8, 10.3, 11.8])
def test_it_crawls_all_around_the_default(w_m, w_s):
    run = vpc.Worm().with_parameters(w_m=w_m, w_s=w_s).simulate(40)
    gait = wormsim.gait(run, skip=10)
    assert 0.38 < gait.frequency < 0.50 and 0.55 < gait.wavelength < 0.80 and net_speed(run, 10) > 0.19 and gait.curvature < 12


def test_frequency_rises_towards_water():
    frequencies = [wormsim.gait(vpc.Worm(medium=medium).simulate(20), skip=5).frequency for medium in (1, 0.5, 0.1, 0.01, 0)]
    assert np.all(np.diff(frequencies) > 0.05)
    np.testing.assert_allclose(frequencies, [0.44, 0.61, 1.05, 1.73, 2.69], rtol=0.07)


def test_noise_of_5_mv_on_b_neurons_loses_the_gait_and_1_mv_does_not():
    speed = {sd: net_speed(vpc.Worm().simulate(40, noise={"DB": sd, "VB": sd}), 10) for sd in (1, 5)}
    assert speed[1] > 0.2 and speed[5] < 0.5 * speed[1]


def test_the_lively_variant_moves_more_neurons_with_the_same_gait():
    moving = {}
    for variant in ("default", "lively"):
        run = vpc.Worm(variant).simulate(30)
        late = run["voltage"].sel(time=slice(10, None))
        moving[variant] = int(((late.max("time") - late.min("time")).sel(neuron=list(vpc.KATO_NEURONS)) > 0.1).sum())
        gait = wormsim.gait(run, skip=10)
        assert 0.38 < gait.frequency < 0.50 and gait.speed > 0.19
    assert moving["default"] == 28 and moving["lively"] >= 40


def test_the_prototype_variant_crawls_with_voltages_beyond_reason():
    run = vpc.Worm("prototype").simulate(30)
    gait = wormsim.gait(run, skip=10)
    assert 0.40 < gait.frequency < 0.50 and gait.speed > 0.19
    assert run["voltage"].min() < -100 and run["voltage"].max() > 50


def test_the_paper_variant_is_dead_or_blows_up():
    dead = vpc.Worm("paper").simulate(20)
    assert np.isnan(wormsim.gait(dead).frequency) and dead["ok"].all()
    wild = vpc.Worm("paper", parameters={"i_on": 1.4, "i_p": 3.0, "w_m": 9}).simulate(20)
    assert not wild["ok"][-1] and "muscle" in str(wild["failure"].values)


def test_the_sce_variant_is_an_open_loop():
    run = vpc.Worm("sce").simulate(5)
    np.testing.assert_allclose(run["body"].isel(time=-1), run["body"].isel(time=0), atol=1e-12)
    assert run["voltage"].std("time").max() > 1


def test_a_failed_worm_is_nan_and_does_not_disturb_its_neighbours():
    worm = vpc.Worm("paper", parameters={"i_on": 1.4, "i_p": 3.0, "w_m": 6})
    runs = worm.simulate(10, n=20)
    assert not runs["ok"].isel(time=-1).any()
    for k in (0, 7, 19):
        run = runs.isel(sample=k)
        good = run["ok"].values
        assert np.isfinite(run["voltage"].values[good]).all() and np.isnan(run["voltage"].values[~good]).all()
        assert np.isnan(run["body"].values[~good]).all()
    # A worm that fails at its own time, among others that go on.
    frame = vpc.Worm().simulate(1, n=3).isel(time=-1)
    frame["muscle"][1] = 2.9
    mixed = vpc.Worm("prototype").simulate(2, n=3, initial=frame)
    alone = vpc.Worm("prototype").simulate(2, initial=frame.isel(sample=0))
    np.testing.assert_array_equal(mixed["voltage"].isel(sample=0), alone["voltage"])


@pytest.mark.parametrize("noise", [0.0, NOISE])
def test_results_do_not_depend_on_threads_or_company(noise):
    """Bitwise."""
    worm, protocol = vpc.Worm(), (vpc.VoltageClamp("AVAL", -20, start=0.2, stop=0.8), vpc.CurrentClamp("PLML", 5))
    before = numba.get_num_threads()
    runs = []
    try:
        for threads in {1, min(2, numba.config.NUMBA_NUM_THREADS)}:
            numba.set_num_threads(threads)
            runs.append(worm.simulate(1, seed=5, n=40, noise=noise, protocol=protocol))
    finally:
        numba.set_num_threads(before)
    xr.testing.assert_identical(runs[0], runs[-1])
    some = worm.simulate(1, seed=5, n=17, noise=noise, protocol=protocol)
    xr.testing.assert_identical(some, runs[0].isel(sample=slice(17)))
    xr.testing.assert_identical(worm.simulate(1, seed=5, noise=noise, protocol=protocol), runs[0].isel(sample=0))
    assert not np.array_equal(some["voltage"][0], some["voltage"][1])


def test_results_do_not_depend_on_the_width_of_blocks():
    """Bitwise, in other processes with blocks of 16 and of 32."""
    hashes = []
    for process in (hashed(WORMSIM_LANES="16"), hashed(**WIDE)):
        hashes.append(process.communicate()[0])
        assert process.returncode == 0
    assert len(hashes[0]) == 65 and hashes[0] == hashes[1]


def test_continuing_a_run_is_the_run():
    """Without noise, from a frame: bitwise."""
    worm = vpc.Worm(medium=0.1)
    whole = worm.simulate(2, seed=1, n=2)
    rest = worm.simulate(1, n=2, initial=whole.sel(time=1.0))
    for name in ("voltage", "calcium", "body", "velocity", "muscle"):
        np.testing.assert_array_equal(rest[name], whole[name].isel(time=slice(100, None)))


def test_continuing_a_noisy_run_is_the_run():
    worm = vpc.Worm()
    whole = worm.simulate(1.5, seed=4, n=2, noise=0.2)
    first = worm.simulate(0.5, seed=4, n=2, noise=0.2)
    second = worm.simulate(0.5, seed=4, n=2, noise=0.2, initial=first.isel(time=-1))
    third = worm.simulate(0.5, seed=4, n=2, noise=0.2, initial=second.isel(time=-1))
    np.testing.assert_array_equal(third["voltage"], whole["voltage"].isel(time=slice(100, None)))


def test_neurons_of_a_frame_go_by_name():
    frame = vpc.Worm().simulate(1).isel(time=-1)
    turned = frame.isel(neuron=slice(None, None, -1))
    xr.testing.assert_identical(vpc.Worm().simulate(0.1, initial=frame), vpc.Worm().simulate(0.1, initial=turned))


def test_what_is_said_of_some_neurons_leaves_the_others():
    lively = vpc.Worm("lively")
    same = lively.with_parameters(steep={"AVAL": 2.0})
    np.testing.assert_array_equal(lively.simulate(0.2)["voltage"], same.simulate(0.2)["voltage"])
    twice = vpc.Worm().with_parameters(E_leak={"AVAL": -50}).with_parameters(E_leak={"AVAR": -40})
    assert twice.parameters["E_leak"] == {"all": -35, "AVAL": -50, "AVAR": -40}
    with pytest.raises(TypeError):
        twice.parameters["E_leak"]["AVAL"] = 0


def test_an_ablated_neuron_feels_and_does_nothing():
    """Neither noise nor a stimulus reaches it, nor does it reach muscles, for as long as one likes."""
    worm = vpc.Worm().ablate(["PLML", "DB3"])
    plain = worm.simulate(6)
    driven = worm.simulate(6, noise={"DB3": 5.0, "PLML": 5.0}, protocol=vpc.Stimulus("PLML", 10))
    np.testing.assert_array_equal(plain["muscle"], driven["muscle"])
    np.testing.assert_array_equal(driven["voltage"].sel(neuron="DB3"), -35)


def test_a_worm_can_be_sent_elsewhere():
    worm = vpc.Worm("lively", parameters={"C": {"AVA": 12}}).ablate("DB3")
    worm.simulate(0.1)
    other = pickle.loads(pickle.dumps(worm))
    xr.testing.assert_identical(worm.simulate(0.1), copy.deepcopy(other).simulate(0.1))


def test_attributes_tell_an_altered_wiring():
    wiring = vpc.Connectome.load().ablate("AVAL").shuffle(3)
    run = vpc.Worm(connectome=wiring).simulate(0.1, noise=np.float32(0.5))
    assert run.attrs["connectome"] == "openworm, without AVAL, shuffled with seed 3" and json.loads(run.attrs["noise"]) == 0.5


def test_the_dataset_is_complete():
    run = vpc.Worm(medium=0.5, parameters={"w_s": 11}).ablate("AVAL").simulate(1, seed=7, n=2, every=0.05)
    assert run["voltage"].dims == ("sample", "time", "neuron") and run["voltage"].shape == (2, 21, 302)
    assert run["body"].dims == ("sample", "time", "rod", "coord") and run["muscle"].dims == (
        "sample",
        "time",
        "side",
        "segment",
    )
    assert {run[name].attrs["units"] for name in ("voltage", "calcium", "body", "time")} == {"mV", "uM", "mm, mm, rad", "s"}
    parameters = json.loads(run.attrs["parameters"])
    assert (parameters["w_s"], parameters["medium"], run.attrs["seed"], run.attrs["ablated"]) == (11, 0.5, 7, "AVAL")
    few = vpc.Worm().simulate(1, record=["body"])
    assert "voltage" not in few and few["body"].shape == (101, 49, 3)
    assert vpc.Worm().simulate(1)["voltage"].dims == ("time", "neuron")


def test_a_worm_is_not_changed_by_its_copies():
    worm = vpc.Worm()
    other = worm.with_parameters(w_s=12.0).ablate("AVAL")
    assert worm.parameters["w_s"] == 10.3 and other.parameters["w_s"] == 12.0 and worm.ablated == ()
    assert "w_s=12.0" in repr(other) and "AVAL" in repr(other)
    with pytest.raises(TypeError):
        worm.parameters["w_s"] = 5


def test_an_ablated_neuron_is_gone():
    run = vpc.Worm().ablate("AVBL").simulate(2)
    np.testing.assert_allclose(run["voltage"].sel(neuron="AVBL"), -35, atol=1e-9)
    intact = vpc.Worm().simulate(2)
    assert np.abs(run["voltage"] - intact["voltage"]).sel(neuron="AVBR").max() > 0.01


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: vpc.Worm("defualt"), "variant .* did you mean 'default'"),
        (lambda: vpc.Worm(connectome="cook"), "connectome .* did you mean 'cook2019'"),
        (lambda: vpc.Worm(medium=2), "medium must be from 0 to 1"),
        (lambda: vpc.Worm().with_parameters(w_z=1), "'w_z' is not a parameter .* did you mean 'w_"),
        (lambda: vpc.Worm().with_parameters(C=-1), "C must be from 0.1 to 1000 pF .*capacitance.* got -1"),
        (lambda: vpc.Worm().with_parameters(E_K="low"), "E_K must be from -120 to 60 mV"),
        (lambda: vpc.Worm().with_parameters(w_s=float("nan")), "w_s must be"),
        (lambda: vpc.Worm().with_parameters(w_s={"AVA": 1}), "w_s must be one number"),
        (lambda: vpc.Worm().with_parameters(C={"AVX": 1}), "'AVX' is no neuron"),
        (lambda: vpc.Worm().ablate("AVAX"), "'AVAX' is not one of the 302 neurons; did you mean 'AVAL'"),
        (lambda: vpc.Worm(ablated=["AVAX"]), "did you mean 'AVAL'"),
        (lambda: vpc.Worm().simulate(0), "seconds must be"),
        (lambda: vpc.Worm().simulate(1, n=0), "n must be"),
        (lambda: vpc.Worm().simulate(1, seed=-1), "seed must be"),
        (lambda: vpc.Worm().simulate(1, noise=-1), "noise must be from 0 to 100 mV"),
        (lambda: vpc.Worm().simulate(1, noise={"AVZ": 1}), "'AVZ' is no neuron"),
        (lambda: vpc.Worm().simulate(1, record=["volts"]), "record must be any of voltage"),
        (lambda: vpc.Worm().simulate(1, every=2), "seconds must be a multiple of every = 2 s"),
        (lambda: vpc.Worm().simulate(1, every=0.015), "every must be a multiple of 0.01 s"),
        (lambda: vpc.Worm().simulate(1, record=None), "record must be any of"),
        (lambda: vpc.Worm().simulate(60_000, n=1000), "record would take .* GB"),
        (lambda: vpc.Worm(["default"]), "variant must be one of"),
        (lambda: vpc.Worm(parameters="{}"), "parameters must be a mapping"),
        (lambda: vpc.Worm(objects=[[0.5, 0, 0.1]]).simulate(1), "objects must leave room for the worm"),
        (lambda: vpc.Worm().simulate(1, initial=xr.Dataset({"volts": 5})), "initial must hold any of voltage"),
        (lambda: vpc.Worm().simulate(1, protocol=5), "protocol must be a sequence"),
        (lambda: vpc.Worm().simulate(1, initial=vpc.Worm().simulate(1)), "initial must be one frame"),
        (lambda: vpc.Worm().simulate(1, n=2, initial=vpc.Worm().simulate(1, n=3).isel(time=0)), "holds 3 samples, but n is 2"),
    ],
)
def test_bad_input(act, message):
    with pytest.raises(ValueError, match=message):
        act()
