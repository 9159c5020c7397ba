"""One step of many bodies at once: extrapolated Crank-Nicolson with a single block-tridiagonal solve.

The equations are (1)-(3) of `reference.py`. With v the velocity of the step before, one step of length h is

    q* = q + (h/2) v                                            where the midpoint will be, extrapolated
    [C + sum_e (d_e + (h/2) k_e) g g^T] w = sum_e [T_e(L*) + (h/2) k_e (g . v)] g     solved for w at q*
    q <- q + h w,   v <- w

where k_e = -dT_e/dL. It is second order, as stable as Crank-Nicolson, and costs one solve. Contacts (`touch`) are
first order, by backward Euler and Newton's method, so that a stiff post stops a rod at its surface and does not ring.

The layout of the arrays is that of `blocks.py`.
"""

import numpy as np
from numba import prange

from . import geometry as geo
from .blocks import AX, AY, FINE, LANES, MUSCLE, PHI, RECORD, STATE, VPHI, VX, VY, XS, YS, A, F, U, W, X, Y
from .contact import touch, within_reach
from .elementary import inverse_root, sine_cosine
from .kernel import kernel

NEWTON_SOLVES = 3  # in a step that touches objects

# A body is no longer physical when two neighbouring rods, measured along the body on either side, come closer than a tenth of
# a segment (a curvature of about 22 /mm in the middle; crawling reaches 13) or part further than three, when they enclose an
# angle of more than 1 rad, or when one moves faster than 10 m/s or 10,000 rad/s.
NARROWEST, WIDEST, SHARPEST, FASTEST = 0.1 * geo.SEGMENT_LENGTH, 3 * geo.SEGMENT_LENGTH, 1.0, 1e4

_RODS, _SEGMENTS = geo.RODS, geo.SEGMENTS
_KPE, _DPE, _KAE, _DAE = geo.LATERAL_STIFFNESS, geo.LATERAL_DAMPING, geo.MUSCLE_STIFFNESS, geo.MUSCLE_DAMPING
_KDE, _DDE = geo.DIAGONAL_STIFFNESS, geo.DIAGONAL_DAMPING
_RADIUS, _REST_LATERAL, _REST_DIAGONAL, _CONTRACTION = geo.RADIUS, geo.REST_LATERAL, geo.REST_DIAGONAL, geo.CONTRACTION


@kernel
def place(q, s, h):
    """Extrapolate every rod to the midpoint of a step."""
    for rod in range(_RODS):
        z, r = q[rod * STATE : (rod + 1) * STATE], s[rod * RECORD : (rod + 1) * RECORD]
        radius = _RADIUS[rod]
        for i in range(LANES):
            r[XS + i] = z[X + i] + 0.5 * h * z[VX + i]
            r[YS + i] = z[Y + i] + 0.5 * h * z[VY + i]
            sine, cosine = sine_cosine(z[PHI + i] + 0.5 * h * z[VPHI + i])
            r[AX + i], r[AY + i] = radius * cosine, radius * sine


@kernel
def begin(s, along, across, touching):
    """Start the first rod's block and force with the medium's drag, and the push of objects if there is any."""
    turn, steep = 4 * np.pi * _RADIUS[0] * _RADIUS[0] * along, (across - along) / (_RADIUS[0] * _RADIUS[0])
    r = s[:RECORD]
    if not touching:
        r[A:U] = 0.0
    for i in range(LANES):
        ax, ay = r[AX + i], r[AY + i]
        r[A + i] += along + steep * ax * ax
        r[A + LANES + i] += steep * ax * ay
        r[A + 3 * LANES + i] += along + steep * ay * ay
        r[A + 5 * LANES + i] += turn


@kernel
def eliminate(q, s, muscle, h, along, across, touching):
    """Walk the segments from the head: add the four elements of each, then eliminate its first rod (block Gauss)."""
    for seg in range(_SEGMENTS):
        z, r = q[seg * STATE : (seg + 2) * STATE], s[seg * RECORD : (seg + 2) * RECORD]
        m = muscle[seg * LANES : (_SEGMENTS + seg + 1) * LANES]
        rest, rest_diagonal, contraction = _REST_LATERAL[seg], _REST_DIAGONAL[seg], _CONTRACTION[seg]
        half = 0.5 * h
        next_radius = _RADIUS[seg + 1]
        turn, steep = 4 * np.pi * next_radius * next_radius * along, (across - along) / (next_radius * next_radius)
        for i in range(LANES):
            # Vectors of the four elements, from the first rod's end to the second's.
            cx, cy = r[RECORD + XS + i] - r[XS + i], r[RECORD + YS + i] - r[YS + i]
            ax, ay, bx, by = r[AX + i], r[AY + i], r[RECORD + AX + i], r[RECORD + AY + i]
            x1, y1 = cx + (bx - ax), cy + (by - ay)
            x2, y2 = cx - (bx - ax), cy - (by - ay)
            x3, y3 = cx - (bx + ax), cy - (by + ay)
            x4, y4 = cx + (bx + ax), cy + (by + ay)
            s1, s2, s3, s4 = x1 * x1 + y1 * y1, x2 * x2 + y2 * y2, x3 * x3 + y3 * y3, x4 * x4 + y4 * y4
            i1, i2, i3, i4 = inverse_root(s1), inverse_root(s2), inverse_root(s3), inverse_root(s4)
            l1, l2, l3, l4 = s1 * i1, s2 * i2, s3 * i3, s4 * i4

            # Directions and lever arms: g = (-ux, -uy, p, ux, uy, q).
            x1, y1, x2, y2, x3, y3, x4, y4 = x1 * i1, y1 * i1, x2 * i2, y2 * i2, x3 * i3, y3 * i3, x4 * i4, y4 * i4
            p1, p2, p3, p4 = x1 * ay - y1 * ax, y2 * ax - x2 * ay, x3 * ay - y3 * ax, y4 * ax - x4 * ay
            q1, q2, q3, q4 = y1 * bx - x1 * by, x2 * by - y2 * bx, x3 * by - y3 * bx, y4 * bx - x4 * by

            # Tension, stiffness and damping, equations (2) and (3).
            a1, a2 = m[i], m[_SEGMENTS * LANES + i]
            a1 = a1 if a1 > 0.0 else 0.0
            a2 = a2 if a2 > 0.0 else 0.0
            k1, k2 = _KAE * a1, _KAE * a2
            t1 = _KPE * (rest - l1) + k1 * (rest - a1 * contraction - l1)
            t2 = _KPE * (rest - l2) + k2 * (rest - a2 * contraction - l2)
            t3, t4 = _KDE * (rest_diagonal - l3), _KDE * (rest_diagonal - l4)
            k1, k2, k3 = half * (_KPE + k1), half * (_KPE + k2), half * _KDE
            d1, d2, d3 = _DPE + _DAE * a1 + k1, _DPE + _DAE * a2 + k2, _DDE + k3
            wx, wy = z[STATE + VX + i] - z[VX + i], z[STATE + VY + i] - z[VY + i]
            o1, o2 = z[VPHI + i], z[STATE + VPHI + i]
            t1 += k1 * (x1 * wx + y1 * wy + p1 * o1 + q1 * o2)
            t2 += k2 * (x2 * wx + y2 * wy + p2 * o1 + q2 * o2)
            t3 += k3 * (x3 * wx + y3 * wy + p3 * o1 + q3 * o2)
            t4 += k3 * (x4 * wx + y4 * wy + p4 * o1 + q4 * o2)

            # Sums over the elements of damping times products of g, and of tension times g.
            fx, fy = t1 * x1 + t2 * x2 + t3 * x3 + t4 * x4, t1 * y1 + t2 * y2 + t3 * y3 + t4 * y4
            fp, fq = t1 * p1 + t2 * p2 + t3 * p3 + t4 * p4, t1 * q1 + t2 * q2 + t3 * q3 + t4 * q4
            e1, e2, e3, e4 = d1 * x1, d2 * x2, d3 * x3, d3 * x4
            xx, xy = e1 * x1 + e2 * x2 + e3 * x3 + e4 * x4, e1 * y1 + e2 * y2 + e3 * y3 + e4 * y4
            xp, xq = e1 * p1 + e2 * p2 + e3 * p3 + e4 * p4, e1 * q1 + e2 * q2 + e3 * q3 + e4 * q4
            e1, e2, e3, e4 = d1 * y1, d2 * y2, d3 * y3, d3 * y4
            yy, yp = e1 * y1 + e2 * y2 + e3 * y3 + e4 * y4, e1 * p1 + e2 * p2 + e3 * p3 + e4 * p4
            yq = e1 * q1 + e2 * q2 + e3 * q3 + e4 * q4
            e1, e2, e3, e4 = d1 * p1, d2 * p2, d3 * p3, d3 * p4
            pp, pq = e1 * p1 + e2 * p2 + e3 * p3 + e4 * p4, e1 * q1 + e2 * q2 + e3 * q3 + e4 * q4
            qq = d1 * q1 * q1 + d2 * q2 * q2 + d3 * (q3 * q3 + q4 * q4)

            # The first rod's block is complete: invert it by cofactors (one division).
            a, b, c = r[A + i] + xx, r[A + LANES + i] + xy, r[A + 2 * LANES + i] - xp
            d, e, f = r[A + 3 * LANES + i] + yy, r[A + 4 * LANES + i] - yp, r[A + 5 * LANES + i] + pp
            c00, c01, c02 = d * f - e * e, c * e - b * f, b * e - c * d
            scale = 1 / (a * c00 + b * c01 + c * c02)
            c11, c12, c22 = (a * f - c * c) * scale, (b * c - a * e) * scale, (a * d - b * b) * scale
            c00, c01, c02 = c00 * scale, c01 * scale, c02 * scale

            # Solve it for the right-hand side (u) and for its coupling to the second rod (w).
            f0, f1, f2 = r[F + i] - fx, r[F + LANES + i] - fy, r[F + 2 * LANES + i] + fp
            u0, u1, u2 = c00 * f0 + c01 * f1 + c02 * f2, c01 * f0 + c11 * f1 + c12 * f2, c02 * f0 + c12 * f1 + c22 * f2
            w00, w10, w20 = c02 * xp - c00 * xx - c01 * xy, c12 * xp - c01 * xx - c11 * xy, c22 * xp - c02 * xx - c12 * xy
            w01, w11, w21 = c02 * yp - c00 * xy - c01 * yy, c12 * yp - c01 * xy - c11 * yy, c22 * yp - c02 * xy - c12 * yy
            w02, w12, w22 = c02 * pq - c00 * xq - c01 * yq, c12 * pq - c01 * xq - c11 * yq, c22 * pq - c02 * xq - c12 * yq
            r[U + i], r[U + LANES + i], r[U + 2 * LANES + i] = u0, u1, u2
            r[W + i], r[W + LANES + i], r[W + 2 * LANES + i] = w00, w01, w02
            r[W + 3 * LANES + i], r[W + 4 * LANES + i], r[W + 5 * LANES + i] = w10, w11, w12
            r[W + 6 * LANES + i], r[W + 7 * LANES + i], r[W + 8 * LANES + i] = w20, w21, w22

            # What is left for the second rod, and its drag.
            a = xx + (xx * w00 + xy * w10 - xp * w20) + (along + steep * bx * bx)
            b = xy + (xx * w01 + xy * w11 - xp * w21) + steep * bx * by
            c = xq + (xx * w02 + xy * w12 - xp * w22)
            d = yy + (xy * w01 + yy * w11 - yp * w21) + (along + steep * by * by)
            e = yq + (xy * w02 + yy * w12 - yp * w22)
            f = qq + (xq * w02 + yq * w12 - pq * w22) + turn
            f0 = fx + (xx * u0 + xy * u1 - xp * u2)
            f1 = fy + (xy * u0 + yy * u1 - yp * u2)
            f2 = fq + (xq * u0 + yq * u1 - pq * u2)
            if touching:
                a, b, c = a + r[RECORD + A + i], b + r[RECORD + A + LANES + i], c + r[RECORD + A + 2 * LANES + i]
                d, e = d + r[RECORD + A + 3 * LANES + i], e + r[RECORD + A + 4 * LANES + i]
                f += r[RECORD + A + 5 * LANES + i]
                f0, f1, f2 = f0 + r[RECORD + F + i], f1 + r[RECORD + F + LANES + i], f2 + r[RECORD + F + 2 * LANES + i]
            r[RECORD + A + i], r[RECORD + A + LANES + i], r[RECORD + A + 2 * LANES + i] = a, b, c
            r[RECORD + A + 3 * LANES + i], r[RECORD + A + 4 * LANES + i], r[RECORD + A + 5 * LANES + i] = d, e, f
            r[RECORD + F + i], r[RECORD + F + LANES + i], r[RECORD + F + 2 * LANES + i] = f0, f1, f2


@kernel
def substitute(q, s, h):
    """Solve for the tail's velocity, walk back to the head, and find where the step would make a body unphysical.

    Unphysical are rods that cross, tear apart or fly. On either side, the gap to the next rod along the body is c . t -+ R
    sin(turn), with c between the centres and t = (sin phi, -cos phi); the new t follows from the one at the midpoint by a small
    rotation. A comparison with NaN is false, too.
    """
    r = s[(_RODS - 1) * RECORD : _RODS * RECORD]
    for i in range(LANES):
        a, b, c = r[A + i], r[A + LANES + i], r[A + 2 * LANES + i]
        d, e, f = r[A + 3 * LANES + i], r[A + 4 * LANES + i], r[A + 5 * LANES + i]
        f0, f1, f2 = r[F + i], r[F + LANES + i], r[F + 2 * LANES + i]
        c00, c01, c02, c11, c12, c22 = d * f - e * e, c * e - b * f, b * e - c * d, a * f - c * c, b * c - a * e, a * d - b * b
        scale = 1 / (a * c00 + b * c01 + c * c02)
        u0, u1 = (c00 * f0 + c01 * f1 + c02 * f2) * scale, (c01 * f0 + c11 * f1 + c12 * f2) * scale
        u2 = (c02 * f0 + c12 * f1 + c22 * f2) * scale
        r[U + i], r[U + LANES + i], r[U + 2 * LANES + i] = u0, u1, u2
        r[FINE + i] = 1.0 if (abs(u0) < FASTEST) & (abs(u1) < FASTEST) & (abs(u2) < FASTEST) else 0.0
    for seg in range(_SEGMENTS - 1, -1, -1):
        z, r = q[seg * STATE : (seg + 2) * STATE], s[seg * RECORD : (seg + 2) * RECORD]
        scale, next_radius = 1 / _RADIUS[seg], _RADIUS[seg + 1]
        for i in range(LANES):
            v0, v1, v2 = r[RECORD + U + i], r[RECORD + U + LANES + i], r[RECORD + U + 2 * LANES + i]
            u0 = r[U + i] - (r[W + i] * v0 + r[W + LANES + i] * v1 + r[W + 2 * LANES + i] * v2)
            u1 = r[U + LANES + i] - (r[W + 3 * LANES + i] * v0 + r[W + 4 * LANES + i] * v1 + r[W + 5 * LANES + i] * v2)
            u2 = r[U + 2 * LANES + i] - (r[W + 6 * LANES + i] * v0 + r[W + 7 * LANES + i] * v1 + r[W + 8 * LANES + i] * v2)
            r[U + i], r[U + LANES + i], r[U + 2 * LANES + i] = u0, u1, u2

            cx, cy = z[STATE + X + i] - z[X + i] + h * (v0 - u0), z[STATE + Y + i] - z[Y + i] + h * (v1 - u1)
            turn = z[STATE + PHI + i] - z[PHI + i] + h * (v2 - u2)
            d = h * u2 - 0.5 * h * z[VPHI + i]
            even, odd = scale * (1 - 0.5 * d * d), scale * d
            along = cx * (even * r[AY + i] + odd * r[AX + i]) - cy * (even * r[AX + i] - odd * r[AY + i])
            across = next_radius * turn * (1 - turn * turn * (1 / 6))
            physical = (along - across > NARROWEST) & (along + across > NARROWEST) & (abs(turn) < SHARPEST)
            physical &= (along - across < WIDEST) & (along + across < WIDEST)
            physical &= (abs(u0) < FASTEST) & (abs(u1) < FASTEST) & (abs(u2) < FASTEST)
            r[FINE + i] = r[RECORD + FINE + i] if physical else 0.0


@kernel
def move(q, s, h, alive):
    """Take the step where the body is physical; elsewhere keep the last physical state, at rest."""
    for rod in range(_RODS):
        z, r = q[rod * STATE : (rod + 1) * STATE], s[rod * RECORD : (rod + 1) * RECORD]
        for i in range(LANES):
            living = alive[i] > 0.0
            u0 = r[U + i] if living else 0.0
            u1 = r[U + LANES + i] if living else 0.0
            u2 = r[U + 2 * LANES + i] if living else 0.0
            z[X + i] += h * u0
            z[Y + i] += h * u1
            z[PHI + i] += h * u2
            z[VX + i], z[VY + i], z[VPHI + i] = u0, u1, u2


@kernel
def touch_and_solve(q, s, muscle, h, along, across, objects):
    """Newton's method for a step among objects, from the last step's velocity; one solve is enough where nothing is touched."""
    frame = np.empty(4 * LANES)
    reached = within_reach(q, h, objects, frame)
    for rod in range(_RODS):
        for k in range(3 * LANES):
            s[rod * RECORD + U + k] = q[rod * STATE + VX + k]
    touched = True
    for solves in range(NEWTON_SOLVES):
        still = touch(q, s, h, reached, frame)
        if solves and not (still or touched):
            break
        touched = still
        place(q, s, h)
        begin(s, along, across, True)
        eliminate(q, s, muscle, h, along, across, True)
        substitute(q, s, h)


@kernel
def step_block(q, s, muscle, h, along, across, objects, alive):
    """One step of a block of 16 bodies, q, with scratch array s and muscle rows (side, segment, lane)."""
    if len(objects):
        touch_and_solve(q, s, muscle, h, along, across, objects)
    else:
        place(q, s, h)
        begin(s, along, across, False)
        eliminate(q, s, muscle, h, along, across, False)
        substitute(q, s, h)
    for i in range(LANES):
        alive[i] = alive[i] if s[FINE + i] > 0.0 else 0.0
    move(q, s, h, alive)


@kernel
def _advance_share(s, share, shares, blocks, alive, muscle, h, substeps, along, across, objects):
    """Advance every block whose number leaves a remainder of `share`."""
    rows = s[MUSCLE:]
    for n in range(share, len(blocks), shares):
        given = muscle[n]
        for k in range(2 * _SEGMENTS):
            for i in range(LANES):
                rows[k * LANES + i] = given[i * 2 * _SEGMENTS + k]
        for _ in range(substeps):
            step_block(blocks[n], s, rows, h, along, across, objects, alive[n])


@kernel
def advance(scratch, blocks, alive, muscle, h, substeps, along, across, objects):
    """Advance blocks (n, 49 * 6 * 16) in place by substeps of h under muscle (n, 16 * 2 * 48), on the calling thread."""
    _advance_share(scratch[0], 0, 1, blocks, alive, muscle, h, substeps, along, across, objects)


@kernel(parallel=True)
def advance_parallel(scratch, blocks, alive, muscle, h, substeps, along, across, objects):
    """`advance` on one of numba's threads for each row of scratch (threads, SCRATCH); the same result to the last bit."""
    for share in prange(len(scratch)):
        _advance_share(scratch[share], share, len(scratch), blocks, alive, muscle, h, substeps, along, across, objects)
