"""Multiplying by a Kronecker product from either side."""

from fractions import Fraction

import numpy as np
import pytest
from dense_oracle import dense_kron, poisoned, random_array, rounding_bound, sizes

import batchkron as bk
from batchkron.backends.cpu.backend import CpuBackend
from batchkron.spec.kron import KronSpec

SHAPES = [
    [(1, 1)],
    [(3, 3)],
    [(2, 5)],
    [(1, 4), (4, 1)],
    [(4, 1), (1, 4)],
    [(2, 2), (2, 2), (2, 2)],
    [(3, 4), (4, 3), (2, 5)],
    [(8, 8), (8, 8)],
    [(7, 7), (5, 5), (6, 6)],
    [(16, 16), (17, 17)],
    [(33, 13), (9, 31)],
    [(2, 3), (3, 2), (1, 2), (2, 1), (2, 2)],
    [(2, 2)] * 8,
    [(1, 1)] * 7 + [(3, 2)],
]


def factors_of(rng, shapes, dtype):
    return [random_array(rng, shape, dtype) for shape in shapes]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("count", [None, 0, 1, 5, 64])
def test_gekmm_equals_dense(rng, backend, dtype, shapes, count):
    factors = factors_of(rng, shapes, dtype)
    rows, columns = sizes(shapes)
    tail = () if count is None else (count,)
    x = random_array(rng, (columns, *tail), dtype)
    out = poisoned((rows, *tail), dtype)
    assert bk.gekmm(factors, x, out=out) is out
    bound = rounding_bound(factors, np.abs(x), left=True)
    assert (np.abs(out - dense_kron(*factors) @ x) <= bound).all()


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("count", [None, 0, 1, 5, 64])
def test_gemkm_equals_dense(rng, backend, dtype, shapes, count):
    factors = factors_of(rng, shapes, dtype)
    rows, columns = sizes(shapes)
    head = () if count is None else (count,)
    x = random_array(rng, (*head, rows), dtype)
    out = poisoned((*head, columns), dtype)
    assert bk.gemkm(x, factors, out=out) is out
    bound = rounding_bound(factors, np.abs(x), left=False)
    assert (np.abs(out - x @ dense_kron(*factors)) <= bound).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("inner", [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33])
def test_every_tile_edge(rng, size, inner):
    """Sizes around each vector width and register tile, first, middle and last mode."""
    for dtype in (np.float32, np.float64):
        factors = factors_of(rng, [(2, 3), (size, size), (3, 2)], dtype)
        x = random_array(rng, (3, 6 * size, inner), dtype)
        expected = dense_kron(*factors) @ x
        bound = rounding_bound(factors, np.abs(x), left=True)
        assert (np.abs(bk.gekmm(factors, x) - expected) <= bound).all()


def test_compiled_equals_reference_beyond_the_cache(rng):
    """Large enough that threads share one block, and that work is cut into chunks."""
    for shapes, count in [([(8, 8)] * 6, 2), ([(3, 3)] * 7, 300), ([(40, 60), (60, 40)], 50)]:
        factors = factors_of(rng, shapes, np.float64)
        x = rng.standard_normal((count, sizes(shapes)[0]))
        result = bk.gemkm(x, factors)
        with bk.backends.using("reference"):
            expected = bk.gemkm(x, factors)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13 * scale)


def test_rectangular_factors_go_in_the_order_of_least_work(rng):
    plan = CpuBackend.kron_plan(KronSpec((8, 128), (32, 64), 1, 1, np.dtype(float)))
    assert plan.native.order == [1, 0]
    assert plan.native.multiply_adds == 8 * 64 * 128 + 32 * 64 * 8


@pytest.mark.parametrize("alpha", [1, -2.5, 0])
@pytest.mark.parametrize("beta", [0, 1, -0.5])
def test_alpha_and_beta(rng, backend, dtype, alpha, beta):
    factors = factors_of(rng, [(3, 4), (5, 2)], dtype)
    x, y = random_array(rng, (8, 6), dtype), random_array(rng, (15, 6), dtype)
    before = y.copy()
    result = bk.gekmm(factors, x, alpha=alpha, beta=beta, y=y)
    expected = alpha * (dense_kron(*factors) @ x) + beta * y
    bound = (abs(alpha) + 1) * rounding_bound(factors, np.abs(x), left=True)
    bound = bound + 4 * np.finfo(dtype).eps * np.abs(beta * y)
    assert (np.abs(result - expected) <= bound).all()
    np.testing.assert_array_equal(y, before)
    assert bk.gekmm(factors, x, alpha=alpha, beta=beta, y=y, out=y) is y
    np.testing.assert_array_equal(y, result)


def test_beta_zero_never_reads_y(rng, backend):
    factors = factors_of(rng, [(3, 3), (2, 2)], np.float64)
    x = rng.standard_normal((6, 2))
    y = np.full((6, 2), np.nan)
    assert np.isfinite(bk.gekmm(factors, x, y=y)).all()
    assert np.isfinite(bk.gekmm(factors, x, y=y, out=y)).all()


def test_leading_axes_broadcast_over_x(rng, backend, dtype):
    factors = factors_of(rng, [(3, 2), (2, 4)], dtype)
    x = random_array(rng, (2, 1, 3, 8, 5), dtype)
    result = bk.gekmm(factors, x)
    assert result.shape == (2, 1, 3, 6, 5)
    for index in np.ndindex(2, 1, 3):
        np.testing.assert_array_equal(result[index], bk.gekmm(factors, x[index]))
    z = random_array(rng, (2, 3, 7, 6), dtype)
    assert bk.gemkm(z, factors).shape == (2, 3, 7, 8)


@pytest.mark.parametrize("order", ["C", "F"])
def test_strided_inputs_are_accepted_and_not_modified(rng, backend, dtype, order):
    shapes = [(3, 4), (4, 3)]
    wide = [random_array(rng, (2 * p, 3 * q), dtype) for p, q in shapes]
    factors = [np.asarray(w, order=order)[::2, ::-3] for w in wide]
    x = np.asarray(random_array(rng, (24, 10), dtype), order=order)[::2, ::-2]
    kept = [f.copy() for f in factors], x.copy()
    result = bk.gekmm(factors, x)
    np.testing.assert_array_equal(result, bk.gekmm([f.copy() for f in factors], x.copy()))
    bound = rounding_bound(factors, np.abs(x), left=True)
    assert (np.abs(result - dense_kron(*factors) @ x) <= bound).all()
    for factor, before in zip(factors, kept[0], strict=True):
        np.testing.assert_array_equal(factor, before)
    np.testing.assert_array_equal(x, kept[1])


def test_outputs_with_strides(rng, backend, dtype):
    factors = factors_of(rng, [(3, 2), (2, 2)], dtype)
    x = random_array(rng, (4, 5), dtype)
    expected = bk.gekmm(factors, x)
    wide = np.zeros((12, 10), dtype)
    bk.gekmm(factors, x, out=wide[::2, ::2])
    np.testing.assert_array_equal(wide[::2, ::2], expected)
    assert not wide[1::2].any()
    assert not wide[:, 1::2].any()
    y = np.asfortranarray(expected)
    bk.gekmm(factors, x, beta=2, y=y, out=y)
    np.testing.assert_allclose(y, 3 * expected, rtol=1e-5)


@pytest.mark.parametrize("transpose", [True, [True, False, True]])
@pytest.mark.parametrize("conj", [False, True, [False, True, True]])
def test_transpose_and_conj_per_factor(rng, backend, dtype, transpose, conj):
    swaps = [transpose] * 3 if isinstance(transpose, bool) else transpose
    conjugates = [conj] * 3 if isinstance(conj, bool) else conj
    factors = factors_of(rng, [(3, 2), (4, 4), (2, 3)], dtype)
    used = [f.T if s else f for f, s in zip(factors, swaps, strict=True)]
    used = [f.conj() if c else f for f, c in zip(used, conjugates, strict=True)]
    dense = dense_kron(*used)
    x = random_array(rng, (dense.shape[1], 3), dtype)
    bound = rounding_bound(used, np.abs(x), left=True)
    result = bk.gekmm(factors, x, transpose=transpose, conj=conj)
    assert (np.abs(result - dense @ x) <= bound).all()
    z = random_array(rng, (3, dense.shape[0]), dtype)
    bound = rounding_bound(used, np.abs(z), left=False)
    result = bk.gemkm(z, factors, transpose=transpose, conj=conj)
    assert (np.abs(result - z @ dense) <= bound).all()


@pytest.mark.parametrize(
    "shapes",
    [
        [(0, 3)],
        [(3, 0)],
        [(2, 3), (0, 2)],
        [(2, 0), (3, 2)],
        [(3, 1), (3, 0)],
        [(2, 0), (3, 1)],
        [(1, 3), (0, 3)],
        [(4, 1), (0, 2), (3, 1)],
    ],
)
def test_sizes_of_zero(rng, backend, dtype, shapes):
    factors = factors_of(rng, shapes, dtype)
    rows, columns = sizes(shapes)
    x = random_array(rng, (columns, 4), dtype)
    out = poisoned((rows, 4), dtype)
    bk.gekmm(factors, x, out=out)
    np.testing.assert_array_equal(out, dense_kron(*factors).reshape(rows, columns) @ x)
    y = np.ones((rows, 4), dtype)
    np.testing.assert_array_equal(bk.gekmm(factors, x, beta=2, y=y), 2 * y)
    vector = bk.gekmm(factors, x[:, 0])
    np.testing.assert_array_equal(vector, np.zeros(rows))
    product = bk.KroneckerProduct(factors).apply(np.ones((3, columns), dtype))
    np.testing.assert_array_equal(product, np.zeros((3, rows)))


def test_empty_arrays_may_lie_anywhere(backend):
    nothing = np.zeros(9, np.uint8)[1:].view(float)[:0]
    np.testing.assert_array_equal(bk.gekmm([np.ones((2, 0))], nothing), np.zeros(2))
    out = np.zeros((2, 0), np.dtype([("p", "u1"), ("v", "f8")]))["v"]
    assert bk.gekmm([np.ones((2, 2))], np.ones((2, 0)), out=out) is out


def test_y_of_a_narrower_dtype_is_widened_before_it_is_scaled(rng, backend):
    zero = [np.zeros((2, 2))]
    for y in (np.array([100, -100], np.int8), np.array([200, 10], np.uint8)):
        result = bk.gekmm(zero, np.ones(2), beta=-2, y=y)
        np.testing.assert_array_equal(result, -2.0 * y.astype(float))
    y = np.array([0.1, 0.3], np.float32)
    result = bk.gekmm(zero, np.ones(2), beta=0.1, y=y)
    np.testing.assert_array_equal(result, 0.1 * y.astype(float))


@pytest.mark.parametrize("kind", [np.array, np.float32, np.int8, Fraction, np.longdouble])
def test_numbers_of_any_kind_scale(rng, kind):
    x = rng.standard_normal(4)
    np.testing.assert_array_equal(bk.gekmm([np.eye(4)], x, alpha=kind(2)), 2 * x)
    np.testing.assert_array_equal((kind(2) * bk.Identity(4)) @ x, 2 * x)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_nan_and_inf_propagate_and_leave_no_trace(rng, backend):
    factors = factors_of(rng, [(4, 4), (4, 4)], np.float64)
    x = rng.standard_normal((16, 9))
    clean = bk.gekmm(factors, x)
    for bad in (np.nan, np.inf):
        dirty = x.copy()
        dirty[5, 3] = bad
        result = bk.gekmm(factors, dirty)
        assert not np.isfinite(result[:, 3]).any()
        np.testing.assert_array_equal(np.delete(result, 3, 1), np.delete(clean, 3, 1))
        np.testing.assert_array_equal(bk.gekmm(factors, x), clean)
        broken = [factors[0].copy(), factors[1]]
        broken[0][2, 1] = bad
        assert not np.isfinite(bk.gekmm(broken, x)[8:12]).any()
        np.testing.assert_array_equal(bk.gekmm(factors, x), clean)


@pytest.mark.parametrize(
    ("given", "computed"),
    [
        ("int32", "float64"),
        ("bool", "float64"),
        ("uint8", "float64"),
        ("float16", "float32"),
        ("float32", "float32"),
        (">f8", "float64"),
    ],
)
def test_dtypes_follow_result_type(rng, given, computed):
    factor = np.array([[1, 0], [1, 1]], given)
    x = np.array([1, 1, 0, 1], given)
    result = bk.gekmm([factor, factor], x)
    assert result.dtype == computed
    wide = factor.astype(float)
    np.testing.assert_array_equal(result, dense_kron(wide, wide) @ x.astype(float))
    mixed = bk.gekmm([factor.astype("complex64"), factor], x.astype("float64"))
    assert mixed.dtype == "complex128"


def test_two_vectors_by_hand():
    """The order of factors is that of scipy.linalg.kron: the first is the slowest index."""
    A, B = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 5.0], [6.0, 7.0]])
    kron = [[0, 5, 0, 10], [6, 7, 12, 14], [0, 15, 0, 20], [18, 21, 24, 28]]
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    np.testing.assert_array_equal(bk.gekmm([A, B], x), np.array(kron) @ x)
    np.testing.assert_array_equal(bk.gemkm(x, [A, B]), x @ np.array(kron))
    np.testing.assert_array_equal(bk.kron(A, B), kron)
    np.testing.assert_array_equal(bk.KroneckerProduct([A, B]) @ x, np.array(kron) @ x)
    total = np.kron(A, np.eye(2)) + np.kron(np.eye(2), B)
    np.testing.assert_array_equal(bk.KroneckerSum([A, B]) @ x, total @ x)
    op = bk.BatchedKron([A[None], B[None]], [[0, 0]], [0], [0])
    np.testing.assert_array_equal(op @ x, np.array(kron) @ x)


ERRORS = [
    ({"factors": []}, ValueError, "factors is empty"),
    ({"factors": [np.ones(3)]}, ValueError, r"factors\[0\] has shape \(3,\); expected 2"),
    ({"x": np.ones(5)}, ValueError, r"x has shape \(5,\); expected 6 = 2\*3 along axis -1"),
    ({"x": 1.0}, ValueError, "x is a scalar"),
    ({"x": np.ones(20)}, ValueError, "Pass transpose=True"),
    ({"beta": 1}, ValueError, "beta is 1, but y is missing"),
    ({"alpha": "2"}, TypeError, "alpha is '2'; expected a number"),
    ({"alpha": [2.0]}, TypeError, "alpha is .*; expected a number"),
    ({"beta": None}, TypeError, "beta is None; expected a number"),
    ({"beta": 1, "y": np.ones(3)}, ValueError, r"y has shape \(3,\); expected .* \(20,\)"),
    ({"transpose": [True]}, ValueError, "transpose has 1 entries; expected .* 2"),
    ({"out": np.ones(3)}, ValueError, r"out has shape \(3,\)"),
    ({"out": np.ones(20, "f4")}, TypeError, "out has dtype float32; expected .* float64"),
    ({"out": [0.0] * 20}, TypeError, "out is a list"),
    ({"x": np.array(["a"] * 6)}, TypeError, "expected arrays of float32"),
    ({"x": np.ones(6, np.longdouble)}, TypeError, "longdouble|float128"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_errors_say_what_was_expected(change, error, message):
    call = {"factors": [np.ones((4, 2)), np.ones((5, 3))], "x": np.ones(6), **change}
    with pytest.raises(error, match=message):
        bk.gekmm(call.pop("factors"), call.pop("x"), **call)


def test_outputs_that_overlap_or_cannot_be_written(rng):
    factors = [np.eye(2), np.eye(3)]
    x = rng.standard_normal(6)
    with pytest.raises(ValueError, match="out overlaps an input"):
        bk.gekmm(factors, x, out=x)
    both = rng.standard_normal(9)
    with pytest.raises(ValueError, match="out overlaps an input"):
        bk.gekmm(factors, x, beta=1, y=both[:6], out=both[3:])
    both[:6] = x
    bk.gekmm(factors, x, out=np.stack([both, both], 1)[:6, 0])
    interleaved = np.zeros(12)
    bk.gekmm(factors, interleaved[::2], out=interleaved[1::2])
    frozen = np.zeros(6)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        bk.gekmm(factors, x, out=frozen)


def test_a_result_beyond_64_bits_is_refused():
    factor = np.broadcast_to(np.ones((1, 1)), (2**16, 1))
    with pytest.raises((ValueError, MemoryError, OverflowError)):
        bk.gekmm([factor] * 4, np.ones(1))


@pytest.mark.parametrize(
    ("sizes", "outer", "inner"),
    [
        ((2**16,) * 4, 1, 1),  # the number of elements wraps to 0
        ((3, (2**64 + 2) // 3), 1, 1),  # to 2
        ((2**31, 2**32), 1, 1),  # to -2^63
        ((2**31, 2**31), 4, 1),
        ((2**31, 2**31), 1, 4),
    ],
)
def test_sizes_that_wrap_in_64_bits_are_refused(sizes, outer, inner):
    """Also where the wrapped number is one that an array can have."""
    ones = (1,) * len(sizes)
    for inputs, outputs in ((ones, sizes), (sizes, ones)):
        spec = KronSpec(inputs, outputs, outer, inner, np.dtype(np.float64))
        with pytest.raises(OverflowError, match="a Kronecker product does not fit in 64 bits"):
            CpuBackend.kron_plan(spec)
