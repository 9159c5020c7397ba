"""The Virtual Patch Clamp: every voltage of a worm from a few calcium traces."""

from importlib.metadata import version

from .connectome import KATO_NEURONS, Connectome, UnknownNeuron

__version__ = version("virtual-patch-clamp")

__all__ = ["KATO_NEURONS", "Connectome", "UnknownNeuron"]
