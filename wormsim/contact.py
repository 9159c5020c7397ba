"""Posts that push: the contact forces of round objects on rod ends, for a block of bodies."""

import numpy as np

from . import geometry as geo
from .blocks import LANES, PHI, RECORD, STATE, VX, VY, A, F, U, X, Y
from .elementary import sine_cosine
from .kernel import kernel

MARGIN = 0.2  # mm around a body within which objects are in its reach


@kernel
def within_reach(q, h, objects, frame):
    """Those of the objects that some body in a block may touch in this step.

    Sets `frame`, rows of a rectangle (left, right, low, high) around where each body is and would be at its last velocity, with
    a margin. A body meets only objects that touch its own rectangle, so that what its neighbours do cannot matter to it.
    """
    for i in range(LANES):
        frame[i], frame[LANES + i], frame[2 * LANES + i], frame[3 * LANES + i] = np.inf, -np.inf, np.inf, -np.inf
    for rod in range(geo.RODS):
        z = q[rod * STATE : (rod + 1) * STATE]
        for i in range(LANES):
            x, y = z[X + i], z[Y + i]
            later_x, later_y = x + h * z[VX + i], y + h * z[VY + i]
            frame[i] = min(frame[i], min(x, later_x) - MARGIN)
            frame[LANES + i] = max(frame[LANES + i], max(x, later_x) + MARGIN)
            frame[2 * LANES + i] = min(frame[2 * LANES + i], min(y, later_y) - MARGIN)
            frame[3 * LANES + i] = max(frame[3 * LANES + i], max(y, later_y) + MARGIN)
    reached = np.empty_like(objects)
    count = 0
    for o in range(len(objects)):
        x, y, radius = objects[o, 0], objects[o, 1], objects[o, 2]
        for i in range(LANES):
            if (
                frame[i] - radius < x < frame[LANES + i] + radius
                and frame[2 * LANES + i] - radius < y < frame[3 * LANES + i] + radius
            ):
                reached[count] = objects[o]
                count += 1
                break
    return reached[:count]


@kernel
def touch(q, s, h, objects, frame):
    """Add the push of the objects on the rod ends that are inside them at the end of the step, and say whether there is any.

    Backward Euler by Newton's method: where the last guess u of the velocity (rows U) leads to depth p, the push P(p) and its
    slope give P + h P' (g . u) - h P' (g . w), whose last term goes into the matrix.
    """
    place = np.empty(4 * LANES)  # where the rod would be: x, y, and its arm
    touched = False
    for rod in range(geo.RODS):
        z, r = q[rod * STATE : (rod + 1) * STATE], s[rod * RECORD : (rod + 1) * RECORD]
        r[A:U] = 0.0
        for i in range(LANES):
            sine, cosine = sine_cosine(z[PHI + i] + h * r[U + 2 * LANES + i])
            place[i], place[LANES + i] = z[X + i] + h * r[U + i], z[Y + i] + h * r[U + LANES + i]
            place[2 * LANES + i], place[3 * LANES + i] = geo.RADIUS[rod] * cosine, geo.RADIUS[rod] * sine
        for o in range(len(objects)):
            ox, oy, radius = objects[o, 0], objects[o, 1], objects[o, 2]
            near = False
            for i in range(LANES):
                dx, dy = place[i] - ox, place[LANES + i] - oy
                near |= dx * dx + dy * dy < (radius + geo.RADIUS[rod]) ** 2
            if not near:
                continue
            steep = 1 / (geo.OBJECT_SOFTNESS * radius)
            for end in (1.0, -1.0):
                for i in range(LANES):
                    ax, ay = end * place[2 * LANES + i], end * place[3 * LANES + i]
                    dx, dy = place[i] + ax - ox, place[LANES + i] + ay - oy
                    distance = np.sqrt(dx * dx + dy * dy)
                    depth = radius - distance
                    inside = (depth > 0.0) & (frame[i] - radius < ox) & (ox < frame[LANES + i] + radius)
                    inside &= (frame[2 * LANES + i] - radius < oy) & (oy < frame[3 * LANES + i] + radius)
                    touched |= inside
                    push = geo.OBJECT_STIFFNESS * depth * (1 + depth * steep) if inside else 0.0
                    k = h * geo.OBJECT_STIFFNESS * (1 + 2 * depth * steep) if inside else 0.0
                    ux, uy = dx / distance, dy / distance
                    turn = uy * ax - ux * ay
                    push += k * (ux * r[U + i] + uy * r[U + LANES + i] + turn * r[U + 2 * LANES + i])
                    r[A + i] += k * ux * ux
                    r[A + LANES + i] += k * ux * uy
                    r[A + 2 * LANES + i] += k * ux * turn
                    r[A + 3 * LANES + i] += k * uy * uy
                    r[A + 4 * LANES + i] += k * uy * turn
                    r[A + 5 * LANES + i] += k * turn * turn
                    r[F + i] += push * ux
                    r[F + LANES + i] += push * uy
                    r[F + 2 * LANES + i] += push * turn
    return touched
