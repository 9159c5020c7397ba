"""The body's equations in plain numpy and scipy: slow, obvious, and the oracle of the compiled kernel.

Rod i has its centre at (x, y) and its dorsal end at (x, y) + R (cos phi, sin phi). Collect all coordinates in q.
An element of length L(q) with gradient g = dL/dq pushes with tension T and damping d, the medium drags with C:

    (C + sum_e d_e g_e g_e^T) dq/dt = sum_e T_e g_e + contact forces                       (1)

    lateral    T = k_PE (L0 - L) + k_AE v (L0 - v dL - L),  d = D_PE + D_AE v,  v = max(activation, 0)   (2)
    diagonal   T = k_DE (L0 - L),                           d = D_DE                       (3)

The matrix in (1) is symmetric, positive definite and block tridiagonal. In velocity form its fastest rate is about
100 /s in any medium, so explicit solvers do well.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import solveh_banded

from . import geometry as geo

# Which end each element takes on its first and second rod: +1 dorsal, -1 ventral.
FIRST_END = np.array([1, -1, 1, -1])[:, None]
SECOND_END = np.array([1, -1, -1, 1])[:, None]


def elements(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Length (4, 48) of every element and its gradient (4, 48, 6) by the coordinates of its two rods."""
    x, y, phi = state.T
    arm_x, arm_y = geo.RADIUS * np.cos(phi), geo.RADIUS * np.sin(phi)
    dx = (x[1:] + SECOND_END * arm_x[1:]) - (x[:-1] + FIRST_END * arm_x[:-1])
    dy = (y[1:] + SECOND_END * arm_y[1:]) - (y[:-1] + FIRST_END * arm_y[:-1])
    length = np.hypot(dx, dy)
    ux, uy = dx / length, dy / length
    turn_first = FIRST_END * (ux * arm_y[:-1] - uy * arm_x[:-1])
    turn_second = SECOND_END * (uy * arm_x[1:] - ux * arm_y[1:])
    return length, np.stack([-ux, -uy, turn_first, ux, uy, turn_second], axis=-1)


def tension(length: np.ndarray, muscle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tension and damping (4, 48) of the elements, equations (2) and (3); muscle is (2, 48), dorsal and ventral."""
    active = np.maximum(muscle, 0)
    lateral = geo.LATERAL_STIFFNESS * (geo.REST_LATERAL - length[:2]) + geo.MUSCLE_STIFFNESS * active * (
        geo.REST_LATERAL - active * geo.CONTRACTION - length[:2]
    )
    diagonal = geo.DIAGONAL_STIFFNESS * (geo.REST_DIAGONAL - length[2:])
    damping = np.full((4, geo.SEGMENTS), geo.DIAGONAL_DAMPING)
    damping[:2] = geo.LATERAL_DAMPING + geo.MUSCLE_DAMPING * active
    return np.concatenate([lateral, diagonal]), damping


def contact(state: np.ndarray, objects: np.ndarray | tuple) -> np.ndarray:
    """Generalised force (49, 3) of round objects (n, 3: x, y, radius) on the rod ends inside them."""
    force = np.zeros((geo.RODS, 3))
    cosine, sine = np.cos(state[:, 2]), np.sin(state[:, 2])
    for end in (1, -1):
        arm = end * geo.RADIUS
        for x, y, radius in objects:
            dx, dy = state[:, 0] + arm * cosine - x, state[:, 1] + arm * sine - y
            distance = np.hypot(dx, dy)
            depth = np.maximum(radius - distance, 0)
            push = geo.OBJECT_STIFFNESS * (depth + depth**2 / (geo.OBJECT_SOFTNESS * radius)) / distance
            force += np.stack([push * dx, push * dy, push * arm * (dy * cosine - dx * sine)], axis=-1)
    return force


def velocity(state: np.ndarray, muscle: np.ndarray, medium: float = 1.0, objects: np.ndarray | tuple = ()) -> np.ndarray:
    """dq/dt (49, 3) of one body (49, 3) under muscle activations (2, 48): equation (1)."""
    length, gradient = elements(state)
    pull, damping = tension(length, muscle)
    segment_force = np.einsum("es,esj->sj", pull, gradient)
    segment_matrix = np.einsum("es,esj,esk->sjk", damping, gradient, gradient, optimize=False)

    force = contact(state, objects) if len(objects) else np.zeros((geo.RODS, 3))
    force[:-1] += segment_force[:, :3]
    force[1:] += segment_force[:, 3:]

    along, across = geo.drag(medium)
    cosine, sine = np.cos(state[:, 2]), np.sin(state[:, 2])
    diagonal = np.zeros((geo.RODS, 3, 3))
    diagonal[:, 0, 0] = across * cosine**2 + along * sine**2
    diagonal[:, 1, 1] = across * sine**2 + along * cosine**2
    diagonal[:, 0, 1] = diagonal[:, 1, 0] = (across - along) * cosine * sine
    diagonal[:, 2, 2] = 4 * np.pi * geo.RADIUS**2 * along
    diagonal[:-1] += segment_matrix[:, :3, :3]
    diagonal[1:] += segment_matrix[:, 3:, 3:]

    banded = np.zeros((6, geo.RODS, 3))  # banded[k, i, c] is the entry k rows below the diagonal in column (i, c)
    for row in range(3):
        for column in range(3):
            if row >= column:
                banded[row - column, :, column] = diagonal[:, row, column]
            banded[3 + row - column, :-1, column] = segment_matrix[:, 3 + row, column]
    return solveh_banded(banded.reshape(6, -1), force.ravel(), lower=True, check_finite=False).reshape(geo.RODS, 3)


def integrate(
    state: np.ndarray,
    muscle: Callable[[float], np.ndarray],
    seconds: float,
    medium: float = 1.0,
    objects: np.ndarray | tuple = (),
    **solver: Any,
) -> np.ndarray:
    """State (49, 3) after some seconds under muscle(t), by scipy's solve_ivp; solver options are its own."""

    def derivative(t: float, q: np.ndarray) -> np.ndarray:
        return velocity(q.reshape(geo.RODS, 3), muscle(t), medium, objects).ravel()

    options = {"method": "DOP853", "rtol": 1e-9, "atol": 1e-10} | solver
    solution = solve_ivp(derivative, (0.0, seconds), state.ravel(), **options)
    if not solution.success:
        raise RuntimeError(f"scipy could not integrate the body: {solution.message}")
    return solution.y[:, -1].reshape(geo.RODS, 3)
