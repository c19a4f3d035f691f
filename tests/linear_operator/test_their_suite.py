"""linear_operator's own tests of operators, run on those of batchkron."""

import unittest

import linear_operator.operators as theirs
import pytest
import torch
from linear_operator.test.linear_operator_test_case import (
    LinearOperatorTestCase,
    RectangularLinearOperatorTestCase,
)

import batchkron as bk
import batchkron.linear_operator as ours

# of linear_operator's tests, and of the settings that they take
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def definite(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    root = torch.randn(*shape, generator=generator)
    return root @ root.mT / shape[-1] + torch.eye(shape[-1])


def leaves(*matrices):
    return [matrix.clone().requires_grad_() for matrix in matrices]


def dense_of(*factors):
    return theirs.KroneckerProductLinearOperator(*factors).to_dense()


class TestProduct(LinearOperatorTestCase, unittest.TestCase):
    """A product of positive definite factors."""

    seed = 0
    should_call_lanczos_diagonalization = False
    shapes = ((2, 2), (3, 3), (2, 2))

    def create_linear_op(self):
        factors = leaves(*(definite(*shape, seed=k) for k, shape in enumerate(self.shapes)))
        return ours.KroneckerProductLinearOperator(*factors)

    def evaluate_linear_op(self, linear_op):
        return dense_of(*[factor.to_dense() for factor in linear_op.linear_ops])


class TestProducts(TestProduct):
    """A batch of products."""

    shapes = ((3, 2, 2), (3, 3, 3))


class TestRectangularProduct(RectangularLinearOperatorTestCase, unittest.TestCase):
    """A product of matrices that are not square."""

    seed = 1
    should_call_lanczos = False

    def create_linear_op(self):
        generator = torch.Generator().manual_seed(1)
        shapes = ((2, 3), (4, 2))
        return ours.KroneckerProductLinearOperator(
            *leaves(*(torch.randn(*shape, generator=generator) for shape in shapes))
        )

    def evaluate_linear_op(self, linear_op):
        return dense_of(*[factor.to_dense() for factor in linear_op.linear_ops])


class TestAddedMultipleOfIdentity(LinearOperatorTestCase, unittest.TestCase):
    """A product and a multiple of the identity."""

    seed = 0
    should_call_lanczos = False
    should_call_cg = False

    def diagonal(self):
        (constant,) = leaves(torch.tensor([0.5]))
        return theirs.ConstantDiagLinearOperator(constant, 12)

    def create_linear_op(self):
        factors = leaves(definite(2, 2), definite(3, 3), definite(2, 2, seed=5))
        return ours.KroneckerProductAddedDiagLinearOperator(
            ours.KroneckerProductLinearOperator(*factors), self.diagonal()
        )

    def evaluate_linear_op(self, linear_op):
        return linear_op.linear_op.to_dense() + linear_op.diag_tensor.to_dense()


class TestAddedProductOfDiagonals(TestAddedMultipleOfIdentity):
    """A product and a product of diagonals."""

    def diagonal(self):
        diagonals = leaves(*(torch.arange(1.0, 1 + n) / n for n in (2, 3, 2)))
        return theirs.KroneckerProductDiagLinearOperator(
            *[theirs.DiagLinearOperator(diagonal) for diagonal in diagonals]
        )


class TestSum(LinearOperatorTestCase, unittest.TestCase):
    """A sum of two products."""

    seed = 0
    should_call_cg = False

    def create_linear_op(self):
        first = ours.KroneckerProductLinearOperator(*leaves(definite(3, 3), definite(2, 2)))
        second = leaves(definite(3, 3, seed=5), definite(2, 2, seed=6))
        return first + ours.KroneckerProductLinearOperator(*second)

    def evaluate_linear_op(self, linear_op):
        return sum(one.to_dense() for one in linear_op.linear_ops)


class TestInterpolated(LinearOperatorTestCase, unittest.TestCase):
    """A product between two equal interpolations, with more than the smallest eigenvalues 0."""

    seed = 0

    def create_linear_op(self):
        generator = torch.Generator().manual_seed(3)
        points = torch.rand(6, 2, generator=generator)
        W = bk.Interpolation(points.numpy(), bk.RegularGrid(0.0, 1.0, sizes=(5, 4)))
        product = ours.KroneckerProductLinearOperator(*leaves(definite(5, 5), definite(4, 4)))
        return ours.InterpolatedKroneckerLinearOperator(product, W, W)

    def evaluate_linear_op(self, linear_op):
        W = torch.from_numpy(linear_op.left.interpolation.to_dense()).to(linear_op.dtype)
        return W @ linear_op.base_linear_op.to_dense() @ W.mT


del LinearOperatorTestCase, RectangularLinearOperatorTestCase  # they are no tests by themselves
