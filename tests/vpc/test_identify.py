"""Identifiability: curvature and contraction against Kalman's evidence, and what the report says in words."""

import numpy as np
import pytest
from twins import BASE, PRIORS, Exact, exact, particles, seen

from vpc import learn
from vpc.learn import priors
from vpc.learn.targets import Sweep

PEAK = {"W": {"0,1": 0.3}, "process_noise": 0.4}


def test_curvature_and_contraction_are_those_of_the_evidence():
    """Beside second differences of Kalman's evidence, to 15 %; the evidence is no exact parabola."""
    target = exact()
    centre = target.space.free(target.space.point(PEAK))

    def evidence(*offset):
        return target(Sweep(tuple(target.space.value(centre + np.array(offset))), 0))[0]

    h = 0.2
    own = [-(evidence(h, 0) - 2 * evidence(0, 0) + evidence(-h, 0)) / h**2]
    own.append(-(evidence(0, h) - 2 * evidence(0, 0) + evidence(0, -h)) / h**2)
    mixed = -(evidence(h, h) - evidence(h, -h) - evidence(-h, h) + evidence(-h, -h)) / (4 * h**2)
    matrix = np.array([[own[0], mixed], [mixed, own[1]]])
    report = learn.identifiability(target, at=PEAK, progress=False)
    found = report.dataset["curvature"].values
    assert np.abs(found - matrix).max() < 0.15 * np.abs(matrix).max()
    sd = np.sqrt(np.diag(np.linalg.inv(np.eye(2) + matrix)))
    np.testing.assert_allclose(report.dataset["contraction"].values, sd, rtol=0.1)
    assert report.dataset.attrs["scatter"] == 0
    assert report.verdict("W[0,1]") == "weakly determined"


def test_what_the_data_do_not_tell_is_said():
    """K has no part in the twin; the level d of its saturating sibling has, but d and F of a quiet one are tied."""
    report = learn.identifiability(
        Exact(BASE, seen(), {**PRIORS, "K": priors.normal(1, 0.1)}), at={**PEAK, "K": 1.0}, progress=False
    )
    assert report.verdict("K") == "not determined"
    assert "K is not determined" in str(report)
    assert "The data do not determine K." in str(report)
    assert report.dataset["contraction"].sel(parameter="K") == pytest.approx(1)
    assert report.dataset.sizes["pair"] == 3


class Sum(Exact):
    """Only the sum of two parameters counts."""

    def __call__(self, sweep):
        u = self.space.free(np.array(sweep.theta))
        return float(-50 * np.square(u.sum())), ""


def test_parameters_that_are_tied_are_said_to_be():
    target = Sum(BASE, seen(), PRIORS)
    middle = target.space.named(target.space.value(np.zeros(2)))
    report = learn.identifiability(target, at=middle, progress=False)
    assert "W[0,1] and process_noise are tied: a rise of one is made up for by a fall of the other" in str(report)
    np.testing.assert_allclose(report.dataset["contraction"], np.sqrt(101 / 201), rtol=1e-3)  # of (1 + H)^-1
    assert report.verdict("W[0,1]") == "weakly determined"


class Noise(Exact):
    """Evidence that has nothing to do with the parameters."""

    sd = 10.0

    def __call__(self, sweep):
        return float(self.sd * np.random.default_rng(abs(hash(sweep)) % 2**32).standard_normal()), ""


@pytest.mark.parametrize("sd", [1.0, 10.0, 50.0])
def test_noise_determines_nothing(sd, monkeypatch):
    """40 verdicts on pure noise: none is "determined", and few are anything else; an sd of 10 nats is too much to tell."""
    monkeypatch.setattr(Noise, "sd", sd)
    verdicts = []
    for seed in range(20):
        report = learn.identifiability(Noise(BASE, seen(), PRIORS), at=PEAK, seed=seed, pairs=False, progress=False)
        verdicts += [report.verdict(label) for label in ("W[0,1]", "process_noise")]
    assert verdicts.count("determined") <= 1
    assert verdicts.count("not determined") >= 34
    assert ("too much to tell" in str(report)) == (sd >= 10)


def test_without_evidence_the_interval_is_the_priors():
    """Wherever one looks."""
    flat = type("Flat", (Exact,), {"__call__": lambda self, sweep: (0.0, "")})(BASE, seen(), PRIORS)
    report = learn.identifiability(flat, at={"W": {"0,1": 0.6}, "process_noise": 0.4}, progress=False)
    one = report.dataset.sel(parameter="W[0,1]")
    np.testing.assert_allclose([one["low"], one["high"]], [0.3 - 1.645 * 0.15, 0.3 + 1.645 * 0.15], rtol=1e-2)


def test_failures_are_survived_or_told(monkeypatch):
    real = Exact.__call__
    monkeypatch.setattr(Exact, "__call__", lambda self, sweep: (-np.inf, "no") if sweep.theta[0] > 0.4 else real(self, sweep))
    report = learn.identifiability(exact(), at=PEAK, progress=False)
    assert np.isfinite(report.dataset["contraction"]).all()
    assert np.isfinite(report.dataset.attrs["scatter"])
    monkeypatch.setattr(Exact, "__call__", lambda self, sweep: (-np.inf, "no"))
    with pytest.raises(ValueError, match="at gives no evidence"):
        learn.identifiability(exact(), at=PEAK, progress=False)


def test_sweeps_scatter():
    report = learn.identifiability(particles(), at=PEAK, sweeps=4, pairs=False, progress=False)
    assert 0.05 < report.dataset.attrs["scatter"] < 2
    assert "slice" not in report.dataset
    with pytest.raises(ValueError, match="at lies outside the prior"):
        learn.identifiability(particles(), at={"W": {"0,1": 0.3}, "process_noise": -1.0}, progress=False)
