"""Operators and the solver of lineax against dense ones; derivatives of linear_solve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_checks import assert_same, dense_kron, dense_sum

lx = pytest.importorskip("lineax")

from batchkron.jax.lineax import KroneckerLinearOperator, KroneckerSolver  # noqa: E402

DENSE = {"product": dense_kron, "sum": dense_sum}


@pytest.fixture
def regular(array):
    def make(dtype="float64", sizes=(2, 3)):
        eyes = [3 * jnp.eye(n, dtype=dtype) for n in sizes]
        return [array(n, n, dtype=dtype) / 4 + eye for n, eye in zip(sizes, eyes, strict=True)]

    return make


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_an_operator_against_its_matrix(regular, array, kind, precise):
    factors = regular(precise)
    operator, dense = KroneckerLinearOperator(factors, kind), DENSE[kind](factors)
    x = array(6, dtype=precise)

    @jax.jit
    def everything(operator, x):
        both = operator @ (2 * operator) + lx.linearise(operator)
        matrices = [operator, operator.T, lx.conj(operator), lx.materialise(operator)]
        diagonals = [lx.diagonal(operator), *lx.tridiagonal(operator)]
        return operator.mv(x), both.mv(x), [one.as_matrix() for one in matrices], diagonals

    once, both, matrices, diagonals = everything(operator, x)
    assert_same(once, dense @ np.asarray(x), 100)
    assert_same(both, (2 * dense @ dense + dense) @ np.asarray(x), 1000)
    for found, expected in zip(matrices, (dense, dense.T, dense.conj(), dense), strict=True):
        assert_same(found, expected, 10)
    for found, offset in zip(diagonals, (0, 0, -1, 1), strict=True):
        assert_same(found, np.diagonal(dense, offset), 10)


def test_rectangular_factors(array):
    A, B, x = array(2, 3), array(4, 1), array(3)
    operator = KroneckerLinearOperator([A, B])
    assert (operator.in_size(), operator.out_size()) == (3, 8)
    assert_same(operator.mv(x), dense_kron([A, B]) @ np.asarray(x), 100)
    assert_same(operator.as_matrix(), dense_kron([A, B]), 10)


def test_tags(regular):
    plain = KroneckerLinearOperator(regular())
    tagged = KroneckerLinearOperator(regular(), "sum", lx.positive_semidefinite_tag)
    lower = KroneckerLinearOperator(regular(), tags=lx.lower_triangular_tag)
    asked = (lx.is_symmetric, lx.is_diagonal, lx.is_tridiagonal, lx.has_unit_diagonal)
    asked += (lx.is_lower_triangular, lx.is_upper_triangular, lx.is_negative_semidefinite)
    assert not any(function(plain) for function in (*asked, lx.is_positive_semidefinite))
    assert lx.is_positive_semidefinite(tagged)
    assert lx.is_positive_semidefinite(tagged.T)
    assert lx.is_symmetric(tagged)
    negative = KroneckerLinearOperator(regular(), tags=lx.negative_semidefinite_tag)
    assert lx.is_symmetric(negative)
    hermitian = KroneckerLinearOperator(regular("complex128"), tags=lx.positive_semidefinite_tag)
    assert not lx.is_symmetric(hermitian)
    assert lx.is_lower_triangular(lower)
    assert lx.is_upper_triangular(lower.T)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_solutions(regular, array, kind, precise):
    factors, b = regular(precise), array(6, dtype=precise)
    operator = KroneckerLinearOperator(factors, kind)
    expected = np.linalg.solve(DENSE[kind](factors), np.asarray(b))
    solution = lx.linear_solve(operator, b, KroneckerSolver())
    assert solution.result == lx.RESULTS.successful
    assert_same(solution.value, expected, 100)
    assert_same(lx.linear_solve(operator, b, lx.LU()).value, expected, 100)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_derivatives_of_solutions(regular, array, kind):
    """First and second ones, against those of a dense operator with lineax's own solver."""
    A, B = regular(sizes=(2, 2))
    b = array(4)

    def own(A, B, b):
        operator = KroneckerLinearOperator([A, B], kind)
        return jnp.sin(lx.linear_solve(operator, b, KroneckerSolver()).value).sum()

    def dense(A, B, b):
        eye = jnp.eye(2)
        matrix = jnp.kron(A, B) if kind == "product" else jnp.kron(A, eye) + jnp.kron(eye, B)
        return jnp.sin(jnp.linalg.solve(matrix, b)).sum()

    for transform in (jax.grad, jax.hessian):  # reverse, and forward over it
        found, expected = (
            jax.tree.leaves(jax.jit(transform(function, (0, 1, 2)))(A, B, b))
            for function in (own, dense)
        )
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, 1000)


def test_mapped_solutions(regular, array):
    A, B = regular(sizes=(2, 3))
    steps, b = jnp.arange(3.0), array(3, 6)

    def one(step, b):
        operator = KroneckerLinearOperator([A + step * jnp.eye(2), B], "sum")
        return lx.linear_solve(operator, b, KroneckerSolver()).value

    found = jax.vmap(one)(steps, b)
    for k in range(3):
        dense = dense_sum([np.asarray(A) + k * np.eye(2), B])
        assert_same(found[k], np.linalg.solve(dense, np.asarray(b[k])), 100)


def test_iterative_solvers_take_the_operator(regular, array):
    factors = [A @ A.T for A in regular()]
    operator = KroneckerLinearOperator(factors, tags=lx.positive_semidefinite_tag)
    b = array(6)
    found = lx.linear_solve(operator, b, lx.CG(rtol=1e-12, atol=1e-12)).value
    assert np.allclose(dense_kron(factors) @ found, b, rtol=1e-8)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t: ([],), ValueError, "factors is empty"),
        (lambda t: ([t(3)],), ValueError, r"factors\[0\] has shape \(3,\); expected a matrix"),
        (lambda t: ([t(2, 3)], "sum"), ValueError, "expected a square matrix"),
        (lambda t: ([t(2, 2)], "sums"), ValueError, "kind is 'sums'"),
        (lambda t: ([t(2, 2), t(2, 2, dtype="float32")],), TypeError, "dtype float32"),
    ],
)
def test_refused(array, given, error, text):
    with pytest.raises(error, match=text):
        KroneckerLinearOperator(*given(array))


def test_what_the_solver_refuses(array):
    with pytest.raises(ValueError, match="expected a square matrix"):
        lx.linear_solve(KroneckerLinearOperator([array(2, 3)]), array(2), KroneckerSolver())
    with pytest.raises(TypeError, match="expected a KroneckerLinearOperator"):
        lx.linear_solve(lx.MatrixLinearOperator(array(2, 2)), array(2), KroneckerSolver())
