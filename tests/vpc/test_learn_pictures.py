"""Pictures of searches: what they show, and that they can be drawn."""

import holoviews as hv
import numpy as np
from test_identify import PEAK
from twins import exact, particles

from vpc import learn, plot


def drawn(picture):
    """The picture as Bokeh draws it, or an error."""
    return hv.renderer("bokeh").get_plot(picture)


def test_convergence_shows_objective_checks_and_parameters():
    fit = learn.pmvo(exact(), steps=20, progress=False)
    left, right = plot.convergence(fit, PEAK)
    labels = [element.label for element in left]
    assert labels == ["objective", "checked"]
    np.testing.assert_array_equal(left.Curve.Objective["objective"], fit.trace["objective"])
    assert {element.label for element in right if isinstance(element, hv.Curve)} == {"W[0,1]", "process_noise"}
    assert sum(isinstance(element, hv.HLine) for element in right) == 2
    drawn(plot.convergence(fit, PEAK))
    drawn(plot.convergence(learn.parallel_tempering(particles(), steps=3, progress=False)))


def test_a_search_can_be_watched():
    live = plot.Convergence(PEAK)
    fit = learn.pmvo(exact(), steps=5, progress=False, watch=live)
    left, right = live.view.object
    np.testing.assert_array_equal(left.Curve.Objective["objective"], fit.trace["objective"])
    assert sum(isinstance(element, hv.Curve) for element in right) == 2
    live.view.get_root()  # can be drawn


def test_gaps_are_medians_of_restarts():
    ways = [{"way": {"evaluations": [1, 10, 100], "gap": [-1000.0, -10.0 * k, 5.0]}} for k in (1, 2, 3)]
    picture = plot.gaps({"one": ways}, particles=200)
    curve = picture.Curve.One
    x, y = curve["sweeps"], curve["gap"]
    assert (x.min(), round(x.max())) == (200, 20_000)
    assert y[0] == 1000
    assert y[np.searchsorted(x, 4000)] == 20
    assert y[-1] == 1  # above the truth
    drawn(picture)


def test_profiles_show_evidence_band_and_truth():
    report = learn.identifiability(exact(), at=PEAK, progress=False)
    picture = plot.profiles(report, PEAK)
    assert len(picture) == 3
    first = next(iter(picture))
    assert [type(element) for element in first] == [hv.VSpan, hv.Curve, hv.Scatter, hv.VLine]
    assert list(picture)[2].kdims == ["W[0,1]", "process_noise"]
    drawn(picture)
