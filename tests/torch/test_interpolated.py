"""Interpolated Kronecker products against dense matrices from Keys's kernel, and gradients."""

import math

import numpy as np
import pytest
import torch
from interpolation_oracle import dense_interpolation
from torch.autograd import gradcheck, gradgradcheck
from torch_checks import assert_same, dense_kron

import batchkron as bk
from batchkron.operators import Operator
from batchkron.torch import interpolate, interpolated, interpolated_kronecker

SIZES = {"one": (7,), "four": (4, 4), "two": (5, 8), "three": (4, 5, 6)}
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


pytestmark = pytest.mark.usefixtures("any_way")


@pytest.fixture
def made(rng):
    """An interpolation of a grid at points, and W as a dense tensor."""

    def make(name, count=13, dtype=torch.float64):
        sizes = SIZES[name]
        grid = bk.RegularGrid(-1.0, 2.0, sizes=sizes)
        points = rng.uniform(-1.0, 2.0, (count, len(sizes)))
        dense = torch.from_numpy(dense_interpolation(points, grid)).to(dtype)
        return bk.Interpolation(points, grid), dense

    return make


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("leading", [(), (1,), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("name", SIZES)
def test_interpolate(tensor, made, name, leading, dtype):
    W, dense = made(name, dtype=dtype)
    u, x = tensor(*leading, W.shape[1], dtype=dtype), tensor(*leading, 13, dtype=dtype)
    assert_same(interpolate(u, W), u @ dense.mT, 4 * 4 ** len(SIZES[name]))
    assert_same(interpolate(x, W, transpose=True), x @ dense, 8 * 13)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("chunk", [1, 100])
@pytest.mark.parametrize("name", SIZES)
def test_gradients_of_few_points_at_a_time(tensor, made, monkeypatch, name, chunk, dtype):
    W, _ = made(name)
    u, g = tensor(W.shape[1], 3, dtype=dtype), tensor(13, 3, dtype=dtype)
    points = torch.from_numpy(np.array(W.points))
    expected = interpolated.point_gradient(u, g, W, points)
    monkeypatch.setattr(interpolated, "_MAX_GATHERED", chunk)
    assert_same(interpolated.point_gradient(u, g, W, points), expected, 64)


@pytest.mark.parametrize("transpose", [False, True])
def test_copies_of_vectors_are_in_torchs_memory(tensor, made, monkeypatch, transpose):
    """On a device a copy by CuPy would not belong to the graph that torch captures."""
    W, _ = made("two")
    given, matmat = [], Operator.matmat

    def noted(self, X, out=None):
        given.append(X.flags.c_contiguous)
        return matmat(self, X, out)

    monkeypatch.setattr(Operator, "matmat", noted)
    u = tensor(3, W.shape[0 if transpose else 1], grad=True)
    interpolate(u, W, transpose=transpose).sum().backward()
    assert given == [True, True]


def test_other_points_have_other_windows(tensor, made, rng):
    W, _ = made("two")
    device = torch.device("cpu")
    before = interpolated.windows_of(W, torch.float64, device)
    assert interpolated.windows_of(W, torch.float64, device)[0] is before[0]
    W.update(rng.uniform(-1.0, 2.0, W.points.shape))
    dense = torch.from_numpy(dense_interpolation(W.points, W.grid))
    u = tensor(W.shape[1], 2)
    windows = interpolated.windows_of(W, torch.float64, device)
    assert windows[0] is not before[0]
    assert_same(interpolate(u.mT, W).mT, dense @ u, 64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("leading", [(), (2, 3), (0,)])
@pytest.mark.parametrize("name", SIZES)
def test_products(tensor, made, name, leading, dtype):
    W, dense = made(name, dtype=dtype)
    factors = [tensor(n, n, dtype=dtype) for n in SIZES[name]]
    noise = tensor(13, dtype=dtype)
    x = tensor(*leading, 13, dtype=dtype)
    matrix = dense @ dense_kron(factors) @ dense.mT
    bound = 100 * math.prod(SIZES[name]) * 13
    assert_same(interpolated_kronecker(x, W, factors), x @ matrix.mT, bound)
    found = interpolated_kronecker(x, W, factors, noise=noise)
    assert_same(found, x @ (matrix + noise.diag()).mT, bound)


@pytest.mark.parametrize("noise", ["none", "number", "scalar", "vector"])
def test_gradients(tensor, made, precise, noise):
    W, _ = made("two", count=5)
    factors = [tensor(n, n, dtype=precise, grad=True) for n in (5, 8)]
    x = tensor(2, 5, dtype=precise, grad=True)
    sigma = {
        "none": None,
        "number": 0.5,
        "scalar": tensor(dtype=precise, grad=True),
        "vector": tensor(5, dtype=precise, grad=True),
    }[noise]
    more = [sigma] if isinstance(sigma, torch.Tensor) else []

    def function(x, A, B, *given):
        return interpolated_kronecker(x, W, [A, B], noise=given[0] if given else sigma)

    assert gradcheck(function, (x, *factors, *more))
    small = bk.Interpolation(W.points[:2, :1], bk.RegularGrid(-1.0, 2.0, sizes=[4]))
    factor, x = tensor(4, 4, dtype=precise, grad=True), tensor(2, dtype=precise, grad=True)
    assert gradgradcheck(lambda x, A: interpolated_kronecker(x, small, [A]), (x, factor))


@pytest.mark.parametrize("size", [6, interpolated.MIN_FFT_ROWS, interpolated.MIN_FFT_ROWS + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_toeplitz_factors(tensor, rng, dtype, size):
    """Short ones as matrices, long ones by Fourier transforms."""
    grid = bk.RegularGrid(0.0, 1.0, sizes=(4, size))
    W = bk.Interpolation(rng.random((9, 2)), grid)
    column = tensor(size, dtype=dtype, grad=True)
    other = tensor(4, 4, dtype=dtype, grad=True)
    x = tensor(3, 9, dtype=dtype, grad=True)
    places = torch.arange(size)
    matrix = column[(places[:, None] - places).abs()]
    dense = torch.from_numpy(dense_interpolation(W.points, grid)).to(dtype)
    found = interpolated_kronecker(x, W, [other, column])
    expected = x @ (dense @ torch.kron(other, matrix) @ dense.mT).mT
    bound = 100 * size
    assert_same(found, expected, bound)
    weight = tensor(3, 9, dtype=dtype)
    leaves = [x, other, column]
    for one, same in zip(
        torch.autograd.grad((found * weight).sum(), leaves),
        torch.autograd.grad((expected * weight).sum(), leaves),
        strict=True,
    ):
        assert_same(one, same, bound)


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize(
    ("kinds", "runs"),  # of dense factors, short and long columns; those multiplied at once
    [
        ("l", []),
        ("ld", [["d"]]),
        ("dl", [["d"]]),
        ("dlsd", [["d"], ["s", "d"]]),
        ("dsl", [["d", "s"]]),
        ("lld", [["d"]]),
        ("dll", [["d"]]),
        ("dd", [["d", "d"]]),
    ],
)
def test_matrices_beside_long_columns(tensor, monkeypatch, kinds, runs, count):
    """Runs of matrices are multiplied at once, and no identity stands for a long column."""
    sizes, given = {"d": 2, "s": 4, "l": 5}, []

    def noted(matrices, x):
        given.append([factor.shape for factor in matrices])
        return multiply(matrices, x)

    multiply = interpolated.gekmm
    monkeypatch.setattr(interpolated, "MIN_FFT_ROWS", 5)
    monkeypatch.setattr(interpolated, "gekmm", noted)
    factors = [tensor(*[sizes[k]] * (2 if k == "d" else 1), grad=True) for k in kinds]
    cells = math.prod(sizes[k] for k in kinds)
    u, weight = tensor(cells, count, grad=True), tensor(cells, count)
    found = interpolated.multiply_on_grid(factors, u)
    assert given == [[(sizes[k], sizes[k]) for k in run] for run in runs]
    expected = dense_kron([interpolated.as_matrix(factor) for factor in factors]) @ u
    assert found.shape == u.shape
    assert_same(found, expected, 100 * cells)
    leaves = [u, *factors]
    for one, same in zip(
        torch.autograd.grad((found * weight).sum(), leaves),
        torch.autograd.grad((expected * weight).sum(), leaves),
        strict=True,
    ):
        assert_same(one, same, 100 * cells * max(count, 1))


def test_a_long_column_and_complex_vectors(tensor):
    size = interpolated.MIN_FFT_ROWS
    u, column = tensor(2, size, 3, dtype=torch.complex128), tensor(size)
    places = torch.arange(size)
    matrix = column[(places[:, None] - places).abs()].to(u.dtype)
    assert_same(interpolated._transformed(column, u), matrix @ u, 100 * size)


def test_covariance_of_numpy(tensor, made):
    W, _ = made("three")
    factors = [tensor(n, n) for n in SIZES["three"]]
    x = tensor(13)
    K = bk.InterpolatedKronecker(W.points, W.grid, [f.numpy() for f in factors], noise=0.3)
    found = interpolated_kronecker(x, W, factors, noise=0.3)
    assert np.allclose(found.numpy(), K @ x.numpy(), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t, W: (t(12), W, [t(5, 5), t(8, 8)]), ValueError, r"expected \(..., 13\)"),
        (lambda t, W: (t(13), W, [t(5, 5)]), ValueError, "factors has 1 entries; expected 2"),
        (lambda t, W: (t(13), W, [t(5, 5), t(7, 7)]), ValueError, r"factors\[1\] has shape"),
        (lambda t, W: (t(13), None, [t(5, 5), t(8, 8)]), TypeError, "expected a batchkron.Inter"),
        (lambda t, W: (t(13).float(), W, [t(5, 5), t(8, 8)]), TypeError, "float64, but x has"),
        (
            lambda t, W: (*[f.to(torch.complex128) for f in (t(13),)], W, [t(5).cfloat()] * 2),
            TypeError,
            "dtype",
        ),
    ],
)
def test_refused(tensor, made, given, error, text):
    W, _ = made("two")
    with pytest.raises(error, match=text):
        interpolated_kronecker(*given(tensor, W))


def test_refused_columns_noise_and_vectors(tensor, made):
    W, _ = made("two")
    factors = [tensor(5, 5), tensor(8, 8)]
    with pytest.raises(ValueError, match="noise has shape"):
        interpolated_kronecker(tensor(13), W, factors, noise=tensor(12))
    with pytest.raises(TypeError, match="noise has dtype"):
        interpolated_kronecker(tensor(13), W, factors, noise=tensor(13).to(torch.complex128))
    with pytest.raises(ValueError, match=r"u has shape \(13,\); expected \(..., 40\)"):
        interpolate(tensor(13), W)
    column = tensor(5, dtype=torch.complex128)
    matrix = tensor(8, 8, dtype=torch.complex128)
    with pytest.raises(TypeError, match="expected a real one"):
        interpolated_kronecker(tensor(13, dtype=torch.complex128), W, [column, matrix])


@pytest.mark.parametrize("size", [4, 5, 9])
def test_gradients_of_points(tensor, rng, precise, size):
    """Also in the outermost intervals; between grid points, where third derivatives jump."""
    grid = bk.RegularGrid(-1.0, 2.0, sizes=(size, 4))
    points = torch.tensor(rng.uniform(-0.99, 1.99, (6, 2)), requires_grad=True)
    u = tensor(2, size * 4, dtype=precise, grad=True)
    x = tensor(2, 6, dtype=precise, grad=True)
    factors = [tensor(n, n, dtype=precise, grad=True) for n in (size, 4)]

    def at(points):
        return bk.Interpolation(points.detach().numpy(), grid)

    assert gradcheck(lambda u, p: interpolate(u, at(p), points=p), (u, points))
    assert gradcheck(lambda x, p: interpolate(x, at(p), transpose=True, points=p), (x, points))
    assert gradcheck(
        lambda x, p, *f: interpolated_kronecker(x, at(p), f, noise=0.5, points=p),
        (x, points, *factors),
    )


def test_gradients_of_points_of_a_parabola():
    """Cubic convolution is exact for parabolas, and so is its slope."""
    grid = bk.RegularGrid(0.0, 1.0, sizes=(7, 6))
    x, y = (torch.from_numpy(axis) for axis in grid.axes)
    values = ((x**2)[:, None] * (1 + y)).reshape(-1)
    points = torch.tensor([[0.02, 0.5], [0.4, 0.99], [0.97, 0.03]], dtype=torch.float64)
    points.requires_grad_()
    W = bk.Interpolation(points.detach().numpy(), grid)
    (found,) = torch.autograd.grad(interpolate(values, W, points=points).sum(), points)
    x, y = points.detach().unbind(1)
    assert_same(found, torch.stack([2 * x * (1 + y), x**2], dim=1), 100)


def test_points_are_those_of_the_interpolation(tensor, made):
    W, _ = made("two")
    points = torch.from_numpy(np.array(W.points))
    for other in (points + 0.1, points[:3]):
        with pytest.raises(ValueError, match="points are not those of the interpolation"):
            interpolate(tensor(40), W, points=other)


@pytest.mark.parametrize("size", [4, 6])
def test_second_and_third_derivatives_of_points(tensor, rng, precise, size):
    grid = bk.RegularGrid(-1.0, 2.0, sizes=(size, 4))
    points = torch.tensor(rng.uniform(-0.99, 1.99, (2, 2)), requires_grad=True)
    u = tensor(size * 4, dtype=precise, grad=True)
    x = tensor(2, dtype=precise, grad=True)

    def at(points):
        return bk.Interpolation(points.detach().numpy(), grid)

    def slopes(u, p):
        y = interpolate(u, at(p), points=p)
        return torch.autograd.grad((y * y.conj()).real.sum(), p, create_graph=True)[0]

    assert gradgradcheck(lambda u, p: interpolate(u, at(p), points=p), (u, points), fast_mode=True)
    assert gradgradcheck(
        lambda x, p: interpolate(x, at(p), transpose=True, points=p), (x, points), fast_mode=True
    )
    assert gradgradcheck(slopes, (u, points), fast_mode=True)


def test_an_update_before_the_backward_pass_is_refused(tensor, made, rng):
    W, _ = made("two")
    y = interpolate(tensor(40, grad=True), W)
    W.update(rng.uniform(-1.0, 2.0, W.points.shape))
    with pytest.raises(RuntimeError, match="other points than in the forward pass"):
        y.sum().backward()


def test_transforms_of_points(tensor, made):
    W, _ = made("two", count=3)
    points, u = torch.from_numpy(np.array(W.points)), tensor(4, 40)
    jacobian = torch.func.jacrev(lambda p: interpolate(u[0], W, points=p))(points)
    expected = torch.autograd.functional.jacobian(lambda p: interpolate(u[0], W, points=p), points)
    assert_same(jacobian, expected, 100)

    def loss(p, u):
        return interpolate(u, W, points=p).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(points, u)
    assert_same(found, torch.stack([torch.func.grad(loss)(points, one) for one in u]), 100)
    found = torch.func.jacrev(torch.func.jacrev(loss))(points, u[0])
    assert_same(found, torch.autograd.functional.hessian(lambda p: loss(p, u[0]), points), 1000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_autocast_changes_nothing(dtype):
    rng = np.random.default_rng(0)
    W = bk.Interpolation(rng.random((5, 2)), bk.RegularGrid(0.0, 1.0, sizes=(6, 6)))
    factors = [torch.randn(6, 6, dtype=dtype) for _ in range(2)]
    x = torch.randn(3, 5, dtype=dtype)
    expected = interpolated_kronecker(x, W, factors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = interpolated_kronecker(x, W, factors)
    assert found.dtype == dtype
    assert torch.equal(found, expected)
