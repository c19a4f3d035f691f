"""Batch lists of Kronecker products."""

import pickle

import numpy as np
import pytest
from dense_oracle import batch_bound, dense_batch, dense_kron, poisoned, random_array
from hypothesis import given, settings
from hypothesis import strategies as st

import batchkron as bk

SHAPES = [
    [(1, 1)],
    [(3, 3)],
    [(2, 5)],
    [(3, 3), (3, 3)],
    [(4, 2), (2, 4)],
    [(1, 3), (3, 1), (2, 2)],
    [(2, 2)] * 6,
    [(8, 8), (9, 9)],
    [(5, 5), (6, 6), (7, 7)],
    [(0, 2), (2, 2)],
    [(2, 2), (2, 0)],
]


def random_batch(rng, shapes, dtype, products=40, num_inputs=7, num_outputs=5, identities=True):
    """A batch whose pools hold identities, and whose outputs repeat."""
    pools = []
    for p, q in shapes:
        pool = random_array(rng, (4, p, q), dtype)
        if p == q and identities:
            pool[1] = np.eye(p)
        pools.append(pool)
    ids = rng.integers(0, 4, (products, len(shapes)))
    source, target = rng.integers(0, num_inputs, products), rng.integers(0, num_outputs, products)
    return pools, ids, source, target, random_array(rng, products, dtype)


@pytest.mark.parametrize("accumulation", ["auto", "owner", "atomic"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_apply_and_accumulate_equal_dense(rng, backend, dtype, shapes, accumulation):
    batch = random_batch(rng, shapes, dtype)
    matrix, magnitude = dense_batch(*batch, 7, 5)
    pools, *lists, weights = batch
    op = bk.BatchedKron(
        pools, *lists, weights=weights, num_inputs=7, num_outputs=5, accumulation=accumulation
    )
    assert op.shape == matrix.shape
    rows, columns = matrix.shape
    x = random_array(rng, (7, columns // 7), dtype)
    y = poisoned((5, rows // 5), dtype)
    assert op.apply(x, out=y) is y
    bound = batch_bound(magnitude, x.ravel(), pools, 40)
    assert (np.abs(y.ravel() - matrix @ x.ravel()) <= bound).all()
    before = random_array(rng, y.shape, dtype)
    z = before.copy()
    assert op.accumulate(x, z) is z
    bound = bound + 4 * 40 * np.finfo(dtype).eps * np.abs(before.ravel())
    assert (np.abs(z.ravel() - before.ravel() - matrix @ x.ravel()) <= bound).all()


def test_leading_axes_and_columns(rng, backend, dtype):
    pools, *lists, weights = random_batch(rng, [(3, 2), (2, 2)], dtype)
    op = bk.BatchedKron(pools, *lists, weights=weights, num_inputs=7, num_outputs=5)
    x = random_array(rng, (2, 3, 7, 4), dtype)
    y = op.apply(x)
    assert y.shape == (2, 3, 5, 6)
    for index in np.ndindex(2, 3):
        np.testing.assert_array_equal(y[index], op.apply(x[index]))
    flat = x.reshape(6, 28)
    tolerance = {"rtol": 0, "atol": 200 * np.finfo(dtype).eps}
    np.testing.assert_allclose(op @ flat.T, y.reshape(6, 30).T, **tolerance)
    np.testing.assert_allclose(
        op.matmat(np.ascontiguousarray(flat.T)), y.reshape(6, 30).T, **tolerance
    )
    np.testing.assert_array_equal(op.matvec(flat[4]), y.reshape(6, 30)[4])
    np.testing.assert_array_equal(op.matvec(flat[4][:, None])[:, 0], y.reshape(6, 30)[4])


def test_flat_vectors_pass_where_blocks_do(rng, backend, dtype):
    pools, *lists, weights = random_batch(rng, [(3, 2), (2, 2)], dtype)
    op = bk.BatchedKron(pools, *lists, weights=weights, num_inputs=7, num_outputs=5)
    x = random_array(rng, (3, 7, 4), dtype)
    y = op.apply(x)
    for place in (0, slice(None)):
        flat, expected = x[place].reshape(*x[place].shape[:-2], 28), y[place].reshape(-1, 30)
        out = poisoned((*flat.shape[:-1], 30), dtype)
        assert op.apply(flat, out=out) is out
        np.testing.assert_array_equal(out.reshape(-1, 30), expected)
        np.testing.assert_array_equal(op.apply(flat).reshape(-1, 30), expected)
        before = random_array(rng, out.shape, dtype)
        summed = op.accumulate(flat, before.copy(), alpha=0.5)
        blocks = op.accumulate(x[place], before.reshape(*x[place].shape[:-2], 5, 6), alpha=0.5)
        np.testing.assert_array_equal(summed.ravel(), blocks.ravel())
    with pytest.raises(ValueError, match=r"out has shape \(5, 6\)"):
        op.apply(x[0].ravel(), out=poisoned((5, 6), dtype))
    with pytest.raises(ValueError, match=r"\(\.\.\., 7, 4\).* or flat vectors \(\.\.\., 28\)"):
        op.apply(x[0].T)


def test_a_shape_that_fits_both_is_of_blocks(rng):
    op = bk.BatchedKron(rng.standard_normal((2, 3, 3)), [[0], [1]], [0, 0], [0, 1])
    x = rng.standard_normal((1, 3))
    assert op.apply(x).shape == (2, 3)
    assert op.apply(np.concatenate([x, x])).shape == (2, 6)


def test_flat_vectors_of_several_systems(rng, backend):
    pools = rng.standard_normal((2, 1, 3, 3))
    op = bk.BatchedKron(pools, [[0], [0]], [0, 1], [1, 0])
    x = rng.standard_normal((5, 2, 2, 3))
    np.testing.assert_array_equal(op.apply(x.reshape(5, 2, 6)), op.apply(x).reshape(5, 2, 6))
    with pytest.raises(ValueError, match="batch_shape"):
        op.apply(x.reshape(10, 6))


def test_fortran_columns_pass_without_a_copy(rng):
    """Each column is a block: X.T is C-contiguous, and is read without a copy."""
    op = bk.BatchedKron(rng.standard_normal((4, 3, 3)), rng.integers(0, 4, (9, 2)), *[range(9)] * 2)
    X = np.asfortranarray(rng.standard_normal((9, 9)))
    before = X.copy()
    Y = op.apply(X.T).T
    assert Y.flags.f_contiguous
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(Y.T, op.apply(before.T.copy()))


def test_one_pool_serves_every_mode(rng, backend):
    pool = rng.standard_normal((5, 2, 2))
    ids = rng.integers(0, 5, (6, 3))
    one = bk.BatchedKron(pool, ids, [0] * 6, range(6))
    several = bk.BatchedKron([pool] * 3, ids, [0] * 6, range(6))
    x = rng.standard_normal(8)
    np.testing.assert_array_equal(one @ x, several @ x)


def test_from_products(rng, backend):
    products = [[rng.standard_normal((2, 3)), rng.standard_normal((3, 2))] for _ in range(5)]
    op = bk.BatchedKron.from_products(products, [0, 1, 0, 1, 1], [0, 0, 1, 2, 2], num_outputs=4)
    x = rng.standard_normal((2, 6))
    expected = np.zeros((4, 6))
    for product, i, o in zip(products, [0, 1, 0, 1, 1], [0, 0, 1, 2, 2], strict=True):
        expected[o] += dense_kron(*product) @ x[i]
    np.testing.assert_allclose(op.apply(x), expected, rtol=0, atol=1e-13)
    with pytest.raises(ValueError, match=r"products\[1\] has factors of shapes"):
        bk.BatchedKron.from_products([[np.eye(2)], [np.eye(3)]], [0, 0], [0, 0])


def test_an_empty_batch(rng, backend):
    op = bk.BatchedKron(
        np.ones((1, 2, 2)), np.zeros((0, 2), int), [], [], num_inputs=3, num_outputs=2
    )
    x = rng.standard_normal((3, 4))
    np.testing.assert_array_equal(op.apply(x, out=poisoned((2, 4), float)), 0)
    y = rng.standard_normal((2, 4))
    np.testing.assert_array_equal(op.accumulate(x, y.copy()), y)
    none = bk.BatchedKron(np.ones((1, 2, 2)), np.zeros((0, 1), int), [], [])
    assert none.shape == (0, 0)
    assert (none @ np.zeros(0)).shape == (0,)


def test_nan_leaves_no_trace(rng):
    op = bk.BatchedKron(
        rng.standard_normal((3, 3, 3)), rng.integers(0, 3, (9, 2)), range(9), range(9)
    )
    x = rng.standard_normal((9, 9))
    clean = op.apply(x)
    dirty = x.copy()
    dirty[4, 2] = np.nan
    result = op.apply(dirty)
    assert np.isnan(result[4]).all()
    np.testing.assert_array_equal(np.delete(result, 4, 0), np.delete(clean, 4, 0))
    np.testing.assert_array_equal(op.apply(x), clean)


def test_what_the_user_passed_is_copied(rng):
    pool, ids = rng.standard_normal((2, 2, 2)), np.array([[0, 1]])
    op = bk.BatchedKron(pool, ids, [0], [0])
    x = rng.standard_normal(4)
    before = op @ x
    pool[...] = np.nan
    ids[...] = 7
    np.testing.assert_array_equal(op @ x, before)


def test_transpose_adjoint_diagonal_trace_and_conversion(rng, backend, dtype):
    batch = random_batch(rng, [(3, 3), (2, 2)], dtype, num_inputs=5)
    matrix, _ = dense_batch(*batch, 5, 5)
    pools, *lists, weights = batch
    op = bk.BatchedKron(pools, *lists, weights=weights, num_inputs=5, num_outputs=5)
    tolerance = {"rtol": 0, "atol": 1000 * np.finfo(dtype).eps}
    np.testing.assert_allclose(op.to_dense(), matrix, **tolerance)
    np.testing.assert_allclose(op.T.to_dense(), matrix.T, **tolerance)
    np.testing.assert_allclose(op.H.to_dense(), matrix.conj().T, **tolerance)
    np.testing.assert_allclose(op.diagonal(), matrix.diagonal(), **tolerance)
    np.testing.assert_allclose(op.trace(), matrix.trace(), **tolerance)
    assert op.T.T is op
    x = random_array(rng, 30, dtype)
    np.testing.assert_allclose(op.rmatvec(x), matrix.conj().T @ x, **tolerance)
    assert op.astype("complex128").dtype == "complex128"
    assert op.astype(dtype) is op


@pytest.mark.parametrize("given", ["float32", "float64", "complex64", "complex128", "int64"])
def test_vectors_of_other_dtypes(rng, backend, dtype, given):
    pools, *lists, weights = random_batch(rng, [(3, 2), (2, 3)], dtype)
    matrix, _ = dense_batch(pools, *lists, weights, 7, 5)
    op = bk.BatchedKron(pools, *lists, weights=weights, num_inputs=7, num_outputs=5)
    x = random_array(rng, 42, given) if given != "int64" else rng.integers(-5, 5, 42)
    result = op @ x
    assert result.dtype == np.result_type(dtype, float if given == "int64" else given)
    np.testing.assert_allclose(result, matrix @ x, rtol=0, atol=2000 * np.finfo(dtype).eps)
    out = poisoned(30, result.dtype)
    np.testing.assert_array_equal(op.matvec(x, out), result)


def test_validate_reports_the_largest_error(rng, dtype):
    pools, *lists, weights = random_batch(rng, [(3, 3), (3, 3)], dtype)
    op = bk.BatchedKron(pools, *lists, weights=weights, num_inputs=7, num_outputs=5)
    report = op.validate()
    assert report.ok
    assert report.samples == 5
    assert report.products == 40
    assert 0 < report.max_error_over_bound <= 1
    assert op.validate(samples=2).samples == 2
    with pytest.raises(TypeError, match="integer"):
        op.validate(samples=1.5)
    wrong = bk.operators.validation.validate_batch(op._spec, lambda x: 1.001 * op.apply(x), None, 0)
    assert not wrong.ok
    broken = bk.operators.validation.validate_batch(
        op._spec, lambda x: np.nan * op.apply(x), None, 0
    )
    assert not broken.ok


@settings(max_examples=50, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4),
    products=st.integers(0, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_linear_and_adjoint(shapes, products, seed):
    rng = np.random.default_rng(seed)
    pools, *lists, weights = random_batch(rng, shapes, np.float64, products)
    op = bk.BatchedKron(pools, *lists, weights=weights, num_inputs=7, num_outputs=5)
    x, y = rng.standard_normal((2, op.shape[1]))
    z = rng.standard_normal(op.shape[0])
    scale = 1e-10 * (1 + np.abs(op @ x).max() + np.abs(op @ y).max())
    np.testing.assert_allclose(op @ (2 * x + y), 2 * (op @ x) + op @ y, rtol=0, atol=scale)
    scale *= np.abs(z).sum()
    np.testing.assert_allclose(z @ (op @ x), (op.T @ z) @ x, rtol=0, atol=scale)


ERRORS = [
    ({"pools": np.ones((3, 2))}, ValueError, r"pools\[0\] has shape \(3, 2\); expected 3"),
    ({"pools": [np.ones((3, 2, 2))]}, ValueError, "there are 1 pools; expected .* 2"),
    ({"factor_ids": [[0, 1], [0, 3]]}, IndexError, r"factor_ids\[1, 1\] is 3; expected 0 to 2"),
    ({"factor_ids": [[0, -1], [0, 1]]}, IndexError, r"factor_ids\[0, 1\] is -1"),
    ({"factor_ids": [0, 1]}, ValueError, r"factor_ids has shape \(2,\)"),
    ({"factor_ids": [[0.0, 1.0]] * 2}, TypeError, "factor_ids has dtype float64"),
    ({"inputs": [0]}, ValueError, "inputs has 1 entries; expected one per row of factor_ids, 2"),
    ({"inputs": [0, -1]}, IndexError, r"inputs\[1\] is -1"),
    ({"outputs": [0, 4], "num_outputs": 4}, IndexError, r"outputs\[1\] is 4; expected 0 to 3"),
    ({"num_inputs": -1}, ValueError, "num_inputs is -1"),
    ({"num_inputs": 2.0}, TypeError, "num_inputs is 2.0; expected an integer"),
    ({"weights": [1.0]}, ValueError, r"weights has shape \(1,\); expected \(products,\) = \(2,\)"),
    ({"accumulation": "fast"}, ValueError, "accumulation is 'fast'; expected one of auto"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_errors_at_construction(change, error, message):
    call = {
        "pools": np.ones((3, 2, 2)),
        "factor_ids": [[0, 1], [2, 0]],
        "inputs": [0, 1],
        "outputs": [1, 0],
    }
    call.update(change)
    with pytest.raises(error, match=message):
        bk.BatchedKron(*[call.pop(n) for n in ("pools", "factor_ids", "inputs", "outputs")], **call)


def test_errors_at_apply(rng):
    op = bk.BatchedKron(np.ones((1, 2, 2)), [[0, 0]], [0], [0], num_inputs=3, num_outputs=3)
    with pytest.raises(ValueError, match=r"x has shape \(4, 4\); expected \(..., 3, 4\)"):
        op.apply(np.ones((4, 4)))
    with pytest.raises(ValueError, match=r"x has shape \(5,\); expected \(12,\)"):
        op.matvec(np.ones(5))
    with pytest.raises(ValueError, match=r"X has shape \(5, 2\); expected \(12, K\)"):
        op.matmat(np.ones((5, 2)))
    x = np.ones((3, 4))
    with pytest.raises(ValueError, match="out overlaps an input"):
        op.apply(x, out=x)
    with pytest.raises(ValueError, match="y overlaps an input"):
        op.accumulate(x, x)
    with pytest.raises(TypeError, match="out has dtype float32"):
        op.apply(x, out=np.ones((3, 4), "f4"))


def kronmult_by_hand(matrices, lda, offsets, x_offsets, y_offsets, n, x, y):
    """kronmult as its paper writes it: y += kron(A_1, …, A_d) x of column-major matrices."""
    size = n ** offsets.shape[1]
    for row, source, target in zip(offsets, x_offsets, y_offsets, strict=True):
        factors = [
            np.array([[matrices[at + i + lda * j] for j in range(n)] for i in range(n)])
            for at in row
        ]
        y[target : target + size] += dense_kron(*factors) @ x[source : source + size]


@pytest.mark.parametrize(("n", "d", "lda"), [(1, 1, 1), (3, 2, 3), (2, 3, 7), (4, 1, 5)])
def test_the_arguments_of_kronmult(rng, dtype, n, d, lda):
    size, products = n**d, 9
    matrices = random_array(rng, 6 * lda * n + 3, dtype)
    offsets = rng.integers(0, len(matrices) - lda * n, (products, d))
    places = size * rng.integers(0, 5, (2, products))
    op = bk.BatchedKron.from_kronmult(
        matrices, offsets, *places, n=n, lda=lda, num_inputs=5, num_outputs=6
    )
    x, y = random_array(rng, 5 * size, dtype), random_array(rng, 6 * size, dtype)
    for values in (matrices, random_array(rng, len(matrices), dtype)):
        if values is not matrices:
            op.update(values)
        expected, magnitude = y.copy(), np.abs(y)
        kronmult_by_hand(values, lda, offsets, *places, n, x, expected)
        kronmult_by_hand(np.abs(values), lda, offsets, *places, n, np.abs(x), magnitude)
        result = op.accumulate(x, y.copy())
        bound = 2 * np.finfo(dtype).eps * (n * d + d + products + 4) * magnitude
        assert (np.abs(result - expected) <= bound).all()


def test_kronmult_blocks_of_one_large_matrix(rng):
    """ASGarD's layout: blocks of a matrix that is stored column by column, or row by row."""
    large = rng.standard_normal((12, 9))
    offsets = np.array([[3 + 12 * 6, 0], [9 + 12 * 3, 3]])
    given = (offsets, [0, 9], [9, 0])
    op = bk.BatchedKron.from_kronmult(large, *given, n=3)
    x = rng.standard_normal(18)
    first = dense_kron(large[3:6, 6:9], large[0:3, 0:3]) @ x[:9]
    second = dense_kron(large[9:12, 3:6], large[3:6, 0:3]) @ x[9:]
    np.testing.assert_allclose(op.apply(x), np.concatenate([second, first]), atol=1e-13)
    same = bk.BatchedKron.from_kronmult(np.asfortranarray(large), *given, n=3)
    flat = bk.BatchedKron.from_kronmult(large.ravel(order="F"), *given, n=3, lda=12)
    for other in (same, flat):
        np.testing.assert_array_equal(other.apply(x), op.apply(x))
    copy = pickle.loads(pickle.dumps(op))
    for updated in (op, copy):
        updated.update(2.0 * large)
        np.testing.assert_allclose(updated.apply(x), 4.0 * same.apply(x), rtol=1e-13)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_kronmult_rows_of_pointers(rng, kind):
    matrices, x, y = rng.standard_normal(40), rng.standard_normal(16), np.zeros(16)
    offsets, places = rng.integers(0, 32, (5, 2)), 4 * rng.integers(0, 4, (2, 5))
    bases = [array.ctypes.data for array in (matrices, x, y)]
    addresses = [
        (base + 8 * given).astype(kind)
        for base, given in zip(bases, (offsets, *places), strict=True)
    ]
    counts = {"num_inputs": 4, "num_outputs": 4}
    op = bk.BatchedKron.from_kronmult(matrices, *addresses, n=2, bases=bases, **counts)
    same = bk.BatchedKron.from_kronmult(matrices, offsets, *places, n=2, **counts)
    np.testing.assert_array_equal(op.apply(x), same.apply(x))
    addresses[1][3] += kind(4)
    with pytest.raises(ValueError, match=r"x_offsets\[3\] is 0x.*no whole number of elements"):
        bk.BatchedKron.from_kronmult(matrices, *addresses, n=2, bases=bases)


def test_kronmult_arguments_that_do_not_fit(rng):
    matrices = rng.standard_normal(20)
    make = bk.BatchedKron.from_kronmult
    op = make(matrices, [[0, 16]], [4], [0], n=2)
    assert (op.num_inputs, op.num_outputs) == (2, 1)
    one, zero = [[0, 0]], ([0], [0])
    for error, text, lists, options in [
        (IndexError, r"offsets\[0, 1\] is 17; expected 0 to 16", ([[0, 17]], *zero), {}),
        (IndexError, r"matrix_offsets\[1, 0\] is -1", ([[0], [-1]], [0, 0], [0, 0]), {}),
        (ValueError, r"x_offsets\[0\] is 2; expected a multiple of 4", (one, [2], [0]), {}),
        (IndexError, r"y_offsets\[0\] is -4; expected 0 or more", (one, [0], [-4]), {}),
        (ValueError, "n is 2 and lda 1", (one, *zero), {"lda": 1}),
        (ValueError, "bases has 2 addresses", (one, *zero), {"bases": (0, 0)}),
        (TypeError, "matrix_offsets has dtype float64", ([[0.5, 0]], *zero), {}),
    ]:
        with pytest.raises(error, match=text):
            make(matrices, *lists, n=2, **options)
    with pytest.raises(ValueError, match="matrices has 19 elements; expected 20"):
        op.update(matrices[1:])
    with pytest.raises(ValueError, match="expected one axis, or two"):
        make(matrices.reshape(1, 4, 5), [[0]], [0], [0], n=2)
    plain = bk.BatchedKron(np.ones((1, 2, 2)), [[0]], [0], [0])
    with pytest.raises(ValueError, match=r"pools\[0\] has shape \(20,\); expected 3 dimensions"):
        plain.update(matrices)
