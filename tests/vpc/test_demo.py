"""The demonstration page in a real browser: it plays, it asks nothing of the network, and it looks right."""

from pathlib import Path

import numpy as np
import pytest

import wormsim
from vpc.demo import write_demo

ARTEFACTS = Path(__file__).parents[2] / "artefacts"


@pytest.fixture(scope="module")
def page(open_page, tmp_path_factory):
    path, _ = write_demo(tmp_path_factory.mktemp("demo"), seconds=4, progress=False)
    page = open_page(path)
    page.wait_for_function("window.Bokeh && Bokeh.documents.length == 1 && Bokeh.documents[0].is_idle")
    return page


def models(page, what: str) -> list:
    """Run JavaScript over the page's Bokeh models."""
    return page.evaluate(f"[...Bokeh.documents[0].all_models.values()].{what}")


def test_four_worms_play(page):
    slider, quads = "filter(m => m.type == 'Slider')", "filter(m => m.data && m.data.xs).map(m => m.data.xs[0])"
    before = models(page, quads)
    assert len(before) == 4
    for _ in range(4):
        page.get_by_role("button", name="play").first.click()
    page.wait_for_timeout(1500)
    assert all(value > 0.3 for value in models(page, f"{slider}.map(m => m.value)"))
    assert all(a != b for a, b in zip(before, models(page, quads), strict=True))
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "demo.png", full_page=True)
    for _ in range(4):
        page.get_by_role("button", name="pause").first.click()
    page.wait_for_timeout(100)
    stopped = models(page, f"{slider}.map(m => m.value)")
    page.wait_for_timeout(300)
    assert models(page, f"{slider}.map(m => m.value)") == stopped


def test_the_browser_draws_what_python_draws(page):
    """draw.js at time 0 gives the outline that Python puts there to begin with."""
    page.evaluate(
        "for (const m of Bokeh.documents[0].all_models.values()) if (m.type == 'Slider') { m.value = 1; m.value = 0 }"
    )
    drawn = models(page, "filter(m => m.data && m.data.xs).map(m => [m.data.xs, m.data.ys])")
    centre = np.arange(wormsim.geometry.RODS) * wormsim.geometry.SEGMENT_LENGTH
    for xs, ys in drawn:
        xs, ys = np.array(xs), np.array(ys)
        np.testing.assert_allclose(xs[:48, 0], centre[:-1], atol=1e-6)
        np.testing.assert_allclose(ys[:48, 3], wormsim.geometry.RADIUS[:-1], atol=1e-6)
        np.testing.assert_allclose(ys[48:, 3], -wormsim.geometry.RADIUS[:-1], atol=1e-6)


def test_no_network_and_no_complaints(page):
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.complaints == []
