"""Small matrices for kernels: the same sums in the same order on any number of threads, which LAPACK would not promise."""

import numpy as np

from wormsim.kernel import kernel

__all__ = ["cholesky", "solve_lower", "solve_upper"]


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
def solve_upper(root, b):
    """Replace b by L^-T b."""
    for i in range(len(b) - 1, -1, -1):
        for k in range(i + 1, len(b)):
            b[i] -= root[k, i] * b[k]
        b[i] /= root[i, i]
