"""The Virtual Patch Clamp: every voltage of a worm from a few calcium traces."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

from . import cluster, curves, export, screen, session
from .branching import branch
from .connectome import KATO_NEURONS, Connectome, UnknownNeuron
from .held_out import held_out
from .imputation import impute
from .posterior import Posterior, open_posterior
from .protocol import Ablate, Change, CurrentClamp, StepFamily, Stimulus, VoltageClamp
from .recording import Recording
from .worm import Worm

__all__ = [
    "KATO_NEURONS",
    "Ablate",
    "Change",
    "ClampRig",
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
    "cluster",
    "curves",
    "export",
    "held_out",
    "impute",
    "learn",
    "open_posterior",
    "screen",
    "session",
]
__version__ = version("virtual-patch-clamp")


def __getattr__(name: str) -> Any:
    """What takes long to import, when it is asked for: the rig, which alone needs widgets, and learning."""
    if name == "ClampRig":
        from .rig import ClampRig

        return ClampRig
    if name == "learn":
        return import_module(".learn", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
