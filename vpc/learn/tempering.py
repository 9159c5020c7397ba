"""Parallel tempering over evidences: chains sample p(y | theta)^(1/T) p(theta); hot ones wander, cold ones take over from them.

At each step one pair of neighbours may swap (Swendsen & Wang 1986; Geyer 1991).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from wormsim import check

from ..cluster import Cluster
from .fit import Fit
from .search import Search, Watch, chosen, log_mean
from .targets import target_of

__all__ = ["parallel_tempering"]


class _Search(Search):
    layout: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("chain", "parameter"),
        **{name: ("chain",) for name in ("objective", "score", "accepted", "sweep_seed")},
        "swapped": ("pair",),
    }


LADDER = (4.0, 2.0, 1.33, 1.14, 1.0)  # temperatures of the paper


def parallel_tempering(
    model: Any,
    recording: Any = None,
    parameters: Any = None,
    *,
    steps: int = 500,
    sweeps: int = 1,
    temperatures: Sequence[float] = LADDER,
    width: float | Sequence[float] = 0.2,
    from_prior: bool = True,
    draws: int = 9,
    start: dict[str, Any] | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    cluster: Cluster | None = None,
    progress: bool = True,
    watch: Watch | None = None,
    **settings: Any,
) -> Fit:
    """Draw parameters from their posterior by chains of several temperatures; as exactly as `pmmh` does.

    Parameters
    ----------
    steps
        How many proposals each chain makes. A checkpoint can be resumed with more.
    temperatures
        From hot to cold; the last must be 1.
    width
        sd of a proposal, in units of the prior's: one for each chain, or one number, for the coldest, and larger for others by
        the root of their temperature.
    from_prior
        Let the hottest chain propose from the prior.

    Others are those of `vpc.learn.pmvo`.
    """
    target = target_of(model, recording, parameters, **settings)
    space = target.space
    steps = check.whole("steps", steps)
    ladder = check.array("temperatures", temperatures, np.shape(temperatures))
    if ladder.ndim != 1 or len(ladder) < 2 or ladder[-1] != 1 or (np.diff(ladder) >= 0).any():
        raise ValueError(f"temperatures must be at least two numbers that fall to 1, got {temperatures!r}")
    widths = check.array("width", width * np.sqrt(ladder) if np.ndim(width) == 0 else width, ladder.shape)
    if (widths <= 0).any():
        raise ValueError(f"width must be positive, got {width!r}")
    chains, size = len(ladder), len(space)
    own = {"search": "parallel_tempering", "temperatures": ladder.tolist(), "width": widths.tolist()}
    own |= {"from_prior": bool(from_prior)}
    with _Search(target, own, start, draws, seed, sweeps, checkpoint, cluster, progress, watch) as search:
        first, likely, own_seed = search.begin()
        theta, log_evidence = np.tile(first, (chains, 1)), np.full(chains, likely)
        u, seeds, accepted, swapped = (
            space.free(theta),
            np.full(chains, own_seed),
            np.zeros(chains, bool),
            np.full(chains - 1, np.nan),
        )

        def record() -> None:
            score = log_evidence + space.log_prior(theta)
            held = {"value": theta.copy(), "sweep_seed": seeds.copy(), "accepted": accepted, "swapped": swapped}
            search.record(objective=score, score=score, **held)

        record()
        for step in search.steps(steps):
            rng = search.rng(step)
            new = u + widths[:, None] * rng.standard_normal((chains, size))
            if from_prior:
                new[0] = space.free(space.draw(rng, 1)[0])
            proposals = space.value(new)
            uniform, shares = np.log(rng.random(chains)), rng.random(chains)
            living = np.flatnonzero(space.inside(proposals))
            accepted, swapped = np.zeros(chains, bool), np.full(chains - 1, np.nan)
            for place, (c, values) in enumerate(zip(living, search.each(proposals[living]), strict=True)):
                likely = float(log_mean(values))
                gain = (likely - log_evidence[c]) / ladder[c]
                if not (from_prior and c == 0):  # whose proposals come from the prior already
                    gain += space.log_free_prior(new[c]) - space.log_free_prior(u[c])
                if uniform[c] < gain:
                    u[c], theta[c], log_evidence[c], accepted[c] = new[c], proposals[c], likely, True
                    seeds[c] = search.seeds(search.last_call, place, search.sweeps)[chosen(values, shares[c])]
            pair = int(rng.integers(chains - 1))
            gain = (1 / ladder[pair] - 1 / ladder[pair + 1]) * (log_evidence[pair + 1] - log_evidence[pair])
            swapped[pair] = np.log(rng.random()) < gain
            if swapped[pair]:
                for held in (u, theta, log_evidence, seeds):
                    held[[pair, pair + 1]] = held[[pair + 1, pair]]
            record()
        return search.fit(temperature=("chain", ladder))
