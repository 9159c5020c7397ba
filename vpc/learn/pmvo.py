"""Particle-marginal variational optimisation: climb the mean of log p(y, theta) under a Gaussian, by the evidence of sweeps.

The Gaussian q = N(phi, width^2) lives in free coordinates (`vpc.learn.priors`). With samples theta_n of it and their worth
f_n = log p(y | theta_n) + log p(theta_n), estimated by sweeps, the gradient of its mean is the mean of f_n grad log q(theta_n)
(Williams 1992). A number subtracted from all f_n changes nothing but the variance; evidences differ by thousands of nats, so
they are also divided by their sd, or replaced by their ranks. Samples come in pairs, on both sides of phi, and share
their seeds. Adam (Kingma & Ba 2015) climbs. Rate, width, temperature of the evidence and width of the observations' noise can
go from one value to another.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from wormsim import check

from ..cluster import Cluster
from ..connectome import nearest
from .fit import Fit
from .search import Search, Watch, schedule
from .targets import target_of

__all__ = ["ADVANTAGES", "pmvo"]

MOMENTUM, INERTIA, LEAST = 0.9, 0.999, 1e-8  # of Adam
CHECK_SWEEPS = 4  # for each sweep of a sample, when the true objective is looked at
TRIES = 100  # to draw a sample within the bounds
MARGIN = 1e-3  # of the prior's sd, to stay off a bound, where the density may be 0


def _raw(f: np.ndarray) -> np.ndarray:
    return f - f.mean()


def _normalised(f: np.ndarray) -> np.ndarray:
    return (f - f.mean()) / max(f.std(), 1e-12)


def _ranks(f: np.ndarray) -> np.ndarray:
    return _normalised(rankdata(f))


ADVANTAGES = {"normalised": _normalised, "rank": _ranks, "raw": _raw}


def pmvo(
    model: Any,
    recording: Any = None,
    parameters: Any = None,
    *,
    steps: int = 100,
    samples: int = 8,
    sweeps: int = 1,
    draws: int = 9,
    start: dict[str, Any] | None = None,
    rate: float | tuple[float, float] = (0.1, 0.01),
    width: float | tuple[float, float] = (0.15, 0.05),
    temperature: float | tuple[float, float] = 1.0,
    widen: float | tuple[float, float] = 1.0,
    advantage: str = "normalised",
    checks: int = 10,
    late: float = 0.0,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    cluster: Cluster | None = None,
    progress: bool = True,
    watch: Watch | None = None,
    **settings: Any,
) -> Fit:
    """Find the parameters under which a recording is likeliest.

    Parameters
    ----------
    model, recording, parameters
        A worm, what was seen of it, and what to learn: names, or a mapping from names to priors of `vpc.learn.priors`, or to
        {neurons: prior}. Or an `Autoregressive` model and `Observations`; or a `Target` alone.
    steps, samples
        How often Adam moves, and by how many samples of the Gaussian each time.
    sweeps
        How many are averaged for each sample.
    draws, start
        From how many draws from the prior the best is taken as the start, if none is given.
    rate, width
        Of Adam, and of the Gaussian, in units of the prior's sd: one number, or a first and a last.
    temperature, widen
        By what the log evidence is divided, and by what the noise of what is seen is multiplied, on the way; in the end both
        should be 1.
    advantage
        "normalised", "rank" or "raw".
    checks
        How often the true objective is looked at on the way; the best by that is the result.
    late
        On a cluster: the share of a step's samples that it may do without, the slowest ones, and their mirror images. What is
        found then depends on how fast workers were, though not when it is resumed; 0 waits for all.
    seed, checkpoint, cluster, progress, watch
        As in `vpc.learn.search.Search`: a search that was interrupted goes on from its checkpoint, to the same result.
    settings
        Of the filter: method, particles, and others that `vpc.impute` takes.
    """
    target = target_of(model, recording, parameters, **settings)
    space = target.space
    steps, samples = check.whole("steps", steps), check.whole("samples", samples, least=2)
    if advantage not in ADVANTAGES:
        guess = nearest(str(advantage), ADVANTAGES)
        raise ValueError(f"advantage must be one of {', '.join(ADVANTAGES)}, got {advantage!r}; did you mean {guess!r}?")
    given = {"rate": rate, "width": width, "temperature": temperature, "widen": widen}
    plan = {name: schedule(name, value, steps) for name, value in given.items()}
    checked = set(np.linspace(steps, 0, check.whole("checks", checks), endpoint=False).round().astype(int).tolist())
    own = {"search": "pmvo", "steps": steps, "samples": samples, "checks": checks, "advantage": advantage}
    own |= {"late": check.number("late", late, "a share from 0 to below 1", lambda x: 0 <= x < 1)} if late else {}
    own |= {name: [float(values[0]), float(values[-1])] for name, values in plan.items()}
    with Search(target, own, start, draws, seed, sweeps, checkpoint, cluster, progress, watch) as search:
        theta, _, _ = search.begin(float(plan["widen"][0]))
        phi, mean, square = space.free(theta), np.zeros(len(space)), np.zeros(len(space))
        low, high = space.free(space.low) + MARGIN, space.free(space.high) - MARGIN
        search.record(value=theta, objective=np.nan, score=np.nan)
        for step in search.steps(steps):
            speed, spread, hot, wide = (float(values[step - 1]) for values in plan.values())
            u = _within(search.rng(step), phi, spread, samples, low, high)
            points = space.value(u)
            f = search.evaluate(points, wide, common=True, late=late) / hot + space.log_prior(points)
            came = _with_their_mirrors(~np.isnan(f))
            u, f = u[came], f[came]
            if np.isfinite(f).any():
                worth = _finite(f)
                gradient = (ADVANTAGES[advantage](worth)[:, None] * (u - phi)).mean(axis=0) / spread**2
                mean = MOMENTUM * mean + (1 - MOMENTUM) * gradient
                square = INERTIA * square + (1 - INERTIA) * gradient**2
                climb = mean / (1 - MOMENTUM**step) / (np.sqrt(square / (1 - INERTIA**step)) + LEAST)
                phi = np.clip(phi + speed * climb, low, high)
            theta, score = space.value(phi), np.nan
            if step in checked:
                score = search.evaluate(theta[None], sweeps=CHECK_SWEEPS * sweeps)[0] + space.log_prior(theta)
            search.record(value=theta, objective=f[np.isfinite(f)].mean() if np.isfinite(f).any() else np.nan, score=score)
        return search.fit()


def _within(rng: np.random.Generator, phi: np.ndarray, width: float, n: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Samples (n, parameter) around phi; what falls beyond a bound is drawn again, and at last put there."""
    u = phi + width * _pairs(rng, n, len(phi))
    for _ in range(TRIES):
        out = (u < low) | (u > high)
        if not np.any(out):
            break
        u = np.where(out, phi + width * rng.standard_normal(u.shape), u)
    return np.clip(u, low, high)


def _pairs(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Gaussian directions (n, size) and their opposites, as far as there is room at right angles to each other.

    What is even in them cancels in a gradient, and a steep direction does not drown a flat one; each by itself is as Gaussian
    as ever (Choromanski et al. 2018).
    """
    half = (n + 1) // 2
    blocks = []
    for first in range(0, half, size):
        axes, upper = np.linalg.qr(rng.standard_normal((size, size)))
        lengths = np.sqrt(rng.chisquare(size, size))
        blocks.append((axes * np.sign(np.diag(upper)) * lengths).T[: half - first])
    directions = np.concatenate(blocks)
    return np.concatenate([directions, -directions[: n - half]])


def _with_their_mirrors(came: np.ndarray) -> np.ndarray:
    """Which samples of `_pairs` have come together with their opposites."""
    half = (len(came) + 1) // 2
    both = came.copy()
    both[: len(came) - half] &= came[half:]
    both[half:] &= came[: len(came) - half]
    return both


def _finite(f: np.ndarray) -> np.ndarray:
    """Worth of samples, where one that failed is worth less than the worst by as much as that is less than the best."""
    good = f[np.isfinite(f)]
    return np.where(np.isfinite(f), f, 2 * good.min() - good.max() - 1.0)
