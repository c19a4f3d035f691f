"""batchkron.jax on a device: results and derivatives against JAX's own functions."""

import functools
import os

import numpy as np
import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves memory to CuPy
jax = pytest.importorskip("jax")
jnp = jax.numpy


def has_device():
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="JAX finds no CUDA device"),
]
DTYPES = ["float32", "float64", "complex64", "complex128"]
IDS, READS, WRITES = np.array([[0, 1], [1, 0], [1, 1]]), np.array([0, 1, 0]), np.array([1, 1, 0])


@pytest.fixture(scope="module")
def bkj():
    return pytest.importorskip("batchkron.jax")


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def array(rng):
    """Makes random arrays on the device."""

    def make(*shape, dtype="float64"):
        values = rng.standard_normal(shape)
        if np.dtype(dtype).kind == "c":
            values = values + 1j * rng.standard_normal(shape)
        return jax.device_put(values.astype(dtype), jax.devices("cuda")[0])

    return make


def regular(matrix):
    """A Hermitian matrix far from singular ones."""
    return matrix + matrix.conj().T + 9 * jnp.eye(len(matrix), dtype=matrix.dtype)


def gathered(x, weights, A, B):
    products = jnp.einsum("b,bpq,brs->bprqs", weights, A[IDS[:, 0]], B[IDS[:, 1]])
    products = products.reshape(3, -1, x.shape[-1])
    each = jnp.einsum("bpq,nbq->nbp", products, x[:, READS])
    return jnp.zeros((len(x), 2, each.shape[-1]), x.dtype).at[:, WRITES].add(each)


def dense_sum(A, B):
    return jnp.kron(A, jnp.eye(len(B))) + jnp.kron(jnp.eye(len(A)), B)


# each: ours, JAX's own, and the shapes of operands
CASES = {
    "kron_matmul": (
        lambda b: lambda x, *factors: b.kron_matmul(x, factors),
        lambda x, *factors: x @ functools.reduce(jnp.kron, factors),
        [(4, 12), (2, 3), (3, 1), (2, 2)],
    ),
    "kronecker_sparse": (
        lambda b: b.kronecker_sparse,
        lambda x, v: jnp.einsum("iklj,nilj->nikj", v, x.reshape(-1, 2, 3, 2)).reshape(-1, 8),
        [(4, 12), (2, 2, 3, 2)],
    ),
    "batched_kron": (
        lambda b: lambda x, w, *pools: b.batched_kron(pools, IDS, x, READS, WRITES, 2, weights=w),
        gathered,
        [(2, 2, 4), (3,), (2, 2, 2), (2, 3, 2)],
    ),
    "solve": (
        lambda b: lambda x, A, B: b.solve([regular(A), regular(B)], x),
        lambda x, A, B: jnp.linalg.solve(jnp.kron(regular(A), regular(B)), x.T).T,
        [(4, 6), (2, 2), (3, 3)],
    ),
    "solve a sum": (
        lambda b: lambda x, A, B: b.solve([regular(A), regular(B)], x, kind="sum"),
        lambda x, A, B: jnp.linalg.solve(dense_sum(regular(A), regular(B)), x.T).T,
        [(4, 6), (2, 2), (3, 3)],
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_results_and_derivatives(bkj, array, name, dtype):
    make, own, shapes = CASES[name]
    given = [array(*shape, dtype=dtype) for shape in shapes]

    def everything(function):
        def loss(*operands):
            y = function(*operands)
            return jnp.sum(jnp.abs(y) ** 2), y

        gradients, y = jax.grad(loss, tuple(range(len(given))), has_aux=True)(*given)
        direction = jax.jvp(function, given, [one / 2 for one in given])[1]
        return y, direction, *gradients

    with jax.default_matmul_precision("highest"):
        found = jax.jit(lambda: everything(make(bkj)))()
        expected = jax.jit(lambda: everything(own))()
    eps = np.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        scale = max(1.0, float(jnp.abs(other).max()))
        assert one.devices() == given[0].devices()
        assert float(jnp.abs(one - other).max()) <= 2000 * eps * scale


@pytest.mark.parametrize("axes", [(0, None, None), (None, 0, None), (0, 0, 0)])
def test_mapped(bkj, array, axes):
    shapes = [(40, 64), (8, 16), (8, 4)]
    given = [
        array(*shape) if axis is None else array(3, *shape)
        for shape, axis in zip(shapes, axes, strict=True)
    ]
    found = jax.jit(jax.vmap(lambda x, A, B: bkj.kron_matmul(x, [A, B]), axes))(*given)
    expected = jax.vmap(lambda x, A, B: x @ jnp.kron(A, B), axes)(*given)
    assert float(jnp.abs(found - expected).max()) <= 1e-11


def test_calls_before_and_behind_are_waited_for(bkj, array):
    """A loop in which each product needs the last one, with work of XLA between."""
    x, A = array(512, 4096) / 64, array(64, 64) / 8

    def steps(product):
        return jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, x: jnp.sin(product(x)), x))

    found = steps(lambda x: bkj.kron_matmul(x, [A, A]))(x)

    def chain(x):
        y = jnp.einsum("nij,ip,jq->npq", x.reshape(-1, 64, 64), A, A)
        return y.reshape(x.shape)

    expected = steps(chain)(x)
    assert float(jnp.abs(found - expected).max()) <= 1e-6  # sin keeps errors of the start in bounds


def test_sums_that_are_not_hermitian(bkj, array):
    A, B, b = array(4, 4) / 4 + 3 * jnp.eye(4), array(3, 3) / 4 + 3 * jnp.eye(3), array(2, 12)
    found = jax.jit(lambda A, B, b: bkj.solve([A, B], b, kind="sum"))(A, B, b)
    assert found.devices() == b.devices()
    host = [jax.device_put(one, jax.devices("cpu")[0]) for one in (A, B, b)]
    expected = bkj.solve(host[:2], host[2], kind="sum")
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-11, atol=1e-12)


def test_errors_reach_the_caller(bkj, array):
    function = jax.jit(lambda A: bkj.solve([A, -A], jnp.ones(4), kind="sum"))
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="singular"):
        function(jnp.diag(array(2))).block_until_ready()
