"""`vpc demo`: the main job from end to end, on one page that any browser plays without a network.

A worm is simulated, 49 of its neurons are recorded, everything else is imputed, and from one moment the imputed worms live on
with AVA clamped. The page is demo.html; it holds its numbers as 16-bit integers, and demo.js draws them with the parts in
demo_parts.js.
"""

import base64
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from tqdm.auto import tqdm

from wormsim import check
from wormsim import geometry as geo

from . import __version__
from .connectome import KATO_NEURONS, NEURONS, index
from .diagnose import GROUPS, align, table
from .explorer import places
from .imputation import BASELINE, SIZES, impute
from .initialise import RUNS, draw_start, learned_prior
from .neurons import STEP, of
from .pictures import ORDER
from .posterior import Posterior
from .protocol import VoltageClamp
from .recording import Recording
from .worm import Worm

__all__ = ["write_atomically", "write_demo"]

EVERY = 0.05  # s between the frames of the recording
MOST_FRAMES = 125  # on the page: 5 s of the recording whole, longer ones thinned, so that it stays under 2 MB
DRAWN = 8  # worms of the posterior that are drawn beside their mean
LONGEST_BRANCH = 40  # frames
CLAMPED, HOLD = ("AVAL", "AVAR"), -20.0  # mV
AFFECTED = 6  # neurons whose answer to the clamp is shown
ACTIVE = 1.0  # mV: what moves less is quiet
SHOWN = ("VB5", "DB3", "VA8", "SAADL", "VB2", "SMDVL", "AVAL", "RIML")  # buttons; others are in a list
STAGES = {
    "compile": "loading the kernels (compiling them, the first time)",
    "prior": f"learning the prior from {RUNS} worms",
    "simulate": "simulating the true worm",
    "impute": "imputing",
    "unconditioned": f"{BASELINE} worms that know nothing of the recording",
    "branch": "branching, with AVA clamped and without",
    "score": "scoring",
}
LABELS = {GROUPS[0]: "observed neurons", GROUPS[1]: "unobserved motor neurons", GROUPS[2]: "other unobserved neurons"}
LABELS["body"] = "body, curvature at its joints"


def write_demo(
    folder: str | Path = "demo",
    seconds: float = 5.0,
    seed: int = 0,
    progress: bool = True,
    particles: int | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Simulate, record, impute, branch and score; write `index.html` into a folder; return its path and the main figures.

    Parameters
    ----------
    folder
        Made if it is not there.
    seconds
        How long the worm is recorded.
    seed
        Of the true worm; the imputation's and the branch's is the next one.
    progress
        Show a progress bar.
    particles
        How many worms to condition; by default as many as `vpc.impute` takes.
    """
    rule = "at least 0.5, in steps of 0.05"
    seconds = check.number("seconds", seconds, rule, lambda s: s >= 0.5 and abs(s / EVERY - round(s / EVERY)) < 1e-6)
    seed = check.whole("seed", seed, least=0)
    timings: dict[str, float] = {}
    with tqdm(total=len(STAGES) + 1, disable=None if progress else True, bar_format="{bar:20} {desc}, {elapsed}") as bar:

        @contextmanager
        def stage(name: str) -> Iterator[None]:
            bar.set_description_str(STAGES[name])
            begin = time.perf_counter()
            yield
            timings[name] = timings.get(name, 0.0) + time.perf_counter() - begin
            bar.update()

        worm = Worm()
        with stage("compile"):
            short = Recording.from_simulation(worm.simulate(2 * EVERY, progress=False), every=EVERY)
            worm.simulate(STEP, n=RUNS, progress=False)  # many have a kernel of their own, for all cores
        with stage("prior"):
            learned_prior(worm)
        with stage("compile"):
            first = impute(worm, short, particles=particles, seed=seed, progress=False)
            first.branch(EVERY, seconds=STEP, every=STEP, progress=False)
        with stage("simulate"):
            truth = worm.simulate(seconds, initial=draw_start(worm, seed), progress=False)
        recording = Recording.from_simulation(truth, KATO_NEURONS, EVERY)
        with stage("impute"):
            posterior = impute(worm, recording, particles=particles, seed=seed + 1, progress=False)
        known = posterior.dataset.attrs
        if posterior.failure:
            raise ValueError(f"particles must be more than {known['particles']}: {posterior.failure}")
        with stage("unconditioned"):
            posterior.unconditioned  # noqa: B018 - computed once and kept
        with stage("branch"):
            fan, answer = _branch(posterior, worm, truth, seed + 1)
        with stage("score"):
            score, later = posterior.score(truth), posterior.score(truth, "smoothed")
    rows = table(score)
    result: dict[str, Any] = {
        "seconds": seconds,
        "seed": seed,
        "method": known["method"],
        "particles": known["particles"],
        "log_evidence": posterior.log_evidence,
        "score": [{"of": of, "source": source, **row} for (of, source), row in rows.to_dict("index").items()],
        "timings": timings,
    }
    branch = _branched(fan, answer, truth)
    data = _recorded(worm, posterior, truth, score) | {"branch": branch}
    text = Template(_read("demo.html")).substitute(
        _words(result, score, later, posterior, truth, branch),
        data=json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        script=_read("demo_parts.js") + _read("demo.js"),
    )
    return write_atomically(Path(folder) / "index.html", text), result


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _branch(posterior: Posterior, worm: Worm, truth: xr.Dataset, seed: int) -> tuple[xr.Dataset, xr.Dataset]:
    """The last 2 s again, with AVA clamped for the first half: in the imputed worms, and in the true one."""
    times = posterior.dataset["time"].values
    frames = min(LONGEST_BRANCH, 2 * len(times) // 5)
    at, stop = float(times[-1 - frames]), frames // 2 * EVERY
    clamps = [VoltageClamp(name, HOLD, start=0, stop=stop) for name in CLAMPED]
    fan = posterior.branch(at, clamps, seconds=frames * EVERY, seed=seed, control=True, every=EVERY, progress=False)
    start = truth.sel(time=at, method="nearest")
    answer = worm.simulate(frames * EVERY, protocol=clamps, initial=start, every=EVERY, progress=False)
    return fan, answer.assign_attrs(clamped_until=at + stop)


def _recorded(worm: Worm, posterior: Posterior, truth: xr.Dataset, score: xr.Dataset) -> dict[str, Any]:
    """What the page shows of the recording and the posterior."""
    all_times = posterior.dataset["time"].values
    thin = slice(None, None, -(-len(all_times) // MOST_FRAMES))
    names, times = list(ORDER), all_times[thin]
    truth = truth.sel(time=times, method="nearest")
    known, blind = posterior.dataset.isel(time=thin), posterior.unconditioned.dataset.isel(time=thin)
    true = truth["voltage"].sel(neuron=names).values
    bands = known["voltage"].sel(stat=["mean", "q05", "q25", "q75", "q95"], neuron=names).values
    without = blind["voltage"].sel(stat=["mean", "q05", "q95"], neuron=names).values
    observed = known["observed"].values.tolist()
    full, half, dark = (of(worm.parameters, name)[index(observed)] for name in ("F", "Kd", "D"))
    calcium = known["predicted_calcium"].sel(stat=["q05", "q25", "q75", "q95"], neuron=observed).values
    seen = np.concatenate([known["fluorescence"].values[None], full * calcium / (calcium + half) + dark])
    bodies = truth["body"].values
    draws = known["draws"].values[:, :: max(1, known.sizes["draw"] // DRAWN)][:, :DRAWN]
    rods = draws[..., 2 * len(NEURONS) : 2 * len(NEURONS) + 6 * geo.RODS].reshape(*draws.shape[:2], geo.RODS, 6)[..., :3]
    worms = [bodies, align(known["body"].sel(stat="mean").values, bodies), *np.moveaxis(align(rods, bodies[:, None]), 1, 0)]
    position, side = places(names)
    marks = score.sel(neuron=names)
    figures = np.stack([marks[name].transpose("neuron", "source").values for name in ("r", "nrmse", "coverage")], axis=1)
    hidden = marks["group"].values == GROUPS[1]
    widths = [part["voltage"].sel(stat="sd", neuron=names).values for part in (known, blind)]
    root_mean_square = [np.sqrt(np.square(x[:, hidden]).mean(axis=1)) for x in (*widths, bands[0] - true)]
    return {
        "time": _plain(times, 3),
        "names": names,
        "types": [NEURONS[name].type for name in names],
        "groups": marks["group"].values.tolist(),
        "shown": list(SHOWN),
        "observed": observed,
        "sigma": _plain(known["sigma"].values, 4),
        "position": _plain(position, 4),
        "side": _plain(side, 3),
        "radius": _plain(geo.RADIUS, 5),
        "limit": round(float(np.quantile(np.abs(true - true.mean(axis=0)), 0.99)), 3),
        "figures": _plain(figures, 3),
        "voltage": _pack(np.moveaxis(np.concatenate([true[None], bands, without]), 2, 0)),
        "fluorescence": _pack(np.moveaxis(seen, 2, 0)),
        "bodies": _pack(np.array(worms)[None, ..., :2]),
        "spread": _plain(np.array(root_mean_square), 4),
        "evidence": _plain(known["evidence"].values, 3),
    }


def _branched(fan: xr.Dataset, answer: xr.Dataset, truth: xr.Dataset) -> dict[str, Any]:
    """What the page shows of the branch: differences that the clamp makes, its current, and the two worms."""
    at = float(fan.attrs["branched_at"])
    times = at + fan["time"].values
    free = truth.sel(time=times, method="nearest")
    experiment, control = fan.sel(arm="experiment"), fan.sel(arm="control")
    change = (experiment["voltage"] - control["voltage"]).transpose("neuron", "sample", "time").values
    largest = np.abs(np.nanmedian(change, axis=1)).max(axis=1)
    largest[np.isin(fan["neuron"].values, CLAMPED)] = 0
    chosen = np.argsort(-largest)[:AFFECTED]
    true_change = (answer["voltage"].values - free["voltage"].values).T[chosen]
    current = experiment["current"].transpose("clamp", "sample", "time").values
    bodies = _carried(fan["body"].transpose("arm", "sample", "time", "rod", "coord").values, free["body"].values[0])
    few = bodies[:, :: max(1, bodies.shape[1] // DRAWN)][:, :DRAWN]
    worms = [answer["body"].values[..., :2], *np.nanmean(bodies, axis=1), *few[0], *few[1]]
    return {
        "at": at,
        "until": float(answer.attrs["clamped_until"]),
        "time": _plain(times, 3),
        "neurons": fan["neuron"].values[chosen].tolist(),
        "clamps": fan["clamp"].values.tolist(),
        "hold": HOLD,
        "samples": fan.sizes["sample"],
        "change": _pack(_bands(change[chosen], true_change)),
        "current": _pack(_bands(current, answer["current"].values.T)),
        "bodies": _pack(np.array(worms)[None]),
        "drawn": few.shape[1],
        "apart": float(np.nanmean(np.hypot(*np.moveaxis(bodies[0, :, -1] - bodies[1, :, -1], -1, 0)))),
        "truly_apart": float(np.hypot(*(answer["body"].values - free["body"].values)[-1, :, :2].T).mean()),
    }


def _bands(values: np.ndarray, true: np.ndarray) -> np.ndarray:
    """(item, [true, mean, 5, 25, 75, 95 %], time) of values (item, sample, time)."""
    out = np.full((len(values), 6, values.shape[2]), np.nan)
    there = np.isfinite(values).any(axis=(0, 1))
    out[:, 0], out[:, 1, there] = true, np.nanmean(values[..., there], axis=1)
    out[:, 2:, there] = np.moveaxis(np.nanquantile(values[..., there], [0.05, 0.25, 0.75, 0.95], axis=1), 0, 1)
    return out


def _carried(bodies: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Bodies (arm, sample, time, rod, 3), each worm moved as a whole so that it starts where the reference (rod, 3) lies."""
    start = bodies[0, :, 0]
    turn = align(start, reference)[:, 0, 2] - start[:, 0, 2]
    cosine, sine = np.cos(turn), np.sin(turn)
    matrix = np.array([[cosine, -sine], [sine, cosine]])
    away = bodies[..., :2] - start[:, None, :, :2].mean(axis=2, keepdims=True)
    return np.einsum("ijs,astrj->astri", matrix, away) + reference[:, :2].mean(axis=0)


def _pack(values: np.ndarray) -> dict[str, Any]:
    """Numbers (item, ...) as 16-bit integers in base64, with a lowest value and a step for each item; NaN is -32768."""
    flat = values.reshape(len(values), -1).astype(float)
    low, high = np.nanmin(flat, axis=1), np.nanmax(flat, axis=1)
    step = np.maximum((high - low) / 65534, 1e-9)
    whole = np.where(np.isnan(flat), -32768, np.round((flat - low[:, None]) / step[:, None]) - 32767).astype("<i2")
    text = base64.b64encode(whole.tobytes()).decode()
    shape = list(values.shape)
    return {"shape": shape, "low": _plain(low, 6), "step": [float(f"{s:.6g}") for s in step], "values": text}


def _plain(values: np.ndarray, digits: int) -> list[Any]:
    """Nested lists of rounded numbers, with None for what is not a number."""
    rounded = np.round(np.asarray(values, dtype=float), digits)
    return np.where(np.isfinite(rounded), rounded.astype(object), np.array(None)).tolist()


def _words(
    result: dict[str, Any],
    score: xr.Dataset,
    later: xr.Dataset,
    posterior: Posterior,
    truth: xr.Dataset,
    branch: dict[str, Any],
) -> dict[str, str]:
    """Tables and numbers in the page's text."""
    rows, sources, at, seed = table(score), ("posterior", "unconditioned"), branch["at"], result["seed"]
    (r, r_blind), (error, error_blind) = (
        [rows.loc[(GROUPS[1], source), name] for source in sources] for name in ("r", "nrmse")
    )
    coverage, narrower = (float(rows.loc[(GROUPS[1], "posterior"), name]) for name in ("coverage", "sd_ratio"))
    smoothed = table(later).loc[(GROUPS[1], "posterior")]
    wide = "wider than they need be: the true worm lives without the noise that the imputation allows for"
    centres = [x[-1, :, :2].mean(axis=0) for x in (truth["body"].values, posterior.body.sel(stat="mean").values)]
    times = "".join(f"<tr><td>{STAGES[name]}</td><td>{took:.2f}</td></tr>\n" for name, took in result["timings"].items())
    given = posterior.dataset.attrs["particles"] != SIZES[result["method"]][0]
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "xarray"))
    return {
        "seconds": f"{result['seconds']:g}",
        "frames": str(posterior.dataset.sizes["time"]),
        "observed": str(posterior.dataset.sizes["observed"]),
        "members": f"{result['particles']:,}",
        "seeds": f"the true worm has seed {seed}, the imputation and the branch {seed + 1}",
        "r": f"{r:.3f}",
        "r_blind": f"{r_blind:.3f}",
        "error": f"{100 * error:.1f} %",
        "error_blind": f"{100 * error_blind:.1f} %",
        "coverage": f"{100 * coverage:.1f} %",
        "verdict": wide if coverage > 0.93 else "about right" if coverage > 0.85 else "too narrow",
        "drift": f"{float(np.hypot(*(centres[0] - centres[1]))):.2g}",
        "narrower": f"{100 * narrower:.0f} %",
        "lag": f"{posterior.dataset.attrs['lag']:g}",
        "r_later": f"{smoothed['r']:.3f}",
        "error_later": f"{100 * smoothed['nrmse']:.1f} %",
        "evidence": f"{posterior.log_evidence:.0f}",
        "rows": _lines(rows, [*GROUPS, "body"]),
        "active_rows": _lines(table(score, ACTIVE), list(GROUPS)),
        "active": f"{ACTIVE:g}",
        "at": f"{at:g}",
        "hold": f"{HOLD:g}".replace("-", "\N{MINUS SIGN}"),
        "clamp_seconds": f"{branch['until'] - at:g}",
        "branch_seconds": f"{branch['time'][-1] - at:g}",
        "samples": str(branch["samples"]),
        "apart": f"{branch['apart']:.2g}",
        "truly_apart": f"{branch['truly_apart']:.2g}",
        "baseline": str(BASELINE),
        "timings": times + f"<tr><th>together</th><th>{sum(result['timings'].values()):.2f}</th></tr>",
        "command": f"vpc demo --seconds {result['seconds']:g} --seed {seed}" + given * f" --particles {result['particles']}",
        "made": f"Virtual Patch Clamp {__version__}, Python {platform.python_version()}, {packages}; {os.cpu_count()} cores",
    }


def _lines(rows: pd.DataFrame, groups: list[str]) -> str:
    """Rows of the score table."""
    out = ""
    for group in groups:
        one = rows.loc[group].loc[["posterior", "unconditioned"]]
        cells = [f"{value:.3f}" for name in ("r", "nrmse", "coverage") for value in one[name]]
        cells = [LABELS[group], str(int(one["n"].iloc[0])), *("" if cell == "nan" else cell for cell in cells)]
        out += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    return out


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
