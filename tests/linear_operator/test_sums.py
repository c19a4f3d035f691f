"""Solves and log determinants of sums with Kronecker products, against dense ones, by torch."""

import linear_operator.operators as theirs
import pytest
import torch
from linear_operator import settings

import batchkron.linear_operator as ours


@pytest.fixture(autouse=True)
def by_factors():
    """No Cholesky factorisation of the whole matrix, which linear_operator takes for small ones."""
    with settings.max_cholesky_size(0), settings.cg_tolerance(1e-10):
        yield


@pytest.fixture
def no_iterations(monkeypatch):
    """Solves that take conjugate gradients fail."""

    def refuse(*arguments, **options):
        raise AssertionError("conjugate gradients")

    monkeypatch.setattr("linear_operator.utils.linear_cg", refuse)


def test_conjugate_gradients_would_be_seen(tensor, definite, no_iterations):
    operator = ours.KroneckerProductLinearOperator(definite(2, 2), definite(3, 3))
    with pytest.raises(AssertionError, match="conjugate gradients"):
        operator.add_diagonal(tensor(6).abs()).solve(tensor(6, 2))


def close(found, expected):
    found, expected = found.detach(), expected.detach()
    eps = torch.finfo(found.dtype).eps
    scale = float(expected.abs().max())
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= 2000 * eps * scale


def diagonals(tensor, kind, batch, dtype):
    if kind == "multiple of I":
        return theirs.ConstantDiagLinearOperator(tensor(*batch, 1, dtype=dtype).exp(), 6)
    positive = [
        theirs.DiagLinearOperator(tensor(*batch, n, dtype=dtype).abs() + 0.1) for n in (2, 3)
    ]
    return theirs.KroneckerProductDiagLinearOperator(*positive)


@pytest.mark.parametrize("kind", ["multiple of I", "product of diagonals"])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_product_and_a_diagonal(tensor, definite, no_iterations, kind, batch, dtype):
    factors = [definite(*batch, n, n, dtype=dtype) for n in (2, 3)]
    diagonal = diagonals(tensor, kind, batch, dtype)
    operator = ours.KroneckerProductLinearOperator(*factors) + diagonal
    assert type(operator) is ours.KroneckerProductAddedDiagLinearOperator
    assert type(operator.linear_op) is ours.KroneckerProductLinearOperator
    matrix = operator.to_dense()
    whole = theirs.KroneckerProductLinearOperator(*factors).to_dense() + diagonal.to_dense()
    close(matrix, whole)
    b = tensor(*batch, 6, 3, dtype=dtype)
    close(operator.solve(b), torch.linalg.solve(whole.double(), b.double()).to(dtype))
    close(operator.logdet(), torch.logdet(whole.double()).to(dtype))


@pytest.mark.parametrize("kind", ["multiple of I", "product of diagonals"])
def test_gradients_of_a_product_and_a_diagonal(tensor, definite, kind):
    factors = [definite(n, n, grad=True) for n in (2, 3)]
    diagonal = diagonals(tensor, kind, (), torch.float64)
    b = tensor(6, 1)
    operator = ours.KroneckerProductLinearOperator(*factors) + diagonal
    quadratic, logdet = operator.inv_quad_logdet(b, logdet=True)
    found = torch.autograd.grad(quadratic + 2 * logdet, factors)
    whole = torch.kron(*factors) + diagonal.to_dense()
    loss = (b * torch.linalg.solve(whole, b)).sum() + 2 * torch.logdet(whole)
    close(quadratic + 2 * logdet, loss)
    for one, expected in zip(found, torch.autograd.grad(loss, factors), strict=True):
        close(one + one.mT, expected + expected.mT)


def test_an_eigenvalue_twice(tensor):
    """The gradients of eigenvectors, which do not exist then, are not needed."""
    factor = torch.eye(3, dtype=torch.float64, requires_grad=True)
    operator = ours.KroneckerProductLinearOperator(factor, torch.eye(2).double())
    operator = operator.add_diagonal(torch.tensor(0.5).double())
    quadratic, logdet = operator.inv_quad_logdet(tensor(6, 1), logdet=True)
    (gradient,) = torch.autograd.grad(quadratic + logdet, factor)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("indefinite", [None, 0, 1])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_two_products(tensor, definite, no_iterations, indefinite, batch, dtype):
    terms = [[definite(*batch, n, n, dtype=dtype) for n in (3, 2)] for _ in range(2)]
    if indefinite is not None:  # the sum is positive definite all the same
        terms[indefinite][0] = terms[1 - indefinite][0] * -0.1
        terms[indefinite][1] = terms[1 - indefinite][1] * 0.5
    operator = ours.KroneckerProductLinearOperator(*terms[0])
    operator = operator + theirs.KroneckerProductLinearOperator(*terms[1])
    assert type(operator) is ours.SumKroneckerLinearOperator
    whole = sum(theirs.KroneckerProductLinearOperator(*term).to_dense() for term in terms)
    close(operator.to_dense(), whole)
    b = tensor(*batch, 6, 4, dtype=dtype)
    close(operator.solve(b), torch.linalg.solve(whole.double(), b.double()).to(dtype))
    close(operator.logdet(), torch.logdet(whole.double()).to(dtype))


def test_gradients_of_two_products(tensor, definite):
    leaves = [definite(n, n, grad=True) for n in (3, 2, 3, 2)]
    b = tensor(6, 1)
    operator = ours.KroneckerProductLinearOperator(*leaves[:2])
    operator = operator + ours.KroneckerProductLinearOperator(*leaves[2:])
    quadratic, logdet = operator.inv_quad_logdet(b, logdet=True)
    found = torch.autograd.grad(quadratic + logdet, leaves)
    whole = torch.kron(*leaves[:2]) + torch.kron(*leaves[2:])
    loss = (b * torch.linalg.solve(whole, b)).sum() + torch.logdet(whole)
    for one, expected in zip(found, torch.autograd.grad(loss, leaves), strict=True):
        close(one + one.mT, expected + expected.mT)


def test_a_full_diagonal_is_left_to_linear_operator(tensor, definite):
    factors = [definite(n, n) for n in (2, 3)]
    diagonal = tensor(6).abs() + 0.5
    operator = ours.KroneckerProductLinearOperator(*factors).add_diagonal(diagonal)
    whole = torch.kron(*factors) + diagonal.diag()
    b = tensor(6, 2)
    assert torch.allclose(operator.solve(b), torch.linalg.solve(whole, b), atol=1e-6)


def test_eigenvalues_and_singular_values(definite, tensor):
    operator = ours.KroneckerProductLinearOperator(definite(2, 2), definite(3, 3))
    values, vectors = operator.diagonalization()
    assert type(vectors) is ours.KroneckerProductLinearOperator
    rebuilt = vectors.to_dense() @ values.diag() @ vectors.to_dense().mT
    close(rebuilt, operator.to_dense())
    factors = [tensor(2, 2), tensor(3, 3)]
    left, values, right = ours.KroneckerProductLinearOperator(*factors).svd()
    assert type(left) is type(right) is ours.KroneckerProductLinearOperator
    close(left.to_dense() @ values.diag() @ right.to_dense().mT, torch.kron(*factors))
    close(values.sort(descending=True).values, torch.linalg.svdvals(torch.kron(*factors)))


def test_theirs_inside_the_context_gives_the_same(tensor, definite):
    factors, b = [definite(n, n) for n in (4, 3)], tensor(12, 2)
    operator = theirs.KroneckerProductLinearOperator(*factors).add_diagonal(torch.tensor(0.1))
    expected = operator.solve(b), operator.logdet()
    with ours.accelerate():
        found = operator.solve(b), operator.logdet()
    close(found[0], expected[0])
    close(found[1], expected[1])


@pytest.mark.parametrize("scale", [1e160, 1e-200, 1e300])
def test_scales_that_cancel(tensor, definite, no_iterations, scale):
    kind = ours.KroneckerProductLinearOperator
    A, B = ([definite(n, n, dtype=torch.float64) for n in (2, 3)] for _ in range(2))
    rhs = tensor(6, 2, dtype=torch.float64)
    plain = kind(*A) + kind(*B)
    scaled = kind(scale * A[0], A[1] / scale) + kind(B[0] / scale, scale * B[1])
    torch.testing.assert_close(scaled.solve(rhs), plain.solve(rhs), rtol=1e-11, atol=0)
    torch.testing.assert_close(scaled.logdet(), plain.logdet(), rtol=1e-11, atol=0)
