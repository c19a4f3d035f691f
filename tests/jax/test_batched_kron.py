"""batched_kron against sums of dense products; its derivatives, mapped and compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_checks import assert_derivatives, assert_same, dense_kron

from batchkron.jax import batched_kron

DTYPES = ["float32", "float64", "complex64", "complex128"]
AT_RUN_TIME = (ValueError, jax.errors.JaxRuntimeError)  # which one depends on how XLA runs a call
IDS = np.array([[0, 2], [1, 0], [1, 1], [0, 0], [1, 2]])
INPUTS, OUTPUTS = np.array([0, 1, 0, 2, 2]), np.array([3, 1, 1, 0, 3])


def expected(pools, x, weights, ids=IDS, inputs=INPUTS, outputs=OUTPUTS, num_outputs=4):
    """The sum, a product at a time."""
    pools, x, weights = [np.asarray(pool) for pool in pools], np.asarray(x), np.asarray(weights)
    rows = int(np.prod([pool.shape[1] for pool in pools]))
    y = np.zeros((*x.shape[:-2], num_outputs, rows), x.dtype)
    for b in range(len(ids)):
        product = dense_kron([pool[ids[b, k]] for k, pool in enumerate(pools)])
        y[..., outputs[b], :] += weights[b] * (x[..., inputs[b], :] @ product.T)
    return y


def by_gathering(pools, x, weights):
    """The same by JAX's own functions, for two modes."""
    A, B = pools[0][IDS[:, 0]], pools[1][IDS[:, 1]]
    products = jnp.einsum("b,bpq,brs->bprqs", weights, A, B)
    products = products.reshape(len(IDS), A.shape[1] * B.shape[1], -1)
    each = jnp.einsum("bpq,...bq->...bp", products, x[..., INPUTS, :])
    return jnp.zeros((*x.shape[:-2], 4, each.shape[-1]), x.dtype).at[..., OUTPUTS, :].add(each)


def own(pools, x, weights):
    return batched_kron(pools, IDS, x, INPUTS, OUTPUTS, 4, weights=weights)


@pytest.fixture
def operands(array):
    def make(*leading, dtype="float64"):
        pools = [array(2, 3, 2, dtype=dtype), array(3, 2, 4, dtype=dtype)]
        return pools, array(*leading, 3, 8, dtype=dtype), array(5, dtype=dtype)

    return make


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("leading", [(), (2, 3)])
def test_against_dense_products(operands, leading, dtype):
    pools, x, weights = operands(*leading, dtype=dtype)
    assert_same(own(pools, x, weights), expected(pools, x, weights), 400)


def test_one_pool_for_all_modes_and_no_weights(array):
    pool, x = array(3, 3, 3), array(3, 9)
    found = batched_kron(pool, IDS.tolist(), x, INPUTS.tolist(), OUTPUTS.tolist())
    assert_same(found, expected([pool, pool], x, np.ones(5)), 400)


def test_lists_that_are_traced(operands):
    pools, x, weights = operands()
    function = jax.jit(
        lambda ids, inputs, outputs: batched_kron(
            pools, ids, x, inputs, outputs, 4, weights=weights
        )
    )
    given = expected(pools, x, weights)
    assert_same(function(IDS, INPUTS, OUTPUTS), given, 400)
    with jax.enable_x64(False):
        lists = [jnp.asarray(one) for one in (IDS, INPUTS, OUTPUTS)]
        assert lists[0].dtype == np.int32
    assert_same(function(*lists), given, 400)
    for k, wrong in enumerate([-1, 3, 4]):
        lists = [IDS.copy(), INPUTS.copy(), OUTPUTS.copy()]
        lists[k][(2, 1) if k == 0 else 2] = wrong
        name, limit = [("factor_ids", 2), ("inputs", 2), ("outputs", 3)][k]
        place = r"\[2, 1\]" if k == 0 else r"\[2\]"
        text = f"{name}{place} is {wrong}; expected 0 to {limit}"
        with pytest.raises(AT_RUN_TIME, match=text):
            jax.block_until_ready(function(*lists))


@pytest.mark.parametrize("wrong", [-1, 4])
@pytest.mark.parametrize("k", range(3))
def test_gradients_with_wrong_lists(operands, k, wrong):
    """They are linear in what they are taken of, so that nothing computes the product."""
    pools, x, weights = operands()
    lists = [IDS.copy(), INPUTS.copy(), OUTPUTS.copy()]
    lists[k][(2, 1) if k == 0 else 2] = wrong

    def total(pool, weights, lists):
        ids, inputs, outputs = lists
        return batched_kron([pool, pools[1]], ids, x, inputs, outputs, 4, weights=weights).sum()

    found = jax.jit(jax.grad(total, (0, 1)))(pools[0], weights, lists)
    assert all(jnp.isnan(one).all() for one in found)
    mixed = jax.jit(jax.jacfwd(jax.grad(total), 1))(pools[0], weights, lists)
    assert jnp.isnan(mixed).all()
    found = jax.jit(jax.grad(total, (0, 1)))(pools[0], weights, [IDS, INPUTS, OUTPUTS])
    assert all(jnp.isfinite(one).all() for one in found)


@pytest.mark.slow
def test_derivatives(operands, precise):
    assert_derivatives(jax.jit(own), operands(dtype=precise), order=1)


@pytest.mark.slow
def test_derivatives_of_two_orders(operands):
    assert_derivatives(jax.jit(own), operands())


@pytest.mark.parametrize("dtype", ["complex64"])
def test_gradients_against_gathered_products(operands, dtype):
    given = operands(2, dtype=dtype)

    def gradients(product):
        function = jax.grad(lambda *all: (jnp.abs(product(*all)) ** 2).sum(), (0, 1, 2))
        return jax.tree.leaves(jax.jit(function)(*given))

    for one, other in zip(gradients(own), gradients(by_gathering), strict=True):
        assert_same(one, other, 1000)


MAPPED = {
    "x": (None, 2, None),
    "one pool": ([None, 1], None, None),
    "all": ([0, 3], 1, 0),
}


@pytest.mark.parametrize("name", MAPPED)
def test_mapped_and_its_hessians(operands, array, name):
    axes = MAPPED[name]

    def copies(one, axis):
        return one if axis is None else jnp.stack([one, 2 * one, one - 1], axis)

    pools, x, weights = operands()
    own_axes = axes[0] or [None, None]
    given = (
        [copies(*pair) for pair in zip(pools, own_axes, strict=True)],
        copies(x, axes[1]),
        copies(weights, axes[2]),
    )

    def both(product):
        mapped = jax.vmap(product, axes)

        def loss(t):
            moved = jax.tree.map(lambda one: one + t * jnp.cos(one), given)
            return jnp.sin(mapped(*moved)).sum()

        return jax.jit(lambda t: (mapped(*given), jax.grad(jax.grad(loss))(t)))(0.3)

    (found, second), (expected, expected_second) = both(own), both(by_gathering)
    assert_same(found, expected, 2000)
    assert float(second) == pytest.approx(float(expected_second), rel=1e-11)


def test_mapped_lists(operands):
    pools, x, weights = operands()
    inputs = np.stack([INPUTS, INPUTS[::-1]])
    ids = np.stack([IDS, IDS[::-1]])
    found = jax.vmap(
        lambda ids, inputs: batched_kron(pools, ids, x, inputs, OUTPUTS, 4, weights=weights)
    )(ids, inputs)
    for k in range(2):
        assert_same(found[k], expected(pools, x, weights, ids[k], inputs[k]), 400)
    inputs[0, 1] = 3  # would be a block of the other system where lists are joined
    with pytest.raises(AT_RUN_TIME, match=r"inputs\[1\] is -1"):
        jax.vmap(lambda x, n: batched_kron(pools, IDS, x, n, OUTPUTS, 4))(
            jnp.stack([x, x]), jnp.asarray(inputs)
        ).block_until_ready()


def test_empty_lists(array):
    none = np.zeros((0, 1), int)
    found = batched_kron([array(2, 3, 4)], none, array(2, 4), none[:, 0], none[:, 0], 2)
    assert_same(found, np.zeros((2, 3)), 1)


def change(**changes):
    def given(t):
        named = {
            "pools": [t(2, 3, 2), t(3, 2, 4)],
            "factor_ids": IDS,
            "x": t(3, 8),
            "inputs": INPUTS,
            "outputs": OUTPUTS,
            "num_outputs": 4,
        }
        return named | {name: make(t) for name, make in changes.items()}

    return given


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (change(factor_ids=lambda t: IDS[0]), ValueError, r"factor_ids has shape \(2,\)"),
        (change(pools=lambda t: [t(2, 3, 2)]), ValueError, "there are 1 pools"),
        (change(inputs=lambda t: INPUTS[1:]), ValueError, r"inputs has shape \(4,\)"),
        (change(weights=lambda t: t(4)), ValueError, r"weights has shape \(4,\)"),
        (change(x=lambda t: t(3, 6)), ValueError, r"expected \(..., blocks, 8\)"),
        (change(inputs=lambda t: INPUTS + 1), IndexError, r"inputs\[3\] is 3; expected 0 to 2"),
        (change(num_outputs=lambda t: 3), IndexError, r"outputs\[0\] is 3; expected 0 to 2"),
        (change(factor_ids=lambda t: -IDS), IndexError, r"factor_ids\[0, 1\] is -2"),
        (change(outputs=lambda t: OUTPUTS / 2), TypeError, "outputs has dtype float64"),
        (change(weights=lambda t: t(5, dtype="float32")), TypeError, "weights has dtype float32"),
    ],
)
def test_refused(array, given, error, text):
    with pytest.raises(error, match=text):
        batched_kron(**given(array))


def test_a_number_of_outputs_is_needed_where_they_are_traced(operands):
    pools, x, _ = operands()
    with pytest.raises(ValueError, match="num_outputs is missing"):
        jax.jit(lambda outputs: batched_kron(pools, IDS, x, INPUTS, outputs))(OUTPUTS)
