"""The Virtual Patch Clamp: every voltage of a worm from a few calcium traces."""

from importlib.metadata import version

from .branching import branch
from .connectome import KATO_NEURONS, Connectome, UnknownNeuron
from .imputation import impute
from .posterior import Posterior, open_posterior
from .protocol import Ablate, Change, CurrentClamp, StepFamily, Stimulus, VoltageClamp
from .recording import Recording
from .worm import Worm

__all__ = [
    "KATO_NEURONS",
    "Ablate",
    "Change",
    "Connectome",
    "CurrentClamp",
    "Posterior",
    "Recording",
    "StepFamily",
    "Stimulus",
    "UnknownNeuron",
    "VoltageClamp",
    "Worm",
    "branch",
    "impute",
    "open_posterior",
]
__version__ = version("virtual-patch-clamp")
