"""solve, logdet and expm_apply against NumPy's and SciPy's dense functions, with derivatives."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax_checks import assert_derivatives, assert_same, dense_kron, dense_sum

from batchkron.jax import expm_apply, logdet, solve
from batchkron.jax.sum_logdet import _eigenvalues

DTYPES = ["float32", "float64", "complex64", "complex128"]
SIZES = (2, 3, 2)
DENSE = {"product": dense_kron, "sum": dense_sum}


@pytest.fixture
def regular(array):
    """Makes factors far from singular ones, whose sums are as well; Hermitian ones on request."""

    def make(dtype="float64", hermitian=False, sizes=SIZES):
        factors = []
        for n in sizes:
            factor = array(n, n, dtype=dtype) / 4
            if hermitian:
                factor = factor + factor.conj().T
            factors.append(factor + (3 + len(factors) / 8) * jnp.eye(n, dtype=dtype))
        return factors

    return make


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("kind", ["product", "sum"])
def test_solve_against_the_dense_matrix(regular, array, kind, hermitian, dtype):
    factors = regular(dtype, hermitian)
    b = array(3, math.prod(SIZES), dtype=dtype)
    expected = np.linalg.solve(DENSE[kind](factors), np.asarray(b).T).T
    found = jax.jit(lambda factors, b: solve(factors, b, kind=kind))(factors, b)
    assert_same(found, expected, 100)


@pytest.mark.parametrize("kind", ["product", "sum"])
@pytest.mark.parametrize("leading", [(), (2, 2), (0,)])
def test_leading_axes_of_a_solve(regular, array, kind, leading):
    factors, b = regular(), array(*leading, 12)
    found = jax.jit(lambda b: solve(factors, b, kind=kind))(b)
    inverse = np.linalg.inv(DENSE[kind](factors))
    assert_same(found, np.asarray(b) @ inverse.T, 100)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_derivatives_of_a_solve(regular, array, kind, precise):
    function = jax.jit(lambda b, *factors: solve(factors, b, kind=kind))
    factors = regular(precise, sizes=(2, 3))
    assert_derivatives(function, (array(2, 6, dtype=precise), *factors), order=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["product", "sum"])
def test_second_derivatives_of_a_solve(regular, array, kind):
    function = jax.jit(lambda b, *factors: solve(factors, b, kind=kind))
    assert_derivatives(function, (array(4), *regular(sizes=(2, 2))))


def test_repeated_eigenvalues_do_no_harm_to_derivatives(array):
    A, B, b = 3 * jnp.eye(2), jnp.eye(2), array(4)
    function = jax.jit(lambda A: solve([A, B], b, kind="sum"))
    assert_derivatives(function, (A,), order=1)


def test_a_sum_with_a_large_entry_beside_a_phase(array):
    """1 + 1j is no rounding error of 1e17, beside which it is small."""
    factors = [jnp.diag(jnp.array([1e17, 1 + 1j])), jnp.eye(2, dtype="complex128") / 2]
    b = array(4, dtype="complex128")
    expected = b / np.diag(dense_sum(factors))
    np.testing.assert_allclose(solve(factors, b, kind="sum"), expected, rtol=1e-14)


@pytest.mark.parametrize("kind", ["product", "sum"])
@pytest.mark.parametrize("axes", [(0, None, None), (1, 0, 2)])
def test_mapped_solves_and_their_gradients(regular, array, kind, axes):
    given = [array(3, 6), *regular(sizes=(2, 3))]
    steps = [array(*one.shape) / 9 for one in given]
    mapped = [
        one if axis is None else jnp.stack([one, one + step, one - step, one], axis)
        for one, step, axis in zip(given, steps, axes, strict=True)
    ]

    def both(function):
        def loss(*given):
            found = jax.vmap(function, axes)(*given)
            return jnp.sin(found).sum(), found

        return jax.tree.leaves(jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(*mapped))

    def dense(b, A, B):
        eyes = jnp.eye(2), jnp.eye(3)
        matrix = (
            jnp.kron(A, B) if kind == "product" else jnp.kron(A, eyes[1]) + jnp.kron(eyes[0], B)
        )
        return jnp.linalg.solve(matrix, b.T).T

    own = both(lambda b, A, B: solve([A, B], b, kind=kind))
    for one, other in zip(own, both(dense), strict=True):
        assert_same(one, other, 1000)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("kind", ["product", "sum"])
def test_logdet_against_the_dense_matrix(regular, kind, hermitian, dtype):
    factors = regular(dtype, hermitian)
    sign, logarithm = np.linalg.slogdet(DENSE[kind](factors))
    found = jax.jit(lambda given: logdet(given, kind=kind, hermitian=hermitian))(factors)
    assert jnp.iscomplexobj(found) == (dtype.startswith("complex") and not hermitian)
    assert_same(found.real, logarithm, 200)
    if jnp.iscomplexobj(found):
        assert_same(jnp.exp(1j * found.imag), sign, 2000)


@pytest.mark.parametrize("kind", ["product", "sum"])
@pytest.mark.parametrize("hermitian", [False, True])
def test_second_derivatives_of_logdet(regular, kind, hermitian):
    """Against those of the dense matrix, which has no eigenvalues in it."""
    A, B = regular(hermitian=hermitian, sizes=(2, 3))
    E = regular(hermitian=hermitian, sizes=(2,))[0]

    def dense(t):
        eyes = jnp.eye(2), jnp.eye(3)
        C = A + t * E
        matrix = (
            jnp.kron(C, B) if kind == "product" else jnp.kron(C, eyes[1]) + jnp.kron(eyes[0], B)
        )
        return jnp.linalg.slogdet(matrix)[1]

    def own(t):
        return logdet([A + t * E, B], kind=kind, hermitian=hermitian)

    def derivatives(function):
        forward = lambda t: jax.jvp(function, (t,), (1.0,))[1]  # noqa: E731
        return jax.jit(lambda t: (forward(t), jax.grad(function)(t), jax.grad(forward)(t)))(0.1)

    for found, expected in zip(derivatives(own), derivatives(dense), strict=True):
        assert_same(found, expected, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["product", "sum"])
def test_derivatives_of_logdet_of_complex_factors(regular, kind):
    function = jax.jit(lambda *factors: logdet(factors, kind=kind))
    assert_derivatives(function, tuple(regular("complex128", sizes=(2, 2))), order=1)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_the_sign_of_a_determinant(kind):
    one = jnp.diag(jnp.array([-5.0, 2.0]))
    odd = [one] if kind == "sum" else [one, jnp.ones((1, 1))]
    assert jnp.isnan(logdet(odd, kind=kind))
    even = logdet([one, jnp.eye(2)], kind=kind)
    expected = 2 * math.log(10) if kind == "product" else math.log(4 * 4 * 3 * 3)
    assert float(even) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_the_sign_of_a_determinant_with_many_repeats(dtype):
    """-1 to the power of 257³, which half turns in float32 do not count."""
    flipped = jnp.diag(jnp.array([-1, 1, 1], dtype))
    eye = jnp.eye(257, dtype=dtype)
    with jax.enable_x64(False):
        assert jnp.isnan(logdet([flipped, eye, eye, eye], hermitian=True))
        assert logdet([flipped, eye, eye, jnp.eye(2, dtype=dtype)], hermitian=True) == 0
        assert logdet([jnp.eye(1300, dtype=dtype)] * 4, hermitian=True) == 0  # 1300³ > 2³¹


def shifted(factors, shifts):
    pairs = zip(factors, shifts, strict=True)
    return [factor + shift * jnp.eye(len(factor), dtype=factor.dtype) for factor, shift in pairs]


def exact_sum(factors, shifts=(0, 0, 0)):
    """The dense sum of rounded factors, minus their shifts, in double precision."""
    wide = [np.asarray(one, np.result_type(one.dtype, float)) for one in factors]
    return dense_sum([f - s * np.eye(len(f)) for f, s in zip(wide, shifts, strict=True)])


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_the_determinant_of_many_factors(dtype):
    """3^60 is odd, and no float."""
    eyes = [jnp.eye(3, dtype=dtype)] * 60
    flipped = jnp.diag(jnp.array([-1, 1, 1], dtype))
    odd, even = logdet([flipped, *eyes]), logdet([flipped, flipped, *eyes[1:]])
    assert even == 0
    if dtype.startswith("complex"):
        assert (odd.real, abs(odd.imag)) == (0, pytest.approx(math.pi, rel=1e-6))
        quarter = logdet([jnp.diag(jnp.array([1j, 1, 1], dtype)), *eyes])
        assert float(quarter.imag) == pytest.approx(math.pi / 2, rel=1e-6)  # 9^30 is 1 modulo 4
    else:
        assert jnp.isnan(odd)


def test_the_determinant_beside_empty_factors():
    empty, zero = jnp.zeros((0, 0)), jnp.zeros((2, 2))
    assert logdet([zero, empty]) == 0
    assert logdet([zero, empty], kind="sum") == 0
    assert logdet([zero] + [jnp.eye(2)] * 70) == -jnp.inf


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("hermitian", [False, True])
def test_the_determinant_of_a_singular_sum(dtype, hermitian):
    """An odd number of negative eigenvalues, and a zero."""
    factors = [jnp.diag(jnp.array([1, -1], dtype))] * 2
    assert logdet(factors, kind="sum", hermitian=hermitian) == -jnp.inf


def test_memory_is_counted_before_it_is_taken():
    for hermitian in (False, True):
        with pytest.raises(MemoryError, match=r"the 1\.18e\+21 eigenvalues of the sum take"):
            logdet([jnp.eye(2)] * 70, kind="sum", hermitian=hermitian)


@pytest.mark.parametrize(
    ("dtype", "scales"), [("float32", [1e13, 1e-20, 1e30]), ("complex128", [1e140, 1e-200, 1e300])]
)
def test_logdet_of_a_sum_of_very_large_or_small_factors(regular, dtype, scales):
    """log det (s A) = N log s + log det A."""
    factors = regular(dtype, sizes=(2, 3))
    plain = np.linalg.slogdet(dense_sum(factors))[1]
    scales = jnp.array(scales, plain.dtype)

    def function(scale):
        return logdet([scale * factor for factor in factors], kind="sum").real

    found, slopes = jax.jit(jax.vmap(jax.value_and_grad(function)))(scales)
    assert_same(found, 6 * jnp.log(scales) + plain, 200)
    assert_same(slopes * scales, jnp.full_like(scales, 6), 1000)


def upwind(n, dtype="float64"):
    """One eigenvalue, with one eigenvector."""
    return jnp.array(2 * np.eye(n) - np.diag(np.ones(n - 1), -1), dtype)


def rotated(array, n, dtype):
    """The same for rounding to split the eigenvalue."""
    turn = jnp.linalg.qr(array(n, n, dtype=dtype))[0]
    return turn @ upwind(n, dtype) @ turn.conj().T


@pytest.mark.parametrize("dtype", ["float64", pytest.param("complex128", marks=pytest.mark.slow)])
def test_gradients_of_logdet_of_defective_factors(array, dtype):
    """Against partial traces of the dense inverse."""
    factors = [upwind(4, dtype) / 2, rotated(array, 3, dtype)]
    gradient = jax.jit(jax.grad(lambda *given: logdet(given, kind="sum").real, (0, 1)))
    found = [one.T for one in gradient(*factors)]
    inverse = np.linalg.inv(dense_sum(factors)).reshape(4, 3, 4, 3)
    assert_same(found[0], inverse.trace(axis1=1, axis2=3), 1000)
    assert_same(found[1], inverse.trace(axis1=0, axis2=2), 1000)


def test_derivatives_of_eigenvalues_that_would_be_wrong_are_nan():
    gradient = jax.grad(lambda A: _eigenvalues(A).real.sum())
    assert jnp.isnan(gradient(upwind(3))).all()
    assert_same(gradient(3 * jnp.eye(3)), jnp.eye(3), 10)


@pytest.mark.slow
def test_second_derivatives_that_would_be_wrong_are_nan():
    def mixed(A, B):
        gradient = jax.grad(lambda A: logdet([A, B], kind="sum"))
        return gradient(A).sum()

    assert jnp.isnan(jax.grad(mixed, 1)(upwind(4), upwind(3))).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_expm_apply_against_the_dense_matrix(array, dtype):
    factors = [array(n, n, dtype=dtype) / 2 for n in SIZES]
    x = array(3, math.prod(SIZES), dtype=dtype)
    wide, function = np.result_type(dtype, float), jax.jit(expm_apply)
    expected = (np.asarray(x, wide) @ scipy.linalg.expm(0.5 * exact_sum(factors)).T).astype(dtype)
    assert_same(function(factors, x, 0.5), expected, 100)
    shifts = (120.0, -80.0, -40.0)
    moved = shifted(factors, shifts)
    for t in (4.0, -4.0):
        expected = np.asarray(x, wide) @ scipy.linalg.expm(t * exact_sum(moved, shifts)).T
        scale = float(np.abs(expected).max())
        assert_same(function(moved, x, t) / scale, (expected / scale).astype(dtype), 200)


def test_expm_apply_that_overflows_or_vanishes(array):
    eyes, function = [jnp.eye(n) for n in SIZES], jax.jit(expm_apply)
    x = array(3, math.prod(SIZES))
    factors = shifted(eyes, (500.0, 400.0, 0.0))
    np.testing.assert_array_equal(function(factors, x, 1.0), np.sign(x) * np.inf)
    np.testing.assert_array_equal(function(factors, x, -1.0), 0.0)
    np.testing.assert_array_equal(function(factors, 0 * x, 1.0), 0.0)
    expected = math.exp(450) * 1e-200 * math.exp(450) * math.exp(3) * x
    assert_same(function(factors, 1e-200 * x, 1.0) / expected, jnp.ones_like(x), 2000)
    lost = [jnp.array([[0.0, 0.0], [1.0, 900.0]]), *eyes[1:]]
    assert jnp.isnan(function(lost, x, 1.0))[:, :6].all()


def test_expm_apply_in_single_precision(array):
    factors = [array(n, n, dtype="float32") / 2 for n in (2, 3)]
    x = array(6, dtype="float32")
    moved = shifted(factors, (90.0, -90.0))
    with jax.enable_x64(False):
        for given, shifts in ((factors, (0, 0)), (moved, (90, -90))):
            dense = scipy.linalg.expm(0.5 * exact_sum(given, shifts))
            found = jax.jit(expm_apply)(given, x, 0.5)
            assert_same(found, (dense @ np.asarray(x, float)).astype("float32"), 1000)


@pytest.mark.slow
def test_derivatives_of_shifts_that_cancel(array):
    factors, x = [array(2, 2), array(1, 1)], array(2)

    def function(shift, t):
        return expm_apply(shifted(factors, (shift, -shift)), x, t).sum()

    slopes = jax.jit(jax.vmap(jax.value_and_grad(function, argnums=(0, 1)), in_axes=(0, None)))
    values, (by_shift, by_time) = slopes(jnp.array([0.0, 700.0, -700.0]), 1.5)
    # derivatives are differences of numbers of some 700 times their size
    for found, bound in ((values, 3000), (by_time, 3000 * 700)):
        assert_same(found[1:] / found[0], jnp.ones(2), bound)
    assert float(jnp.abs(by_shift).max() / jnp.abs(values[0])) <= 1e-10


@pytest.mark.slow
def test_derivatives_of_expm_apply(array):
    factors = [array(n, n, dtype="complex128") / 2 for n in (2, 2)]
    function = jax.jit(lambda x, t, *factors: expm_apply(factors, x, t))
    operands = array(2, 4, dtype="complex128"), jnp.array(0.5), *factors
    assert_derivatives(function, operands, order=1)


def test_singular_ones():
    zero, one = jnp.zeros((2, 2)), jnp.eye(2)
    assert not jnp.isfinite(solve([zero, one], jnp.ones(4))).any()
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="singular"):
        jax.block_until_ready(solve([zero, zero], jnp.ones(4), kind="sum"))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t: ([], t(4)), ValueError, "factors is empty"),
        (lambda t: ([t(2, 3)], t(4)), ValueError, "expected a square matrix"),
        (lambda t: ([t(2, 2)], t(4)), ValueError, r"b has shape \(4,\); expected \(..., 2\)"),
        (lambda t: ([t(2, 2)], t(2, dtype="float32")), TypeError, "but b has float32"),
    ],
)
def test_refused(array, given, error, text):
    with pytest.raises(error, match=text):
        solve(*given(array))


def test_other_kinds_and_times_are_refused(array):
    with pytest.raises(ValueError, match="kind is 'sums'; expected 'product' or 'sum'"):
        solve([array(2, 2)], array(2), kind="sums")
    with pytest.raises(ValueError, match="kind is"):
        logdet([array(2, 2)], kind="sums")
    with pytest.raises(ValueError, match=r"t has shape \(2,\)"):
        expm_apply([array(2, 2)], array(2), array(2))
    with pytest.raises(TypeError, match="t is complex"):
        expm_apply([array(2, 2)], array(2), 1j)


def test_scales_of_a_product_that_cancel(regular, array):
    """The product of the first two inverses is out of range."""
    factors = regular(sizes=(2, 2, 2))
    scales = (1e200, 1e150, 1e-300)
    scaled = [scale * factor for scale, factor in zip(scales, factors, strict=True)]
    b = array(8)
    found = 1e50 * jax.jit(solve)(scaled, b)
    np.testing.assert_allclose(found, np.linalg.solve(dense_kron(factors), b), rtol=1e-11)
