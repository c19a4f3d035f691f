"""batchkron.torch on a device: gradients, streams, nothing that waits."""

import math

import pytest

import batchkron as bk

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]

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
