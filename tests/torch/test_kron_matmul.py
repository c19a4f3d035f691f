"""kron_matmul and gekmm against torch's dense products; their gradients of both orders."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_checks import assert_same, dense_kron

from batchkron.torch import gekmm, kron, kron_matmul

SHAPES = {
    "one": [(3, 4)],
    "square": [(3, 3), (2, 2)],
    "rectangular": [(2, 3), (4, 1), (1, 2)],
    "ones": [(1, 1), (1, 1)],
    "four modes": [(2, 1), (1, 3), (3, 2), (2, 2)],
    "primes": [(7, 5), (5, 11)],
}
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("leading", [(), (1,), (5,), (2, 3), (0,)])
def test_against_the_dense_product(tensor, name, dtype, leading):
    shapes = SHAPES[name]
    factors = [tensor(*shape, dtype=dtype) for shape in shapes]
    dense = dense_kron(factors)
    x = tensor(*leading, dense.shape[0], dtype=dtype)
    scale = float(dense.abs().max()) * dense.shape[0]
    assert_same(kron_matmul(x, factors), x @ dense, 4 * scale)


@pytest.mark.parametrize("name", ["one", "rectangular", "four modes"])
def test_gradients_and_their_gradients(tensor, name, precise):
    shapes = SHAPES[name]
    factors = [tensor(*shape, dtype=precise, grad=True) for shape in shapes]
    rows = dense_kron(factors).shape[0]
    x = tensor(2, rows, dtype=precise, grad=True)

    def function(x, *factors):
        return kron_matmul(x, factors)

    assert gradcheck(function, (x, *factors))
    assert gradgradcheck(function, (x, *factors))


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (1, 3), (0, 2)])
def test_gradients_of_some_operands_only(tensor, wanted):
    shapes = [(2, 3), (3, 2), (2, 2)]
    given = [tensor(3, 12), *(tensor(*shape) for shape in shapes)]
    for k in wanted:
        given[k].requires_grad_()

    def function(x, *factors):
        return kron_matmul(x, factors)

    assert gradcheck(function, given)
    assert gradgradcheck(function, given)
    function(*given).abs().square().sum().backward()
    assert [k for k, one in enumerate(given) if one.grad is not None] == list(wanted)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 40])
def test_gradients_against_the_dense_product(tensor, dtype, rows):
    shapes = [(4, 3), (3, 5), (6, 2)]
    factors = [tensor(*shape, dtype=dtype, grad=True) for shape in shapes]
    x = tensor(rows, 72, dtype=dtype, grad=True)
    weight = tensor(rows, 30, dtype=dtype)
    loss = (kron_matmul(x, factors) * weight).abs().square().sum()
    found = torch.autograd.grad(loss, [x, *factors])
    loss = ((x @ dense_kron(factors)) * weight).abs().square().sum()
    expected = torch.autograd.grad(loss, [x, *factors])
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 72 * 30 * rows)


def test_strided_and_conjugate_tensors(tensor):
    dtype = torch.complex128
    x, factors = tensor(12, 6, dtype=dtype), [tensor(3, 2, dtype=dtype), tensor(2, 4, dtype=dtype)]
    turned = [factors[0].mT.contiguous().mT, factors[1].mH.resolve_conj().mH]
    assert turned[1].is_conj()
    expected = x[::2].conj() @ dense_kron(factors)
    assert_same(kron_matmul(x[::2].conj(), turned), expected, 100)


@pytest.mark.parametrize("call", [kron_matmul, lambda x, factors: gekmm(factors, x)])
def test_gradients_are_of_tensors_in_memory(tensor, monkeypatch, call):
    """Kernels on a device get addresses; a lazy conjugate is another tensor than its memory."""
    contract, lazy = kron._contract, []

    def noted(x, y, *sizes):
        lazy.extend(one.is_conj() or one.is_neg() for one in (x, y))
        return contract(x, y, *sizes)

    monkeypatch.setattr(kron, "_contract", noted)
    dtype = torch.complex128
    factors = [tensor(n, n, dtype=dtype, grad=True) for n in (2, 3)]
    x, weight = tensor(6, 6, dtype=dtype), tensor(6, 6, dtype=dtype)
    y = call(x.conj(), factors)
    (y.conj() * weight).real.sum().backward()
    assert lazy == [False] * 4


@pytest.mark.parametrize("shapes", [[(5, 4)], [(3, 2), (70, 66)], [(70, 4), (3, 2)], [(6, 5)] * 3])
@pytest.mark.parametrize("call", [kron_matmul, lambda x, factors: gekmm(factors, x)])
def test_a_backward_pass_in_a_region_of_autocast(tensor, monkeypatch, call, shapes):
    """By one call of the core, and by a multiply for each step: both in float32."""
    rows = [math.prod(side) for side in zip(*shapes, strict=True)]
    factors = [tensor(*shape, dtype=torch.float32, grad=True) for shape in shapes]
    left = call is not kron_matmul
    x = tensor(rows[left], rows[left], dtype=torch.float32, grad=True)
    expected = torch.autograd.grad(call(x, factors).sin().sum(), (x, *factors))
    for one_call in (True, False):
        monkeypatch.setattr(kron, "by_one_call", lambda *_, answer=one_call: answer)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = torch.autograd.grad(call(x, factors).sin().sum(), (x, *factors))
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == torch.float32
            assert_same(one, other, 1000)


@pytest.mark.parametrize("shapes", [[(0, 3), (2, 2)], [(2, 2), (3, 0)], [(2, 2), (0, 0)]])
@pytest.mark.parametrize("rows", [0, 3])
def test_empty_factors(tensor, shapes, rows):
    factors = [tensor(*shape, grad=True) for shape in shapes]
    x = tensor(rows, shapes[0][0] * shapes[1][0], grad=True)
    y = kron_matmul(x, factors)
    assert torch.equal(y, torch.zeros(rows, shapes[0][1] * shapes[1][1], dtype=y.dtype))
    y.sum().backward()
    for one in (x, *factors):
        assert torch.equal(one.grad, torch.zeros_like(one))


def test_one_factor_twice(tensor):
    factor = tensor(3, 3, grad=True)
    x = tensor(2, 9)
    assert gradcheck(lambda a: kron_matmul(x, [a, a]), (factor,))
    assert gradgradcheck(lambda a: kron_matmul(x, [a, a]), (factor,))


def test_nothing_is_recorded_without_need(tensor):
    factor = tensor(3, 3, grad=True)
    with torch.no_grad():
        assert not kron_matmul(tensor(2, 3), [factor]).requires_grad


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t: (t(2, 4), []), ValueError, "factors is empty"),
        (lambda t: (t(2, 4), [t(2, 2), t(3, 3)]), ValueError, "expected 6 columns"),
        (lambda t: (t(2, 4), [t(4)]), ValueError, r"factors\[0\] has shape \(4,\)"),
        (lambda t: (t(4).sum(), [t(1, 1)]), ValueError, "x has shape"),
        (lambda t: (t(4), [t(4, 4).numpy()]), TypeError, r"factors\[0\] is a ndarray"),
        (lambda t: (t(4), [t(4, 4).float()]), TypeError, "float32, but x has torch.float64"),
        (lambda t: (t(4).int(), [t(4, 4).int()]), TypeError, "x has dtype torch.int32"),
        (lambda t: (t(4), [t(4, 4).to("meta")]), TypeError, "is on meta, but x is on cpu"),
    ],
)
def test_refused(tensor, given, error, text):
    with pytest.raises(error, match=text):
        kron_matmul(*given(tensor))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (0,)])
@pytest.mark.parametrize("columns", [0, 1, 5])
def test_gekmm_against_the_dense_product(tensor, name, dtype, leading, columns):
    factors = [tensor(*shape, dtype=dtype) for shape in SHAPES[name]]
    dense = dense_kron(factors)
    x = tensor(*leading, dense.shape[1], columns, dtype=dtype)
    scale = float(dense.abs().max()) * dense.shape[1]
    assert_same(gekmm(factors, x), dense @ x, 4 * scale)
    if columns == 1 and not leading:
        assert_same(gekmm(factors, x[:, 0]), dense @ x[:, 0], 4 * scale)


@pytest.mark.parametrize("leading", [(), (2,)])
@pytest.mark.parametrize("name", ["one", "rectangular", "four modes"])
def test_gradients_of_gekmm(tensor, name, precise, leading):
    factors = [tensor(*shape, dtype=precise, grad=True) for shape in SHAPES[name]]
    x = tensor(*leading, dense_kron(factors).shape[1], 2, dtype=precise, grad=True)
    assert gradcheck(lambda x, *factors: gekmm(factors, x), (x, *factors))
    assert gradgradcheck(lambda x, *factors: gekmm(factors, x), (x, *factors))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t: ([], t(4, 2)), ValueError, "factors is empty"),
        (lambda t: ([t(2, 2), t(3, 3)], t(4, 2)), ValueError, "expected 6 rows"),
        (lambda t: ([t(2, 2), t(2, 3)], t(4)), ValueError, "expected 6 rows"),
        (lambda t: ([t(1, 1)], t(4).sum()), ValueError, "x has shape"),
        (lambda t: ([t(4, 4).float()], t(4, 1)), TypeError, "float32, but x has torch.float64"),
    ],
)
def test_gekmm_refuses(tensor, given, error, text):
    with pytest.raises(error, match=text):
        gekmm(*given(tensor))
