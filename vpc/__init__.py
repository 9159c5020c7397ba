"""The Virtual Patch Clamp: every voltage of a worm from a few calcium traces."""

from importlib.metadata import version

__version__ = version("virtual-patch-clamp")
