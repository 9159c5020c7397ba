"""The stored results of full size, which notebooks 10 and 11 show: what the README says of them."""

import json
from pathlib import Path

import numpy as np
import pytest

RESULTS = Path(__file__).parents[2] / "notebooks" / "results"
TRUTH = {"w_m": 9.0, "w_s": 10.3}


def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def gaps(name):
    return np.array([one["gap"] for one in stored(name)["restarts"]])


def test_pmvo_is_ahead_of_tempering_ahead_of_pmmh():
    """In the median of 8 restarts with the paper's steps; and PMVO comes within 50 nats of the truth, from thousands."""
    found = {name: gaps(f"ar_{name}") for name in ("pmvo", "pt", "pmmh")}
    assert all(len(one) == 8 for one in found.values())
    assert np.median(found["pmvo"]) > -50
    assert np.median(found["pmvo"]) > np.median(found["pt"]) > np.median(found["pmmh"])
    assert found["pmvo"].min() > max(found["pt"].max(), found["pmmh"].max())
    assert max(one["way"]["gap"][0] for one in stored("ar_pmvo")["restarts"]) < -5000
    sweeps = [one["evaluations"] for one in stored("ar_pmvo")["restarts"]]
    assert min(sweeps) * stored("ar_pmvo")["filter"]["particles"] >= 8e6


def test_twenty_restarts_find_the_worm():
    restarts = stored("worm_restarts")["restarts"]
    assert len(restarts) == 20
    for name, most in (("w_s", 0.10), ("w_m", 0.20)):
        error = [abs(one["best"][name] / TRUTH[name] - 1) for one in restarts]
        assert np.median(error) <= most
    assert np.median(gaps("worm_restarts")) >= -10


def test_the_papers_search_takes_minutes():
    """500 steps of 8 samples, 90 bootstrap particles of 500: at most 15 minutes on two cores."""
    result = stored("worm_paper")
    (one,) = result["restarts"]
    assert (result["plan"]["steps"], result["plan"]["samples"]) == (500, 8)
    assert result["filter"] == {"method": "bootstrap", "particles": 90}
    assert one["core_seconds"] <= 2 * 15 * 60


def test_with_all_neurons_seen_both_are_within_5_percent():
    for one in stored("worm_all")["restarts"]:
        for name, value in TRUTH.items():
            assert one["best"][name] == pytest.approx(value, rel=0.05)


def test_two_dozen_parameters_make_held_out_frames_likelier():
    result = stored("worm_many")
    (one,) = result["restarts"]
    assert sum(len(groups) for groups in result["truth"].values()) == 24
    assert one["held_out"]["best"] > one["held_out"]["start"] + 10
