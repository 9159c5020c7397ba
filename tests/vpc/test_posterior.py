"""The virtual patch clamp: whole sweeps, what they find, and what they say when they fail."""

import itertools

import numba
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from parallel import each
from scipy import stats

import vpc
from vpc import diagnose
from vpc.connectome import NEURONS, index
from vpc.experiments import EXPERIMENTS, experiment
from vpc.initialise import FACTOR, learned_prior
from vpc.methods import build
from vpc.observe import fluorescence_of
from vpc.smc import SMC
from vpc.smoothing import backward
from vpc.summaries import Predicted, describe, weighted_mean
from vpc.sweep import FromPrior, WormModel

WORM = vpc.Worm()


def truth(seed: int, seconds: float = 5.0) -> tuple[xr.Dataset, vpc.Recording]:
    """A noise-free run from the learned prior, and a recording of it."""
    return experiment("paper", WORM, seed, seconds)


@pytest.fixture(scope="module")
def small() -> tuple[xr.Dataset, vpc.Recording, vpc.Posterior]:
    run, rec = truth(0, 1.0)
    return run, rec, vpc.impute(WORM, rec, "bootstrap", 100, 200, seed=1, progress=False)


def test_the_kernel_moves_particles_as_worms_move():
    """Without noise, a sweep's interval is a simulation's, bitwise; ancestors are followed, and the failed stay failed."""
    _, rec = truth(0, 0.5)
    prior = learned_prior(WORM)
    model = WormModel(WORM, rec, fluorescence_of(WORM, rec, prior.sigma), prior, np.zeros(302))
    x = model.draw(np.random.default_rng(0), 20)
    start = xr.Dataset({"voltage": (("sample", "neuron"), x[:, :302]), "calcium": (("sample", "neuron"), x[:, 302:604])})
    apart = WORM.simulate(0.1, n=20, initial=start.assign_coords(neuron=list(NEURONS)))
    ancestors = np.array([3, 3, 19] * 7)
    x[7] = np.nan
    together = model.advance(np.random.default_rng(0), x, 0, 10, ancestors)
    np.testing.assert_array_equal(together[:, :302], apart["voltage"].values[ancestors, -1])
    np.testing.assert_array_equal(together[:, 302:604], apart["calcium"].values[ancestors, -1])
    assert np.isnan(model.advance(np.random.default_rng(0), x, 0, 5)[7]).all()


def test_names_shapes_and_units(small):
    _, rec, post = small
    assert post.voltage.dims == ("stat", "time", "neuron") and post.voltage.shape == (7, 21, 302)
    assert post.body.shape == (7, 21, 49, 3) and post.muscle.shape == (7, 21, 2, 48) and post.calcium.shape == (7, 21, 302)
    assert post.voltage["stat"].values.tolist() == ["mean", "sd", "q05", "q25", "q50", "q75", "q95"]
    assert post.voltage.attrs["units"] == "mV" and post.ess.shape == post.failed.shape == (21,)
    assert np.isfinite(post.log_evidence) and not post.evidence_is_unbiased and not post.failure
    for kind in (post.filtered, post.smoothed, post.predicted):
        q = [kind["voltage"].sel(stat=stat).values for stat in ("q05", "q25", "q50", "q75", "q95")]
        assert (np.diff(q, axis=0) >= 0).all()
    last = [kind["voltage"][:, -1] for kind in (post.filtered, post.smoothed)]
    np.testing.assert_allclose(*last, rtol=1e-6, atol=1e-6)  # nothing comes later; single precision is kept to be smoothed
    with pytest.raises(ValueError, match="this posterior has nothing smoothed"):
        assert post.unconditioned.smoothed
    assert (post.predicted["voltage"].sel(stat="sd") >= 0).all() and "302 neurons from 49" in repr(post)
    np.testing.assert_array_equal(post.recording.values, rec.values)
    for name in ("seed", "version", "parameters", "seconds", "core_seconds"):
        assert name in post.dataset.attrs


def test_the_same_seed_gives_the_same_posterior_on_any_number_of_threads(small):
    _, rec, post = small
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        again = vpc.impute(WORM, rec, "bootstrap", 100, 200, seed=1, progress=False)
    finally:
        numba.set_num_threads(before)
    xr.testing.assert_equal(again.dataset, post.dataset)
    other = vpc.impute(WORM, rec, "bootstrap", 100, 200, seed=2, progress=False)
    assert other.log_evidence != post.log_evidence


def test_a_sweep_that_was_killed_resumes_to_the_same_posterior(small, tmp_path, monkeypatch):
    _, rec, post = small
    monkeypatch.setattr("vpc.filter.SECONDS_PER_CHECKPOINT", 0.0)
    path, count, step = tmp_path / "sweep.zarr", iter(range(100)), SMC.__next__

    def killed(filter):
        if next(count) == 12:
            raise KeyboardInterrupt
        return step(filter)

    sizes = {"method": "bootstrap", "particles": 100, "init_particles": 200}
    settings = sizes | {"seed": 1, "progress": False, "checkpoint": path}
    monkeypatch.setattr(SMC, "__next__", killed)
    with pytest.raises(KeyboardInterrupt):
        vpc.impute(WORM, rec, **settings)
    monkeypatch.setattr(SMC, "__next__", step)
    xr.testing.assert_equal(vpc.impute(WORM, rec, **settings).dataset, post.dataset)
    with pytest.raises(ValueError, match="saved by another filter: its particles is 100, here 101"):
        vpc.impute(WORM, rec, **settings | {"particles": 101})
    for change in ({"factor": 0.3}, {"sigma": 2.0}, {"temperature": 9.0}, {"pose_spread": 0.1}, {"init_particles": 77}):
        with pytest.raises(ValueError, match="saved by another filter: its parameters is"):
            vpc.impute(WORM, rec, **settings | change)
    for change in ({"lag": 0.1}, {"draws": 3}):
        with pytest.raises(ValueError, match="saved by another filter: its collect is"):
            vpc.impute(WORM, rec, **settings | change)


def test_saved_and_opened(small, tmp_path):
    _, _, post = small
    again = vpc.open_posterior(post.save(tmp_path / "post.zarr"))
    xr.testing.assert_identical(again.dataset.load(), post.dataset)
    fan, same = (one.branch(0.5, seconds=0.2) for one in (post, again))
    xr.testing.assert_identical(fan, same)
    shuffled = vpc.Worm(connectome=vpc.Connectome.load().cut("AVAL", "DA1"))
    post_of_other = vpc.Posterior(post.dataset.assign_attrs(connectome=shuffled.connectome.label))
    opened = vpc.open_posterior(post_of_other.save(tmp_path / "other.zarr"))
    with pytest.raises(ValueError, match=r"worm is not known: .* worm="):
        opened.branch(0.5)
    run = WORM.simulate(0.1)
    from vpc.store import save_dataset

    with pytest.raises(ValueError, match="is not a posterior"):
        vpc.open_posterior(save_dataset(run, tmp_path / "run.zarr"))


def test_a_branch_with_a_control(small):
    """Clamped neurons hold, the control shares the noise, and nothing differs before the clamp begins."""
    _, _, post = small
    clamp = vpc.VoltageClamp("AVAL", mv=-10, start=0.1, stop=0.3)
    fan = post.branch(0.5, clamp, seconds=0.4, control=True, every=0.01)
    assert fan.sizes["sample"] == 100 and fan["arm"].values.tolist() == ["experiment", "control"]
    voltage = fan["voltage"].sel(neuron="AVAL")
    np.testing.assert_allclose(voltage.sel(arm="experiment", time=slice(0.11, 0.3)), -10, atol=1e-9)
    difference = np.abs(fan["voltage"].sel(arm="experiment") - fan["voltage"].sel(arm="control")).max(["sample", "neuron"])
    assert (difference.sel(time=slice(0, 0.09)) == 0).all() and (difference.sel(time=slice(0.12, 0.3)) > 1).all()
    assert np.isfinite(fan["current"].sel(arm="experiment", time=slice(0.1, 0.29))).all()
    bands = diagnose.bands(fan)
    np.testing.assert_allclose(bands["voltage"].sel(stat="mean"), fan["voltage"].mean("sample"))
    held = bands["current"].sel(arm="experiment", clamp="AVAL", time=0.2)
    assert held.sel(stat="q05") <= held.sel(stat="q50") <= held.sel(stat="q95") and held.attrs["units"] == "pA"
    begin = post.dataset["draws"].sel(time=0.5).values[:, :302]
    np.testing.assert_array_equal(fan["voltage"].sel(arm="control").values[:, 0], begin)
    mean = post.voltage.sel(stat="mean", time=0.5).values
    assert np.abs(begin.mean(axis=0) - mean).max() < 2  # draws stand for the weighted particles


def test_scores_by_hand(small):
    run, _, post = small
    score = post.score(run)
    here = run.sel(time=post.dataset["time"], method="nearest")["voltage"].sel(neuron="DB5").values
    mean, low, high = (post.voltage.sel(stat=stat, neuron="DB5").values for stat in ("mean", "q05", "q95"))
    found = score.sel(source="posterior", neuron="DB5")
    assert float(found["r"]) == pytest.approx(np.corrcoef(mean, here)[0, 1])
    assert float(found["nrmse"]) == pytest.approx(np.sqrt(np.mean((mean - here) ** 2)) / np.ptp(here))
    assert float(found["coverage"]) == pytest.approx(((here >= low - 1e-6) & (here <= high + 1e-6)).mean())
    counts = [int((score["group"] == group).sum()) for group in diagnose.GROUPS]
    assert counts[0] == 49 and sum(counts) == 302
    table = diagnose.table(score)
    motor = score["r"].sel(source="posterior").values[(score["group"] == "unobserved motor").values]
    assert table.loc[("unobserved motor", "posterior"), "r"] == np.nanmedian(motor) and ("body", "unconditioned") in table.index
    assert diagnose.medians(score)["posterior"]["r_unobserved_motor"] == np.nanmedian(motor)
    with pytest.raises(ValueError, match=r"truth must cover the posterior's frames, from 0 to 1 s"):
        post.score(run.sel(time=slice(0, 0.5)))


def test_alignment_undoes_a_rigid_motion():
    body = WORM.simulate(2)["body"].values[-1]
    turn, moved = 0.7, body.copy()
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    moved[:, :2] = body[:, :2] @ rotation.T + [3, -1]
    moved[:, 2] += turn
    np.testing.assert_allclose(diagnose.align(moved, body), body, atol=1e-12)


def test_when_every_particle_fails_the_posterior_says_why():
    """The `paper` variant blows up at a high gain: evidence -inf, with time and cause, and no exception."""
    worm = vpc.Worm("paper", parameters={"w_m": 60.0, "g_on": 0.0})
    _, rec = truth(0, 1.0)
    prior = learned_prior(WORM)
    model = WormModel(worm, rec, fluorescence_of(worm, rec, prior.sigma), prior, np.full(302, 60.0))
    filter = SMC(model, rec.values, rec.steps, 40).run()
    assert filter.log_evidence == -np.inf and filter.frames[-1].failed == 1
    assert "at frame" in filter.failure and (
        "voltage" in filter.failure or "muscle" in filter.failure or "body" in filter.failure
    )


def test_some_may_fail_and_the_others_go_on():
    """Particles whose voltage runs away are not in any summary."""
    _, rec = truth(0, 0.5)
    prior = learned_prior(WORM)
    model = WormModel(WORM, rec, fluorescence_of(WORM, rec, 50 * prior.sigma), prior, prior.noise)
    draw = model.draw

    def some_wild(rng, n):
        x = draw(rng, n)
        x[::3, 0] = 1e4
        return x

    model.draw = some_wild
    collect = {"mean": weighted_mean, "before": Predicted(weighted_mean)}
    filter = SMC(model, rec.values, rec.steps, 60, threshold=0, collect=collect).run()
    assert filter.frames[1].failed == pytest.approx(1 / 3) and np.isfinite(filter.log_evidence)
    assert np.isfinite(filter.collected["mean"]).all() and np.isfinite(filter.collected["before"][1:]).all()
    assert np.abs(np.array(filter.collected["before"])[1:, :302]).max() < 250
    assert "voltage" not in model.explain()  # in the last interval, none failed anew


def test_one_frame_is_enough():
    _, rec = truth(0, 0.5)
    post = vpc.impute(WORM, vpc.Recording(rec.values[:1], rec.neurons, [0.0]), "bootstrap", 200, progress=False)
    assert post.evidence_is_unbiased and float(post.ess[0]) > 100


@pytest.mark.parametrize("method", ["bootstrap", "guided", "ensemble"])
def test_irregular_times_and_gaps(method):
    """A dense stretch, a gap and missing neurons; the lag is in seconds, whatever the frames."""
    _, rec = truth(0, 1.0)
    values, keep = rec.values.copy(), [0, 1, 2, 8, 9, 10, 20]
    values[9] = np.nan
    values[1, :40] = np.nan
    with pytest.warns(UserWarning, match="frames are up to 0.5 s apart"):
        some = vpc.Recording(values[keep], rec.neurons, rec.time[keep])
    post = vpc.impute(WORM, some, method, 100, lag=0.1, progress=False)
    assert post.voltage.sizes["time"] == 7 and np.isfinite(post.log_evidence)
    filtered, smoothed = (kind["voltage"].sel(stat="mean").values for kind in (post.filtered, post.smoothed))
    same = [np.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in zip(filtered, smoothed, strict=True)]
    assert same[6] and not same[0] and not same[3]


def test_scores_of_spread(small):
    """The CRPS against its integral, and the kinds of posterior that can be scored."""
    run, _, post = small
    score = post.score(run, "smoothed").sel(source="posterior")
    voltage = run["voltage"].sel(time=post.dataset["time"].values, method="nearest").values
    mean, sd = (post.smoothed["voltage"].sel(stat=stat).values.astype(float) for stat in ("mean", "sd"))
    neuron = list(NEURONS).index("DB3")
    x = np.linspace(-120, 60, 20_001)
    crps = [
        np.trapezoid((stats.norm.cdf(x, m, s) - (x >= y)) ** 2, x)
        for m, s, y in zip(mean[:, neuron], sd[:, neuron], voltage[:, neuron], strict=True)
    ]
    np.testing.assert_allclose(score["crps"].sel(neuron="DB3"), np.mean(crps) / np.ptp(voltage[:, neuron]), rtol=1e-2)
    np.testing.assert_allclose(score["sd"].sel(neuron="DB3"), sd[:, neuron].mean(), rtol=1e-5)
    assert score["body_coverage"].shape == score["body_crps"].shape == (49,) and score["body_r"].shape == (48,)
    with pytest.raises(ValueError, match="kind must be 'filtered' or 'smoothed', got 'soothed'"):
        post.score(run, "soothed")


def test_what_is_gone_cannot_be_seen(small):
    with pytest.raises(ValueError, match="recording holds neurons that are ablated in the worm: AVAL; leave them out"):
        vpc.impute(WORM.ablate("AVAL"), small[1], particles=10, progress=False)


def test_backward_simulation_is_refused():
    _, rec = truth(0, 0.5)
    prior = learned_prior(WORM)
    model = WormModel(WORM, rec, fluorescence_of(WORM, rec, prior.sigma), prior, prior.noise)
    with pytest.raises(TypeError, match="calcium and body are deterministic given the voltages; smooth by `trace` or"):
        backward(SMC(model, rec.values, rec.steps, 10), 5)


def test_evidence_from_the_prior_is_exact_for_one_frame():
    """One frame: the evidence is a product over neurons of integrals over their calcium's prior, which quadrature gives."""
    _, rec = truth(0, 0.5)
    one, prior = vpc.Recording(rec.values[:1], rec.neurons, [0.0]), learned_prior(WORM)
    seen = fluorescence_of(WORM, one, prior.sigma)
    where = index(one.neurons)
    z = np.linspace(-8, 8, 20_001)[:, None]
    calcium = np.maximum(prior.calcium[where] + prior.calcium_sd[where] * z, 1e-3)
    fits = stats.norm.pdf(one.values[0], seen.full * calcium / (calcium + seen.half) + seen.dark, seen.sigma)
    exact = np.log(np.trapezoid(stats.norm.pdf(z) * fits, z, axis=0)).sum()
    model = FromPrior(WORM, one, seen, prior, prior.noise)
    ratio = np.exp([SMC(model, one.values, one.steps, 300, seed).run().log_evidence - exact for seed in range(100)])
    assert ratio.std() > 0.01 and abs(ratio.mean() - 1) < 3 * ratio.std() / 10


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments(name):
    run, rec = experiment(name, WORM, seed=1, seconds=0.5)
    same, again = experiment(name, WORM, seed=1, seconds=0.5)
    xr.testing.assert_equal(run, same)
    np.testing.assert_array_equal(rec.values, again.values)
    assert len(rec.neurons) == (302 if name == "all" else 49)
    exact = run["fluorescence"].sel(neuron=list(rec.neurons)).values[::5]
    assert np.array_equal(rec.values, exact) == (name != "noise")
    begins_at_rest = np.abs(run["voltage"].values[0] + 20).max() < 1
    assert begins_at_rest == (name == "start")
    with pytest.raises(ValueError, match="experiment must be one of .* did you mean 'paper'"):
        experiment("papr")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bootstrap", "ensemble"])
def test_noise_free_truths_are_found(method):
    """5 truths x 3 seeds, at the paper's size and by default, filtered: hidden motor neurons and body, beside a blind worm."""

    def found(seeds: tuple[int, int]) -> pd.DataFrame:
        run, rec = truth(seeds[0])
        return diagnose.table(vpc.impute(WORM, rec, method, seed=seeds[1], lag=0, progress=False).score(run))

    for table in each(found, itertools.product(range(5), range(3))):
        motor, body = table.loc[("unobserved motor", "posterior")], table.loc[("body", "posterior")]
        assert motor["r"] >= 0.97 and motor["nrmse"] <= 0.08 and body["r"] >= 0.97
        blind = table.loc[("unobserved motor", "unconditioned")]
        assert motor["nrmse"] < 0.8 * blind["nrmse"] and motor["r"] > blind["r"]


@pytest.mark.slow
def test_bands_are_calibrated():
    """20 truths from the filter's own model, 2 s each, 1500 guided particles: 90 % bands of each group cover 85-95 %.

    And the truth's rank among the weighted particles of the last frame is uniform, for a neuron of each group: Kolmogorov &
    Smirnov's p above 0.01.
    """
    prior = learned_prior(WORM)

    def sweep(seed: int) -> tuple[np.ndarray, np.ndarray]:
        run, rec = experiment("noise", WORM, seed, seconds=2.0)
        model = FromPrior(WORM, rec, fluorescence_of(WORM, rec, prior.sigma), prior, FACTOR * prior.noise)
        collect = {"bands": lambda weights, x: describe(weights, x, np.arange(302), (0.05, 0.95))[2:]}
        filter = build("guided", model, rec.values, rec.steps, 1500, seed, collect).run()
        voltage = run["voltage"].values[::5]
        bands = np.array(filter.collected["bands"])
        below = filter.x[:, index(["AVAL", "DB5", "RIAL"])] < voltage[-1, index(["AVAL", "DB5", "RIAL"])]
        inside = (voltage >= bands[:, 0]) & (voltage <= bands[:, 1])
        return inside.mean(axis=0), (filter.weights[:, None] * below).sum(axis=0)

    covered, ranks = zip(*each(sweep, range(20)), strict=True)
    observed = np.isin(list(NEURONS), vpc.KATO_NEURONS)
    motor = np.array([neuron.type == "motor" for neuron in NEURONS.values()])
    for group in (observed, motor & ~observed, ~motor & ~observed):
        assert 0.85 <= np.mean(covered, axis=0)[group].mean() <= 0.95
    for some in np.array(ranks).T:
        assert stats.kstest(some, "uniform").pvalue > 0.01


def test_all_302_observed():
    """The paper's second experiment, with 48 / 400 particles: correlation of the neurons that move by more than 1 mV."""
    run, rec = experiment("all", WORM, seed=1)
    post = vpc.impute(WORM, rec, "bootstrap", 48, 400, seed=0, progress=False)
    assert diagnose.table(post.score(run), active=1.0).loc[("observed", "posterior"), "r"] >= 0.98


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"worm": 3}, "worm must be a vpc.Worm, got int"),
        ({"recording": "file"}, "recording must be a vpc.Recording, got str"),
        (
            {"method": "bootstap"},
            "method must be one of bootstrap, guided, farsighted, ensemble, got 'bootstap'; did you mean 'bootstrap'",
        ),
        ({"particles": 1}, "particles must be a whole number of at least 2"),
        ({"init_particles": -1}, "init_particles must be a whole number of at least 0"),
        ({"factor": -1}, "factor must be from 0 to 10"),
        ({"temperature": 0}, "temperature must be a positive number"),
        ({"sigma": -1.0}, "sigma must be positive"),
        ({"sigma": np.ones(3)}, "sigma must have shape"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"scaling": "none"}, "scaling must be one of settled, paper"),
        ({"pose": np.zeros((3, 3))}, "pose must have shape"),
        ({"lag": -1}, "lag must be a number of seconds"),
    ],
)
def test_bad_input(small, changes, message):
    arguments = {"worm": WORM, "recording": small[1], "particles": 20, "init_particles": 20, "progress": False} | changes
    with pytest.raises(ValueError, match=message):
        vpc.impute(**arguments)


def test_bad_branches(small):
    _, _, post = small
    with pytest.raises(ValueError, match="at must be a moment of the recording, from 0 to 1 s, got 3"):
        post.branch(3)
    with pytest.raises(ValueError, match=r"at must be the time of a frame, got 0.52; the nearest is 0.5"):
        post.branch(0.52)
