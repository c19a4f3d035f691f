"""kronecker_sparse against dense matrices, and its gradients of first and second order."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_checks import assert_same

from batchkron.torch import kronecker_sparse
from batchkron.torch.sparse_layer import layer
from batchkron.torch.sparse_sums import contract_first, contract_last

PATTERNS = [(1, 1, 1, 1), (2, 3, 2, 1), (1, 2, 3, 4), (3, 1, 2, 2), (2, 2, 5, 3)]
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def dense(values):
    """The matrix by its definition: K[i b d + k d + j, i c d + l d + j] = values[i, k, l, j]."""
    a, b, c, d = values.shape
    matrix = torch.zeros(a * b * d, a * c * d, dtype=values.dtype)
    for i in range(a):
        for k in range(b):
            for one in range(c):
                for j in range(d):
                    place = i * b * d + k * d + j, i * c * d + one * d + j
                    matrix[place] = values[i, k, one, j]
    return matrix


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (0,)])
def test_against_the_dense_matrix(tensor, pattern, dtype, leading):
    values = tensor(*pattern, dtype=dtype)
    matrix = dense(values)
    x = tensor(*leading, matrix.shape[1], dtype=dtype)
    assert_same(kronecker_sparse(x, values), x @ matrix.T, 4 * pattern[2] * 10)
    last = x.movedim(-1, 0).contiguous()
    y = kronecker_sparse(last, values, layout="batch-last")
    assert_same(y.movedim(0, -1), x @ matrix.T, 4 * pattern[2] * 10)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("pattern", PATTERNS[1:4])
def test_gradients_and_their_gradients(tensor, pattern, layout, precise):
    a, _, c, d = pattern
    shape = (2, a * c * d) if layout == "batch-first" else (a * c * d, 2)
    given = tensor(*shape, dtype=precise, grad=True), tensor(*pattern, dtype=precise, grad=True)

    def function(x, values):
        return kronecker_sparse(x, values, layout=layout)

    assert gradcheck(function, given)
    assert gradgradcheck(function, given)


def test_a_chain(tensor):
    left, right = tensor(1, 3, 2, 2, grad=True), tensor(2, 2, 3, 1, grad=True)
    x = tensor(5, 6, grad=True)
    expected = x @ (dense(left) @ dense(right)).T
    y = kronecker_sparse(x, [left, right])
    assert_same(y, expected, 100)
    # one node, whose backward pass uses what the forward pass has kept
    leaves = [node.variable for node, _ in y.grad_fn.next_functions if node is not None]
    assert all(one is leaf for one, leaf in zip(leaves, (x, left, right), strict=True))
    assert [tuple(one.shape) for one in y.grad_fn.saved_tensors[3:]] == [(5, 4)]
    for _ in range(2):
        found = torch.autograd.grad(y, (x, left, right), torch.ones_like(y), retain_graph=True)
        others = torch.autograd.grad(expected.sum(), (x,), retain_graph=True)
        assert_same(found[0], others[0], 100)
    assert gradcheck(lambda x, *chain: kronecker_sparse(x, chain), (x, left, right))
    assert gradgradcheck(lambda x, *chain: kronecker_sparse(x, chain), (x, left, right))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("leading", [(), (1,), (37,), (4, 8), (0, 3)])
def test_gradients_of_the_values_by_pieces(tensor, pattern, leading, dtype):
    """However sums are cut and blocks are multiplied; also where pieces leave some vectors over."""
    a, b, c, d = pattern
    x, gradient = (tensor(*leading, a * n * d, dtype=dtype) for n in (c, b))
    count = x.numel() // (a * c * d)
    expected = torch.zeros(pattern, dtype=dtype)
    for one, other in zip(x.reshape(count, a, c, d), gradient.reshape(count, a, b, d), strict=True):
        expected += other[:, :, None] * one[:, None]
    turned = [one.movedim(-1, 0).contiguous() for one in (x, gradient)]
    for pieces in (1, 2, 8) if count > 7 else (1,):
        for whole in (False, True):
            found = contract_first(x, gradient, pattern, pieces, whole)
            assert_same(found, expected, 10 * count + 10)
        assert_same(contract_last(*turned, pattern, pieces), expected, 10 * count + 10)


@pytest.mark.parametrize("wanted", [0, 1])
def test_the_gradient_of_one_operand(tensor, wanted):
    given = [tensor(2, 6), tensor(1, 2, 3, 2)]
    given[wanted].requires_grad_()
    assert gradcheck(kronecker_sparse, given)
    assert gradgradcheck(kronecker_sparse, given)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("pattern", [(0, 2, 2, 2), (2, 0, 2, 1), (2, 3, 0, 2)])
def test_empty_patterns(tensor, pattern, layout):
    a, b, c, d = pattern
    shapes = (3, a * c * d), (3, a * b * d)
    if layout == "batch-last":
        shapes = tuple(shape[::-1] for shape in shapes)
    values, x = tensor(*pattern, grad=True), tensor(*shapes[0], grad=True)
    y = kronecker_sparse(x, values, layout=layout)
    assert torch.equal(y, torch.zeros(shapes[1], dtype=y.dtype))
    y.sum().backward()
    assert torch.equal(values.grad, torch.zeros_like(values))
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_a_chain_of_nothing_between(tensor, layout):
    """Vectors and results have elements, what is between the matrices has none."""
    chain = [tensor(1, 2, 0, 1, grad=True), tensor(1, 0, 3, 1, grad=True)]
    x = tensor(*((5, 3) if layout == "batch-first" else (3, 5)), grad=True)

    def check(y):
        assert not y.any()
        for grads in (
            torch.autograd.grad(y.sum(), [x, *chain], retain_graph=True),
            torch.autograd.grad(y.sum(), [x, *chain], create_graph=True),
        ):
            for one, given in zip(grads, [x, *chain], strict=True):
                assert one.shape == given.shape
                assert not one.any()

    check(kronecker_sparse(x, chain, layout=layout))
    bias = torch.zeros(2, dtype=x.dtype)
    check(layer(x, chain, bias, "gelu", layout == "batch-last"))


def test_strided_tensors(tensor):
    values = tensor(2, 4, 3, 2).transpose(1, 2)
    x = tensor(16, 10).T[::2]
    assert not values.is_contiguous()
    assert_same(kronecker_sparse(x, values), x @ dense(values).T, 100)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t: (t(2, 4), []), ValueError, "values is empty"),
        (lambda t: (t(2, 4), None), TypeError, "values is a NoneType; expected"),
        (lambda t: (t(2, 4), t(2, 2)), ValueError, r"values\[0\] has shape \(2, 2\)"),
        (lambda t: (t(2, 4), t(1, 2, 3, 1)), ValueError, "4 elements along axis -1 .* expected 3 "),
        (
            lambda t: (t(2, 4), [t(1, 1, 2, 1), t(1, 3, 4, 1)]),
            ValueError,
            r"3 elements .* by values\[0\]",
        ),
        (lambda t: (t(2, 3).int(), t(1, 2, 3, 1).int()), TypeError, "float16 or bfloat16"),
        (lambda t: (t(2, 3), t(1, 2, 3, 1).cfloat()), TypeError, "complex64, but x has"),
    ],
)
def test_refused(tensor, given, error, text):
    with pytest.raises(error, match=text):
        kronecker_sparse(*given(tensor))


def test_another_layout_is_refused(tensor):
    with pytest.raises(ValueError, match="layout"):
        kronecker_sparse(tensor(2, 3), tensor(1, 2, 3, 1), layout="first")
