"""The Virtual Patch Clamp: every voltage of a worm from a few calcium traces."""

from importlib.metadata import version

from .connectome import KATO_NEURONS, Connectome, UnknownNeuron
from .protocol import Ablate, Change, CurrentClamp, StepFamily, Stimulus, VoltageClamp
from .worm import Worm

__all__ = [
    "KATO_NEURONS",
    "Ablate",
    "Change",
    "Connectome",
    "CurrentClamp",
    "StepFamily",
    "Stimulus",
    "UnknownNeuron",
    "VoltageClamp",
    "Worm",
]
__version__ = version("virtual-patch-clamp")
