"""Round posts in the worm's way: square, hexagonal and random arrays, as rows of x, y and radius in mm.

A rod end inside a post is pushed out, `geometry.OBJECT_STIFFNESS`. Worms in post arrays crawl faster than on agar when the
spacing suits their wave (Park et al. 2008, PLoS ONE 3:e2550; Majmudar et al. 2012, J. R. Soc. Interface 9:1809).
"""

from collections.abc import Sequence

import numpy as np

from . import check
from . import geometry as geo

CLEARANCE = 0.01  # mm kept free around a straight worm at the origin
MOST = 20_000  # objects


def check_objects(objects: Sequence | np.ndarray) -> np.ndarray:
    """Objects as a float array (n, 3), or an error that names what is wrong with them."""
    try:
        array = np.array(objects, dtype=float)
    except (TypeError, ValueError):
        array = np.empty(1)
    if array.size == 0:
        return np.empty((0, 3))
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError("objects must be rows of x, y, radius in mm, shape (n, 3)")
    if len(array) > MOST:
        raise ValueError(f"objects must be at most {MOST}, got {len(array)}")
    if not np.isfinite(array).all():
        raise ValueError("objects must be finite numbers (x, y, radius in mm)")
    if (array[:, 2] <= 0).any():
        raise ValueError(f"objects must have a positive radius, got {array[:, 2].min()} mm")
    from scipy.spatial import cKDTree  # half a second to import, and most worms have no objects

    # Of two that overlap, the smaller has its centre within twice the radius of the larger.
    tree = cKDTree(array[:, :2])
    for first in range(0, len(array), 256):
        some = array[first : first + 256]
        for i, near in enumerate(tree.query_ball_point(some[:, :2], 2 * some[:, 2]), start=first):
            others = np.array([j for j in near if j != i], dtype=int)
            apart = np.hypot(*(array[others] - array[i])[:, :2].T)
            overlapping = others[apart < array[others, 2] + array[i, 2]]
            if len(overlapping):
                i, j = sorted((i, int(overlapping.min())))
                raise ValueError(f"objects must not overlap, but objects[{i}] and objects[{j}] do")
    return array


def off_the_worm(posts: np.ndarray, clearance: float = CLEARANCE) -> np.ndarray:
    """Without the posts that a straight worm at the origin would touch."""
    nearest_x = np.clip(posts[:, 0], 0, geo.LENGTH)
    distance = np.hypot(posts[:, 0] - nearest_x, posts[:, 1])
    return posts[distance > posts[:, 2] + geo.RADIUS.max() + clearance]


def _lattice(first: np.ndarray, second: np.ndarray, radius: float, size: float) -> np.ndarray:
    """All points i first + j second + centre of the gap in a square of a size around the worm's middle, as posts."""
    count = int(np.ceil(2 * size / min(np.hypot(*first), np.hypot(*second))))
    i, j = np.mgrid[-count : count + 1, -count : count + 1].reshape(2, -1, 1)
    centres = (i + 0.5) * first + (j + 0.5) * second
    inside = (np.abs(centres) <= size / 2).all(axis=1)
    centres = centres[inside] + (geo.LENGTH / 2, 0)
    return check_objects(off_the_worm(np.column_stack([centres, np.full(len(centres), radius)])))


def square_posts(spacing: float = 0.5, radius: float = 0.1, size: float = 4.0) -> np.ndarray:
    """Posts on a square lattice, centre to centre `spacing` mm apart, in a square of `size` mm around the worm."""
    _check_spacing(spacing, radius, size)
    return _lattice(np.array([spacing, 0.0]), np.array([0.0, spacing]), radius, size)


def hexagonal_posts(spacing: float = 0.5, radius: float = 0.1, size: float = 4.0) -> np.ndarray:
    """Posts on a hexagonal lattice, every post `spacing` mm from its six neighbours."""
    _check_spacing(spacing, radius, size)
    return _lattice(np.array([spacing, 0.0]), np.array([spacing / 2, spacing * np.sqrt(3) / 2]), radius, size)


def random_posts(
    spacing: float = 0.5, radius: float = 0.1, size: float = 4.0, gap: float = 0.15, seed: int | None = 0
) -> np.ndarray:
    """Posts thrown at random, one per `spacing` squared or as many as fit, with at least `gap` mm free between any two."""
    _check_spacing(spacing, radius, size, gap)
    rng = np.random.default_rng(seed)
    posts = np.empty((0, 3))
    wanted = int((size / spacing) ** 2)
    for x, y in rng.uniform(-size / 2, size / 2, (50 * wanted, 2)) + (geo.LENGTH / 2, 0):
        if len(posts) < wanted and (np.hypot(posts[:, 0] - x, posts[:, 1] - y) >= 2 * radius + gap).all():
            posts = np.vstack([posts, (x, y, radius)])
    return check_objects(off_the_worm(posts))


def _check_spacing(spacing: float, radius: float, size: float, gap: float = 0.0) -> None:
    check.number("radius", radius, "a positive number of mm", lambda r: r > 0)
    check.number("spacing", spacing, f"more than twice the radius, {2 * radius} mm", lambda s: s > 2 * radius)
    check.number("size", size, "a positive number of mm, 1000 at most", lambda s: 0 < s <= 1000)
    check.number("gap", gap, "a number of mm of at least 0", lambda g: g >= 0)
