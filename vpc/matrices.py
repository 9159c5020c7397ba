"""Matrices for kernels: the same sums in the same order on any number of threads, which LAPACK would not promise."""

import numpy as np

from wormsim.kernel import kernel

__all__ = ["cholesky", "gram", "product", "solve", "solve_lower", "solve_rows", "solve_upper"]

FOUR = 4  # rows that larger matrices are worked on together


@kernel
def cholesky(a):
    """Replace the lower triangle of a positive definite matrix by its root L; returns log det L."""
    log_determinant = 0.0
    for j in range(len(a)):
        for k in range(j):
            for i in range(j, len(a)):
                a[i, j] -= a[i, k] * a[j, k]
        pivot = np.sqrt(a[j, j])
        log_determinant += np.log(pivot)
        for i in range(j, len(a)):
            a[i, j] /= pivot
    return log_determinant


@kernel
def solve_lower(root, b):
    """Replace b by L^-1 b."""
    for i in range(len(b)):
        for k in range(i):
            b[i] -= root[i, k] * b[k]
        b[i] /= root[i, i]


@kernel
def solve_rows(root, b):
    """Replace b (row, column) by L^-1 b; quick for many columns."""
    for i in range(len(b)):
        for k in range(i):
            _add_one(b[i], -root[i, k], b[k])
        b[i] /= root[i, i]


@kernel
def solve_upper(root, b):
    """Replace b by L^-T b."""
    for i in range(len(b) - 1, -1, -1):
        for k in range(i + 1, len(b)):
            b[i] -= root[k, i] * b[k]
        b[i] /= root[i, i]


@kernel
def product(a, b):
    """a b."""
    out = np.zeros((len(a), b.shape[1]))
    for i in range(len(a)):
        for k in range(len(b)):
            _add_one(out[i], a[i, k], b[k])
    return out


@kernel
def gram(a):
    """The upper triangle of a^T a."""
    n, size = a.shape
    rows = np.zeros((_up(n), _up(size)))
    rows[:n, :size] = a
    out, few, factors = np.zeros((size, size)), np.empty((FOUR, rows.shape[1])), np.empty((FOUR, FOUR))
    for i in range(0, size, FOUR):
        few[:] = 0.0
        for k in range(0, len(rows), FOUR):
            for p in range(FOUR):
                for q in range(FOUR):
                    factors[p, q] = rows[k + q, i + p]
            _add(few, factors, rows, k, i)
        for p in range(min(FOUR, size - i)):
            out[i + p, i + p :] = few[p, i + p : size]
    return out


@kernel
def solve(a, b):
    """Replace b (row, column) by a^-1 b, where a is positive definite and its upper triangle is read; returns log det L.

    Rows of (a, b) become rows of L^T and L^-1 b, from the first on, and then of a^-1 b, from the last on.
    """
    size = _up(len(a))
    rows, few, factors = np.zeros((size, size + b.shape[1])), np.empty((FOUR, size + b.shape[1])), np.empty((FOUR, FOUR))
    for i in range(size):
        rows[i, i] = 1.0
    rows[: len(a), : len(a)] = a
    rows[: len(a), size:] = b
    log_determinant = 0.0
    for i in range(0, size, FOUR):
        few[:] = rows[i : i + FOUR]
        for k in range(0, i, FOUR):
            for p in range(FOUR):
                for q in range(FOUR):
                    factors[p, q] = -rows[k + q, i + p]
            _add(few, factors, rows, k, i)
        for p in range(FOUR):
            for q in range(p):
                _add_one(few[p, i:], -few[q, i + p], few[q, i:])
            pivot = np.sqrt(few[p, i + p])
            log_determinant += np.log(pivot)
            few[p, i:] /= pivot
        rows[i : i + FOUR] = few
    for i in range(size - FOUR, -1, -FOUR):
        few[:] = rows[i : i + FOUR]
        for k in range(i + FOUR, size, FOUR):
            for p in range(FOUR):
                for q in range(FOUR):
                    factors[p, q] = -few[p, k + q]
            _add(few, factors, rows, k, size)
        for p in range(FOUR - 1, -1, -1):
            for q in range(p + 1, FOUR):
                _add_one(few[p, size:], -few[p, i + q], few[q, size:])
            few[p, size:] /= few[p, i + p]
        rows[i : i + FOUR, size:] = few[:, size:]
    b[:] = rows[: len(a), size:]
    return log_determinant


@kernel
def _up(size):
    return FOUR * -(-size // FOUR)


@kernel
def _add(few, factors, rows, k, first):
    """few += factors (4, 4) times rows k to k + 3, in columns from the first on; written so that LLVM makes vectors of it."""
    f = factors.reshape(-1)
    a0, a1, a2, a3, b0, b1, b2, b3 = f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]
    c0, c1, c2, c3, d0, d1, d2, d3 = f[8], f[9], f[10], f[11], f[12], f[13], f[14], f[15]
    r0, r1, r2, r3 = rows[k, first:], rows[k + 1, first:], rows[k + 2, first:], rows[k + 3, first:]
    a, b, c, d = few[0, first:], few[1, first:], few[2, first:], few[3, first:]
    for j in range(len(r0)):
        w, x, y, z = r0[j], r1[j], r2[j], r3[j]
        a[j] += a0 * w + a1 * x + a2 * y + a3 * z
        b[j] += b0 * w + b1 * x + b2 * y + b3 * z
        c[j] += c0 * w + c1 * x + c2 * y + c3 * z
        d[j] += d0 * w + d1 * x + d2 * y + d3 * z


@kernel
def _add_one(own, factor, row):
    for j in range(len(own)):
        own[j] += factor * row[j]
