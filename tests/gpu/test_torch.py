"""batchkron.torch, and tensors in other functions, on a device: gradients, streams, no copies."""

import math
import subprocess
import sys

import numpy as np
import pytest

import batchkron as bk
from batchkron import solvers

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]


@pytest.fixture(scope="module")
def bkt():
    return pytest.importorskip("batchkron.torch")


@pytest.fixture
def tensor(rng):
    """Makes random tensors on the device."""

    def make(*shape, dtype=torch.float64, grad=False):
        values = rng.standard_normal(shape)
        if dtype.is_complex:
            values = values + 1j * rng.standard_normal(shape)
        return torch.tensor(values, dtype=dtype, device="cuda", requires_grad=grad)

    return make


POINTS = bk.Interpolation(
    [[0.1, 0.6], [0.9, 0.3], [0.5, 0.5]], bk.RegularGrid(0.0, 1.0, sizes=(4, 5))
)
FEW = bk.Interpolation([[0.1, 0.6, 0.3], [0.9, 0.3, 0.8]], bk.RegularGrid(0.0, 1.0, (4, 5, 4)))
IDS = [[0, 1], [1, 0], [1, 1]]
CALLS = {
    "kron_matmul": lambda b, t: (
        lambda x, *f: b.kron_matmul(x, f),
        (t(2, 12), t(2, 3), t(3, 1), t(2, 2)),
    ),
    "gekmm": lambda b, t: (lambda x, *f: b.gekmm(f, x), (t(6, 2), t(3, 2), t(2, 3))),
    "interpolated_kronecker": lambda b, t: (
        lambda x, s, *f: b.interpolated_kronecker(x, POINTS, f, noise=s),
        (t(2, 3), t(3), t(4, 4), t(5, 5)),
    ),
    "interpolated_kronecker by its matrix": lambda b, t: (
        lambda x, *f: b.interpolated_kronecker(x, FEW, f),
        (t(2, 2), t(4, 4), t(5, 5), t(4, 4)),
    ),
    "interpolate": lambda b, t: (lambda u: b.interpolate(u, POINTS), (t(2, 20),)),
    "interpolate transposed": lambda b, t: (
        lambda x: b.interpolate(x, POINTS, transpose=True),
        (t(2, 3),),
    ),
    "kronecker_sparse": lambda b, t: (b.kronecker_sparse, (t(2, 12), t(2, 2, 3, 2))),
    "batch-last": lambda b, t: (
        lambda x, v: b.kronecker_sparse(x, v, layout="batch-last"),
        (t(12, 2), t(2, 2, 3, 2)),
    ),
    "a chain": lambda b, t: (
        lambda x, *v: b.kronecker_sparse(x, v),
        (t(2, 9), t(1, 2, 4, 3), t(2, 6, 3, 1), t(1, 2, 3, 3)),
    ),
    "batched_kron": lambda b, t: (
        lambda x, w, *pools: b.batched_kron(pools, IDS, x, [0, 1, 0], [1, 1, 0], 3, weights=w),
        (t(2, 4), t(3), t(2, 2, 2), t(2, 3, 2)),
    ),
    "solve": lambda b, t: (
        lambda x, *f: b.solve([one + 4 * torch.eye(2).to(one) for one in f], x),
        (t(2, 4), t(2, 2), t(2, 2)),
    ),
    "solve a sum": lambda b, t: (
        lambda x, *f: b.solve(
            [one + one.mH + 9 * torch.eye(2).to(one) for one in f], x, kind="sum"
        ),
        (t(2, 4), t(2, 2), t(2, 2)),
    ),
    "logdet": lambda b, t: (
        lambda *f: b.logdet([one @ one.mH for one in f], hermitian=True),
        (t(2, 2), t(3, 3)),
    ),
    "logdet of a sum": lambda b, t: (
        lambda *f: b.logdet([one / 4 + 4 * torch.eye(len(one)).to(one) for one in f], kind="sum"),
        (t(2, 2), t(3, 3)),
    ),
    "logdet of a Hermitian sum": lambda b, t: (
        lambda *f: b.logdet([one @ one.mH for one in f], kind="sum", hermitian=True),
        (t(2, 2), t(3, 3)),
    ),
    "expm_apply": lambda b, t: (lambda x, *f: b.expm_apply(f, x, 0.5), (t(4), t(2, 2), t(2, 2))),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_gradients_and_their_gradients(bkt, tensor, name, dtype):
    function, given = CALLS[name](bkt, lambda *shape: tensor(*shape, dtype=dtype, grad=True))
    # atomic additions round in any order
    assert torch.autograd.gradcheck(function, given, nondet_tol=1e-12)
    assert torch.autograd.gradgradcheck(function, given, nondet_tol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", ["interpolate", "transposed", "on the grid", "by its matrix"])
@pytest.mark.parametrize("sorted_there", [False, True])
def test_gradients_of_points(bkt, tensor, rng, name, dtype, sorted_there):
    """Of points, vectors and factors, and the gradients of these."""
    sizes = (4, 5, 4) if name == "by its matrix" else (4, 5)
    grid = bk.RegularGrid(-1.0, 2.0, sizes)
    points = torch.tensor(rng.uniform(-0.99, 1.99, (2, len(sizes))), device="cuda")

    def at(points):
        known = points.detach()
        return bk.Interpolation(known if sorted_there else known.cpu().numpy(), grid)

    def function(x, p, *factors):
        if factors:
            return bkt.interpolated_kronecker(x, at(p), factors, points=p)
        return bkt.interpolate(x, at(p), transpose=name == "transposed", points=p)

    count = math.prod(sizes) if name == "interpolate" else 2
    with_factors = sizes if name in ("on the grid", "by its matrix") else ()
    given = [tensor(n, n, dtype=dtype, grad=True) for n in with_factors]
    given = [tensor(count, dtype=dtype, grad=True), points.requires_grad_(), *given]
    assert torch.autograd.gradcheck(function, given, nondet_tol=1e-12)
    assert torch.autograd.gradgradcheck(function, given, nondet_tol=1e-12, fast_mode=True)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128], ids=str
)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (16, 16), (3, 5, 7), (52, 52), (64, 64), (70, 2, 66)])
def test_products_and_gradients_as_on_the_cpu(bkt, tensor, sizes, left, dtype):
    shape = (3, math.prod(sizes), 11) if left else (33, math.prod(sizes))
    x, weight = tensor(*shape, dtype=dtype, grad=True), tensor(*shape, dtype=dtype)
    factors = [tensor(n, n, dtype=dtype, grad=True) for n in sizes]

    def product(x, factors):
        return bkt.gekmm(factors, x) if left else bkt.kron_matmul(x, factors)

    y = product(x, factors)
    found = [y, *torch.autograd.grad(y, [x, *factors], weight)]
    assert all(one.is_cuda for one in found)
    given = [one.detach().cpu().requires_grad_() for one in (x, *factors)]
    y = product(given[0], given[1:])
    expected = [y, *torch.autograd.grad(y, given, weight.cpu())]
    terms = 33 * sum(sizes) * math.prod(sizes)
    for one, other in zip(found, expected, strict=True):
        bound = torch.finfo(dtype).eps * terms**0.5 * 10 * float(other.detach().abs().max())
        assert float((one.cpu() - other).detach().abs().max()) <= bound


def test_gradients_with_lazy_conjugates(bkt, tensor):
    given = [tensor(*shape, dtype=torch.complex128) for shape in ((5, 6), (2, 2), (3, 3))]
    weight = tensor(5, 6, dtype=torch.complex128)

    def found(on):
        x, *factors = [one.to(on).requires_grad_() for one in given]
        y = bkt.kron_matmul(x.conj(), factors)
        return torch.autograd.grad((y.conj() * weight.to(on)).real.sum(), [x, *factors])

    for one, other in zip(found("cuda"), found("cpu"), strict=True):
        assert float((one.cpu() - other).abs().max()) <= 1e-13 * float(other.abs().max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_numbers_of_16_bits(bkt, tensor, layout, dtype):
    values = (tensor(2, 16, 16, 2) / 4).to(dtype).requires_grad_()
    x = tensor(*((40, 64) if layout == "batch-first" else (64, 40))).to(dtype).requires_grad_()
    y = bkt.kronecker_sparse(x, values, layout=layout)
    assert y.dtype == dtype
    exact = [one.detach().double().requires_grad_() for one in (x, values)]
    expected = bkt.kronecker_sparse(*exact, layout=layout)
    weight = tensor(*y.shape).to(dtype)
    found = [y, *torch.autograd.grad(y, (x, values), weight)]
    others = [expected, *torch.autograd.grad(expected, exact, weight.double())]
    for one, other in zip(found, others, strict=True):
        bound = 4 * torch.finfo(dtype).eps * float(other.detach().abs().max())
        assert float((one.double() - other).detach().abs().max()) <= bound


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64], ids=str
)
@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("pattern", [(1, 48, 24, 2), (2, 24, 48, 1), (3, 5, 7, 2), (1, 40, 70, 16)])
def test_gradients_of_the_values_of_many_vectors(bkt, tensor, pattern, layout, dtype):
    """Sums in pieces, with some vectors left over; operands as they are, and copied."""
    a, b, c, d = pattern
    turn = (lambda one: one) if layout == "batch-first" else (lambda one: one.mT.contiguous())
    count, wide = 5003, torch.complex128 if dtype.is_complex else torch.float64
    values = tensor(*pattern).to(dtype).requires_grad_()
    x, weight = (tensor(count, a * n * d, dtype=wide).to(dtype) for n in (c, b))
    y = bkt.kronecker_sparse(turn(x), values, layout=layout)
    (found,) = torch.autograd.grad(y, values, turn(weight))
    assert (found.dtype, found.shape) == (dtype, pattern)
    given, outputs = x.to(wide).view(count, a, c, d), weight.to(wide).view(count, a, b, d)
    expected = torch.einsum("nikj,nilj->iklj", outputs, given.conj())
    sums = torch.float32 if dtype.itemsize == 2 else dtype
    bound = (count**0.5 * 10 * torch.finfo(sums).eps + torch.finfo(dtype).eps) * count**0.5 * 10
    assert float((found.to(wide) - expected).abs().max()) <= bound


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("count", [1, 777, 25_088])
@pytest.mark.parametrize("rows", [384, 1536])
def test_chains_of_a_vision_transformer(bkt, tensor, rows, count, layout):
    """Gradients of chains against those of dense matrices, what the forward pass keeps included."""
    if rows == 384:
        patterns = [(1, 192, 48, 2), (2, 48, 192, 1)]
    else:
        patterns = [(1, 768, 192, 2), (6, 64, 64, 1)]
    chain = [(tensor(*p) / p[2] ** 0.5).float().requires_grad_() for p in patterns]
    x, weight = tensor(count, 384).float().requires_grad_(), tensor(count, rows).float()
    turn = (lambda one: one) if layout == "batch-first" else (lambda one: one.mT.contiguous())
    y = bkt.kronecker_sparse(turn(x), chain, layout=layout)
    found = [turn(y), *torch.autograd.grad(y, (x, *chain), turn(weight))]
    wide = [one.detach().double().cpu().requires_grad_() for one in (x, *chain)]
    expected = bkt.kronecker_sparse(wide[0], wide[1:])
    others = [expected, *torch.autograd.grad(expected, wide, weight.double().cpu())]
    for one, other in zip(found, others, strict=True):
        bound = 1e-5 * float(other.detach().abs().max())
        assert float((one.cpu().double() - other).detach().abs().max()) <= bound


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
@pytest.mark.parametrize("activation", [None, "gelu", "gelu-tanh"])
@pytest.mark.parametrize("pattern", [(1, 48, 24, 2), (2, 24, 24, 1), (12, 2, 4, 1), (1, 7, 6, 8)])
def test_layers_with_an_activation(bkt, tensor, pattern, activation, layout, dtype):
    """Results and gradients against a dense layer in float64; with and without gradients."""
    options = {"layout": layout, "activation": activation, "device": "cuda", "dtype": dtype}
    layer = bkt.KroneckerSparseLinear([pattern, (1, 6, 5, 8)], **options)
    turn = (lambda one: one) if layout == "batch-first" else (lambda one: one.mT.contiguous())
    x = tensor(333, 40).to(dtype).requires_grad_()
    y = layer(turn(x))
    with torch.no_grad():
        assert torch.equal(layer(turn(x)), y)
    weight = tensor(333, layer.out_features).to(dtype)
    found = [turn(y), *torch.autograd.grad(y, (x, *layer.parameters()), turn(weight))]
    wide = bkt.KroneckerSparseLinear([pattern, (1, 6, 5, 8)], device="cuda", dtype=torch.float64)
    wide.load_state_dict(layer.state_dict())
    given = x.detach().double().requires_grad_()
    expected = wide(given)
    if activation is not None:
        approximate = {"gelu": "none", "gelu-tanh": "tanh"}[activation]
        expected = torch.nn.functional.gelu(expected, approximate=approximate)
    others = torch.autograd.grad(expected, (given, *wide.parameters()), weight.double())
    for one, other in zip(found, [expected, *others], strict=True):
        bound = 100 * torch.finfo(dtype).eps * float(other.detach().abs().max())
        assert float((one.double() - other).detach().abs().max()) <= bound


def test_work_goes_to_torchs_current_stream(bkt, tensor):
    """A long wait on a stream of torch's delays the product; nothing waits on the host."""
    factors = [tensor(16, 16), tensor(16, 16)]
    x = tensor(64, 256)
    expected = bkt.kron_matmul(x, factors).clone()
    late = torch.zeros_like(x)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # about 0.1 s
        late.copy_(x, non_blocking=True)
        y = bkt.kron_matmul(late, factors)
        plain = bk.gemkm(late, factors)
        assert not stream.query(), "the host has waited for the stream"
    stream.synchronize()
    assert torch.equal(y, expected)
    assert torch.equal(plain, expected)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
def test_nothing_waits_for_the_device(bkt, tensor):
    """Products and their gradients, after a first call."""
    x, factors = tensor(8, 16, grad=True), [tensor(4, 4, grad=True) for _ in range(2)]
    values = tensor(2, 2, 4, 2, grad=True)

    def step():
        y = bkt.kron_matmul(x, factors).sum() + bkt.kronecker_sparse(x, values).sum()
        torch.autograd.grad(y, [x, values, *factors])

    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


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


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_layers_learn_and_compile(bkt, tensor):
    torch.compiler.reset()
    layer = bkt.KroneckerSparseLinear([(1, 16, 16, 2), (2, 16, 16, 1)], device="cuda")
    x = tensor(8, 32).float()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    expected = torch.nn.functional.linear(x, layer.dense_weight(), layer.bias)
    torch.testing.assert_close(compiled(x), expected)
    compiled(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


CAPTURED_AT_ONCE = """
import torch, batchkron.torch
a, b, c, d = {pattern}
values = torch.randn(a, b, c, d, device="cuda", dtype=torch.float16) / c**0.5
x = torch.randn(4096, a * c * d, device="cuda", dtype=torch.float16)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = batchkron.torch.kronecker_sparse(x, values)
graph.replay()
blocks = x.float().reshape(-1, a, c, d)
expected = torch.einsum("nacd,abcd->nabd", blocks, values.float()).reshape(len(x), -1)
torch.testing.assert_close(y.float(), expected, rtol=5e-3, atol=5e-2)
"""


@pytest.mark.parametrize("pattern", [(1, 1024, 1024, 1), (2, 48, 48, 4), (1, 512, 512, 8)], ids=str)
def test_the_first_call_of_a_process_may_be_captured(bkt, pattern):
    """Also where it is left to cuBLAS, whose handle is made then, or by several kernels."""
    program = CAPTURED_AT_ONCE.format(pattern=pattern)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("sizes", [(600,), (20, 30), (6, 5, 4, 7)])
def test_interpolation_as_on_the_cpu(bkt, tensor, rng, sizes, dtype):
    W = bk.Interpolation(rng.random((500, len(sizes))), bk.RegularGrid(0.0, 1.0, sizes))
    u, x = tensor(3, math.prod(sizes), dtype=dtype), tensor(3, 500, dtype=dtype)
    for given, transpose in ((u, False), (x, True)):
        found = bkt.interpolate(given, W, transpose=transpose)
        assert found.is_cuda
        expected = bkt.interpolate(given.cpu(), W, transpose=transpose)
        bound = 4 * torch.finfo(dtype).eps * 500 * float(expected.abs().max())
        assert float((found.cpu() - expected).abs().max()) <= bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_points_sorted_on_a_stream_of_torchs(bkt, tensor, rng, dtype):
    grid = bk.RegularGrid(0.0, 1.0, (20, 30))
    points = torch.tensor(rng.random((5000, 2)), device="cuda", dtype=dtype)
    x = tensor(3, 5000, dtype=dtype)
    expected = bkt.interpolate(x, bk.Interpolation(points.cpu().numpy(), grid), transpose=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        W = bk.Interpolation(points.clone(), grid)  # made on this stream
        assert W.device == "cuda"
        found = bkt.interpolate(x, W, transpose=True)
    torch.cuda.synchronize()
    bound = 4 * torch.finfo(dtype).eps * 5000 * float(expected.abs().max())
    assert float((found - expected).abs().max()) <= bound


def test_vmap_and_jacobians(bkt, tensor):
    factors, x = [tensor(3, 2, 2), tensor(3, 4, 4)], tensor(3, 5, 8)
    found = torch.vmap(lambda x, *f: bkt.kron_matmul(x, f))(x, *factors)
    expected = torch.stack([bkt.kron_matmul(x[b], [f[b] for f in factors]) for b in range(3)])
    assert torch.allclose(found, expected, rtol=1e-12)
    jacobian = torch.func.jacrev(lambda x: bkt.kron_matmul(x, [f[0] for f in factors]))(x[0, 0])
    dense = torch.kron(factors[0][0], factors[1][0])
    assert torch.allclose(jacobian, dense.mT, rtol=1e-12)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
def test_layers_in_a_region_of_autocast(bkt, tensor, kind):
    layer = bkt.KroneckerSparseLinear([(1, 32, 16, 2), (2, 16, 32, 1)], activation="gelu").cuda()
    x = tensor(40, 64, dtype=torch.float32, grad=True)
    with torch.autocast("cuda", dtype=kind):
        found = layer(x)
    assert found.dtype == kind
    expected = layer(x).detach()
    largest = float(expected.abs().max())
    assert (
        float((found.detach().float() - expected).abs().max())
        <= 8 * torch.finfo(kind).eps * largest
    )
    found.float().square().sum().backward()
    assert x.grad.dtype == torch.float32
    assert all(one.grad.dtype == torch.float32 for one in layer.parameters())
