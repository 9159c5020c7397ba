"""The demonstration page in a real browser: it plays, it asks nothing of the network, and it shows the library's numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from vpc import KATO_NEURONS, Worm
from vpc.cli import main
from vpc.demo import MOST_FRAMES, write_demo
from vpc.initialise import draw_start

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
SECONDS = 6.2  # as many frames as a page can hold
FEW = ["--particles", "64"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_demo(tmp_path_factory.mktemp("demo"), SECONDS, progress=False, particles=64)


@pytest.fixture(scope="module")
def page(open_page, written):
    page = open_page(written[0], width=1200)
    page.wait_for_function("charts.every(chart => !chart.canvas.clientWidth || chart.x)")
    return page


def test_one_small_file_that_loads_nothing(written):
    path, result = written
    text = path.read_text()
    assert path.stat().st_size < 2e6 and [each.name for each in path.parent.iterdir()] == ["index.html"]
    assert not any(word in text for word in ("http://", "https://", "src=", "href=", "@import", "fetch("))
    assert result["method"] == "ensemble" and result["particles"] == 64 and "--particles 64" in text
    assert set(result["timings"]) >= {"simulate", "impute", "unconditioned", "branch"}


def test_it_plays_and_pauses(page):
    canvases = ["true", "imputed", "voltage", "map_true", "spread", "branch"]
    look = "ids => ids.map(id => document.getElementById(id).toDataURL())"
    page.evaluate("seek(4)")
    before = page.evaluate(look, canvases)
    page.get_by_role("button", name="play").click()
    page.wait_for_function("Number(document.getElementById('time').value) > 4.3")
    page.get_by_role("button", name="pause").click()
    assert all(a != b for a, b in zip(before, page.evaluate(look, canvases), strict=True))
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "demo.png", full_page=True)
    stopped = page.evaluate("now")
    page.wait_for_timeout(200)
    assert page.evaluate("now") == stopped


def test_keys_and_clicks_move_the_time_of_all_pictures(page):
    page.evaluate("document.activeElement.blur(), seek(1)")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("now") == pytest.approx(1.05)
    page.keyboard.press(" ")
    page.wait_for_function("now > 1.2")
    page.keyboard.press(" ")
    assert page.evaluate("playing") is False
    plot = page.locator("#spread")
    plot.click(position={"x": plot.bounding_box()["width"] - 13, "y": 60})
    assert page.evaluate("now") == pytest.approx(SECONDS, abs=0.05)
    page.get_by_role("button", name="go to the clamp").click()
    assert page.evaluate("now") == pytest.approx(SECONDS - 2)
    assert page.locator("#clock").inner_text() == "4.20 of 6.20 s"


def test_the_table_is_the_score(page, written):
    shown = page.evaluate(
        "[...document.querySelectorAll('#score tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    by_label = {}
    for label, *cells in shown:
        by_label.setdefault(label, cells)  # the first of each: all neurons, not only the active ones
    scores = {(row["of"], row["source"]): row for row in written[1]["score"]}
    labels = {
        "observed": "observed neurons",
        "unobserved motor": "unobserved motor neurons",
        "body": "body, curvature at its joints",
    }
    for group, label in (labels | {"other": "other unobserved neurons"}).items():
        both = [scores[group, source] for source in ("posterior", "unconditioned")]
        figures = [row[name] for name in ("r", "nrmse", "coverage") for row in both]
        assert by_label[label] == [str(both[0]["n"]), *("" if np.isnan(x) else f"{x:.3f}" for x in figures)]
    assert scores["observed", "posterior"]["n"] == len(KATO_NEURONS) == 49


def test_the_browser_has_what_python_had(page):
    worm = Worm()
    truth = worm.simulate(SECONDS, initial=draw_start(worm, 0), progress=False).isel(time=slice(None, None, 5))
    volts = page.evaluate("Object.fromEntries(D.names.map((name, i) => [name, [...voltage.series(i, TRUE)]]))")
    assert len(volts) == 302 and len(volts["VB5"]) == MOST_FRAMES
    for name in volts:
        expected = truth["voltage"].sel(neuron=name).values
        np.testing.assert_allclose(volts[name], expected, atol=2e-3)
    seen = page.evaluate("D.observed.map((name, i) => [...light.series(i, 0)])")
    np.testing.assert_allclose(seen, truth["fluorescence"].sel(neuron=list(KATO_NEURONS)).values.T, atol=1e-3)
    error = page.evaluate(
        """D.time.map((_, k) => Math.sqrt(average(D.names.map((_, i) => i).filter(i => D.groups[i] === "unobserved motor")
            .map(i => (mean_volts[i][k] - true_volts[i][k]) ** 2))))"""
    )
    np.testing.assert_allclose(page.evaluate("D.spread[2]"), error, atol=2e-3)
    rods = page.evaluate("body(0, 100)")
    np.testing.assert_allclose(rods, truth["body"].values[100, :, :2], atol=1e-3)


def test_the_branch_is_clamped_for_its_first_half(page):
    clamp = page.evaluate("B.clamps.map((name, i) => [...current.series(i, MEAN)].map(x => Number.isNaN(x) ? null : x))")
    assert page.evaluate("B.clamps") == ["AVAL", "AVAR"] and page.evaluate("B.until - B.at") == pytest.approx(1)
    assert all(x < 0 for row in clamp for x in row[:20]) and all(x is None for row in clamp for x in row[20:])
    changes = np.array(page.evaluate("B.neurons.map((name, i) => [...change.series(i, MEAN)])"))
    assert np.abs(changes[:, 0]).max() < 1e-3 and (np.abs(changes).max(axis=1) > 1).all()


def test_it_says_what_it_is(page):
    """Members have no weights, the evidence is approximate, and scores are of the filtered, with the smoothed in words."""
    text = page.locator("body").inner_text()
    assert all(word in text for word in ("64 members", "approximate", "(filtered)", "(smoothed)", "ensemble Kalman filter"))
    assert not any(word in text for word in ("sample size", "resampled", "64 particles"))


def test_every_neuron_can_be_chosen(page):
    page.evaluate("for (const name of D.names) choose(name)")
    page.get_by_role("button", name="VB2").click()
    assert "VB2, motor, recorded" in page.locator("#about").inner_text() and page.locator("#fluorescence").is_visible()
    page.get_by_label("any neuron").select_option("DB3")
    assert "DB3, motor, not recorded" in page.locator("#about").inner_text() and not page.locator("#fluorescence").is_visible()


@pytest.mark.parametrize("width", [390, 800, 1600])
def test_it_fits_the_window(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_network_and_no_complaints(page):
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.complaints == []


def test_json_is_one_object_without_nan(tmp_path, capsys):
    out = tmp_path / "page"
    assert main(["demo", "--out", str(out), "--seconds", "0.5", "--seed", "1", "--json", *FEW]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert result["page"] == str(out / "index.html") and result["seed"] == 1 and result["timings"]["impute"] > 0
    assert len(result["score"]) == 8 and np.isfinite(result["log_evidence"])
    assert next(row for row in result["score"] if row["of"] == "body")["sd_ratio"] is None


@pytest.mark.parametrize("seconds", ["-1", "0.3", "1.03"])
def test_bad_seconds_write_nothing(seconds, tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "page"), "--seconds", seconds]) == 2
    assert capsys.readouterr().err.startswith("vpc demo: seconds must be at least 0.5")
    assert not (tmp_path / "page").exists()
