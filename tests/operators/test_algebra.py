"""Sums, multiples, compositions, identities and Kronecker sums."""

from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg as spla
from dense_oracle import dense_kron, poisoned, random_array

import batchkron as bk
from batchkron.solvers import gmres


def dense_sum(factors):
    """Σ I ⊗ … ⊗ A_k ⊗ … ⊗ I, term by term."""
    total = 0
    for k in range(len(factors)):
        total = total + dense_kron(
            *[f if i == k else np.eye(len(f)) for i, f in enumerate(factors)]
        )
    return total


def batch(rng, dtype, blocks=4):
    pools = random_array(rng, (5, 2, 2), dtype)
    ids, ends = rng.integers(0, 5, (9, 2)), rng.integers(0, blocks, (2, 9))
    return bk.BatchedKron(pools, ids, *ends, num_inputs=blocks, num_outputs=blocks)


@pytest.fixture
def operators(rng, dtype, backend):
    """Operators of one shape, with their matrices."""
    ops = [
        bk.KroneckerProduct(random_array(rng, (2, 4, 4), dtype)),
        bk.KroneckerSum([random_array(rng, (2, 2), dtype), random_array(rng, (8, 8), dtype)]),
        batch(rng, dtype),
        bk.Identity(16, dtype),
        bk.Diagonal(random_array(rng, 16, dtype)),
    ]
    return [(op, op.to_dense()) for op in ops]


def check(op, dense, rng, dtype):
    """All products of an operator against its matrix."""
    scale = 500 * np.finfo(dtype).eps * max(np.abs(dense).max(), 1) * len(dense)
    tolerance = {"rtol": 0, "atol": scale}
    assert op.dtype == dtype
    x, X = random_array(rng, dense.shape[1], dtype), random_array(rng, (dense.shape[1], 3), dtype)
    np.testing.assert_allclose(op @ x, dense @ x, **tolerance)
    np.testing.assert_allclose(op @ X, dense @ X, **tolerance)
    np.testing.assert_allclose(
        op.apply(X.T) if not isinstance(op, bk.BatchedKron) else (op @ X).T,
        (dense @ X).T,
        **tolerance,
    )
    np.testing.assert_allclose(op.T @ X, dense.T @ X, **tolerance)
    np.testing.assert_allclose(op.rmatvec(x), dense.conj().T @ x, **tolerance)
    np.testing.assert_allclose(op.rmatmat(X), dense.conj().T @ X, **tolerance)
    np.testing.assert_allclose(op.diagonal(), dense.diagonal(), **tolerance)
    np.testing.assert_allclose(op.trace(), dense.trace(), **tolerance)
    out = poisoned(len(dense), dtype)
    assert op.matvec(x, out) is out
    np.testing.assert_allclose(out, dense @ x, **tolerance)


def test_the_whole_algebra(operators, rng, dtype):
    (a, A), (b, B), (c, C), (i, eye), (d, diag) = operators
    np.testing.assert_allclose(B, dense_sum(b.factors), rtol=0, atol=1e-5)
    for op, dense in [
        *operators,
        (a + b, A + B),
        (a - b + c, A - B + C),
        (2 * a, 2 * A),
        (a * 2 / 4, A / 2),
        (-c, -C),
        (a @ b, A @ B),
        (a * b, A @ B),
        (a @ b @ c, A @ B @ C),
        ((a + b) @ (c - 3 * i), (A + B) @ (C - 3 * eye)),
        (c**3, C @ C @ C),
        (b**0, eye),
        (a @ d + 2 * d, A @ diag + 2 * diag),
        ((a @ b).T, (A @ B).T),
        ((a + 2 * b).H, (A + 2 * B).conj().T),
    ]:
        assert isinstance(op, bk.Operator)
        check(op, dense, rng, dtype)


def test_a_complex_multiple_of_a_real_operator(rng):
    op = bk.KroneckerProduct(rng.standard_normal((2, 3, 3)))
    check((1 + 2j) * op, (1 + 2j) * op.to_dense(), rng, np.dtype(complex))
    mixed = op + bk.KroneckerProduct(rng.standard_normal((2, 3, 3)).astype("f4"))
    assert mixed.dtype == np.float64


def test_with_operators_of_scipy(rng):
    op, matrix = bk.KroneckerProduct(rng.standard_normal((2, 3, 3))), rng.standard_normal((9, 9))
    other = spla.aslinearoperator(matrix)
    x, dense = rng.standard_normal(9), op.to_dense()
    for combined, expected in [
        (op + other, dense + matrix),
        (other + op, dense + matrix),
        (op - other, dense - matrix),
        (op @ other, dense @ matrix),
        (other @ op, matrix @ dense),
    ]:
        np.testing.assert_allclose(combined @ x, expected @ x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(x @ op, x @ dense, rtol=0, atol=1e-13)


def test_sums_of_python_begin_with_zero(rng):
    a, b = (bk.KroneckerProduct(rng.standard_normal((2, 3, 3))) for _ in range(2))
    dense = a.to_dense() + b.to_dense()
    for total in (sum([a, b]), sum([a, b], np.float32(0)), sum((a, b), np.zeros(())), a - 0 + b):
        assert isinstance(total, bk.Operator)
        assert (total.dtype, len(total.terms)) == (np.float64, 2)
        np.testing.assert_allclose(total.to_dense(), dense, rtol=0, atol=1e-13)
    assert 0 + a is a
    assert a + 0j is a
    np.testing.assert_array_equal((0 - a).to_dense(), -a.to_dense())


@pytest.mark.parametrize("kind", ["csr_array", "coo_matrix", "dia_array"])
def test_with_sparse_arrays(rng, kind):
    op, matrix = bk.KroneckerProduct(rng.standard_normal((2, 3, 3))), rng.standard_normal((9, 9))
    matrix[matrix < 0] = 0
    sparse = getattr(scipy.sparse, kind)(matrix)
    x, dense = rng.standard_normal(9), op.to_dense()
    for combined, expected in [
        (op + sparse, dense + matrix),
        (sparse + op, dense + matrix),
        (op - sparse, dense - matrix),
        (sparse - op, matrix - dense),
    ]:
        assert isinstance(combined, spla.LinearOperator)
        np.testing.assert_allclose(combined @ x, expected @ x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(combined.H @ x, expected.T @ x, rtol=0, atol=1e-12)
    solved = gmres(9 * bk.Identity(9) + op + sparse, x, rtol=1e-12)
    exact = np.linalg.solve(9 * np.eye(9) + dense + matrix, x)
    np.testing.assert_allclose(solved.x, exact, rtol=1e-9)
    with pytest.raises(ValueError, match="shape"):
        op + scipy.sparse.csr_array(np.eye(3))


def test_summands_and_exponents_that_are_refused(rng):
    op = bk.KroneckerProduct(rng.standard_normal((2, 3, 3)))
    for number in (3, -1.5, np.float32(2), np.array(1j), np.nan):
        for total in (lambda n: op + n, lambda n: n + op, lambda n: op - n, lambda n: n - op):
            with pytest.raises(TypeError, match=r"the number .* \* batchkron.Identity\(9\)"):
                total(number)
    for array in (np.eye(9), np.ones(9)):
        for total in (lambda a: op + a, lambda a: a + op, lambda a: op - a, lambda a: a - op):
            with pytest.raises(TypeError, match="aslinearoperator makes an operator of a matrix"):
                total(array)
    for other in (None, "a", [1.0], object()):
        with pytest.raises(TypeError, match="unsupported operand"):
            op + other
        with pytest.raises(TypeError, match="unsupported operand"):
            op - other
        with pytest.raises(TypeError, match="unsupported operand"):
            other - op
    for exponent in (-1, 2.0, 0.5, np.float64(2)):
        with pytest.raises(TypeError, match="expected an integer of at least 0"):
            op**exponent
    np.testing.assert_allclose((op ** np.array(2)) @ np.ones(9), op @ (op @ np.ones(9)))


def test_algebra_errors(rng):
    op = bk.KroneckerProduct([np.ones((2, 3))])
    with pytest.raises(ValueError, match=r"shapes \(2, 3\) and \(3, 2\) do not add"):
        op + op.T
    with pytest.raises(ValueError, match="do not compose"):
        op @ op
    with pytest.raises(ValueError, match="power needs a square operator"):
        op**2
    with pytest.raises(
        ValueError, match="Can only divide a linear operator by a scalar, not by a ndarray"
    ):
        op / np.ones(2)
    with pytest.raises(ValueError, match="size is -1"):
        bk.Identity(-1)
    with pytest.raises(ValueError, match=r"factors\[0\] has shape \(2, 3\); expected a square"):
        bk.KroneckerSum([np.ones((2, 3))])


def test_composed_operators_in_two_threads(rng):
    """Each thread has its own workspace."""
    op = (bk.KroneckerProduct(rng.standard_normal((3, 8, 8))) + bk.Identity(512)) ** 3
    vectors = list(rng.standard_normal((32, 512)))
    expected = [op @ x for x in vectors]
    with ThreadPoolExecutor(4) as pool:
        for result, wanted in zip(pool.map(op.matvec, vectors), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


def test_update_reaches_every_relative(rng, backend, dtype):
    for op, fresh in [
        (
            bk.KroneckerProduct(random_array(rng, (2, 3, 3), dtype)),
            random_array(rng, (2, 3, 3), dtype),
        ),
        (bk.KroneckerSum(random_array(rng, (2, 3, 3), dtype)), random_array(rng, (2, 3, 3), dtype)),
    ]:
        relatives = op.T, op.H, op.astype("complex128"), 2 * op, op @ op
        op.update(list(fresh))
        dense = type(op)(list(fresh)).to_dense()
        tolerance = {"rtol": 0, "atol": 1e3 * np.finfo(dtype).eps}
        expected = dense.T, dense.conj().T, dense, 2 * dense, dense @ dense
        np.testing.assert_allclose(op.to_dense(), dense, **tolerance)
        for relative, wanted in zip(relatives, expected, strict=True):
            np.testing.assert_allclose(relative.to_dense(), wanted, **tolerance)


def test_update_of_a_batch(rng, backend, dtype):
    op = batch(rng, dtype)
    relatives = op.T, op.H, op + op
    pool, weights = random_array(rng, (5, 2, 2), dtype), random_array(rng, 9, dtype)
    op.update([pool, pool], weights)
    spec = op._spec
    fresh = bk.BatchedKron(
        pool, spec.factor_ids, spec.inputs, spec.outputs,
        weights=weights, num_inputs=4, num_outputs=4,
    )  # fmt: skip
    np.testing.assert_array_equal(op.to_dense(), fresh.to_dense())
    np.testing.assert_array_equal(relatives[0].to_dense(), fresh.T.to_dense())
    np.testing.assert_array_equal(relatives[1].to_dense(), fresh.H.to_dense())
    np.testing.assert_allclose(relatives[2].to_dense(), 2 * fresh.to_dense(), rtol=1e-5)
    op.update(weights=np.zeros(9))
    assert not op.to_dense().any()
    with pytest.raises(ValueError, match=r"pools\[1\] has shape \(4, 2, 2\); expected \(5, 2, 2\)"):
        op.update([pool, pool[:4]])
    with pytest.raises(ValueError, match=r"weights has shape \(3,\); expected \(9,\)"):
        op.update(weights=np.zeros(3))
    with pytest.raises(
        ValueError, match="there are 1 pools; expected one per column of factor_ids, 2"
    ):
        op.update([pool])


def test_update_may_not_break_an_identity(rng, backend):
    pool = np.stack([np.eye(2), np.ones((2, 2))])
    op = bk.BatchedKron(pool, [[0, 1]], [0], [0])
    with pytest.raises(
        ValueError, match=r"pools\[0\]\[0\] was the identity .* skip_identities=False"
    ):
        op.update([2 * pool, pool])
    np.testing.assert_array_equal(op.to_dense(), np.kron(pool[0], pool[1]))
    free = bk.BatchedKron(pool, [[0, 1]], [0], [0], skip_identities=False)
    free.update([2 * pool, pool])
    np.testing.assert_array_equal(free.to_dense(), np.kron(2 * pool[0], pool[1]))


def test_many_systems_of_one_structure(rng, backend, dtype):
    pools = [random_array(rng, (3, 2, 4, 2, 2), dtype), random_array(rng, (4, 2, 3), dtype)]
    weights = random_array(rng, (2, 6), dtype)
    ids, ends = rng.integers(0, 4, (6, 2)), rng.integers(0, 3, (2, 6))
    op = bk.BatchedKron(pools, ids, *ends, weights=weights, num_inputs=3, num_outputs=3)
    assert op.batch_shape == (3, 2)
    x = random_array(rng, (5, 3, 2, 3, 6), dtype)
    y = op.apply(x)
    assert y.shape == (5, 3, 2, 3, 4)
    tolerance = {"rtol": 0, "atol": 300 * np.finfo(dtype).eps}
    for i, j in np.ndindex(3, 2):
        one = bk.BatchedKron(
            [pools[0][i, j], pools[1]], ids, *ends, weights=weights[j], num_inputs=3, num_outputs=3
        )
        np.testing.assert_allclose(y[:, i, j], one.apply(x[:, i, j]), **tolerance)
        np.testing.assert_allclose(
            op.T.apply(y)[:, i, j],
            one.T.apply(y[:, i, j]),
            rtol=0,
            atol=1e-2 if dtype.itemsize in (4,) else 1e-3,
        )
    assert op.validate().ok
    op.update(weights=2 * weights)
    np.testing.assert_allclose(op.apply(x), 2 * y, **tolerance)
    with pytest.raises(ValueError, match=r"batch_shape \(3, 2\), so matvec is not defined"):
        op.matvec(np.ones(18))
    with pytest.raises(ValueError, match=r"expected the axes of batch_shape \(3, 2\)"):
        op.apply(x[0, 0])


def test_products_with_systems(rng, backend, dtype):
    factors = [random_array(rng, (4, 1, 2, 3), dtype), random_array(rng, (5, 3, 2), dtype)]
    op = bk.KroneckerProduct(factors)
    assert op.batch_shape == (4, 5)
    x = random_array(rng, (2, 4, 5, 6), dtype)
    y = op.apply(x)
    for i, j in np.ndindex(4, 5):
        one = bk.KroneckerProduct([factors[0][i, 0], factors[1][j]])
        np.testing.assert_allclose(
            y[:, i, j], one.apply(x[:, i, j]), rtol=0, atol=200 * np.finfo(dtype).eps
        )
    doubled = (op + op).apply(x)
    np.testing.assert_allclose(doubled, 2 * y, rtol=0, atol=200 * np.finfo(dtype).eps)
    op.update([2 * f for f in factors])
    np.testing.assert_allclose(op.apply(x), 4 * y, rtol=0, atol=500 * np.finfo(dtype).eps)


def hermitian(rng, n, dtype):
    matrix = random_array(rng, (n, n), dtype)
    return (matrix + matrix.conj().T) / 2


@pytest.mark.parametrize("precise", ["float64", "complex128"])
@pytest.mark.parametrize("kind", [bk.KroneckerProduct, bk.KroneckerSum])
@pytest.mark.parametrize("symmetric", [True, False])
def test_direct_methods_equal_dense(rng, precise, kind, symmetric):
    make = hermitian if symmetric else lambda r, n, t: random_array(r, (n, n), t)
    factors = [make(rng, n, precise) + 3 * np.eye(n) for n in (3, 4, 2)]
    op = kind(factors)
    dense = op.to_dense()
    for b in (rng.standard_normal(24), random_array(rng, (24, 5), precise)):
        x = op.solve(b)
        assert x.shape == b.shape
        np.testing.assert_allclose(dense @ x, b, rtol=0, atol=1e-9)
        exponential = scipy.linalg.expm(0.1 * dense) @ b
        if symmetric or kind is bk.KroneckerSum:
            np.testing.assert_allclose(op.expm_apply(b, 0.1), exponential, rtol=1e-8, atol=1e-8)
    sign, logarithm = np.linalg.slogdet(dense)
    result = op.logdet()
    if precise == "float64":
        np.testing.assert_allclose(result, logarithm if sign > 0 else np.nan, rtol=1e-10)
    else:
        np.testing.assert_allclose(np.exp(result - logarithm), sign, rtol=1e-9)
    if symmetric:
        values, vectors = op.eigh()
        V = vectors.to_dense()
        np.testing.assert_allclose(V.conj().T @ V, np.eye(24), rtol=0, atol=1e-12)
        np.testing.assert_allclose(V * values @ V.conj().T, dense, rtol=0, atol=1e-11)
        assert values.dtype == np.float64


def test_direct_errors(rng):
    unsymmetric = np.array([[1.0, 2.0], [0.0, 1.0]])
    product, total = bk.KroneckerProduct([unsymmetric] * 2), bk.KroneckerSum([unsymmetric] * 2)
    for op in (product, total):
        with pytest.raises(ValueError, match=r"factors\[0\] is not Hermitian"):
            op.eigh()
        with pytest.raises(ValueError, match=r"b has shape \(3,\); expected \(4,\)"):
            op.solve(np.ones(3))
    with pytest.raises(ValueError, match=r"factors\[0\] has shape \(2, 3\); expected a square"):
        bk.KroneckerProduct([np.ones((2, 3)), np.ones((3, 2))]).solve(np.ones(6))
    with pytest.raises(np.linalg.LinAlgError):
        bk.KroneckerProduct([np.ones((2, 2))]).solve(np.ones(2))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        bk.KroneckerSum([np.eye(2), -np.eye(2)]).solve(np.ones(4))
    assert bk.KroneckerProduct([np.ones((2, 2))]).logdet() == -np.inf
    assert np.isnan(bk.KroneckerProduct([np.diag([1.0, -1.0]), np.eye(1)]).logdet())


def test_a_large_sum_against_scipy(rng):
    """The 2-D Laplacian: many vectors, both layouts, the spectrum known."""
    n = 30
    second = np.diag(np.full(n, -2.0)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)
    op = bk.KroneckerSum([second, second])
    angles = np.pi * np.arange(1, n + 1) / (n + 1)
    known = reduce(np.add.outer, [-2 + 2 * np.cos(angles)] * 2).ravel()
    np.testing.assert_allclose(np.sort(op.eigh()[0]), np.sort(known), rtol=1e-10)
    b = rng.standard_normal((n * n, 7))
    np.testing.assert_allclose(op @ op.solve(b), b, rtol=0, atol=1e-9)
