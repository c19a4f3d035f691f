"""kronecker_sparse against dense matrices entry by entry; its derivatives, mapped and compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_checks import assert_derivatives, assert_same

from batchkron.jax import kronecker_sparse

DTYPES = ["float32", "float64", "complex64", "complex128"]
PATTERNS = [(1, 1, 1, 1), (2, 3, 2, 1), (1, 2, 3, 4), (3, 5, 7, 2), (2, 8, 8, 16), (4, 1, 3, 1)]


def matrix(values):
    """K, an entry at a time."""
    values = np.asarray(values)
    a, b, c, d = values.shape
    K = np.zeros((a * b * d, a * c * d), values.dtype)
    for i, k, m, j in np.ndindex(a, b, c, d):
        K[i * b * d + k * d + j, i * c * d + m * d + j] = values[i, k, m, j]
    return K


def by_einsum(x, values):
    """The same by JAX's own functions."""
    a, b, c, d = values.shape
    y = jnp.einsum("iklj,nilj->nikj", values, x.reshape(-1, a, c, d))
    return y.reshape(*x.shape[:-1], a * b * d)


@pytest.mark.parametrize(
    ("pattern", "dtype"),
    [
        *((pattern, "float64") for pattern in PATTERNS),
        *((PATTERNS[3], dtype) for dtype in DTYPES if dtype != "float64"),
    ],
)
def test_against_the_dense_matrix(array, pattern, dtype):
    values = array(*pattern, dtype=dtype)
    K = matrix(values)
    x = array(3, K.shape[1], dtype=dtype)
    assert_same(kronecker_sparse(x, values), np.asarray(x) @ K.T, 16 * pattern[2])
    last = kronecker_sparse(x.T, values, layout="batch-last")
    assert_same(last, K @ np.asarray(x).T, 16 * pattern[2])


@pytest.mark.parametrize("leading", [(), (2, 3), (0,)])
def test_leading_axes_and_chains(array, leading):
    chain = [array(2, 3, 2, 1), array(1, 4, 3, 1)]
    x = array(*leading, 3)
    expected = np.asarray(x) @ (matrix(chain[0]) @ matrix(chain[1])).T
    assert_same(jax.jit(kronecker_sparse)(x, chain), expected, 100)
    moved = kronecker_sparse(jnp.moveaxis(x, -1, 0), chain, layout="batch-last")
    assert_same(moved, np.moveaxis(expected, -1, 0), 100)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_derivatives(array, layout, precise):
    x, values = array(6, 6, dtype=precise), array(1, 2, 3, 2, dtype=precise)
    function = jax.jit(lambda x, values: kronecker_sparse(x, values, layout=layout))
    assert_derivatives(function, (x, values), order=1)


@pytest.mark.slow
def test_derivatives_of_two_orders(array, precise):
    x, values = array(2, 6, dtype=precise), array(1, 2, 3, 2, dtype=precise)
    assert_derivatives(jax.jit(kronecker_sparse), (x, values))


@pytest.mark.parametrize("axes", [(1, None), (None, 2), (0, 0)])
@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_mapped(array, axes, layout):
    given = [
        array(*shape) if axis is None else array(*shape[:axis], 5, *shape[axis:])
        for shape, axis in zip([(12, 12), (2, 3, 2, 3)], axes, strict=True)
    ]

    def own(x, values):
        return kronecker_sparse(x, values, layout=layout)

    found = jax.jit(jax.vmap(own, axes))(*given)
    for k in range(5):
        x, values = (
            one if axis is None else jnp.take(one, k, axis)
            for one, axis in zip(given, axes, strict=True)
        )
        K, x = matrix(values), np.asarray(x)
        assert_same(found[k], x @ K.T if layout == "batch-first" else K @ x, 20)


@pytest.mark.parametrize("axes", [(0, None), (0, 0)])
def test_hessians_of_mapped_ones(array, axes):
    given = [
        array(*shape) if axis is None else array(3, *shape)
        for shape, axis in zip([(2, 4), (1, 2, 2, 2)], axes, strict=True)
    ]

    def hessians(product):
        mapped = jax.vmap(product, axes)
        function = jax.hessian(lambda *all: jnp.sin(mapped(*all)).sum(), (0, 1))
        return jax.tree.leaves(jax.jit(function)(*given))

    for one, other in zip(hessians(kronecker_sparse), hessians(by_einsum), strict=True):
        assert_same(one, other, 1000)


@pytest.mark.parametrize("pattern", [(0, 2, 2, 1), (2, 0, 2, 1), (2, 2, 0, 3)])
def test_empty_ones(array, pattern):
    a, b, c, d = pattern
    values, x = array(*pattern), array(3, a * c * d)
    assert_same(kronecker_sparse(x, values), np.zeros((3, a * b * d)), 1)
    assert_same(jax.grad(lambda v: kronecker_sparse(x, v).sum())(values), np.zeros(pattern), 1)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t: (t(2, 4), []), ValueError, "values is empty"),
        (lambda t: (t(2, 4), t(2, 2)), ValueError, r"values\[0\] has shape \(2, 2\)"),
        (lambda t: (t(2, 4), t(1, 2, 3, 2)), ValueError, "expected 6 elements along axis -1"),
        (lambda t: (t(2, 4), t(1, 2, 4, 1, dtype="float32")), TypeError, "but x has float64"),
    ],
)
def test_refused(array, given, error, text):
    with pytest.raises(error, match=text):
        kronecker_sparse(*given(array))


def test_other_layouts_are_refused(array):
    with pytest.raises(ValueError, match="layout"):
        kronecker_sparse(array(2, 4), array(1, 2, 4, 1), layout="last")
