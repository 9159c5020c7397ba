"""The canvas: what it sends to the browser, and how it plays there with a stand-in for Jupyter's model."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vpc
import wormsim
from vpc.canvas import WormCanvas
from vpc.plot import canvas

ARTEFACTS = Path(__file__).parents[2] / "artefacts"

# Jupyter's model in a few lines; clearRect is called once a picture, so it counts them.
PAGE = """<!doctype html><html><body style="margin: 8px; width: 800px"><div id="worm"></div><script type="module">
const data = %s;
for (const name of ["body", "muscle", "voltage", "objects"])
  data[name] = new DataView(Uint8Array.from(atob(data[name]), (c) => c.charCodeAt(0)).buffer);
const listeners = {};
window.model = {
  saves: 0,
  get: (name) => data[name],
  set: (name, value) => {
    if (data[name] === value) return;
    data[name] = value;
    for (const f of listeners["change:" + name] || []) f();
  },
  on: (name, f) => (listeners[name] ||= []).push(f),
  off: (name, f) => { listeners[name] = listeners[name].filter((g) => g !== f); },
  save_changes: () => { window.model.saves++; },
};
window.drawn = 0;
window.seen = new Set();
const clear = CanvasRenderingContext2D.prototype.clearRect;
CanvasRenderingContext2D.prototype.clearRect = function (...box) {
  window.drawn++;
  window.seen.add(window.model.get("frame"));
  clear.apply(this, box);
};
const esm = new Blob([%s], { type: "text/javascript" });
const widget = (await import(URL.createObjectURL(esm))).default;
window.end = widget.render({ model: window.model, el: document.getElementById("worm") });
</script></body></html>"""


@pytest.fixture(scope="module")
def run():
    return vpc.Worm(objects=wormsim.square_posts()).simulate(seconds=3, seed=0, progress=False)


@pytest.fixture(scope="module")
def widget(run):
    return WormCanvas(run)


@pytest.fixture
def page(open_page, widget, tmp_path):
    held = ("fps", "frame", "playing", "view", "aspect", "radius", "position", "side")
    traits = {name: getattr(widget, name) for name in held}
    traits |= {name: base64.b64encode(getattr(widget, name)).decode() for name in ("body", "muscle", "voltage", "objects")}
    path = tmp_path / "canvas.html"
    path.write_text(PAGE % (json.dumps(traits), json.dumps(WormCanvas._esm)))
    page = open_page(path, width=820, height=500)
    page.wait_for_function("typeof window.end == 'function'")
    yield page
    page.close()


def test_holds_the_run(run, widget):
    every = round(1 / (widget.fps * 0.01))
    assert widget.fps >= 30
    body = np.frombuffer(widget.body, np.float32).reshape(-1, 49, 3)
    np.testing.assert_allclose(body, run["body"].values[::every], atol=1e-5)
    muscle = np.frombuffer(widget.muscle, np.uint8).reshape(-1, 2, 48)
    np.testing.assert_allclose(muscle / 255, run["muscle"].values[::every], atol=0.5 / 255 + 1e-9)
    voltage = np.frombuffer(widget.voltage, np.uint8).reshape(-1, 302).astype(float)
    change = (run["voltage"] - run["voltage"].mean("time")).values[::every]
    assert len(body) == len(muscle) == len(voltage)
    assert np.all((voltage > 128) <= (change > 0)) and np.all((voltage < 127) <= (change < 0))
    np.testing.assert_allclose(np.frombuffer(widget.objects, np.float32), run["objects"].values.ravel(), atol=1e-6)


def test_body_alone_is_enough(run):
    alone = canvas(run[["body"]])
    assert alone.muscle == alone.voltage == alone.objects == b"" and alone.body


def test_push_shows_one_frame(run):
    live = WormCanvas()
    assert live.body == b""
    frame = run.isel(time=-1)
    live.push(frame["body"].values, frame["muscle"].values)
    np.testing.assert_allclose(np.frombuffer(live.body, np.float32).reshape(49, 3), frame["body"].values, atol=1e-5)
    assert len(live.muscle) == 96 and not live.playing and live.frame == 0
    with pytest.raises(ValueError, match="body must have shape"):
        live.push(np.zeros((48, 3)))


def test_refuses_several_worms_and_failed_ones(run):
    with pytest.raises(ValueError, match=r"isel\(sample=0\)"):
        WormCanvas(run.expand_dims(sample=2))
    with pytest.raises(ValueError, match="at least two frames"):
        WormCanvas(run.assign(ok=run["ok"] & False))


def test_plays_pauses_and_seeks_in_a_browser(page, widget):
    """By a clock that the test turns: a picture for each refresh of the screen, and a second of the run in a second."""
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.get_by_role("button", name="play").click()
    drawn = page.evaluate("window.drawn")
    page.clock.run_for(1000)
    assert page.evaluate("window.drawn") - drawn >= 60
    assert page.evaluate("window.seen.size") >= 30
    assert page.evaluate("model.get('frame')") == pytest.approx(widget.fps, abs=2)
    assert 3 < page.evaluate("model.saves") < 8
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "canvas.png")

    page.get_by_role("button", name="pause").click()
    page.clock.run_for(100)
    stopped = page.evaluate("[model.get('frame'), window.drawn]")
    page.clock.run_for(300)
    assert page.evaluate("[model.get('frame'), window.drawn]") == stopped

    page.evaluate("model.set('frame', 7)")  # from Python
    assert page.get_by_role("slider").input_value() == "7" and page.evaluate("window.drawn") == stopped[1] + 1
    page.get_by_role("slider").fill("12")  # by hand
    assert page.evaluate("model.get('frame')") == 12
    assert page.complaints == []


def test_shows_a_pushed_frame_and_ends_cleanly(page):
    before = page.evaluate("document.querySelector('canvas').toDataURL()")
    page.evaluate("model.set('body', new DataView(model.get('body').buffer.slice(0, 49 * 3 * 4)))")
    page.evaluate("model.set('voltage', new DataView(new ArrayBuffer(0)))")
    assert page.evaluate("document.querySelector('canvas').toDataURL()") != before
    assert not page.get_by_role("slider").is_visible()
    page.evaluate("window.end()")
    drawn = page.evaluate("window.drawn")
    page.evaluate("model.set('frame', 3)")
    assert page.evaluate("window.drawn") == drawn and page.complaints == []


def test_says_what_to_install_without_anywidget():
    code = "import sys; sys.modules['anywidget'] = None\nfrom vpc import plot\nplot.canvas()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install virtual-patch-clamp[notebooks]" in result.stderr
