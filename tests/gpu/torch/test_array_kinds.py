"""Tensors of torch on a device in functions and operators of batchkron."""

import math

import numpy as np
import pytest

import batchkron as bk
from batchkron import solvers

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]


def test_tensors_are_not_copied(cupy, bkt, tensor):
    from batchkron.array_kinds import native

    x = tensor(4, 4)
    view = native(x, "x")
    assert isinstance(view, cupy.ndarray)
    assert view.data.ptr == x.data_ptr()
    out = torch.full((4, 4), math.nan, dtype=torch.float64, device="cuda")
    eye = torch.eye(4, dtype=torch.float64, device="cuda")
    assert bk.gemkm(x, [eye], out=out) is out
    assert torch.equal(out, x)


def test_functions_and_operators_return_tensors(tensor):
    x, factors = tensor(5, 6), [tensor(2, 2), tensor(3, 3)]
    host = [one.cpu().numpy() for one in (x, *factors)]
    op = bk.KroneckerProduct(factors)
    assert op.device == "cuda"
    calls = {
        "gemkm": (bk.gemkm(x, factors), bk.gemkm(host[0], host[1:])),
        "gekmm": (bk.gekmm(factors, x.mT), bk.gekmm(host[1:], host[0].T)),
        "kron": (bk.kron(*factors), bk.kron(*host[1:])),
        "apply": (op.apply(x), bk.KroneckerProduct(host[1:]).apply(host[0])),
        "@": (op @ x[0], bk.KroneckerProduct(host[1:]) @ host[0][0]),
    }
    for name, (found, expected) in calls.items():
        assert found.is_cuda, name
        np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=0, atol=1e-13)


def test_direct_methods_return_tensors(tensor):
    x, factors = tensor(6), [tensor(2, 2), tensor(3, 3)]
    factors = [one @ one.mT for one in factors]
    host = [one.cpu().numpy() for one in (x, *factors)]

    def results(x, factors):
        total = bk.KroneckerSum(factors)
        shifted = bk.KroneckerProduct(factors)
        shifted = shifted + 2.0 * bk.Identity(6).to(shifted.device)
        yield "solve", shifted.solve(x)
        yield "factorise", shifted.factorise().solve(x)
        yield "expm_apply", shifted.expm_apply(x, -0.5)
        yield "shifts", total.factorise().solve_shifted(x, [1.0, 2.0])
        yield "phi_apply", total.phi_apply([x, None, 2 * x], -0.5)

    expected = dict(results(host[0], host[1:]))
    stream = torch.cuda.Stream()
    for chosen in (torch.cuda.current_stream(), stream):
        chosen.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(chosen):
            for name, found in results(x, factors):
                assert found.is_cuda, name
                limit = 1e-11 * float(np.abs(expected[name]).max())
                np.testing.assert_allclose(found.cpu().numpy(), expected[name], rtol=0, atol=limit)


def test_krylov_methods_and_their_objects_return_tensors(cupy, tensor):
    b, factors = tensor(6), [tensor(2, 2), tensor(3, 3)]
    factors = [one @ one.mT + torch.eye(len(one)).to(one) for one in factors]
    A, matrix = bk.KroneckerProduct(factors), torch.kron(*factors)
    expected = torch.linalg.solve(matrix, b)
    solver, out = solvers.Cg(A), torch.full_like(b, math.nan)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            results = {
                "cg": solvers.cg(A, b, rtol=1e-12),
                "Cg": solver(b, rtol=1e-12),
                "of a matrix": solvers.Gmres(matrix)(b, rtol=1e-12),
                "out": solvers.Minres(6, like=b).solve(A, b, rtol=1e-12, out=out),
            }
            for name, result in results.items():
                assert result.x.is_cuda, name
                limit = 1e-9 * float(expected.abs().max())
                assert float((result.x - expected).abs().max()) <= limit, name
    assert results["out"].x is out
    with pytest.raises(TypeError, match=r"A is a torch\.Tensor, but b is a CuPy array"):
        solvers.Cg(matrix)(cupy.ones(6))


def test_interpolated_products_of_tensors(tensor, rng):
    points, grid = rng.random((500, 2)), bk.RegularGrid(0.0, 1.0, sizes=(8, 9))
    factors, x = [tensor(8, 8), tensor(9)], tensor(3, 500)
    noise = torch.tensor(rng.random(500), device="cuda")
    op = bk.InterpolatedKronecker(torch.tensor(points, device="cuda"), grid, factors, noise=noise)
    assert op.device == "cuda"
    other = [one.cpu().numpy() for one in factors]
    expected = bk.InterpolatedKronecker(points, grid, other, noise=noise.cpu().numpy())
    found, wanted = op.apply(x), expected.apply(x.cpu().numpy())
    assert found.is_cuda
    np.testing.assert_allclose(found.cpu().numpy(), wanted, rtol=0, atol=1e-12 * abs(wanted).max())


def test_mixed_calls_are_refused(cupy, tensor):
    x = tensor(2, 4)
    with pytest.raises(TypeError, match=r"CuPy array, but x is a torch\.Tensor"):
        bk.gemkm(x, [cupy.eye(4)])
    with pytest.raises(TypeError, match="CUDA device"):
        bk.gemkm(x, [torch.eye(4, dtype=torch.float64)])
    with pytest.raises(TypeError, match="CUDA device"):
        bk.KroneckerProduct([np.eye(4)]).apply(x)
    with pytest.raises(TypeError, match="requires a gradient"):
        bk.gemkm(tensor(2, 4, grad=True), [torch.eye(4, dtype=torch.float64, device="cuda")])
