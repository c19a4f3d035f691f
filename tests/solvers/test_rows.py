"""Orthonormal rows, also of what is nearly dependent, and refusals of operators."""

import numpy as np
import pytest
from dense_oracle import random_array

from batchkron.solvers import eigsh, expm_multiply, lobpcg, lsqr, matrix_function
from batchkron.solvers.products import OnRanks
from batchkron.solvers.rows import Multiplied, orthonormalise, start_array, take_out


def check(found, images, B, known):
    eps = np.finfo(found.dtype).eps
    np.testing.assert_allclose(images, found @ B.T, atol=200 * eps * abs(B).max())
    everything = np.concatenate([known, found])
    metric = everything.conj() @ B @ everything.T
    assert abs(metric - np.eye(len(metric))).max(initial=0) < 300 * eps


def nothing(rows):
    return rows[:0], rows[:0]


@pytest.mark.parametrize("with_mass", [False, True])
def test_rows_of_all_kinds(rng, dtype, with_mass):
    n = 40
    G = random_array(rng, (n, n), dtype) / np.sqrt(np.float32(n))
    B = (G @ G.conj().T + np.eye(n, dtype=dtype) if with_mass else np.eye(n)).astype(dtype)

    def image(rows):
        return rows @ B.T if with_mass else rows

    known = random_array(rng, (3, n), dtype)
    known, known_images = orthonormalise(known, image(known), *nothing(known))
    check(known, known_images, B, known[:0])
    eps = float(np.finfo(dtype).eps)
    rows = random_array(rng, (6, n), dtype)
    rows[1] = rows[0] * 3  # dependent
    rows[2] = known[0] + known[1]  # within what is known
    rows[3] = rows[0] + 1e3 * eps * rows[3]  # nearly dependent
    rows[4] = 0
    found, images = orthonormalise(rows, image(rows), known, known_images)
    assert 2 <= len(found) <= 3
    check(found, images, B, known)
    for k in (0, 5):  # they are in the space
        rest = rows[k] - (rows[k] @ B.T @ known.conj().T) @ known
        left = rest - (rest @ B.T @ found.conj().T) @ found
        assert np.linalg.norm(left) < 1e4 * eps * np.linalg.norm(rows[k])


@pytest.mark.parametrize("scale", [1e-250, 1e250])
def test_rows_of_extreme_scales(rng, scale):
    rows = rng.standard_normal((4, 30)) * scale
    rows[3] *= 1e-200 if scale > 1 else 1e200
    found, images = orthonormalise(rows, rows, *nothing(rows))
    assert found is images
    assert len(found) == 4
    check(found, found, np.eye(30), rows[:0])


def test_rows_that_are_not_finite_are_left_out(rng):
    rows = rng.standard_normal((3, 10))
    rows[1, 4] = np.nan
    found, _ = orthonormalise(rows, rows, *nothing(rows))
    assert len(found) == 2
    check(found, found, np.eye(10), rows[:0])


def test_an_indefinite_inner_product_leaves_rows_out(rng):
    B = np.diag([1.0, 1.0, -1.0, 1.0])
    rows = np.eye(4)[1:3]
    found, _ = orthonormalise(rows, rows @ B, *nothing(rows))
    np.testing.assert_allclose(abs(found), np.eye(4)[1:2])
    with pytest.raises(ValueError, match="B is not positive definite"):
        lobpcg(np.eye(4), rows.T, B)


def test_parts_are_taken_out(rng, dtype):
    known = np.linalg.qr(random_array(rng, (20, 4), dtype))[0].T.copy()
    row = random_array(rng, (1, 20), dtype)
    given = row.copy()
    weights = take_out(known, row)
    eps = np.finfo(dtype).eps
    assert abs(known.conj() @ row[0]).max() < 20 * eps
    np.testing.assert_allclose(row + weights @ known, given, atol=50 * eps)


def test_products_are_counted_row_by_row(rng):
    product = Multiplied(2.0 * np.eye(5), "A", np.ones((1, 5)))
    rows = rng.standard_normal((3, 5))
    np.testing.assert_allclose(product(rows), 2 * rows)
    product(rows[:0])
    assert product.products == 3
    assert start_array(np.eye(5, dtype=np.float32), None, "v0", 2, 0).dtype == np.float32


class Distributed(OnRanks):
    """An operator whose vectors two ranks share."""

    class communicator:  # noqa: N801
        size = 2

    shape, dtype = (6, 6), np.dtype(float)

    def matvec(self, x):
        raise AssertionError("it is refused before its first product")

    rmatvec = matvec


@pytest.mark.parametrize(
    "call",
    [
        lambda A: eigsh(A, 1),
        lambda A: eigsh(A, 1, M=np.eye(6)),
        lambda A: lsqr(A, np.ones(6)),
        lambda A: matrix_function("sqrt", A, np.ones(6)),
        lambda A: expm_multiply(A, np.ones(6)),
    ],
)
def test_distributed_operators_are_refused(call):
    with pytest.raises(TypeError, match="distributed"):
        call(Distributed())
