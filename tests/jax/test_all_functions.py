"""Each function without compilation, and mapped over axes of size 0 and 2."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from batchkron.jax import batched_kron, expm_apply, kron_matmul, kronecker_sparse, logdet, solve

IDS, ZEROS = np.array([[0, 1], [1, 0]]), np.array([0, 0])
FUNCTIONS = {
    "kron_matmul": (lambda x, A: kron_matmul(x, [A, A]), [(3, 4), (2, 2)]),
    "batched_kron": (lambda x, A: batched_kron(A, IDS, x, ZEROS, ZEROS), [(1, 4), (2, 2, 2)]),
    "kronecker_sparse": (kronecker_sparse, [(3, 4), (1, 3, 2, 2)]),
    "solve": (lambda x, A: solve([A, A], x), [(4,), (2, 2)]),
    "solve of a sum": (lambda x, A: solve([A, A], x, kind="sum"), [(4,), (2, 2)]),
    "logdet": (lambda A: logdet([A, A]), [(2, 2)]),
    "logdet of a sum": (lambda A: logdet([A, A], kind="sum"), [(2, 2)]),
    "expm_apply": (lambda x, A: expm_apply([A, A], x), [(4,), (2, 2)]),
}


@pytest.fixture(params=FUNCTIONS)
def called(request, array):
    """A function and its arguments, of which matrices are far from singular ones."""
    function, shapes = FUNCTIONS[request.param]
    operands = [array(*shape) / 4 for shape in shapes]
    return function, [one + 3 * jnp.eye(2) if one.shape == (2, 2) else one for one in operands]


def test_without_compilation(called):
    function, operands = called

    def total(*given):
        return jnp.sum(function(*given) ** 2)

    expected = jax.value_and_grad(total)(*operands)
    with jax.disable_jit():
        found = jax.value_and_grad(total)(*operands)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.parametrize("mapped", ["first", "last", "all"])
def test_mapped_over_no_systems(called, mapped):
    function, operands = called
    numbers = {"first": [0], "last": [len(operands) - 1], "all": range(len(operands))}[mapped]
    axes = tuple(0 if k in numbers else None for k in range(len(operands)))

    def shape(size):
        given = [
            one if axis is None else jnp.stack([one, one])[:size]
            for one, axis in zip(operands, axes, strict=True)
        ]
        return jax.vmap(function, axes)(*given).shape

    assert shape(2)[0] == 2
    assert shape(0) == (0, *shape(2)[1:])
