"""The clamp rig in a real JupyterLab and, as `vpc rig`, in Voilà: it answers to hands, and asks nothing of the network."""

import json
import statistics
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers import ARTEFACTS, served

from vpc import VoltageClamp, protocol

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "08_the_clamp_rig.ipynb"
HARMLESS = (
    "Unsatisfied version",  # Voilà's own parts are of an older JupyterLab
    "No satisfying version",
    "GPU stall due to ReadPixels",  # Chromium draws without a GPU
)

# Moves a slider by one step there and back; ms from each key to the curves of the new run being drawn.
LATENCIES = """async ([handle, scope, count]) => {
  const taken = [];
  for (let k = 0; k < count; k++) {
    const drawn = new Promise((done) => new MutationObserver((_, seen) => { seen.disconnect(); done(performance.now()); })
      .observe(scope, { attributeFilter: ["data-version"] }));
    const begin = performance.now();
    handle.dispatchEvent(new KeyboardEvent("keydown", { key: k % 2 ? "ArrowRight" : "ArrowLeft", bubbles: true }));
    taken.push((await drawn) - begin);
    await new Promise((done) => setTimeout(done, 300));
  }
  return taken;
}"""
COUNT_PICTURES = """() => {
  const clear = CanvasRenderingContext2D.prototype.clearRect; // which the worm's canvas calls once a picture
  window.pictures = 0;
  CanvasRenderingContext2D.prototype.clearRect = function (...box) { window.pictures++; clear.apply(this, box); };
}"""


@pytest.fixture(scope="module", params=["jupyterlab", "voila"])
def page(request, open_page, tmp_path_factory):
    """The rig with 200 worms of a posterior in JupyterLab, with one worm in Voilà."""
    if request.param == "jupyterlab":
        page = request.getfixturevalue("open_notebook")(NOTEBOOK, width=1700, height=1700)
        yield page
        page.close()
    else:
        folder = tmp_path_factory.mktemp("voila")
        with served("voila", folder, "vpc.cli", "rig", "--port={port}", "--no-browser") as address:
            page = open_page(address, width=1500, height=1100)
            page.locator("canvas.vpc-scope[data-version]").first.wait_for(timeout=120_000)
            yield page
            page.close()


@contextmanager
def redrawn(page):
    """What is done in here must change the curves that are seen."""
    scope = page.locator("canvas.vpc-scope").first.element_handle()
    page.wait_for_timeout(500)
    version, picture = scope.evaluate("canvas => [canvas.dataset.version, canvas.toDataURL()]")  # at once: it may be live
    yield
    page.wait_for_function("([scope, version]) => scope.dataset.version !== version", arg=[scope, version])
    assert scope.evaluate("canvas => canvas.toDataURL()") != picture


def field(page, name):
    return page.locator(".vpc-rig .widget-inline-hbox", has=page.get_by_text(name, exact=True))


def test_opening_it_does_nothing(page):
    """A slider whose arithmetic is not exact would send another value back when it is drawn, and run the rig anew.

    In the notebook it would come after the cell that sets -60 mV, and undo it.
    """
    page.wait_for_timeout(1000)
    if "/lab/" in page.url:
        assert "60.0" in field(page, "level (mV)").inner_text()
        return
    assert field(page, "protocol").locator("textarea").input_value() == "[]"
    assert page.locator("canvas.vpc-scope").first.get_attribute("data-version") == "1"


def test_moving_a_slider(page):
    handle = field(page, "w_m").locator(".noUi-handle")
    with redrawn(page):
        handle.press("ArrowLeft")
    scope = page.locator("canvas.vpc-scope").first.element_handle()
    taken = page.evaluate(LATENCIES, [handle.element_handle(), scope, 20])
    print(f"slider to curves: median {statistics.median(taken):.0f} ms, {min(taken):.0f} to {max(taken):.0f}")
    ARTEFACTS.mkdir(exist_ok=True)
    page.locator(".vpc-rig").screenshot(path=ARTEFACTS / f"rig_{page.url.split('/')[3] or 'voila'}.png")


def test_typing_a_protocol(page):
    scope, note = page.locator("canvas.vpc-scope").first, page.locator(".vpc-note")
    text = field(page, "protocol").locator("textarea")

    def typed(words):
        text.fill(words)
        text.blur()

    with redrawn(page):
        typed(protocol.dumps(VoltageClamp("AVAL", -25, start=0.1)))
    assert json.loads(text.input_value())[0]["mv"] == -25 and note.inner_text().strip() == ""
    drawn = scope.evaluate("canvas => [canvas.dataset.version, canvas.height]")
    typed("hold AVAL at -20")
    page.locator(".vpc-bad textarea").wait_for()
    assert note.inner_text().strip() and scope.evaluate("canvas => [canvas.dataset.version, canvas.height]") == drawn
    with redrawn(page):
        typed("[]")
    assert page.locator(".vpc-bad").count() == 0
    assert scope.evaluate("canvas => canvas.height") < drawn[1]  # neither command nor current


def test_branching_and_coming_back(page):
    box = page.locator("canvas.vpc-scope").first.bounding_box()
    rewind = page.get_by_role("button", name="rewind")
    assert rewind.is_disabled()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)  # the cursor
    with redrawn(page):
        page.get_by_role("button", name="branch").click()
    with redrawn(page):
        rewind.click()
    assert rewind.is_disabled()


def test_the_worm_plays_and_lives(page):
    page.evaluate(COUNT_PICTURES)
    page.get_by_role("button", name="play", exact=True).click()
    page.wait_for_timeout(300)
    begin = page.evaluate("[performance.now(), window.pictures]")
    page.wait_for_timeout(2000)
    end = page.evaluate("[performance.now(), window.pictures]")
    rate = 1000 * (end[1] - begin[1]) / (end[0] - begin[0])
    print(f"pictures a second: {rate:.0f}")  # as the machine allows; test_canvas.py has what does not depend on it
    assert rate > 0
    live = page.get_by_role("button", name="live")
    with redrawn(page):
        live.click()
    with redrawn(page):
        live.click()


def test_asks_nothing_of_the_network_and_complains_of_nothing(page):
    assert [url for url in page.requests if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))] == []
    assert [text for text in page.complaints if not any(words in text for words in HARMLESS)] == []
