"""kron_matmul of JAX with `Identity` among the factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dense_oracle import dense_kron, random_array
from jax.test_util import check_grads

import batchkron as bk
from batchkron.jax import kron_matmul

PATTERNS = [[3, (2, 3), 2], [(2, 3), 2, (3, 2)], [2, (2, 2), 1, (1, 3)]]


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_values_and_derivatives(rng, pattern):
    given = [one if isinstance(one, int) else random_array(rng, one) for one in pattern]
    dense = dense_kron(*[np.eye(one) if isinstance(one, int) else one for one in given])
    matrices = [jnp.asarray(one) for one in given if not isinstance(one, int)]

    def product(x, matrices):
        left = iter(matrices)
        factors = [bk.Identity(one) if isinstance(one, int) else next(left) for one in pattern]
        return kron_matmul(x, factors)

    x = jnp.asarray(random_array(rng, (2, 3, dense.shape[0])))
    for call in (product, jax.jit(product)):
        np.testing.assert_allclose(
            call(x, matrices), x @ dense.astype(x.dtype), rtol=1e-4, atol=1e-5
        )
    mapped = jax.vmap(product, in_axes=(0, None))(x, matrices)
    np.testing.assert_allclose(mapped, product(x, matrices), rtol=1e-6)
    check_grads(product, (x[0, 0], matrices), order=1, atol=0.05, rtol=0.05)


def test_refusals(rng):
    x, A = jnp.ones((2, 12)), jnp.ones((2, 2))
    np.testing.assert_array_equal(kron_matmul(x, [bk.Identity(4), bk.Identity(3)]), x)
    with pytest.raises(ValueError, match="expected 8 columns"):
        kron_matmul(x, [bk.Identity(4), A])
    with pytest.raises(ValueError, match=r"factors\[1\] has shape \(2,\)"):
        kron_matmul(x, [bk.Identity(6), A[0]])
    with pytest.raises(TypeError, match=r"factors\[1\] has dtype"):
        kron_matmul(x, [bk.Identity(6), A.astype(jnp.complex64)])
