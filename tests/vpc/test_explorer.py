"""`explore` in a real browser: one slider moves the worm, its neurons and the cursors, and nothing is asked of the network."""

import json
from pathlib import Path

import numpy as np
import pytest
from bokeh.embed import components, json_item
from bokeh.models import ColumnDataSource, Slider
from bokeh.resources import Resources

import vpc
from vpc import plot
from vpc.connectome import NEURONS
from vpc.explorer import places
from wormsim import geometry as geo

ARTEFACTS = Path(__file__).parents[2] / "artefacts"


@pytest.fixture(scope="module")
def run():
    return vpc.Worm().simulate(seconds=4, seed=0, progress=False)


@pytest.fixture(scope="module")
def page(open_page, run, tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "index.html"
    script, part = components(plot.explore(run.isel(time=slice(100, None))))  # so that time does not begin at 0
    scripts = "".join(
        f"<script>{text}</script>" for text in Resources(mode="inline", components=["bokeh", "bokeh-widgets"]).js_raw
    )
    path.write_text(f"<!doctype html><html><head><meta charset='utf-8'>{scripts}</head><body>{part}{script}</body></html>")
    page = open_page(path)
    page.wait_for_function("window.Bokeh && Bokeh.documents.length == 1 && Bokeh.documents[0].is_idle")
    return page


def models(page, what: str) -> list:
    """Run JavaScript over the page's Bokeh models."""
    return page.evaluate(f"[...Bokeh.documents[0].all_models.values()].{what}")


def go_to(page, value: float) -> None:
    models(page, f"filter(m => m.type == 'Slider').map(m => m.value = {value})")


def dots(page) -> dict:
    return models(page, "filter(m => m.data && m.data.change).map(m => ({name: m.data.name, ...Object.fromEntries("
                  "['x', 'y', 'volts', 'change'].map(k => [k, Array.from(m.data[k])]))}))")[0]  # fmt: skip


CURSORS = "filter(m => m.type == 'Span' && m.dimension == 'height').map(m => m.location)"
QUADS = "filter(m => m.data && m.data.xs).map(m => m.data.xs[0])[0]"


def test_somata_lie_inside_the_body_and_the_cord_is_ventral():
    position, side = places(NEURONS)
    assert np.abs(side).max() < 1 and position.min() >= 0 and position.max() <= 1
    cord = [k for k, name in enumerate(NEURONS) if NEURONS[name].neuron_class in ("VA", "VB", "VD", "DD")]
    assert np.all(side[cord] < -0.5)
    names = list(NEURONS)
    for dorsal, ventral in (("RMED", "RMEV"), ("IL2DL", "IL2VL"), ("CEPDR", "CEPVR")):
        assert side[names.index(dorsal)] > side[names.index(ventral)] + 0.3
    assert side[names.index("AVAL")] != side[names.index("AVAR")]  # not on top of each other


def test_ten_seconds_take_less_than_two_megabytes(run):
    ten = run.isel(time=np.arange(1001) % run.sizes["time"]).assign_coords(time=np.arange(1001) * 0.01)
    size = len(json.dumps(json_item(plot.explore(ten))))
    print(f"{size / 1e6:.2f} MB")
    assert size < 2e6


def test_refuses_what_it_cannot_show(run):
    with pytest.raises(ValueError, match="run holds no 'body'"):
        plot.explore(run[["voltage"]])
    with pytest.raises(ValueError, match=r"at least 0.1 s"):
        plot.explore(run.assign(ok=run["time"] < 0.055))
    with pytest.raises(vpc.UnknownNeuron):
        plot.explore(run, "AVALL")


def test_shows_a_failed_worm_until_it_fails(run):
    failed = run.where(run["time"] < 2).assign(ok=run["time"] < 2, objects=run["objects"])
    layout = plot.explore(failed)
    assert layout.select_one({"type": Slider}).end == pytest.approx(2, abs=0.05)
    held = [m.data["values"] for m in layout.references() if isinstance(m, ColumnDataSource) and "values" in m.data]
    assert all(np.isfinite(values).all() for values in held)


def test_the_slider_moves_the_worm_its_neurons_and_both_cursors(page, run):
    worm = models(page, QUADS)
    assert models(page, CURSORS) == pytest.approx([1, 1])
    go_to(page, 2.0)
    assert models(page, CURSORS) == pytest.approx([3, 3])
    assert models(page, QUADS) != worm
    frame = run.sel(time=3.0, method="nearest")
    drawn = dots(page)
    assert drawn["name"] == list(NEURONS)
    every = 7  # frames of 10 ms, to have no more than 15 a second
    voltage = run["voltage"].values[100::every][round(2.0 / (every * 0.01))]
    np.testing.assert_allclose(drawn["volts"], voltage, rtol=1e-6)
    rods = frame["body"].values
    position, side = places(NEURONS)
    x, y, angle, radius = (np.interp(position, np.linspace(0, 1, 49), values) for values in (*rods.T, geo.RADIUS))
    np.testing.assert_allclose(drawn["x"], x + side * radius * np.cos(angle), atol=0.01)
    np.testing.assert_allclose(drawn["y"], y + side * radius * np.sin(angle), atol=0.01)


def test_the_browser_draws_what_python_draws(page, run):
    go_to(page, 1)
    go_to(page, 0)
    first = plot.explore(run.isel(time=slice(100, None)))
    source = next(m.data for m in first.references() if isinstance(m, ColumnDataSource) and "change" in m.data)
    drawn = dots(page)
    for name in ("x", "y", "volts", "change"):
        np.testing.assert_allclose(drawn[name], source[name], atol=1e-4)


def test_a_click_on_the_map_or_the_traces_goes_there(page):
    views = page.locator(".bk-Figure")
    for k in (1, 2):
        go_to(page, 0)
        box = views.nth(k).bounding_box()
        page.mouse.click(box["x"] + 80 + 0.5 * 530, box["y"] + box["height"] / 2)  # the middle of the frame
        page.wait_for_timeout(400)
        assert models(page, "filter(m => m.type == 'Slider').map(m => m.value)")[0] == pytest.approx(1.5, abs=0.1)


def test_plays_and_pauses(page):
    go_to(page, 0)
    page.get_by_role("button", name="play").click()
    page.wait_for_timeout(1500)
    assert models(page, CURSORS)[0] > 1.5
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "explore.png", full_page=True)
    page.get_by_role("button", name="pause").click()
    page.wait_for_timeout(100)
    stopped = models(page, CURSORS)
    page.wait_for_timeout(300)
    assert models(page, CURSORS) == stopped


def test_no_network_and_no_complaints(page):
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.complaints == []
