"""The demonstration page in a real browser: it plays, it asks nothing of the network, and it looks right."""

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

import wormsim
from vpc.demo import write_demo

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]  # fmt: skip


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    path, _ = write_demo(tmp_path_factory.mktemp("demo"), seconds=4, progress=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 900, "height": 2200})
        page.complaints, page.requests = [], []
        page.on(
            "console", lambda message: page.complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_function("window.Bokeh && Bokeh.documents.length == 1 && Bokeh.documents[0].is_idle")
        yield page
        browser.close()


def models(page, what: str) -> list:
    """Run JavaScript over the page's Bokeh models."""
    return page.evaluate(f"[...Bokeh.documents[0].all_models.values()].{what}")


def test_three_worms_play(page):
    slider, quads = "filter(m => m.type == 'Slider')", "filter(m => m.data && m.data.xs).map(m => m.data.xs[0])"
    before = models(page, quads)
    assert len(before) == 3
    for _ in range(3):
        page.get_by_role("button", name="play").first.click()
    page.wait_for_timeout(1500)
    assert all(value > 0.3 for value in models(page, f"{slider}.map(m => m.value)"))
    assert all(a != b for a, b in zip(before, models(page, quads), strict=True))
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "demo.png", full_page=True)
    for _ in range(3):
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
