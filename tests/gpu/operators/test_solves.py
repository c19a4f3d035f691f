"""Solves, determinants, eigenpairs and exponentials on a device, against dense matrices."""

import numpy as np
import pytest
import scipy.linalg
from dense_oracle import random_array

import batchkron as bk
from batchkron.solvers import logdet_slq

pytestmark = pytest.mark.gpu

SIZES = (4, 5, 6)


def positive(rng, n, dtype):
    factor = random_array(rng, (n, n), dtype)
    return (factor @ factor.conj().T / n + 2 * np.eye(n)).astype(dtype)


def make(kind, rng, dtype):
    factors, masses = ([positive(rng, n, dtype) for n in SIZES] for _ in range(2))
    identity = bk.Identity(120, np.dtype(dtype))
    if kind == "product":
        return bk.KroneckerProduct(factors)
    if kind == "sum":
        return bk.KroneckerSum(factors)
    if kind == "shifted product":
        return 2.0 * bk.KroneckerProduct(factors) + 0.5 * identity
    if kind == "shifted sum":
        return bk.KroneckerSum(factors) + 0.5 * identity
    (A, B, C), (M, N, P) = factors, masses
    return (
        bk.KroneckerProduct([A, N, P])
        + bk.KroneckerProduct([M, B, P])
        + bk.KroneckerProduct([M, N, C])
        + 0.5 * bk.KroneckerProduct([M, N, P])
    )


KINDS = ["product", "sum", "shifted product", "shifted sum", "masses"]


@pytest.mark.parametrize("kind", KINDS)
def test_solve_and_determinant(cupy, rng, dtype, kind):
    host = make(kind, rng, dtype)
    op, dense = host.to("cuda"), host.to_dense().astype(np.complex128)
    condition = np.linalg.cond(dense)
    for shape in ((120,), (120, 1), (120, 7)):
        b = random_array(rng, shape, dtype)
        for _ in range(2):
            x = op.solve(cupy.asarray(b))
            assert isinstance(x, cupy.ndarray)
            assert (x.shape, x.dtype) == (shape, dtype)
            expected = np.linalg.solve(dense, b)
            error = np.linalg.norm(x.get() - expected) / np.linalg.norm(expected)
            assert error <= 200 * np.finfo(dtype).eps * condition
    sign, logarithm = np.linalg.slogdet(dense)
    found = op.slogdet()
    bound = 200 * 120 * np.finfo(dtype).eps * condition
    assert abs(found[0] - sign) <= bound
    assert abs(found[1] - logarithm) <= bound
    assert abs(op.logdet() - logarithm) <= bound
    estimate = logdet_slq(op, probes=16, steps=60)
    assert abs(estimate.logdet - logarithm) <= 6 * estimate.standard_error + bound


@pytest.mark.parametrize("sizes", [(1,), (40,), (3, 5), (37, 4), (2, 3, 4), (33, 2, 5)], ids=str)
def test_sums_that_are_not_hermitian(cupy, rng, dtype, sizes):
    factors = [random_array(rng, (n, n), dtype) / n + 2 * np.eye(n, dtype=dtype) for n in sizes]
    host = bk.KroneckerSum(factors)
    op, dense = host.to("cuda"), host.to_dense().astype(np.complex128)
    for b in (random_array(rng, len(dense), dtype), random_array(rng, (len(dense), 5), dtype)):
        x = op.solve(cupy.asarray(b))
        assert (x.shape, x.dtype) == (b.shape, dtype)
        expected = np.linalg.solve(dense, b)
        bound = 200 * np.finfo(dtype).eps * np.linalg.cond(dense) * np.linalg.norm(expected)
        assert np.linalg.norm(x.get() - expected) <= bound
        again = op.solve(cupy.asarray(b))
        assert (again == x).all()
    shifts = [0.5, 1.0 + 0.5j]
    found = op.factorise().solve_shifted(cupy.asarray(b), shifts).get()
    for shift, one in zip(shifts, found, strict=True):
        expected = np.linalg.solve(dense + shift * np.eye(len(dense)), b)
        bound = 400 * np.finfo(dtype).eps * np.linalg.cond(dense) * np.linalg.norm(expected)
        assert np.linalg.norm(one - expected) <= bound


def test_many_systems_that_are_not_hermitian(cupy, rng, dtype):
    first = random_array(rng, (3, 4, 4), dtype) + 4 * np.eye(4, dtype=dtype)
    host = bk.KroneckerSum([first, random_array(rng, (5, 5), dtype) + 4 * np.eye(5, dtype=dtype)])
    b = random_array(rng, (2, 3, 20), dtype)
    expected, found = host.solve(b), host.to("cuda").solve(cupy.asarray(b)).get()
    bound = 1e4 * np.finfo(dtype).eps * abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", KINDS[:4])
@pytest.mark.parametrize("t", [0.125, -0.125, 0.25j])
def test_exponentials(cupy, rng, dtype, kind, t):
    host = make(kind, rng, dtype)
    op, dense = host.to("cuda"), host.to_dense().astype(np.complex128)
    exponential = scipy.linalg.expm(t * dense)
    for shape in ((120,), (120, 3)):
        x = random_array(rng, shape, dtype)
        found = op.expm_apply(cupy.asarray(x), t).get()
        size = np.linalg.norm(exponential, 2) * np.linalg.norm(x)
        bound = 1000 * np.finfo(dtype).eps * (1 + abs(t) * np.linalg.norm(dense, 2)) * size
        assert np.linalg.norm(found - exponential @ x) <= bound


def test_exponentials_of_shifts_that_cancel(cupy, rng, dtype):
    eyes, factors, diagonal = [np.eye(n, dtype=dtype) for n in SIZES], [], []
    for one, shift in zip(eyes, (900, -500, -400), strict=True):
        factors.append(random_array(rng, one.shape, dtype) + shift * one)
        diagonal.append(np.diag(np.linspace(0, shift, len(one))).astype(dtype))
    many = [np.stack([factors[0], 900 * eyes[0]]), np.stack([-900 * eyes[1], -900 * eyes[1]])]
    for given, shape in ((factors, (120, 3)), (diagonal, (120, 3)), (many, (5, 2, 20))):
        host, x = bk.KroneckerSum(given), random_array(rng, shape, dtype)
        with np.errstate(over="ignore"):
            expected = host.expm_apply(x)
        found = host.to("cuda").expm_apply(cupy.asarray(x)).get()
        regular = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(found), regular)
        bound = 1000 * np.finfo(dtype).eps * abs(expected[regular]).max()
        np.testing.assert_allclose(found[regular], expected[regular], rtol=0, atol=bound)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("name", ["eigh", "eig"])
def test_eigenpairs(cupy, rng, dtype, kind, name):
    host = make(kind, rng, dtype)
    values, vectors = getattr(host.to("cuda"), name)()
    assert isinstance(values, cupy.ndarray)
    V = (vectors @ cupy.eye(120, dtype=vectors.dtype)).get()
    product = (host.to("cuda") @ cupy.asarray(V)).get()
    bound = 1000 * np.finfo(dtype).eps * float(abs(values).max())
    assert np.abs(product - V * values.get()).max() <= bound


def test_singular_values(cupy, rng, dtype):
    op = bk.KroneckerProduct([random_array(rng, (3, 4), dtype), random_array(rng, (5, 2), dtype)])
    left, values, right = op.to("cuda").svd()
    assert isinstance(values, cupy.ndarray)
    again = (left @ cupy.diag(values).astype(dtype)) @ right.to_dense()
    np.testing.assert_allclose(again.get(), op.to_dense(), atol=1000 * np.finfo(dtype).eps)


def test_many_systems(cupy, rng, dtype):
    first = np.stack([positive(rng, 4, dtype) for _ in range(3)])
    host = bk.KroneckerSum([first, positive(rng, 5, dtype)])
    op, b = host.to("cuda"), random_array(rng, (2, 3, 20), dtype)
    bound = 1000 * np.finfo(dtype).eps
    for name, more in (("solve", ()), ("expm_apply", (-0.5,))):
        expected = getattr(host, name)(b, *more)
        found = getattr(op, name)(cupy.asarray(b), *more).get()
        np.testing.assert_allclose(found, expected, atol=bound * abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_solves_run_on_the_current_stream(cupy, rng, dtype, kind):
    host = make(kind, rng, dtype)
    op, stream = host.to("cuda"), cupy.cuda.Stream(non_blocking=True)
    b = random_array(rng, (120, 4), dtype)
    expected = host.solve(2 * b)
    op.solve(cupy.asarray(b))
    given = cupy.asarray(b)
    cupy.cuda.Device().synchronize()
    with stream:
        given *= 2
        found = op.solve(given)
        given.fill(np.nan)
        result = found.get()
    bound = 1e4 * np.finfo(dtype).eps * abs(expected).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_updates_are_seen(cupy, rng, kind):
    host = make(kind, rng, np.float64)
    shifted = host + 0.5 * bk.Identity(120)
    b = rng.standard_normal(120)
    for _ in range(2):
        for op in (host, shifted):
            found = op.to("cuda").solve(cupy.asarray(b)).get()
            np.testing.assert_allclose(found, op.solve(b), rtol=0, atol=1e-11)
        host.update([positive(rng, n, np.float64) for n in SIZES])


COMBINATIONS = {
    "multiple": lambda product, total, one, diagonal: -2 * product,
    "composition": lambda product, total, one, diagonal: product @ total,
    "shift": lambda product, total, one, diagonal: total + 3 * one,
    "difference": lambda product, total, one, diagonal: product - 0.25 * product,
    "diagonal": lambda product, total, one, diagonal: 2 * diagonal @ diagonal + one,
}


@pytest.mark.parametrize("kind", COMBINATIONS)
def test_combinations_that_are_not_hermitian(cupy, rng, dtype, kind):
    factors = [random_array(rng, (n, n), dtype) / n + 2 * np.eye(n, dtype=dtype) for n in SIZES]
    product, total = bk.KroneckerProduct(factors), bk.KroneckerSum(factors)
    diagonal = bk.Diagonal(1 + rng.random(120).astype(dtype))
    host = COMBINATIONS[kind](product, total, bk.Identity(120, dtype), diagonal)
    op, dense = host.to("cuda"), host.to_dense().astype(np.complex128)
    for shape in ((120,), (120, 3)):
        b = random_array(rng, shape, dtype)
        x = op.solve(cupy.asarray(b))
        assert (x.shape, x.dtype) == (shape, dtype)
        expected = np.linalg.solve(dense, b)
        bound = 1000 * np.finfo(dtype).eps * np.linalg.cond(dense) * np.linalg.norm(expected)
        assert np.linalg.norm(x.get() - expected) <= bound
    found, known = op.slogdet(), np.linalg.slogdet(dense)
    np.testing.assert_allclose(found, known, atol=1e5 * np.finfo(dtype).eps)


def test_infinite_multiples_of_empty_sums(cupy, dtype):
    listed = bk.BatchedKron(np.ones((1, 2, 2), dtype), [[0]], [0], [1], num_outputs=2)
    found = ((np.inf * listed).to("cuda") @ cupy.ones(2, dtype)).get()
    assert np.isnan(found[:2]).all()
    assert not np.isfinite(found[2:]).any()
    y = cupy.ones((2, 2), dtype)
    listed.to("cuda").accumulate(cupy.ones((1, 2), dtype), y, alpha=np.inf)
    assert np.isnan(y.get()[0]).all()


def test_what_is_refused(cupy, rng):
    with pytest.raises(
        np.linalg.LinAlgError, match=r"factors\[1\], of shape \(3, 3\), is singular"
    ):
        bk.KroneckerProduct([np.eye(2), np.ones((3, 3))]).to("cuda").solve(cupy.ones(6))
    with pytest.raises(TypeError, match="b is an array on the CPU"):
        bk.KroneckerSum([np.eye(3)]).to("cuda").solve(np.ones(3))
