"""`vpc bench screen`: what a screen over all neurons costs, and whether another seed ranks them alike."""

import time
from collections.abc import Iterable
from typing import Any

from scipy.stats import spearmanr
from tqdm.auto import tqdm

import vpc

from .bench import on_threads
from .experiments import experiment
from .screen import KINDS, ranking

STRONGEST = 30


def screen(progress: bool = True, neurons: Iterable[str] | None = None, particles: int = 100) -> dict[str, Any]:
    """Screen for speed, 2 s each, on one thread: each kind of perturbation with two seeds."""
    worm = vpc.Worm()
    post = vpc.impute(worm, experiment("noise", worm).recording, progress=False)
    rows = []
    with on_threads(1):
        vpc.screen.screen(post, at=3.0, particles=16, neurons=["CANL"], progress=False)  # compile
        for kind in tqdm(KINDS, desc="screening twice", disable=None if progress else True):
            begin = time.process_time()
            first, again = (
                vpc.screen.screen(post, at=3.0, particles=particles, seed=seed, kinds=kind, neurons=neurons, progress=False)
                for seed in (0, 1)
            )
            taken = (time.process_time() - begin) / 2
            strongest = ranking(first)["neuron"][:STRONGEST]
            pair = [one["effect"].sel(kind=kind, neuron=strongest.tolist()).values for one in (first, again)]
            rows.append({"kind": kind, "core_seconds": taken, "rank_correlation": float(spearmanr(*pair).statistic)})
    return {"neurons": first.sizes["neuron"], "particles": particles, "rows": rows}


def screen_table(result: dict[str, Any]) -> str:
    """The result of `screen` for reading."""
    lines = [f"A screen of {result['neurons']} neurons, {result['particles']} worms x 2 s each, on one thread:"]
    lines += [
        f"  {row['kind']:12}{row['core_seconds']:6.1f} core-s   "
        f"rank correlation of the strongest {STRONGEST} with another seed {row['rank_correlation']:.3f}"
        for row in result["rows"]
    ]
    return "\n".join([*lines, f"  all{sum(row['core_seconds'] for row in result['rows']):15.1f} core-s"])
