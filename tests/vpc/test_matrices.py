"""Matrices for kernels, against LAPACK."""

import numpy as np
import pytest

from vpc import matrices


def test_small_matrices():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((7, 7))
    a, b = a @ a.T + np.eye(7), rng.standard_normal(7)
    root, solution = a.copy(), b.copy()
    np.testing.assert_allclose(2 * matrices.cholesky(root), np.linalg.slogdet(a)[1])
    rows = np.column_stack([b, 2 * b])
    matrices.solve_rows(root, rows)
    matrices.solve_lower(root, solution)
    np.testing.assert_allclose(rows, np.column_stack([solution, 2 * solution]))
    matrices.solve_upper(root, solution)
    np.testing.assert_allclose(solution, np.linalg.solve(a, b))


@pytest.mark.parametrize(("rows", "size", "columns"), [(1, 1, 1), (9, 4, 3), (50, 30, 17)])
def test_larger_matrices(rows, size, columns):
    rng = np.random.default_rng(0)
    d, b = rng.standard_normal((rows, size)), rng.standard_normal((size, columns))
    upper = matrices.gram(d)
    np.testing.assert_allclose(upper, np.triu(d.T @ d), atol=1e-12)
    np.testing.assert_allclose(matrices.product(d, b), d @ b, atol=1e-12)
    a, solution = d.T @ d + np.eye(size), b.copy()
    np.testing.assert_allclose(2 * matrices.solve(upper + np.eye(size), solution), np.linalg.slogdet(a)[1])
    np.testing.assert_allclose(solution, np.linalg.solve(a, b), atol=1e-12)
