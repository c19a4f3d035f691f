"""batched_kron against sums of dense products, and its gradients of first and second order."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_checks import assert_same, dense_kron

from batchkron.torch import batched_kron

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
IDS = [[0, 1], [2, 0], [0, 0], [1, 1], [2, 1]]
INPUTS, OUTPUTS = [0, 2, 1, 1, 0], [1, 1, 3, 0, 3]


def dense(pools, x, weights, num_outputs, ids=IDS):
    """The sum of dense products, one by one."""
    size = dense_kron([pool[0] for pool in pools]).shape[0]
    y = x.new_zeros(*x.shape[:-2], num_outputs, size)
    rows = []
    for row in range(num_outputs):
        total = y[..., row, :]
        for b, output in enumerate(OUTPUTS):
            if output == row:
                matrix = dense_kron([pool[i] for pool, i in zip(pools, ids[b], strict=True)])
                total = total + weights[b] * (x[..., INPUTS[b], :] @ matrix.T)
        rows.append(total)
    return torch.stack(rows, dim=-2)


@pytest.fixture
def made(tensor):
    """Makes pools, x and weights."""

    def make(dtype, leading=(2,), grad=False):
        pools = [tensor(3, 2, 3, dtype=dtype, grad=grad), tensor(2, 4, 1, dtype=dtype, grad=grad)]
        x = tensor(*leading, 3, 3, dtype=dtype, grad=grad)
        return pools, x, tensor(5, dtype=dtype, grad=grad)

    return make


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (0,)])
def test_against_dense_products(made, dtype, leading):
    pools, x, weights = made(dtype, leading)
    y = batched_kron(pools, IDS, x, INPUTS, OUTPUTS, weights=weights)
    assert y.shape[-2:] == (4, 8)
    assert_same(y, dense(pools, x, weights, 4), 1000)
    more = batched_kron(pools, torch.tensor(IDS), x, INPUTS, OUTPUTS, 6)
    assert_same(more, dense(pools, x, torch.ones_like(weights), 6), 1000)


def test_gradients_and_their_gradients(made, precise):
    pools, x, weights = made(precise, (), grad=True)

    def function(x, weights, *pools):
        return batched_kron(pools, IDS, x, INPUTS, OUTPUTS, weights=weights)

    assert gradcheck(function, (x, weights, *pools))
    assert gradgradcheck(function, (x, weights, *pools))


@pytest.mark.parametrize("wanted", range(4))
def test_the_gradient_of_one_operand(made, wanted):
    pools, x, weights = made(torch.float64)
    given = [x, weights, *pools]
    given[wanted].requires_grad_()

    def function(x, weights, *pools):
        return batched_kron(pools, IDS, x, INPUTS, OUTPUTS, weights=weights)

    assert gradcheck(function, given)
    assert gradgradcheck(function, given)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_against_dense_products(made, dtype):
    pools, x, weights = made(dtype, grad=True)
    y = batched_kron(pools, IDS, x, INPUTS, OUTPUTS, weights=weights)
    found = torch.autograd.grad(y.abs().square().sum(), [x, weights, *pools])
    y = dense(pools, x, weights, 4)
    expected = torch.autograd.grad(y.abs().square().sum(), [x, weights, *pools])
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 5000)


def test_three_modes_of_one_pool(tensor):
    pool = tensor(2, 2, 2, grad=True)
    x = tensor(2, 8, grad=True)
    ids = [[0, 1, 0], [1, 1, 1], [0, 0, 1]]

    def function(pool, x):
        return batched_kron(pool, ids, x, [0, 1, 1], [1, 0, 1])

    assert gradcheck(function, (pool, x))
    assert gradgradcheck(function, (pool, x))
    same = batched_kron([pool] * 3, ids, x, [0, 1, 1], [1, 0, 1])
    assert torch.equal(function(pool, x), same)


def test_no_products(tensor):
    pool, x = tensor(1, 2, 2, grad=True), tensor(2, 4, grad=True)
    ids, none = torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    y = batched_kron(pool, ids, x, none, none, 3)
    assert torch.equal(y, torch.zeros(3, 4, dtype=torch.float64))
    y.sum().backward()
    assert torch.equal(pool.grad, torch.zeros_like(pool))
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"factor_ids": [0, 1]}, ValueError, "factor_ids has shape"),
        ({"factor_ids": [[0], [0]]}, ValueError, "there are 2 pools"),
        ({"inputs": [0]}, ValueError, "inputs has shape"),
        ({"outputs": [0] * 6}, ValueError, "outputs has shape"),
        ({"weights": torch.ones(4, dtype=torch.float64)}, ValueError, "weights has shape"),
        ({"weights": torch.ones(5)}, TypeError, "weights has dtype torch.float32"),
        ({"x": torch.ones(3, 4, dtype=torch.float64)}, ValueError, r"expected \(..., blocks, 3\)"),
        ({"factor_ids": [[0, 1]] * 4 + [[3, 0]]}, IndexError, r"factor_ids\[4, 0\] is 3"),
        ({"num_outputs": 2}, IndexError, r"outputs\[2\] is 3"),
    ],
)
def test_refused(made, change, error, text):
    pools, x, _ = made(torch.float64)
    given = {"factor_ids": IDS, "x": x, "inputs": INPUTS, "outputs": OUTPUTS} | change
    with pytest.raises(error, match=text):
        batched_kron(pools, **given)
