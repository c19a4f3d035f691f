"""Kronecker-sparse layers of batchkron.torch on a device."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]


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
