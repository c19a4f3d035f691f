"""Interpolated covariances, their entries and gradients, against dense ones by torch."""

import linear_operator.operators as theirs
import numpy as np
import pytest
import torch
from interpolation_oracle import dense_interpolation
from torch_checks import assert_same

import batchkron as bk
import batchkron.linear_operator as ours

SIZES = (4, 6, 5)
GRID = bk.RegularGrid(-1.0, 1.0, sizes=SIZES)


pytestmark = pytest.mark.usefixtures("any_way")


@pytest.fixture
def made(rng, definite):
    """An operator with different points left and right, its leaves, W and W' as dense tensors."""

    def make(dtype=torch.float64, scale=None):
        points = [rng.uniform(-1, 1, (n, 3)) for n in (7, 9)]
        left, right = (bk.Interpolation(one, GRID) for one in points)
        leaves = [definite(n, n, dtype=dtype, grad=True) for n in SIZES]
        base = ours.KroneckerProductLinearOperator(*leaves)
        if scale is not None:
            constant = torch.tensor(scale, dtype=dtype, requires_grad=True)
            base, leaves = base * constant, [*leaves, constant]
        dense = [torch.from_numpy(dense_interpolation(one, GRID)).to(dtype) for one in points]
        operator = ours.InterpolatedKroneckerLinearOperator(base, left, right)
        return operator, leaves, dense

    return make


def matrix_of(leaves, dense):
    """W K W'ᵀ by torch, with the gradients of the leaves."""
    matrix = leaves[0]
    for factor in leaves[1:3]:
        matrix = torch.kron(matrix, factor)
    matrix = dense[0] @ matrix @ dense[1].mT
    return matrix * leaves[3] if len(leaves) > 3 else matrix


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [None, 2.5])
@pytest.mark.parametrize("right", [(9,), (9, 1), (9, 4), (9, 0), (2, 9, 3)])
def test_products(tensor, made, dtype, scale, right):
    operator, leaves, dense = made(dtype, scale)
    matrix = matrix_of(leaves, dense)
    x = tensor(*right, dtype=dtype)
    assert operator.shape == matrix.shape
    assert_same(operator @ x, matrix @ x, 5000)
    y = tensor(7, 2, dtype=dtype)
    assert_same(operator._t_matmul(y), matrix.mT @ y, 5000)
    assert_same(operator.mT @ y, matrix.mT @ y, 5000)
    assert_same(operator.to_dense(), matrix, 5000)


@pytest.mark.parametrize("scale", [None, 2.5])
def test_gradients(tensor, made, scale):
    operator, leaves, dense = made(scale=scale)
    x = tensor(9, 2, grad=True)
    weight = tensor(7, 2)
    found = torch.autograd.grad(((operator @ x) * weight).square().sum(), [x, *leaves])
    loss = ((matrix_of(leaves, dense) @ x) * weight).square().sum()
    for one, expected in zip(found, torch.autograd.grad(loss, [x, *leaves]), strict=True):
        assert_same(one, expected, 10_000)


@pytest.mark.parametrize("scale", [None, 2.5])
def test_entries_and_parts(made, scale):
    operator, leaves, dense = made(scale=scale)
    matrix = matrix_of(leaves, dense)
    rows, columns = torch.tensor([6, 0, 3]), torch.tensor([8, 8, 1])
    assert_same(operator[rows, columns], matrix[rows, columns], 5000)
    assert_same(operator[2:5, ::2].to_dense(), matrix[2:5, ::2], 5000)
    assert_same(operator[4].squeeze(), matrix[4], 5000)
    gradient = torch.autograd.grad(operator[rows, columns].square().sum(), leaves)
    expected = torch.autograd.grad(matrix[rows, columns].square().sum(), leaves)
    for one, other in zip(gradient, expected, strict=True):
        assert_same(one, other, 10_000)


def test_the_diagonals(made):
    operator, leaves, dense = made()
    W = operator.left.interpolation
    square = ours.InterpolatedKroneckerLinearOperator(operator.base_linear_op, W, W)
    matrix = matrix_of(leaves, [dense[0], dense[0]])
    assert_same(square.diagonal(), matrix.diagonal(), 5000)
    roots = torch.kron(torch.kron(*(f.diagonal() for f in leaves[:2])), leaves[2].diagonal()).sqrt()
    assert_same(square._approx_diagonal(), (dense[0] @ roots).square(), 5000)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # linear_operator's sparse matrices
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_stored_windows_are_those_of_theirs(tensor, made):
    operator, leaves, dense = made()
    stored = operator._as_theirs
    assert isinstance(stored, theirs.InterpolatedLinearOperator)
    assert_same(stored.to_dense(), matrix_of(leaves, dense), 5000)
    for name in ("left_interp_indices", "right_interp_values"):
        assert torch.equal(getattr(operator, name), getattr(stored, name))
    expanded = operator.expand(3, 7, 9)
    x = tensor(3, 9, 2)
    assert_same(expanded @ x, matrix_of(leaves, dense) @ x, 5000)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # linear_operator's sparse matrices
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.filterwarnings("ignore:torch.sparse.SparseTensor")
def test_a_batch_of_multiples(made):
    operator, leaves, dense = made()
    multiples = torch.tensor([1.0, 2.0, -3.0]).double()[:, None, None]
    expected = multiples * matrix_of(leaves, dense)
    assert_same((operator * multiples).to_dense(), expected, 5000)


def test_copies_keep_the_points(made):
    operator, *_ = made()
    other = operator.clone().detach().float()
    assert other.dtype == torch.float32
    assert other.left.interpolation is operator.left.interpolation
    assert np.allclose(other.to_dense().numpy(), operator.to_dense().detach().numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("base", "text"),
    [
        (lambda t: theirs.DenseLinearOperator(t(120, 120)), "DenseLinearOperator with factors"),
        (lambda t: ours.KroneckerProductLinearOperator(t(4, 4), t(5, 5), t(6, 6)), "the grid's"),
        (lambda t: ours.KroneckerProductLinearOperator(t(4, 3), t(6, 6), t(5, 5)), r"\(4, 3\)"),
        (lambda t: ours.KroneckerProductLinearOperator(t(2, 4, 4), t(6, 6), t(5, 5)), "expected"),
    ],
)
def test_refused_bases(tensor, base, text):
    W = bk.Interpolation(np.zeros((2, 3)), GRID)
    with pytest.raises(ValueError, match=text):
        ours.InterpolatedKroneckerLinearOperator(base(tensor), W, W)


def test_two_grids_are_refused(tensor):
    W = bk.Interpolation(np.zeros((2, 3)), GRID)
    other = bk.Interpolation(np.zeros((2, 3)), bk.RegularGrid(-2.0, 1.0, sizes=SIZES))
    base = ours.KroneckerProductLinearOperator(*(tensor(n, n) for n in SIZES))
    with pytest.raises(ValueError, match="two grids"):
        ours.InterpolatedKroneckerLinearOperator(base, W, other)


def test_gradients_of_points(tensor, rng, definite):
    """Of products, entries, both diagonals and stored windows; against those of stored windows."""
    given = [torch.tensor(rng.uniform(-0.9, 0.9, (n, 3)), requires_grad=True) for n in (6, 7)]
    factors = [definite(n, n) for n in SIZES]

    def covariance(*points):
        there = [bk.Interpolation(one.detach().numpy(), GRID) for one in points]
        base = ours.KroneckerProductLinearOperator(*factors)
        return ours.InterpolatedKroneckerLinearOperator(base, *there, *points)

    x, y = tensor(7, 2), tensor(6, 2)
    rows, columns = torch.tensor([0, 5]), torch.tensor([6, 6])
    for function in (
        lambda *p: covariance(*p) @ x,
        lambda *p: covariance(*p).mT @ y,
        lambda *p: covariance(*p)[rows, columns],
        lambda *p: covariance(*p)[1:4, 2:].to_dense(),
        lambda *p: covariance(p[0], p[0])._diagonal(),
        lambda *p: covariance(*p).left_interp_values * covariance(p[1], p[0]).right_interp_values,
        lambda *p: covariance(p[0], p[0]).add_diagonal(torch.ones(6).double()).solve(y),
    ):
        assert torch.autograd.gradcheck(function, given, atol=1e-6)
    for function in (
        lambda *p: covariance(*p) @ x,
        lambda *p: covariance(*p)[rows, columns],
        lambda *p: covariance(p[0], p[0])._diagonal(),
    ):
        assert torch.autograd.gradgradcheck(function, given, fast_mode=True)


def test_an_update_of_the_points_is_refused(tensor, definite):
    W = bk.Interpolation(np.zeros((2, 3)), GRID)
    factors = [definite(n, n, grad=True) for n in SIZES]
    base = ours.KroneckerProductLinearOperator(*factors)
    y = ours.InterpolatedKroneckerLinearOperator(base, W, W) @ tensor(2, 1)
    W.update(np.full((2, 3), 0.5))
    with pytest.raises(RuntimeError, match="other points than in the forward pass"):
        y.sum().backward()


def test_a_change_of_a_factor_is_seen(tensor, definite):
    """By one operator; products with vectors build it anew."""
    W = bk.Interpolation(np.full((2, 3), 0.3), GRID)
    factors = [definite(n, n) for n in SIZES]
    op = ours.InterpolatedKroneckerLinearOperator(
        ours.KroneckerProductLinearOperator(*factors), W, W
    )
    x = tensor(2, 1)
    with torch.no_grad():
        before = op._matmul(x)
        factors[0].mul_(2.0)
        assert torch.allclose(op._matmul(x), 2 * before)


def test_the_matrix_of_few_rows_and_many_columns(tensor, definite, monkeypatch):
    """Weights of many points in large modes would be larger than the matrix."""
    monkeypatch.undo()
    grid = bk.RegularGrid(-1.0, 1.0, sizes=(30, 30))
    base = ours.KroneckerProductLinearOperator(definite(30, 30), definite(30, 30))
    ends = [bk.Interpolation(np.linspace(-0.9, 0.9, 2 * n).reshape(n, 2), grid) for n in (1, 400)]
    op = ours.InterpolatedKroneckerLinearOperator(base, *ends)
    assert op._few_entries() is None
    few = ours.InterpolatedKroneckerLinearOperator(base, ends[0], ends[0])
    assert few._few_entries() is not None
    dense = [torch.from_numpy(dense_interpolation(end.points, grid)) for end in ends]
    kron = torch.kron(*(one.to_dense() for one in base.linear_ops))
    assert torch.allclose(op.to_dense(), dense[0] @ kron @ dense[1].mT)
