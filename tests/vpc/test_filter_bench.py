"""`vpc bench filters` and `vpc bench evidence`, small."""

import numpy as np

from vpc import filter_bench
from vpc.filter_bench import Way, Weighing


def test_the_comparison_of_filters_can_be_read():
    """One truth of `vpc bench filters` with small filters: every way, part and figure is in the table."""
    sizes = dict.fromkeys(filter_bench.WAYS, 40)
    rows = filter_bench._averaged(filter_bench._one_truth("factor 0.3", 0, sizes))
    text = filter_bench.filters_table({"budget": 3.0, "truths": 1, "ensemble": [], "rows": rows})
    for word in (
        *filter_bench.WAYS,
        "unconditioned",
        "sd log Z",
        "median ESS",
        "crps",
        "coverage",
        "sd_ratio",
        "factor 0.3: body",
    ):
        assert word in text
    found = {(row["way"], row["what"], row["of"]): row for row in rows}
    assert found["ensemble", "filtered", "body"]["lines"] == 40 > found["bootstrap", "filtered", "body"]["lines"]
    assert np.isnan(found["bootstrap, refined start", "filtered", "body"]["bias"])  # its evidence is of another model


def test_the_comparison_of_evidence_can_be_read(monkeypatch):
    """Two values of w_s of `vpc bench evidence`, with small filters, on two recordings."""
    blind, far = Way("bootstrap", 50, 1, {}), Way("farsighted", 10, 2, {"look_ahead": 3})
    ensembles = {"ensemble": Way("ensemble", 40, 2, {}), "relived": Way("ensemble", 40, 1, {"look_back": 2})}
    small = [
        Weighing(0.2, (0, 1), (0.6, 1.0), {"bootstrap": blind, "farsighted": far, **ensembles}),
        Weighing(1.0, (0,), (0.6, 1.0), {"guided": Way("guided", 20, 1, {}), **ensembles}),
    ]
    monkeypatch.setattr(filter_bench, "WEIGHED", small)
    result = filter_bench.evidence(progress=False)
    assert [(part["factor"], part["recording"]) for part in result] == [(0.2, 0), (0.2, 1), (1.0, 0)]
    assert result[0]["swapped"] == {"bootstrap": [], "farsighted": [], "ensemble": [], "relived": []}
    text = filter_bench.evidence_table(result)
    for word in ("0.6", "1.0", "farsighted, 10", "relived ranks them as the best do.", "factor of 1,", "guided, 20", "core-s"):
        assert word in text


def test_the_ensemble_ranks_as_particles_do_where_their_seeds_agree(monkeypatch):
    """w_s off by 20 and 40 %, at a factor of 1: the ensemble's evidence is some ten nats too low, and in order.

    10,000 guided particles have w_s times 0.6, 1.4 and 0.8 at -27, -14 and -5 nats, with a sd of 1.
    """
    ways = {"guided": Way("guided", 1000, 1, {}), "ensemble": Way("ensemble", 200, 3, {})}
    monkeypatch.setattr(filter_bench, "WEIGHED", [Weighing(1.0, (0,), (0.6, 1.4, 0.8, 1.0), ways)])
    (result,) = filter_bench.evidence(progress=False)
    assert (np.diff([row["ensemble"] for row in result["rows"]]) > 0).all()
    assert all(-60 < row["ensemble"] - row["guided"] < 10 for row in result["rows"])


def test_pairs_that_are_ranked_otherwise():
    rows = [{"scale": k, "best": -float(k), "other": -abs(k - 2.0)} for k in (1, 2, 3)]
    assert filter_bench._swapped(rows, "other") == [(2, 1, 1.0)]
