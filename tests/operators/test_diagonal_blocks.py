"""Diagonal blocks of operators, against the blocks of their matrices."""

import numpy as np
import pytest
from raw_lists import as_raw

import batchkron as bk
from batchkron.operators import diagonal_blocks as blocks_module
from batchkron.problems import gallery


def matrix_of(blocks):
    """The block-diagonal matrix, from the stacks of products that block Jacobi gets."""
    n, d = int(np.prod(blocks.sizes)), blocks.interleaved
    total = np.zeros((blocks.count * n,) * 2, blocks.dtype)
    for numbers, stacks in blocks.stacks():
        for i, number in enumerate(numbers):
            outer, inner = divmod(int(number), d)
            places = outer * n * d + np.arange(n) * d + inner
            for matrices in zip(*(stack[i] for stack in stacks), strict=True):
                product = np.ones((1, 1))
                for matrix in matrices:
                    product = np.kron(product, matrix)
                total[np.ix_(places, places)] += product
    return total


def expected(operator, size, interleaved=1):
    """The operator's matrix with zeros outside its blocks."""
    matrix = np.asarray(operator.to_dense())
    place = np.arange(len(matrix))
    outer, inner = place // (size * interleaved), place % interleaved
    same = (outer[:, None] == outer) & (inner[:, None] == inner)
    return np.where(same, matrix, 0)


def a_list(rng, dtype=np.float64):
    pools = [rng.standard_normal((5, 2, 2)).astype(dtype), rng.standard_normal((4, 3, 3))]
    ids = np.stack([rng.integers(0, 5, 40), rng.integers(0, 4, 40)], axis=1)
    places = rng.integers(0, 6, (2, 40))
    weights = rng.standard_normal(40)
    return bk.BatchedKron(pools, ids, *places, weights=weights, num_inputs=7, num_outputs=7)


def kron_sparse(rng):
    return bk.KroneckerSparse(rng.standard_normal((3, 2, 2, 4)))


CASES = {
    "list": (a_list, 6, 1),
    "complex list": (lambda rng: a_list(rng, np.complex64), 6, 1),
    "sum": (lambda rng: 2 * a_list(rng) - a_list(rng) + 3 * bk.Identity(42), 6, 1),
    "sweeps": (lambda rng: gallery.make("runaway", level=2, degree=1).operator, 4, 1),
    "list of terms": (
        lambda rng: gallery.make("runaway", level=2, degree=1).with_form("batch").operator,
        4,
        1,
    ),
    "product": (lambda rng: bk.KroneckerProduct(list(rng.standard_normal((2, 3, 3)))), 9, 1),
    "Kronecker sum": (lambda rng: bk.KroneckerSum(list(rng.standard_normal((3, 2, 2)))), 8, 1),
    "identity": (lambda rng: bk.Identity(4), 4, 1),
    "Kronecker-sparse": (kron_sparse, 2, 4),
    "sums of them": (lambda rng: kron_sparse(rng) * 0.5 + bk.Identity(24), 2, 4),
    "list and diagonal": (lambda rng: a_list(rng) - 2 * bk.Diagonal(rng.normal(size=42)), 6, 1),
    "list and diagonal of few entries": (
        lambda rng: a_list(rng) + bk.Diagonal(np.where(rng.random(42) < 0.2, 1e200, 0.0)),
        6,
        1,
    ),
    "complex list and two diagonals": (
        lambda rng: (
            a_list(rng, np.complex64)
            + bk.Diagonal(rng.normal(size=42) * 1j)
            + bk.Diagonal(rng.normal(size=42))
            + bk.Identity(42)
        ),
        6,
        1,
    ),
    "list and products on its diagonal": (
        lambda rng: (
            a_list(rng)
            + bk.Diagonal(np.kron(rng.normal(size=7), np.kron([0.0, 2.0], [1.0, 1e-3, -3.0])))
        ),
        6,
        1,
    ),
    "sweeps and diagonal": (
        lambda rng: (
            gallery.make("diffusion-3d", level=2, degree=1).operator
            + bk.Diagonal(rng.normal(size=104))
        ),
        8,
        1,
    ),
    "Kronecker sum and diagonal": (
        lambda rng: (
            bk.KroneckerSum([np.ones((2, 2)), np.ones((3, 3)), np.ones((2, 2))])
            + bk.Diagonal(rng.normal(size=12))
        ),
        12,
        1,
    ),
    "Kronecker-sparse and diagonal": (
        lambda rng: kron_sparse(rng) + bk.Diagonal(rng.normal(size=24).astype(np.float32)),
        2,
        4,
    ),
    "diagonals": (lambda rng: bk.Diagonal(rng.normal(size=5)) + 2 * bk.Identity(5), 1, 1),
    "no product": (
        lambda rng: bk.BatchedKron(
            [np.ones((1, 2, 2))], np.zeros((0, 1), int), [], [], num_inputs=3, num_outputs=3
        ),
        2,
        1,
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [1, 1 << 22])
def test_blocks_are_those_of_the_matrix(rng, monkeypatch, name, chunk):
    monkeypatch.setattr(blocks_module, "_CHUNK", chunk)
    make, size, interleaved = CASES[name]
    operator = make(rng)
    blocks = operator.diagonal_blocks()
    wanted = expected(operator, size, interleaved)
    eps = np.finfo(operator.dtype).eps
    bound = 64 * eps * np.abs(wanted).max(initial=1.0)
    np.testing.assert_allclose(matrix_of(blocks), wanted, rtol=0, atol=bound)
    shifted = np.eye(len(wanted)) - 0.3 * wanted
    np.testing.assert_allclose(matrix_of(blocks.shifted(0.3)), shifted, rtol=0, atol=bound)


def test_a_list_and_its_terms_have_the_same_blocks():
    listed = gallery.make("diffusion-3d", level=2, degree=1).with_form("batch").operator
    ours, raw = (matrix_of(op.diagonal_blocks()) for op in (listed, as_raw(listed)))
    np.testing.assert_allclose(raw, ours, rtol=0, atol=1e-14 * np.abs(ours).max())


def test_products_on_a_diagonal_are_found(rng):
    """A multiple of the identity, a mass matrix, adds one product to a block, others more."""
    op, n = a_list(rng), 6
    known = len(op.diagonal_blocks().blocks)
    for entries, more in (
        (np.repeat(rng.normal(size=7), n), 7),
        (np.tile(np.kron([1.0, 3.0], [2.0, 1 / 3, 7.0]), 7), 7),
        (np.where(np.arange(42) == 13, 2.0, 0.0), 1),
        (np.where(np.arange(42) < 6, [1.0, 2, 3, 4, 5, 6] * 7, 0.0), 2),
        (rng.normal(size=42), 14),
    ):
        total = (op + bk.Diagonal(entries)).diagonal_blocks()
        assert len(total.blocks) == known + more


def test_operators_without_blocks(rng):
    wide = bk.BatchedKron([np.ones((1, 2, 3))], [[0]], [0], [0])
    many = bk.BatchedKron([np.ones((3, 1, 2, 2))], [[0]], [0], [0])
    composed = bk.KroneckerSum([np.eye(2), np.eye(2)]) @ bk.Identity(4)
    for operator, text in (
        (wide, "no diagonal blocks"),
        (many, "no diagonal blocks"),
        (composed, "does not know"),
        (bk.KroneckerSparse(np.ones((1, 2, 3, 1))), "expected square ones"),
        (bk.Diagonal(np.ones((2, 3))), "several systems"),
        (a_list(rng) + bk.KroneckerProduct([np.eye(42)]), "of different structures"),
    ):
        with pytest.raises(TypeError, match=text):
            operator.diagonal_blocks()


def test_a_large_diagonal_that_is_no_product_is_refused(rng):
    A = rng.normal(size=(300, 300))
    operator = bk.KroneckerSum([A, A]) + bk.Diagonal(rng.normal(size=300**2))
    with pytest.raises(TypeError, match=r"diagonal blocks of \(300, 300\), too large"):
        operator.diagonal_blocks()


def test_a_diagonal_of_several_systems_is_refused():
    operator = bk.KroneckerSum([np.eye(3), np.eye(2)]) + bk.Diagonal(np.ones((2, 6)))
    with pytest.raises(TypeError, match="several systems"):
        operator.diagonal_blocks()
