"""Products of linear_operator by batchkron's kernels, against dense ones and linear_operator's."""

import contextlib

import linear_operator.operators as theirs
import pytest
import torch
from torch_checks import assert_same, dense_kron

import batchkron.linear_operator as ours
from batchkron.linear_operator import products
from batchkron.torch import interpolated as torch_interpolated

SHAPES = {
    "one": [(3, 4)],
    "square": [(3, 3), (2, 2)],
    "rectangular": [(2, 3), (4, 1), (1, 2)],
    "ones": [(1, 1), (1, 1)],
    "four modes": [(2, 1), (1, 3), (3, 2), (2, 2)],
    "primes": [(7, 5), (5, 11)],
}


@pytest.fixture
def calls(monkeypatch):
    """The calls of the kernels, of which the tests see whether they were made."""
    made = []

    def counted(factors, x):
        made.append(x.shape)
        return gekmm(factors, x)

    gekmm = products.gekmm
    monkeypatch.setattr(products, "gekmm", counted)
    return made


def dense(factors):
    """The products of batches of factors, by torch."""
    product = factors[0]
    for factor in factors[1:]:
        product = torch.einsum("...pq,...rs->...prqs", product, factor).flatten(-4, -3).flatten(-2)
    return product


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("right", [(), (1,), (5,), (0,)])
def test_products(tensor, calls, name, dtype, right):
    factors = [tensor(*shape, dtype=dtype) for shape in SHAPES[name]]
    matrix = dense_kron(factors)
    bound = 8 * float(matrix.abs().max()) * max(matrix.shape)
    x, y = (tensor(n, *right, dtype=dtype) for n in matrix.shape[::-1])
    product = ours.KroneckerProductLinearOperator(*factors)
    assert_same(product @ x, matrix @ x, bound)
    assert_same(product.mT @ y, matrix.mT @ y, bound)
    assert_same(product._t_matmul(y), matrix.mT @ y, bound)
    made = len(calls)
    with ours.accelerate():
        product = theirs.KroneckerProductLinearOperator(*factors)
        assert_same(product @ x, matrix @ x, bound)
        assert_same(product._t_matmul(y), matrix.mT @ y, bound)
    assert made == 3
    assert len(calls) == 5
    if right != (0,):  # which linear_operator does not take
        assert_same(product @ x, matrix @ x, bound)
    assert len(calls) == 5


@pytest.mark.parametrize("batch", [(1,), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("leading", [(), (1,), (2,)])
def test_batches_of_factors(tensor, calls, batch, leading):
    factors = [tensor(*batch, 2, 3), tensor(*batch, 3, 2)]
    product = ours.KroneckerProductLinearOperator(*factors)
    for shape in ((6, 4), (*batch, 6, 4), (*leading, *batch, 6, 4)):
        x = tensor(*shape)
        found = product._matmul(x)
        assert_same(found, dense(factors) @ x, 100)
        assert_same(product._t_matmul(x), dense(factors).mT @ x, 100)
    assert bool(calls) == (0 not in batch)


def test_one_factor_of_a_batch_for_all(tensor):
    factors = [tensor(3, 2, 2), tensor(4, 3)]
    product = ours.KroneckerProductLinearOperator(*factors)
    x = tensor(3, 6, 2)
    assert_same(product @ x, dense(factors) @ x, 100)


def gradients(operator, x, leaves):
    weight = torch.arange(1.0, 1 + operator.shape[-2] * x.shape[-1], dtype=x.dtype)
    loss = ((operator @ x) * weight.reshape(operator.shape[-2], -1)).square().sum()
    return loss, torch.autograd.grad(loss, [x, *leaves])


@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradients_are_theirs(tensor, batch):
    leaves = [tensor(*batch, 2, 3, grad=True), tensor(*batch, 3, 2, grad=True)]
    x = tensor(*batch, 6, 4, grad=True)
    expected = gradients(theirs.KroneckerProductLinearOperator(*leaves), x, leaves)
    found = gradients(ours.KroneckerProductLinearOperator(*leaves), x, leaves)
    with ours.accelerate():
        swapped = gradients(theirs.KroneckerProductLinearOperator(*leaves), x, leaves)
    for one in (found, swapped):
        assert_same(one[0], expected[0], 100)
        for gradient, other in zip(one[1], expected[1], strict=True):
            assert_same(gradient, other, 100)


def kinds(tensor):
    """Factors that are matrices for kernels, with the tensors that they are made of."""
    column, square, constant = tensor(3, grad=True), tensor(3, 3, grad=True), tensor(grad=True)
    lower = theirs.TriangularLinearOperator(square.tril())
    return {
        "toeplitz": (theirs.ToeplitzLinearOperator(column), column),
        "triangular": (lower, square),
        "multiple": (
            theirs.ConstantMulLinearOperator(theirs.DenseLinearOperator(square), constant),
            constant,
        ),
        "multiple of a toeplitz": (theirs.ToeplitzLinearOperator(column) * 3.0, column),
    }


@pytest.mark.parametrize("kind", ["toeplitz", "triangular", "multiple", "multiple of a toeplitz"])
def test_factors_that_are_no_tensors(tensor, calls, kind):
    factor, leaf = kinds(tensor)[kind]
    x, other = tensor(6, 4, grad=True), tensor(2, 2)
    matrix = torch.kron(other, factor.to_dense())
    found = gradients(ours.KroneckerProductLinearOperator(other, factor), x, [leaf])
    loss = gradients(matrix, x, [leaf])
    assert calls
    assert_same(found[0], loss[0], 100)
    for one, expected in zip(found[1], loss[1], strict=True):
        assert_same(one, expected, 100)


@pytest.fixture
def transforms(monkeypatch):
    """Toeplitz factors of five rows are long; the shapes that were transformed."""
    made = []

    def counted(column, u):
        made.append(tuple(u.shape))
        return transformed(column, u)

    transformed = torch_interpolated._transformed
    monkeypatch.setattr(products, "MIN_FFT_ROWS", 5)
    monkeypatch.setattr(torch_interpolated, "MIN_FFT_ROWS", 5)
    monkeypatch.setattr(torch_interpolated, "_transformed", counted)
    return made


def with_long_toeplitz(tensor, kind, dtype=torch.float64):
    """Factors with a Toeplitz one of six rows, and the tensors that they are made of."""
    column, other = tensor(6, dtype=dtype, grad=True), tensor(2, 2, dtype=dtype, grad=True)
    constant = tensor(dtype=dtype, grad=True)
    toeplitz, multiple = theirs.ToeplitzLinearOperator(column), theirs.ConstantMulLinearOperator
    dense = theirs.DenseLinearOperator(other)
    return {
        "alone": ([toeplitz], [column]),
        "first": ([toeplitz, dense], [column, other]),
        "last": ([dense, toeplitz], [column, other]),
        "in the middle": ([dense, toeplitz, dense], [column, other]),
        "two": ([toeplitz, toeplitz], [column]),
        "multiple": ([dense, multiple(toeplitz, constant)], [column, other, constant]),
    }[kind]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["alone", "first", "last", "in the middle", "two", "multiple"])
def test_long_toeplitz_factors(tensor, transforms, kind, dtype):
    for swapped in (False, True):
        factors, leaves = with_long_toeplitz(tensor, kind, dtype)
        matrix = dense_kron([one.to_dense() for one in factors])
        kinds = theirs if swapped else ours
        product = kinds.KroneckerProductLinearOperator(*factors)
        with ours.accelerate() if swapped else contextlib.nullcontext():
            for shape in ((), (1,), (3,)):
                x = tensor(len(matrix), *shape, dtype=dtype)
                assert_same(product @ x, matrix @ x, 2000)
                assert_same(product._t_matmul(x), matrix.mT @ x, 2000)
            x = tensor(2, 1, len(matrix), 3, dtype=dtype)
            assert_same(product @ x, matrix @ x, 2000)
            x = tensor(len(matrix), 4, dtype=dtype, grad=True)
            found, expected = gradients(product, x, leaves), gradients(matrix, x, leaves)
        assert_same(found[0], expected[0], 2000)
        for one, other in zip(found[1], expected[1], strict=True):
            assert_same(one, other, 2000)
    assert transforms


@pytest.mark.parametrize("kind", ["batch", "rectangular"])
def test_long_toeplitz_factors_that_are_left_to_linear_operator(tensor, transforms, kind):
    column = tensor(*((3, 6) if kind == "batch" else (6,)))
    other = tensor(*((3, 2, 2) if kind == "batch" else (2, 3)))
    toeplitz = theirs.ToeplitzLinearOperator(column)
    product = ours.KroneckerProductLinearOperator(other, toeplitz)
    x = tensor(6 * other.shape[-1], 4)
    assert_same(product @ x, dense([other, toeplitz.to_dense()]) @ x, 2000)
    assert not transforms


def test_sums_with_long_toeplitz_factors_are_solved(tensor, transforms):
    column = torch.tensor([2.0, 0.5, 0.25, 0.1, 0.05, 0.0]).double()
    product = ours.KroneckerProductLinearOperator(
        theirs.ToeplitzLinearOperator(column), torch.eye(2).double()
    )
    total, x = product.add_diagonal(torch.tensor(0.5).double()), tensor(12, 2)
    assert_same(total.solve(x), torch.linalg.solve(total.to_dense(), x), 2000)


@pytest.mark.parametrize("kind", ["diagonal", "lazy", "half"])
def test_left_to_linear_operator(tensor, calls, kind):
    dtype = torch.bfloat16 if kind == "half" else torch.float64
    factor = {
        "diagonal": lambda: theirs.DiagLinearOperator(tensor(3)),
        "lazy": lambda: theirs.MatmulLinearOperator(tensor(3, 2), tensor(2, 3)),
        "half": lambda: theirs.DenseLinearOperator(tensor(3, 3, dtype=dtype)),
    }[kind]()
    other = tensor(2, 2, dtype=dtype)
    product = ours.KroneckerProductLinearOperator(other, factor)
    x = tensor(6, 3, dtype=dtype)
    assert_same(product @ x, torch.kron(other, factor.to_dense()) @ x, 12)
    assert not calls


def test_dtypes_that_differ_are_refused_as_by_linear_operator(tensor):
    product = ours.KroneckerProductLinearOperator(tensor(2, 2), tensor(2, 2))
    with pytest.raises(RuntimeError, match="dtype"):
        product._matmul(tensor(4, 1, dtype=torch.float32))
