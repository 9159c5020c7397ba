"""The body of *C. elegans*: 49 rods, 96 muscles, springs and drag, many worms at once.

    import wormsim
    worm = wormsim.crawl(seconds=10)               # an xarray Dataset
    print(wormsim.gait(worm))
    body = wormsim.Body(particles=1000)            # or drive the muscles yourself
    body.step(muscle, dt=0.01)                     # (1000, 2, 48)

`wormsim.reference` has the equations; `wormsim.mechanics` the fast kernel; `wormsim.plot` draws.
"""

from importlib import import_module
from importlib.metadata import version
from types import ModuleType

from .body import Body
from .circuit import crawl
from .gait import Gait, curvature, gait
from .objects import hexagonal_posts, random_posts, square_posts
from .service import RemoteBody, Service, ServiceError
from .stretch import segment_stretch, unit_stretch

__version__ = version("virtual-patch-clamp")

__all__ = [
    "Body",
    "Gait",
    "RemoteBody",
    "Service",
    "ServiceError",
    "crawl",
    "curvature",
    "gait",
    "hexagonal_posts",
    "random_posts",
    "segment_stretch",
    "square_posts",
    "unit_stretch",
]


def __getattr__(name: str) -> ModuleType:
    """Import `plot` and `reference` when they are first used: drawing libraries take seconds to load."""
    if name in ("plot", "reference"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
