"""Tensors and layers on the device meta, which have shapes and no memory."""

import copy

import pytest
import torch

import batchkron as bk
import batchkron.torch as bkt

W = bk.Interpolation([[0.1, 0.6], [0.9, 0.3], [0.5, 0.5]], bk.RegularGrid(0.0, 1.0, sizes=(4, 5)))
CHAIN = [(1, 4, 4, 2), (2, 4, 4, 1)]
LAYERS = {
    "product": lambda **options: bkt.KroneckerLinear([2, 4], [3, 4], **options),
    "chain": lambda **options: bkt.KroneckerSparseLinear(CHAIN, **options),
    "chain with activation": lambda **options: bkt.KroneckerSparseLinear(
        CHAIN, activation="gelu", **options
    ),
}
# functions of tensors, and the shapes of these
CALLS = {
    "kron_matmul": (lambda x, p, q: bkt.kron_matmul(x, [p, q]), [(3, 4), (2, 3), (2, 2)]),
    "gekmm": (lambda x, p, q: bkt.gekmm([p, q], x), [(6, 3), (2, 3), (1, 2)]),
    "batched_kron": (
        lambda x, p, q: bkt.batched_kron([p, q], [[0, 1], [1, 1]], x, [1, 0], [0, 2]),
        [(2, 6), (2, 2, 3), (2, 4, 2)],
    ),
    "kronecker_sparse": (
        lambda x, u, v: bkt.kronecker_sparse(x, [u, v]),
        [(3, 8), (1, 4, 4, 2), (2, 4, 4, 1)],
    ),
    "interpolate": (lambda u: bkt.interpolate(u, W), [(2, 20)]),
    "interpolate transposed": (lambda u: bkt.interpolate(u, W, transpose=True), [(2, 3)]),
    "interpolate with points": (lambda u, p: bkt.interpolate(u, W, points=p), [(2, 20), (3, 2)]),
    "interpolated_kronecker": (
        lambda x, p, q, noise: bkt.interpolated_kronecker(x, W, [p, q], noise=noise),
        [(2, 3), (4, 4), (5, 5), (3,)],
    ),
    "solve": (lambda b, p, q: bkt.solve([p, q], b), [(2, 6), (2, 2), (3, 3)]),
    "solve a sum": (lambda b, p, q: bkt.solve([p, q], b, kind="sum"), [(2, 6), (2, 2), (3, 3)]),
    "logdet": (lambda p, q: bkt.logdet([p, q]), [(2, 2), (3, 3)]),
    "logdet of a sum": (lambda p, q: bkt.logdet([p, q], kind="sum"), [(2, 2), (3, 3)]),
    "expm_apply": (lambda x, p, q: bkt.expm_apply([p, q], x, 0.5), [(2, 6), (2, 2), (3, 3)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_functions_return_what_they_return_elsewhere_without_values(tensor, name, dtype):
    function, shapes = CALLS[name]
    points = torch.tensor([[0.1, 0.6], [0.9, 0.3], [0.5, 0.5]], dtype=torch.float64)
    real = [tensor(*shape, dtype=dtype) for shape in shapes]
    if name == "interpolate with points":
        real[1] = points
    real = [one.requires_grad_() for one in real]
    expected = function(*real)
    given = [one.detach().to("meta").requires_grad_() for one in real]
    found = function(*given)
    assert found.is_meta
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    found.abs().sum().backward()
    for one in given:
        assert one.grad.is_meta
        assert (one.grad.shape, one.grad.dtype) == (one.shape, one.dtype)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_on_meta_and_off_it(tensor, name):
    layer = LAYERS[name](device="meta")
    with torch.device("meta"):
        other = LAYERS[name]()
    for one in (layer, other):
        assert all(parameter.is_meta for parameter in one.parameters())
        y = one(torch.empty(3, 8, device="meta", requires_grad=True))
        assert y.is_meta
        assert (y.shape, y.dtype) == ((3, layer.out_features), torch.float32)
        y.sum().backward()
        assert all(parameter.grad.is_meta for parameter in one.parameters())
        assert one.dense_weight().shape == (layer.out_features, 8)
    x = tensor(3, 8, dtype=torch.float32)
    real = copy.deepcopy(layer).to_empty(device="cpu")
    real.reset_parameters()
    layer.load_state_dict(real.state_dict(), assign=True)
    assert torch.equal(layer(x), real(x))
    with pytest.raises(TypeError, match="is on meta, but x is on cpu"):
        other(x)


def test_a_layer_takes_a_region_of_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for make in LAYERS.values():
            assert make(device="meta")(torch.empty(3, 8, device="meta")).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_as_on_a_device(dtype):
    layer = LAYERS["chain with activation"](device="meta", dtype=dtype)
    assert layer(torch.empty(3, 8, device="meta", dtype=dtype)).dtype == dtype


def test_outputs_without_values_need_their_number():
    call, shapes = bkt.batched_kron, [(2, 2, 2), (2, 2)]
    pool, x = (torch.empty(shape, device="meta") for shape in shapes)
    outputs = torch.tensor([0, 1], device="meta")
    with pytest.raises(ValueError, match="num_outputs is None; expected a number"):
        call(pool, [[0], [1]], x, [0, 0], outputs)
    assert call(pool, [[0], [1]], x, [0, 0], outputs, 5).shape == (5, 2)
