"""KroneckerSparse as a linear operator: products, relatives, layouts, entries."""

import copy
import gc
import pickle

import numpy as np
import pytest
import scipy.sparse.linalg as spla
from dense_oracle import poisoned, random_array
from kron_sparse_oracle import assert_product, dense_matrix

import batchkron as bk

LAYOUTS = ["batch-first", "batch-last"]


def test_products(rng, backend, dtype):
    values = random_array(rng, (2, 3, 4, 5), dtype)
    op = bk.KroneckerSparse(values)
    assert (op.shape, op.dtype, op.pattern) == ((30, 40), dtype, (2, 3, 4, 5))
    x, X = random_array(rng, 40, dtype), random_array(rng, (7, 40), dtype)
    assert_product(op @ x, values, x)
    assert_product((op @ X.T).T, values, X)
    assert_product((op @ np.ascontiguousarray(X.T)).T, values, X)
    assert_product(op.matvec(x, poisoned(30, dtype)), values, x)
    assert_product(op.matmat(np.ascontiguousarray(X.T), poisoned((30, 7), dtype)).T, values, X)
    w = random_array(rng, (7, 30), dtype)
    turned = values.swapaxes(1, 2)
    assert_product(op.T.apply(w), turned, w)
    assert_product(op.H.apply(w), turned.conj(), w)
    assert_product(op.rmatvec(w[0]), turned.conj(), w[0])
    assert_product(w @ op, turned, w)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_apply_and_accumulate_in_both_layouts(rng, backend, dtype, layout):
    values = random_array(rng, (3, 2, 4, 3), dtype)
    op = bk.KroneckerSparse(values, layout=layout)
    for leading in ((), (6,), (2, 5)):
        x, y = random_array(rng, (*leading, 36), dtype), random_array(rng, (*leading, 18), dtype)
        if layout == "batch-last":
            x, y = (np.ascontiguousarray(np.moveaxis(v, -1, 0)) for v in (x, y))
        out, added = poisoned(y.shape, dtype), y.copy()
        assert op.apply(x, out) is out
        assert op.accumulate(x, added, alpha=-0.5) is added
        if layout == "batch-last":
            x, y, out, added = (np.moveaxis(v, 0, -1) for v in (x, y, out, added))
        assert_product(out, values, x)
        assert_product(added, values, x, y, -0.5)
    X = random_array(rng, (36, 4), dtype)
    assert_product((op @ X).T, values, X.T)  # whatever the layout
    flat = op.apply_flat(X.T.copy(), poisoned((4, 18), dtype))
    assert_product(flat, values, X.T)
    for relative in (op.T, op.H, op.astype("complex128"), copy.deepcopy(op)):
        assert relative.layout == layout


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strided_arrays(rng, layout):
    values = rng.standard_normal((2, 3, 3, 2))
    op = bk.KroneckerSparse(values, layout=layout)
    x, wide = rng.standard_normal((5, 24))[:, ::2], poisoned((5, 24), "float64")
    out = wide[:, ::2]
    if layout == "batch-last":
        x, out = x.T, out.T
    assert op.apply(x, out) is out
    out[...] *= 2
    assert op.accumulate(x, out, alpha=-1) is out
    assert_product(wide[:, ::2], values, x if layout == "batch-first" else x.T)
    assert np.isnan(wide[:, 1::2]).all()


def test_complex_vectors_of_a_real_operator(rng, backend):
    values = rng.standard_normal((2, 3, 4, 2)).astype("float32")
    for layout in LAYOUTS:
        op = bk.KroneckerSparse(values, layout=layout)
        z = random_array(rng, (5, 16), "complex64")
        given = z if layout == "batch-first" else z.T.copy()
        product = op.apply(given)
        assert product.dtype == np.complex64
        assert_product(product if layout == "batch-first" else product.T, values, z)
    assert (op @ rng.standard_normal(16)).dtype == np.float64


def test_entries(rng, dtype):
    for pattern in [(2, 3, 4, 5), (3, 4, 2, 1), (1, 1, 1, 3), (2, 2, 5, 3), (1, 7, 3, 2)]:
        values = random_array(rng, pattern, dtype)
        op, K = bk.KroneckerSparse(values), dense_matrix(values)
        np.testing.assert_array_equal(op.to_dense(), K)
        np.testing.assert_array_equal(op.diagonal(), K.diagonal())
        back = bk.KroneckerSparse.from_dense(op.to_dense(), pattern)
        np.testing.assert_array_equal(back.values, values)
        assert back.dtype == dtype
    square = bk.KroneckerSparse(np.ones((2, 3, 3, 4)))
    assert square.trace() == 24
    assert "72 stored entries instead of 576" in square.describe()


def test_from_dense_projects(rng):
    full = rng.standard_normal((12, 12))
    op = bk.KroneckerSparse.from_dense(full, (2, 3, 3, 2), layout="batch-last")
    support = np.kron(np.kron(np.eye(2), np.ones((3, 3))), np.eye(2))
    np.testing.assert_array_equal(op.to_dense(), full * support)
    assert op.layout == "batch-last"


@pytest.mark.parametrize("pattern", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)])
def test_empty_matrices(backend, pattern):
    op = bk.KroneckerSparse(np.ones(pattern))
    rows, columns = op.shape
    np.testing.assert_array_equal(op @ np.ones(columns), np.zeros(rows))
    assert op.to_dense().shape == op.shape
    assert op.diagonal().shape == (min(op.shape),)
    y = np.ones((2, rows))
    np.testing.assert_array_equal(op.accumulate(np.ones((2, columns)), y), np.ones((2, rows)))


def test_update_reaches_all_relatives(rng, backend):
    op = bk.KroneckerSparse(random_array(rng, (2, 3, 4, 2), "complex64"), layout="batch-last")
    relatives = op.T, op.H, op.astype("complex128"), op.T.T, 2 * op
    values = random_array(rng, (2, 3, 4, 2), "complex64")
    op.update(values)
    K = dense_matrix(values)
    for relative, expected in zip(relatives, (K.T, K.conj().T, K, K, 2 * K), strict=True):
        np.testing.assert_array_equal(relative.to_dense(), expected.astype(relative.dtype))
    x = random_array(rng, (2, 12), "complex64")
    assert_product(op.T.apply(x.T.copy()).T, values.swapaxes(1, 2), x)
    op.update(op.values[::-1])  # a view of its own
    np.testing.assert_array_equal(op.values, values[::-1])
    with pytest.raises(ValueError, match=r"values has shape \(2, 3, 4\); expected .*4, 2"):
        op.update(values[..., 0])
    with pytest.raises(TypeError, match="values has dtype complex64; the operator holds float64"):
        bk.KroneckerSparse(np.ones(values.shape)).update(values)


def test_copies_and_pickles(rng):
    given = rng.standard_normal((2, 3, 3, 2))
    op = bk.KroneckerSparse(given, layout="batch-last")
    kept, given[:] = given.copy(), np.nan
    others = copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))
    op.update(np.zeros(kept.shape))
    for other in others:
        np.testing.assert_array_equal(other.values, kept)
        assert (other.layout, other.pattern) == (op.layout, op.pattern)
        assert_product(other @ np.ones(12), kept, np.ones(12))
    with pytest.raises(ValueError, match="read-only"):
        op.values[0, 0, 0, 0] = 1


def test_algebra(rng):
    A, B = (bk.KroneckerSparse(rng.standard_normal((2, 3, 3, 2))) for _ in range(2))
    x, dense = rng.standard_normal((12, 3)), A.to_dense()
    np.testing.assert_allclose((A + 2 * B) @ x, (dense + 2 * B.to_dense()) @ x, rtol=1e-12)
    np.testing.assert_allclose((A @ B.T) @ x, dense @ (B.to_dense().T @ x), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose((A**2) @ x, dense @ dense @ x, rtol=1e-12, atol=1e-12)
    last = bk.KroneckerSparse(A.values, layout="batch-last")
    np.testing.assert_allclose((2 * last).apply(x.T.copy()), 2 * x.T @ dense.T, rtol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_of_one_pattern_merge(rng, backend, dtype, layout):
    A, B = (
        bk.KroneckerSparse(random_array(rng, (2, 3, 4, 2), dtype), layout=layout) for _ in range(2)
    )
    total, difference, turned = A + B, A - B, (A + B).T
    kept = pickle.loads(pickle.dumps(total))
    before = total.values
    for _ in range(2):
        for merged, values in ((total, A.values + B.values), (difference, A.values - B.values)):
            assert isinstance(merged, bk.KroneckerSparse)
            assert (merged.layout, merged.pattern, merged.dtype) == (layout, A.pattern, dtype)
            np.testing.assert_array_equal(merged.values, values)
            x = random_array(rng, (3, 16), dtype)
            assert_product((merged @ x.T).T, values, x)
        np.testing.assert_array_equal(turned.values, total.values.swapaxes(1, 2))
        A.update(random_array(rng, (2, 3, 4, 2), dtype))
        B.T.update(random_array(rng, (2, 4, 3, 2), dtype))
    assert type(kept) is bk.KroneckerSparse
    np.testing.assert_array_equal(kept.values, before)
    twice, values = A + A, A.values
    np.testing.assert_array_equal(twice.values, 2 * values)
    A.update(values[::-1])
    np.testing.assert_array_equal(twice.values, 2 * values[::-1])
    del total, difference, turned, merged, twice
    gc.collect()
    assert len(A._merged) == len(B._merged) == 0


def test_sums_that_do_not_merge(rng):
    A = bk.KroneckerSparse(rng.standard_normal((2, 3, 3, 2)))
    for other in (
        bk.KroneckerSparse(rng.standard_normal((1, 3, 3, 4))),
        bk.KroneckerSparse(A.values, layout="batch-last"),
        bk.KroneckerSparse(A.values, precision="tf32"),
        A.astype("complex128"),
        2 * A,
        bk.Identity(12),
    ):
        for found, sign in ((A + other, 1), (A - other, -1)):
            assert not isinstance(found, bk.KroneckerSparse)
            dense = A.to_dense() + sign * other.to_dense()
            np.testing.assert_allclose(found.to_dense(), dense, rtol=1e-14, atol=1e-14)


def test_in_scipy(rng):
    values = rng.standard_normal((3, 4, 4, 2))
    values += 9 * np.eye(4)[None, :, :, None]
    op, b = bk.KroneckerSparse(values), rng.standard_normal(24)
    x, info = spla.gmres(op, b, rtol=1e-12)
    assert info == 0
    np.testing.assert_allclose(dense_matrix(values) @ x, b, rtol=1e-9)
    np.testing.assert_allclose(bk.solvers.gmres(op, b, rtol=1e-12).x, x, rtol=1e-9)


def test_errors(rng):
    with pytest.raises(ValueError, match=r"values has shape \(2, 2\); expected 4 dimensions"):
        bk.KroneckerSparse(np.ones((2, 2)))
    with pytest.raises(ValueError, match="layout is 'last'; expected 'batch-first' or 'batch-las"):
        bk.KroneckerSparse(np.ones((1, 1, 1, 1)), layout="last")
    with pytest.raises(TypeError, match="expected arrays of float32"):
        bk.KroneckerSparse(np.full((1, 1, 1, 1), "a"))
    for pattern, error, message in [
        ((2, 3, 3), ValueError, r"pattern is \(2, 3, 3\); expected four integers \(a, b, c, d\)"),
        ((2, 3, -3, 1), ValueError, "each 0 or more"),
        ((2, 3, 3.0, 1), TypeError, r"expected four integers"),
        (7, TypeError, "expected four integers"),
        ((2, 3, 3, 1), ValueError, r"matrix has shape \(12, 12\); expected \(6, 6\)"),
    ]:
        with pytest.raises(error, match=message):
            bk.KroneckerSparse.from_dense(np.ones((12, 12)), pattern)
    op = bk.KroneckerSparse(np.ones((1, 2, 3, 2)), layout="batch-last")
    with pytest.raises(ValueError, match=r"x has shape \(4, 6\); expected \(6, ...\)"):
        op.apply(np.ones((4, 6)))
    with pytest.raises(ValueError, match=r"x has shape \(4, 6\); expected \(6, ...\)"):
        op.accumulate(np.ones((4, 6)), np.ones((4, 4)))
    square, x = bk.KroneckerSparse(np.ones((1, 3, 3, 2))), np.ones((4, 6))
    with pytest.raises(ValueError, match="out overlaps an input"):
        square.apply(x, x)
    with pytest.raises(TypeError, match="alpha is"):
        op.accumulate(np.ones((6, 4)), np.ones((4, 4)), alpha=1j)


@pytest.mark.parametrize("chain", [False, True])
def test_solvers_take_either_layout(rng, chain):
    """Krylov methods have vectors as rows, whatever the layout: one system, and many sides."""
    values = rng.standard_normal((3, 4, 4, 2)) / 4 + 2 * np.eye(4)[None, :, :, None]
    kind = bk.KroneckerSparse(values, layout="batch-last")
    op = bk.KroneckerSparseChain([kind, kind], layout="batch-last") if chain else kind
    b = rng.standard_normal((24, 3))
    x = bk.solvers.gmres(op, b[:, 0], rtol=1e-10).x
    np.testing.assert_allclose(op.to_dense() @ x, b[:, 0], atol=1e-8)
    x = bk.solvers.gmres(op, b, rtol=1e-10, batched="columns").x
    np.testing.assert_allclose(op.to_dense() @ x, b, atol=1e-8)
    x = bk.solvers.gmres(op, b.T.copy(), rtol=1e-10, batched="leading").x
    np.testing.assert_allclose(op.to_dense() @ x.T, b, atol=1e-8)
