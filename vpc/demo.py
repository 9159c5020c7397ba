"""`vpc demo`: one page that shows what the project can do, playable in any browser without a network."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.embed import components
from bokeh.resources import Resources
from tqdm.auto import tqdm

import wormsim

from . import __version__, plot
from .neurons import STEP
from .worm import Worm

WHOLE = "The whole worm, on agar"
SHOWN = ("AVB", "DB3", "VB5", "DD3", "SMDDL")  # neurons drawn as traces
SCENES: dict[str, dict[str, Any]] = {
    "On agar": dict(medium=1.0),
    "In water": dict(medium=0.0),
    "In water, between posts": dict(medium=0.0, objects=wormsim.hexagonal_posts(spacing=0.4, radius=0.1, size=18)),
}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>The Virtual Patch Clamp: a worm that moves by its own nervous system</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 940px; margin: 2em auto; padding: 0 1em; color: #222 }}
h1 {{ font-size: 1.5em }} h2 {{ font-size: 1.15em; margin-top: 2em }} h3 {{ font-size: 1em }}
table {{ border-collapse: collapse }}
th, td {{ padding: .25em .8em; text-align: right; white-space: nowrap; border-bottom: 1px solid #ddd }}
th:first-child, td:first-child {{ text-align: left; white-space: normal }}
</style>
{resources}
</head>
<body>
<h1>A worm that moves by its own nervous system</h1>
<p>302 neurons, wired as in the animal, drive 96 muscles; the body's stretch drives the neurons; and the worm crawls. There is
no pattern generator and no stimulus. Press play, or click on a time; every dot is a neuron in its place, red above and blue
below its own mean voltage. With the stretch receptors cut (last line of the table) the same worm lies still.</p>
{whole}
<p>Simulating these {seconds:g} s took {took:.2f} s.</p>
<table>
<tr><th></th><th>frequency (Hz)</th><th>wavelength (L)</th><th>speed (mm/s)</th><th>amplitude (mm)</th></tr>
{rows}
</table>
<h2>The body alone</h2>
<p>The same body driven by a circuit of 24 switches that feel its stretch. It crawls on agar, swims in water and finds its way
between posts. Red is an active muscle, the dot is the head, the grey line the path of the body's centre.</p>
{scenes}
<p>Virtual Patch Clamp {version}. Neurons after Wicks et al. (1996) and Kunert et al. (2014), body and circuit after Boyle,
Berri &amp; Cohen (2012).</p>
{script}
</body>
</html>
"""


def write_demo(
    folder: str | Path = "demo", seconds: float = 10.0, seed: int | None = None, progress: bool = True
) -> tuple[Path, dict[str, wormsim.Gait]]:
    """Let the worm live, and its body crawl in three places; write `index.html` into a folder; return its path and gaits."""
    bar = tqdm(total=3 + len(SCENES), desc="crawling", unit="worm", disable=None if progress else True)
    Worm().simulate(STEP)  # compiles, so that the time below is the simulation's
    bar.update()
    begin = time.perf_counter()
    run = Worm().simulate(seconds, seed or 0, progress=False)
    took = time.perf_counter() - begin
    bar.update()
    gaits = {WHOLE: wormsim.gait(run)}
    pictures = {WHOLE: plot.explore(run, SHOWN, width=900)}
    for name, scene in SCENES.items():
        worm = wormsim.crawl(seconds, seed=seed, **scene)
        label = f"{name}, body alone"
        gaits[label] = wormsim.gait(worm)
        pictures[name] = plot.animate(worm, title=f"{name}: {gaits[label].speed:.2f} mm/s")
        bar.update()
    gaits[f"{WHOLE}, without stretch receptors"] = wormsim.gait(Worm(parameters={"w_s": 0}).simulate(seconds, seed or 0))
    bar.update()
    bar.close()
    script, parts = components(pictures)
    rows = ""
    for name, gait in gaits.items():
        cells = [f"{value:.3g}" if np.isfinite(value) else "none" for value in gait[:4]]
        rows += f"<tr><td>{name}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    whole = parts.pop(WHOLE)
    scenes = "\n".join(f"<h3>{name}</h3>\n{part}" for name, part in parts.items())
    # Only Bokeh's own scripts: its render() would add links of other packages that happen to be loaded.
    scripts = Resources(mode="inline", components=["bokeh", "bokeh-widgets"]).js_raw
    resources = "\n".join(f"<script>\n{text}\n</script>" for text in scripts)
    text = PAGE.format(
        resources=resources,
        rows=rows,
        whole=whole,
        seconds=seconds,
        took=took,
        scenes=scenes,
        script=script,
        version=__version__,
    )
    return write_atomically(Path(folder) / "index.html", text), gaits


def write_atomically(path: Path, text: str) -> Path:
    """Write a text file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=path.suffix)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path
