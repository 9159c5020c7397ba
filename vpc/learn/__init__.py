"""Learning the parameters of a simulator from a recording, by the evidence of sweeps.

fit = vpc.learn.pmvo(worm, recording, ["w_m", "w_s"])                   # the best parameters
fit = vpc.learn.pmmh(worm, recording, ["w_m", "w_s"])                   # draws from their posterior
fit = vpc.learn.parallel_tempering(worm, recording, ["w_m", "w_s"])     # the same, by hot and cold chains
fit.best, fit.trace
"""

from . import priors
from .fit import Fit, open_fit
from .identify import Report, identifiability
from .pmmh import pmmh
from .pmvo import pmvo
from .targets import ArTarget, Observations, Target, WormTarget, target_of
from .tempering import parallel_tempering

__all__ = [
    "ArTarget",
    "Fit",
    "Observations",
    "Report",
    "Target",
    "WormTarget",
    "identifiability",
    "open_fit",
    "parallel_tempering",
    "pmmh",
    "pmvo",
    "priors",
    "target_of",
]
