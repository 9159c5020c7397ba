"""What a corpus teaches, and poses to start from."""

import numpy as np
import pytest

import vpc
from vpc.experiments import experiment
from vpc.initialise import CORPUS, draw_start, learned_prior, noise_profile, pose_along, poses
from wormsim import geometry as geo


def test_the_corpus_gives_prior_noise_and_sigma():
    """By hand, from the same 48 runs."""
    worm = vpc.Worm()
    run = worm.simulate(5, CORPUS, n=48)
    late = run.sel(time=slice(2, None))
    prior = learned_prior(worm)
    np.testing.assert_allclose(prior.voltage, late["voltage"].mean(["sample", "time"]))
    np.testing.assert_allclose(prior.calcium_sd, late["calcium"].std(["sample", "time"]))
    spread = late["voltage"].std(["sample", "time"]).values
    np.testing.assert_allclose(prior.noise, np.maximum(5 * spread / spread.max(), 0.0005))
    variance = run["fluorescence"].var(["sample", "time"]).values
    np.testing.assert_allclose(prior.sigma**2, 0.02 * np.sqrt(1.1 * variance / (variance.max() + 0.1)))
    paper = learned_prior(worm, "paper")
    extent = (run["voltage"].max("time") - run["voltage"].min("time")).mean("sample").values
    np.testing.assert_allclose(paper.noise, np.maximum(5 * extent / extent.max(), 0.0005))
    assert np.median(paper.noise) > 20 * np.median(prior.noise)  # the transient counts as signal there


def test_it_is_learned_once_for_each_worm():
    worm = vpc.Worm()
    assert learned_prior(worm) is learned_prior(vpc.Worm())
    with pytest.raises(ValueError, match="read-only"):
        learned_prior(worm).sigma[0] = 1
    assert learned_prior(worm) is not learned_prior(worm.with_parameters(w_s=9.0))
    assert learned_prior(worm) is not learned_prior(worm.ablate("AVAL"))


def test_a_start_from_the_prior():
    worm = vpc.Worm()
    start, prior = draw_start(worm, 3), learned_prior(worm)
    z = (start["voltage"].values - prior.voltage) / prior.voltage_sd
    assert 0.8 < z.std() < 1.2 and (start["calcium"] > 0).all()
    run = worm.simulate(0.1, initial=start)
    np.testing.assert_array_equal(run["voltage"].values[0], start["voltage"].values)
    assert not np.array_equal(start["voltage"], draw_start(worm, 4)["voltage"])


def test_a_pose_along_a_curve():
    """A straight line gives the straight worm, and an arc of a circle its curvature, whatever the number of points."""
    line = np.stack([np.linspace(0, 1.3, 9), np.zeros(9)], axis=1)
    np.testing.assert_allclose(pose_along(line), geo.straight()[0], atol=1e-6)
    angle = np.linspace(0, 2.0, 30)
    arc = pose_along(0.5 * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=1))
    np.testing.assert_allclose(np.diff(arc[:, 2]) / geo.SEGMENT_LENGTH, 2.0, atol=0.02)
    np.testing.assert_allclose(np.hypot(*np.diff(arc[:, :2], axis=0).T), geo.SEGMENT_LENGTH, rtol=1e-9)


def test_poses_around_another():
    rng = np.random.default_rng(0)
    assert (poses(None, 0.0, rng, 3) == geo.straight()).all()
    many = poses(None, 0.2, rng, 4000)
    assert many[:, :, 2].std(axis=0) == pytest.approx(np.full(49, 0.2), rel=0.5)
    np.testing.assert_allclose(np.hypot(*np.moveaxis(np.diff(many[:, :, :2], axis=1), 2, 0)), geo.SEGMENT_LENGTH)


def test_bad_input():
    with pytest.raises(ValueError, match="scaling must be one of settled, paper, got 'setled'; did you mean 'settled'"):
        learned_prior(vpc.Worm(), "setled")
    with pytest.raises(ValueError, match="points must be at least 4 places"):
        pose_along(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="points must differ"):
        pose_along(np.zeros((5, 2)))


def test_noise_is_chosen_by_evidence():
    """A truth of 3 s with noise at factor 0.3 and the corpus's sigma: both are found among others, and can be imputed with."""
    worm = vpc.Worm()
    _, rec = experiment("noise", worm, seed=1, seconds=3.0, factor=0.3)
    profile = noise_profile(worm, rec, (0.05, 0.3, 1.5), (0.5, 1.0, 2.0), progress=False)
    assert profile.attrs["factor"] == 0.3 and profile.attrs["width"] == 1.0
    assert profile["log_evidence"].dims == ("factor", "width") and profile["log_evidence"].attrs["units"] == "nats"
    best = float(profile["log_evidence"].max())
    assert (np.delete(profile["log_evidence"].values.ravel(), 4) < best - 10).all()
    np.testing.assert_array_equal(profile["sigma"], learned_prior(worm).sigma[vpc.connectome.index(rec.neurons)])
    settings = {"factor": profile.attrs["factor"], "sigma": profile["sigma"].values}
    assert np.isfinite(vpc.impute(worm, rec, particles=50, lag=0, progress=False, **settings).log_evidence)
    with pytest.raises(ValueError, match="factor must be from 0 to 10"):
        noise_profile(worm, rec, (-1.0,), progress=False)
