"""Particle-marginal Metropolis-Hastings (Andrieu, Doucet & Holenstein 2010): draws from p(theta | y) by the evidence of sweeps.

An estimate of the evidence stands in for the evidence; if it is unbiased, the draws are exact, however noisy it is, but a lucky
one holds the chain for long. Proposals are Gaussian in free coordinates (`vpc.learn.priors`).
"""

from pathlib import Path
from typing import Any

import numpy as np

from wormsim import check

from ..cluster import Cluster
from .fit import Fit
from .search import Search, Watch, chosen, log_mean
from .targets import target_of

__all__ = ["pmmh"]

AIM = 0.234  # share of proposals to accept (Roberts, Gelman & Gilks 1997)
BEFORE = 50  # steps at least, and ten for each parameter, until the proposal follows the shape of the draws
ADAPTATION = -0.6  # power of the step by which adaptation fades


def pmmh(
    model: Any,
    recording: Any = None,
    parameters: Any = None,
    *,
    steps: int = 1000,
    sweeps: int = 1,
    width: float = 0.2,
    adapt: bool = False,
    draws: int = 9,
    start: dict[str, Any] | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    cluster: Cluster | None = None,
    progress: bool = True,
    watch: Watch | None = None,
    **settings: Any,
) -> Fit:
    """Draw parameters from their posterior; exactly so if the filter's evidence is unbiased, which an ensemble's is not.

    Parameters
    ----------
    steps
        How many proposals are made. A checkpoint can be resumed with more.
    width
        sd of a proposal, in units of the prior's.
    adapt
        Let the proposal's size follow the acceptance, and its shape the draws so far, less and less (Haario, Saksman & Tamminen
        2001): discard the first part of the draws then.

    Others are those of `vpc.learn.pmvo`.
    """
    target = target_of(model, recording, parameters, **settings)
    space = target.space
    steps = check.whole("steps", steps)
    width = check.number("width", width, "a positive number, in units of the prior's sd", lambda x: x > 0)
    own = {"search": "pmmh", "width": width, "adapt": bool(adapt)}
    with Search(target, own, start, draws, seed, sweeps, checkpoint, cluster, progress, watch) as search:
        theta, log_evidence, own_seed = search.begin()
        u, size = space.free(theta), len(space)
        log_width, centre, shape = np.log(width), u.copy(), np.eye(size)
        score = log_evidence + space.log_prior(theta)
        search.record(value=theta, objective=score, score=score, accepted=False, sweep_seed=own_seed)
        for step in search.steps(steps):
            rng = search.rng(step)
            root = np.linalg.cholesky(shape) if adapt and step > max(BEFORE, 10 * size) else np.eye(size)
            new = u + np.exp(log_width) * root @ rng.standard_normal(size)
            proposal, chance = space.value(new), 0.0
            if space.inside(proposal):
                values = search.each(proposal[None])[0]
                likely = float(log_mean(values))
                gain = likely - log_evidence + space.log_free_prior(new) - space.log_free_prior(u)
                chance = float(np.exp(min(0.0, gain))) if gain == gain else 0.0
            accepted = rng.random() < chance
            if accepted:
                u, theta, log_evidence = new, proposal, likely
                own_seed = search.seeds(search.last_call, 0, search.sweeps)[chosen(values, rng.random())]
            if adapt:
                fade, off = (step + 1) ** ADAPTATION, u - centre
                log_width += fade * (chance - AIM)
                centre = centre + fade * off
                shape = shape + fade * (np.outer(off, off) - shape) + 1e-9 * np.eye(size)
            score = log_evidence + space.log_prior(theta)
            search.record(value=theta, objective=score, score=score, accepted=accepted, sweep_seed=own_seed)
        return search.fit()
