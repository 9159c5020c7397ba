"""`vpc demo`: one page that shows what the project can do, playable in any browser without a network."""

import os
import tempfile
from pathlib import Path

import numpy as np
from bokeh.embed import components
from bokeh.resources import Resources
from tqdm.auto import tqdm

import wormsim
from wormsim import plot

from . import __version__

SCENES = {
    "On agar": dict(medium=1.0),
    "In water": dict(medium=0.0),
    "In water, between posts": dict(medium=0.0, objects=wormsim.hexagonal_posts(spacing=0.4, radius=0.1, size=18)),
}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>The Virtual Patch Clamp: a body that crawls</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 820px; margin: 2em auto; padding: 0 1em; color: #222 }}
h1 {{ font-size: 1.5em }} h2 {{ font-size: 1.15em; margin-top: 2em }}
table {{ border-collapse: collapse }}
th, td {{ padding: .25em .8em; text-align: right; white-space: nowrap; border-bottom: 1px solid #ddd }}
th:first-child, td:first-child {{ text-align: left }}
</style>
{resources}
</head>
<body>
<h1>A body that crawls</h1>
<p>A worm of 49 rods and 96 muscles, driven by a circuit with no pattern generator: its rhythm comes from feeling its own
stretch. The same worm crawls on agar, swims in water and finds its way between posts. Red is an active muscle, the dot is the
head, the grey line the path of the body's centre.</p>
<table>
<tr><th></th><th>frequency (Hz)</th><th>wavelength (L)</th><th>speed (mm/s)</th><th>amplitude (mm)</th></tr>
{rows}
</table>
{scenes}
<p>Virtual Patch Clamp {version}. Body and circuit after Boyle, Berri &amp; Cohen (2012).</p>
{script}
</body>
</html>
"""


def write_demo(
    folder: str | Path = "demo", seconds: float = 10.0, seed: int | None = None, progress: bool = True
) -> tuple[Path, dict[str, wormsim.Gait]]:
    """Let the worm crawl in three places, write `index.html` into a folder, and return its path and the gaits."""
    gaits, pictures = {}, {}
    for name, scene in tqdm(SCENES.items(), desc="crawling", unit="worm", disable=None if progress else True):
        worm = wormsim.crawl(seconds, seed=seed, **scene)
        gaits[name] = wormsim.gait(worm)
        pictures[name] = plot.animate(worm, title=f"{name}: {gaits[name].speed:.2f} mm/s")
    script, parts = components(pictures)
    rows = ""
    for name, gait in gaits.items():
        cells = [f"{value:.3g}" if np.isfinite(value) else "none" for value in gait[:4]]
        rows += f"<tr><td>{name}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    scenes = "\n".join(f"<h2>{name}</h2>\n{part}" for name, part in parts.items())
    # Only Bokeh's own scripts: its render() would add links of other packages that happen to be loaded.
    scripts = Resources(mode="inline", components=["bokeh", "bokeh-widgets"]).js_raw
    resources = "\n".join(f"<script>\n{text}\n</script>" for text in scripts)
    text = PAGE.format(
        resources=resources,
        rows=rows,
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
