"""Pictures of a run: voltages as curves and as a map of all 302 neurons, the wiring, and the worm with its neurons lit up.

`traces`, `heatmap`, `connectome` and `neuron_map` give HoloViews objects, and so do `convergence`, `gaps` and `profiles`, of
what `vpc.learn` found. `explore` gives one Bokeh layout that plays in the browser, without a kernel or a network, and `canvas`
a widget for notebooks. In a notebook call `notebook()` once, then `show` any picture.
"""

from typing import TYPE_CHECKING

import xarray as xr

from wormsim.plot import animate, kymograph, notebook, show

from .explorer import explore
from .learn.pictures import Convergence, convergence, gaps, profiles
from .pictures import connectome, heatmap, neuron_map, traces

if TYPE_CHECKING:
    from .canvas import WormCanvas

__all__ = [
    "Convergence",
    "animate",
    "canvas",
    "connectome",
    "convergence",
    "explore",
    "gaps",
    "heatmap",
    "kymograph",
    "neuron_map",
    "notebook",
    "profiles",
    "show",
    "traces",
]


def canvas(run: xr.Dataset | None = None) -> "WormCanvas":
    """A widget that plays the worm in a notebook; needs the extra `notebooks`."""
    from .canvas import WormCanvas

    return WormCanvas(run)
