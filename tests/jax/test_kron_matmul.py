"""kron_matmul against NumPy's dense products; its derivatives, mapped and compiled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_checks import assert_derivatives, assert_same, dense_kron

from batchkron.jax import kron_matmul

SHAPES = {
    "one": [(3, 4)],
    "square": [(3, 3), (2, 2)],
    "rectangular": [(2, 3), (4, 1), (1, 2)],
    "ones": [(1, 1), (1, 1)],
    "four modes": [(2, 1), (1, 3), (3, 2), (2, 2)],
    "primes": [(7, 5), (5, 11)],
}
DTYPES = ["float32", "float64", "complex64", "complex128"]


def of_all(x, *factors):
    return kron_matmul(x, factors)


def dense(x, *factors):
    """The same by JAX's own functions."""
    return x @ functools.reduce(jnp.kron, factors)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float64") for name in SHAPES),
        *(("primes", dtype) for dtype in DTYPES if dtype != "float64"),
    ],
)
def test_against_the_dense_product(array, name, dtype):
    factors = [array(*shape, dtype=dtype) for shape in SHAPES[name]]
    dense = dense_kron(factors)
    x = array(5, dense.shape[0], dtype=dtype)
    scale = float(np.abs(dense).max()) * dense.shape[0]
    assert_same(kron_matmul(x, factors), np.asarray(x) @ dense, 4 * scale)


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (0,)])
def test_leading_axes(array, leading):
    factors, x = [array(2, 3), array(3, 1)], array(*leading, 6)
    assert_same(kron_matmul(x, factors), np.asarray(x) @ dense_kron(factors), 100)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_sizes_at_which_threads_share_the_work(array, rows):
    factors = [array(16, 8), array(8, 16), array(5, 4)]
    x = array(rows, 640)
    assert_same(jax.jit(of_all)(x, *factors), np.asarray(x) @ dense_kron(factors), 640 * 10)


def test_derivatives(array, precise):
    factors = [array(*shape, dtype=precise) for shape in [(2, 3), (3, 1)]]
    assert_derivatives(jax.jit(of_all), (array(2, 6, dtype=precise), *factors), order=1)


@pytest.mark.slow
def test_derivatives_of_two_orders(array, precise):
    factors = [array(*shape, dtype=precise) for shape in SHAPES["rectangular"]]
    x = array(2, dense_kron(factors).shape[0], dtype=precise)
    assert_derivatives(jax.jit(of_all), (x, *factors))


def test_derivatives_of_three_orders(array):
    """Reverse over reverse over reverse, along a line."""
    given = [array(2, 6), array(2, 3), array(3, 2)]
    steps = [array(*one.shape) for one in given]

    def third(product):
        def loss(t):
            return jnp.sin(product(*(a + t * b for a, b in zip(given, steps, strict=True)))).sum()

        return jax.jit(jax.grad(jax.grad(jax.grad(loss))))(0.1)

    assert float(third(of_all)) == pytest.approx(float(third(dense)), rel=1e-11)


@pytest.mark.parametrize("wanted", [(0,), (3,), (0, 2)])
def test_gradients_of_some_operands_only(array, wanted):
    given = [array(3, 12), array(2, 3), array(3, 2), array(2, 2)]
    found = jax.jit(jax.grad(lambda *all: jnp.sin(of_all(*all)).sum(), wanted))(*given)
    expected = jax.jit(jax.grad(lambda *all: jnp.sin(dense(*all)).sum(), wanted))(*given)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 1000)


@pytest.mark.parametrize(("dtype", "rows"), [*((dtype, 4) for dtype in DTYPES), ("float64", 50)])
def test_gradients_against_the_dense_product(array, dtype, rows):
    factors = [array(*shape, dtype=dtype) for shape in [(4, 3), (3, 5), (6, 2)]]
    x, weight = array(rows, 72, dtype=dtype), array(rows, 30, dtype=dtype)

    def loss(product):
        return lambda x, *factors: (jnp.abs(product(x, *factors) * weight) ** 2).sum()

    places = tuple(range(4))
    found = jax.jit(jax.grad(loss(of_all), places))(x, *factors)
    expected = jax.jit(jax.grad(loss(dense), places))(x, *factors)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 72 * 30 * rows)


def test_gradients_of_all_factors_share_their_partial_products(array):
    """Those of complex numbers, which the core does not have in one call."""
    x, *factors = (
        array(*shape, dtype="complex128") for shape in [(2, 72), (3, 2), (4, 5), (2, 2), (3, 3)]
    )

    def loss(x, factors):
        return kron_matmul(x, factors).real.sum()

    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(x, factors).compile()
    calls = compiled.as_text().count('custom_call_target="batchkron_kron_matmul"')
    assert calls == 1 + 2 * (len(factors) - 1)  # the gradient of x, and those of the factors


@pytest.mark.parametrize("axes", [(0, None, None), (1, None, None), (None, 0, None), (0, 2, 0)])
def test_mapped(array, axes):
    shapes = [(4, 6), (2, 3), (3, 2)]
    given = []
    for shape, axis in zip(shapes, axes, strict=True):
        at = len(shape) if axis is None else axis
        given.append(array(*shape) if axis is None else array(*shape[:at], 5, *shape[at:]))
    found = jax.jit(jax.vmap(of_all, axes))(*given)
    for k in range(5):
        one = [
            x if axis is None else jnp.take(x, k, axis) for x, axis in zip(given, axes, strict=True)
        ]
        assert_same(found[k], np.asarray(one[0]) @ dense_kron(one[1:]), 60)


def test_mapped_twice(array):
    x, A, B = array(4, 3, 6), array(3, 2, 3), array(4, 3, 2)
    inner = jax.vmap(of_all, (0, 0, None))
    found = jax.vmap(inner, (0, None, 0))(x, A, B)
    expected = np.stack(
        [[np.asarray(x[i, j]) @ dense_kron([A[j], B[i]]) for j in range(3)] for i in range(4)]
    )
    assert_same(found, expected, 60)
    found = jax.vmap(jax.vmap(of_all, (0, None, None)), (0, None, 0))(x, A[0], B)
    expected = np.stack([np.asarray(x[i]) @ dense_kron([A[0], B[i]]) for i in range(4)])
    assert_same(found, expected, 60)


@pytest.mark.parametrize(("systems", "n"), [(2000, 5), (3, 24)])
def test_systems_that_threads_share(array, threads, systems, n):
    """Small systems one to a thread, and large ones each by all threads."""
    threads(3)
    x, A, B = array(systems, 7, n * n), array(systems, n, n), array(n, n)
    found = jax.vmap(of_all, (0, 0, None))(x, A, B)
    split = np.asarray(x).reshape(systems, 7, n, n)
    expected = np.einsum("smij,sip,jq->smpq", split, A, B, optimize=True)
    assert_same(found, expected.reshape(systems, 7, n * n), 10 * n * n)


@pytest.mark.parametrize("axes", [(0, None, 0), (1, None, None)])
def test_derivatives_of_mapped_ones(array, axes):
    """Hessians, forward over reverse: functions with a custom reverse derivative have none."""
    given = [
        array(*shape) if axis is None else array(*shape[:axis], 3, *shape[axis:])
        for shape, axis in zip([(2, 4), (2, 2), (2, 1)], axes, strict=True)
    ]

    def hessians(product):
        mapped = jax.vmap(product, axes)
        function = jax.hessian(lambda *all: jnp.sin(mapped(*all)).sum(), (0, 1, 2))
        return jax.tree.leaves(jax.jit(function)(*given))

    for one, other in zip(hessians(of_all), hessians(dense), strict=True):
        assert_same(one, other, 1000)


@pytest.mark.parametrize("shapes", [[(0, 3), (2, 2)], [(2, 2), (3, 0)], [(2, 2), (0, 0)]])
@pytest.mark.parametrize("rows", [0, 3])
def test_empty_factors(array, shapes, rows):
    factors = [array(*shape) for shape in shapes]
    x = array(rows, shapes[0][0] * shapes[1][0])
    assert_same(kron_matmul(x, factors), np.zeros((rows, shapes[0][1] * shapes[1][1])), 1)
    found = jax.jit(jax.grad(lambda *all: of_all(*all).sum(), (0, 1, 2)))(x, *factors)
    for one, given in zip(found, (x, *factors), strict=True):
        assert_same(one, np.zeros(given.shape), 1)


def test_one_factor_twice(array):
    x = array(2, 4)
    assert_derivatives(jax.jit(lambda A: kron_matmul(x, [A, A])), (array(2, 2),), order=1)


def test_numpy_arrays_and_single_precision(rng):
    A, x = rng.standard_normal((3, 2)), rng.standard_normal((4, 3))
    assert_same(kron_matmul(x, [A]), x @ A, 10)
    with jax.enable_x64(False):
        found = jax.jit(lambda x: kron_matmul(x, [A]))(x)
        assert_same(found, x.astype("float32") @ A.astype("float32"), 10)
        found = jax.grad(lambda x: kron_matmul(x, [A]).sum())(jnp.asarray(x))
        assert_same(found, np.broadcast_to(A.sum(1), x.shape).astype("float32"), 10)


def test_within_a_sharded_map(array):
    x, A, B = array(4, 6), array(2, 3), array(3, 2)
    axes = (jax.sharding.AxisType.Auto,)
    rows, everywhere = jax.P("i"), jax.P()
    sharded = jax.shard_map(
        of_all,
        mesh=jax.make_mesh((1,), ("i",), axis_types=axes),
        in_specs=(rows, everywhere, everywhere),
        out_specs=rows,
        check_vma=False,
    )
    assert_same(jax.jit(sharded)(x, A, B), np.asarray(x) @ dense_kron([A, B]), 60)
    found = jax.jit(jax.grad(lambda *all: jnp.sin(sharded(*all)).sum(), (0, 1)))(x, A, B)
    expected = jax.grad(lambda *all: jnp.sin(dense(*all)).sum(), (0, 1))(x, A, B)
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 1000)


def test_many_calls_from_threads(array):
    """Plans are shared by the threads that XLA calls from."""
    from concurrent.futures import ThreadPoolExecutor

    def one(k):
        n = 2 + k % 5
        x, A = np.full((3, n * n), k + 1.0), np.full((n, n), 2.0)
        with jax.enable_x64(True):
            return float(jnp.max(jnp.abs(kron_matmul(x, [A, A]) - 4 * n * n * (k + 1.0))))

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(one, range(60))) == 0


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t: (t(2, 4), []), ValueError, "factors is empty"),
        (lambda t: (t(2, 4), [t(2, 2), t(3, 3)]), ValueError, "expected 6 columns"),
        (lambda t: (t(2, 4), [t(4)]), ValueError, r"factors\[0\] has shape \(4,\)"),
        (lambda t: (t(4).sum(), [t(1, 1)]), ValueError, "x has shape"),
        (lambda t: (t(2), [[[1.0], [1.0]]]), TypeError, r"factors\[0\] is a list"),
        (lambda t: (t(4), [t(4, 4, dtype="float32")]), TypeError, "float32, but x has float64"),
        (lambda t: (t(4, dtype="float16"), [t(4, 4, dtype="float16")]), TypeError, "x has dtype"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_refused(array, given, error, text, compiled):
    x, factors = given(array)
    with pytest.raises(error, match=text):
        jax.jit(lambda x: kron_matmul(x, factors))(x) if compiled else kron_matmul(x, factors)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 2)])
@pytest.mark.parametrize("size", [0, 3])
def test_gradients_for_a_batch(array, axes, size):
    """Where x or a factor has one, or both; against a loop."""
    A, x = array(2, 3), array(4, 5, 2)
    given = [
        one if axis is None else jnp.moveaxis(jnp.stack([(k + 1) * one for k in range(3)]), 0, axis)
        for one, axis in zip((A, x), axes, strict=True)
    ]
    given = [
        one if axis is None else jax.lax.slice_in_dim(one, 0, size, axis=axis)
        for one, axis in zip(given, axes, strict=True)
    ]
    gradient = jax.grad(lambda A, x: (kron_matmul(x, [A]) ** 2).sum())
    found = jax.vmap(gradient, axes)(*given)
    assert found.shape == (size, 2, 3)
    for k in range(size):
        scales = [1 if axis is None else k + 1 for axis in axes]
        assert_same(found[k], gradient(scales[0] * A, scales[1] * x), 100)
