"""Layers against torch.nn.Linear with the dense matrix."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch_checks import assert_same

import batchkron.torch
from batchkron.torch import (
    KroneckerLinear,
    KroneckerSparseLinear,
    batched_kron,
    gekmm,
    kron_matmul,
    kronecker_sparse,
    sparse_chain,
    sparse_layer,
)

LAYERS = {
    "product": lambda **given: KroneckerLinear([3, 4], [2, 5], **given),
    "chain": lambda **given: KroneckerSparseLinear([(1, 5, 6, 2), (2, 6, 6, 1)], **given),
}


def dense_layer(layer):
    """nn.Linear with the layer's matrix and bias."""
    made = nn.Linear(12, 10, bias=layer.bias is not None).to(layer.dense_weight().dtype)
    with torch.no_grad():
        made.weight.copy_(layer.dense_weight())
        if layer.bias is not None:
            made.bias.copy_(layer.bias)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_forward_and_backward_as_a_dense_layer(tensor, name, bias, dtype):
    layer = LAYERS[name](bias=bias, dtype=dtype)
    assert (layer.in_features, layer.out_features) == (12, 10)
    dense = dense_layer(layer)
    x = tensor(4, 3, 12, dtype=dtype, grad=True)
    found, expected = layer(x), dense(x)
    assert_same(found, expected, 100)
    one = torch.autograd.grad(found.square().sum(), x, retain_graph=True)[0]
    other = torch.autograd.grad(expected.square().sum(), x)[0]
    assert_same(one, other, 1000)
    found.square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    if bias:
        gradient = torch.autograd.grad(dense(x).square().sum(), dense.bias)[0]
        assert_same(layer.bias.grad, gradient, 1000)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_behind_others_in_a_region_of_autocast(tensor, name, kind):
    """Where torch's own layers make numbers of 16 bits, which have no kernels on a CPU."""
    layer = LAYERS[name]()
    x = tensor(4, 12, dtype=torch.float32).to(kind)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x)
        y = nn.Linear(10, 1)(found)
    assert found.dtype == torch.float32
    assert y.dtype == torch.bfloat16
    assert_same(found, dense_layer(layer)(x.float()), 100)
    y.square().sum().backward()
    gradients = [parameter.grad for parameter in layer.parameters()]
    assert all(one.dtype == torch.float32 and one.isfinite().all() for one in gradients)


@pytest.mark.parametrize("name", LAYERS)
def test_autocast_leaves_float64_as_it_is(tensor, name):
    layer = LAYERS[name](dtype=torch.float64)
    x = tensor(4, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x)
    assert_same(found, layer(x), 1)


@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_gradients_of_a_chain_with_a_bias(tensor, layout):
    """The bias is added in the memory of the product, of which no gradient may make use."""
    layer = KroneckerSparseLinear([(1, 3, 2, 2), (2, 2, 3, 1)], layout=layout, dtype=torch.float64)
    x = tensor(2, 6, grad=True) if layout == "batch-first" else tensor(6, 2, grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def function(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), x)

    given = x, *layer.parameters()
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given)
    kept = x.detach().clone()
    with torch.no_grad():
        layer(x)
    assert torch.equal(x, kept)


ACTIVATIONS = {"gelu": "none", "gelu-tanh": "tanh"}


def activated(layout, activation, bias=True):
    """A layer of float64 with an activation, and the same function by torch's operations."""
    options = {"layout": layout, "bias": bias, "dtype": torch.float64}
    layer = KroneckerSparseLinear([(1, 3, 2, 2), (2, 2, 3, 1)], activation=activation, **options)

    def expected(x, *parameters):
        *chain, added = parameters if bias else (*parameters, None)
        y = kronecker_sparse(x, chain, layout=layout)
        if bias:
            y = y + (added if layout == "batch-first" else added[:, None])
        return nn.functional.gelu(y, approximate=ACTIVATIONS[activation])

    names = [name for name, _ in layer.named_parameters()]

    def function(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), x)

    return layer, function, expected


def ordered(layer, bias=True):
    return [*layer.values, *([layer.bias] if bias else [])]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("layout", ["batch-first", "batch-last"])
def test_an_activation(tensor, layout, activation, bias):
    layer, function, expected = activated(layout, activation, bias)
    x = tensor(5, 6, grad=True) if layout == "batch-first" else tensor(6, 5, grad=True)
    parameters = ordered(layer, bias)
    y, other = layer(x), expected(x, *parameters)
    assert_same(y, other, 100)
    with torch.no_grad():
        assert_same(layer(x), other, 100)
    weight = tensor(*y.shape)
    for found, wanted in zip(
        torch.autograd.grad(y, (x, *parameters), weight),
        torch.autograd.grad(other, (x, *parameters), weight),
        strict=True,
    ):
        assert_same(found, wanted, 1000)
    assert torch.autograd.gradcheck(function, (x, *layer.parameters()))
    assert torch.autograd.gradgradcheck(function, (x, *layer.parameters()))


@pytest.mark.parametrize("wanted", range(4))
def test_the_gradients_of_one_operand_of_an_activation(tensor, wanted):
    layer, _, expected = activated("batch-first", "gelu")
    x, parameters = tensor(5, 6), ordered(layer)
    for k, one in enumerate((x, *parameters)):
        one.requires_grad_(k == wanted)
    operand = (x, *parameters)[wanted]
    found, other = layer(x), expected(x, *parameters)
    first, second = (
        torch.autograd.grad(y.square().sum(), operand, create_graph=True)[0] for y in (found, other)
    )
    assert_same(first, second, 1000)
    one, two = (torch.autograd.grad(g.square().sum(), operand)[0] for g in (first, second))
    assert_same(one, two, 1e5)


def test_an_activation_without_vectors(tensor):
    layer, _, _ = activated("batch-first", "gelu")
    x = tensor(0, 6, grad=True)
    y = layer(x)
    assert y.shape == (0, 6)
    y.sum().backward()
    assert torch.equal(x.grad, torch.zeros(0, 6, dtype=torch.float64))
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in layer.parameters())
    one = tensor(6)
    assert_same(layer(one), layer(one[None])[0], 100)
    layer(one).sum().backward()


def test_an_activation_is_compiled_and_transformed(tensor):
    torch.compiler.reset()
    layer, function, _ = activated("batch-first", "gelu")
    x = tensor(4, 6)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert_same(compiled(x), layer(x), 10)
    compiled(x).sum().backward()
    parameters = tuple(layer.parameters())
    mapped = torch.vmap(function, in_dims=(0, *[None] * len(parameters)))(x, *parameters)
    assert_same(mapped, layer(x), 10)
    found = torch.func.grad(lambda x: function(x, *parameters).sum())(x)
    given = x.clone().requires_grad_()
    assert_same(found, torch.autograd.grad(layer(given).sum(), given)[0], 100)


def test_a_bias_that_torch_broadcasts_or_refuses(tensor):
    layer, _, expected = activated("batch-first", "gelu")
    x = tensor(4, 6)
    layer.bias = nn.Parameter(tensor(1))
    assert_same(layer(x), expected(x, *ordered(layer)), 100)
    layer.bias = nn.Parameter(tensor(5))
    with pytest.raises(RuntimeError, match="size"):
        layer(x)


def test_kernels_find_the_numbers_of_a_bias_in_its_memory(tensor, monkeypatch):
    """Also those of a lazy negative, as the imaginary part of a conjugate is one."""
    biases = []

    def multiplied(*given, end, **more):
        biases.append(end.bias)
        return sparse_chain.multiply_chain(*given, end=end, **more)

    monkeypatch.setattr(sparse_layer, "multiply_chain", multiplied)
    bias = torch.randn(6, dtype=torch.complex128).conj().imag
    assert bias.is_neg()
    x, values = tensor(2, 4), tensor(1, 3, 2, 2)
    y = sparse_layer.layer(x, [values], bias, None, False)
    assert_same(y, kronecker_sparse(x, values) + bias, 10)
    assert not biases[0].is_neg()
    assert biases[0].is_contiguous()


def test_many_biases_of_one_chain(tensor):
    layer = KroneckerSparseLinear([(1, 3, 2, 2)], dtype=torch.float64)
    x, biases = tensor(4, 4), tensor(5, 6)
    found = torch.vmap(lambda bias: torch.func.functional_call(layer, {"bias": bias}, x))(biases)
    expected = x @ layer.dense_weight().T + biases[:, None]
    assert_same(found, expected, 100)
    layer.bias = nn.Parameter(biases[0].float())
    assert_same(layer(x), x @ layer.dense_weight().T + layer.bias, 100)


def test_the_other_layout(tensor):
    layer = LAYERS["chain"](layout="batch-last", dtype=torch.float64)
    x = tensor(12, 4, 3)
    expected = dense_layer(layer)(x.movedim(0, -1)).movedim(-1, 0)
    assert_same(layer(x), expected, 100)


@pytest.mark.parametrize("name", LAYERS)
def test_states_copies_and_conversions(tensor, name):
    layer, other = LAYERS[name](), LAYERS[name]()
    x = tensor(2, 12, dtype=torch.float32)
    assert not torch.equal(layer(x), other(x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), other(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), layer(x))
    assert layer.double()(x.double()).dtype == torch.float64
    assert LAYERS[name](device="meta").bias.is_meta
    assert not any(key.startswith("bias") for key in LAYERS[name](bias=False).state_dict())


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_are_drawn_from_the_global_generator(name):
    torch.manual_seed(3)
    first = LAYERS[name]()
    torch.manual_seed(3)
    second = LAYERS[name]()
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    second.reset_parameters()
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert not torch.equal(one, other)


def test_the_first_entries_have_the_spread_of_a_dense_layer():
    torch.manual_seed(0)
    layer = KroneckerLinear([40, 30], [50, 20])
    deviation = float(layer.dense_weight().detach().std())
    assert deviation == pytest.approx(1 / math.sqrt(3 * 1200), rel=0.1)
    bound = 1 / math.sqrt(1200)
    assert 0.9 * bound < float(layer.bias.detach().abs().max()) <= bound
    chain = KroneckerSparseLinear((1, 50, 64, 2))
    largest = float(chain.values[0].detach().abs().max())
    assert 0.9 / 8 < largest <= 1 / 8


def test_it_learns(tensor):
    """A few steps on the data of a layer of the same structure lower the loss a lot."""
    torch.manual_seed(1)
    target, layer = LAYERS["chain"](), LAYERS["chain"]()
    x = tensor(64, 12, dtype=torch.float32)
    wanted = target(x).detach()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (layer(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 10


@pytest.mark.parametrize("name", LAYERS)
def test_compiled(tensor, name):
    torch.compiler.reset()
    layer = LAYERS[name]()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = tensor(4, 12, dtype=torch.float32)
    assert_same(compiled(x), layer(x), 10)
    compiled(x).sum().backward()
    assert layer.bias.grad is not None


def test_texts():
    assert repr(LAYERS["product"]()).startswith("KroneckerLinear(\n  in_features=12, out_features")
    assert "factors=2x3 ⊗ 5x4, bias=True" in repr(LAYERS["product"]())
    text = repr(LAYERS["chain"](bias=False))
    assert "patterns=[(1, 5, 6, 2), (2, 6, 6, 1)], bias=False, layout='batch-first'\n" in text
    text = repr(LAYERS["chain"](activation="gelu"))
    assert "layout='batch-first', activation='gelu'\n" in text


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: KroneckerLinear([], []), ValueError, "in_features has 0 sizes"),
        (lambda: KroneckerLinear([2], [2, 3]), ValueError, "1 sizes and out_features 2"),
        (lambda: KroneckerLinear([2, 0], [2, 3]), ValueError, "expected 1 or more"),
        (lambda: KroneckerSparseLinear([]), ValueError, "patterns is empty"),
        (lambda: KroneckerSparseLinear([(1, 2, 3)]), ValueError, r"patterns\[0\]"),
        (
            lambda: KroneckerSparseLinear([(1, 2, 3, 1), (1, 2, 3, 1)]),
            ValueError,
            "3 columns, but 2 rows",
        ),
        (lambda: KroneckerSparseLinear([(1, 2, 2, 1)], layout="last"), ValueError, "layout"),
        (lambda: KroneckerLinear([2], [2])(torch.ones(3)), ValueError, "x has shape"),
        (
            lambda: KroneckerSparseLinear([(1, 2, 2, 1)], activation="relu"),
            ValueError,
            "activation is 'relu'; expected None, 'gelu' or 'gelu-tanh'",
        ),
        (
            lambda: KroneckerSparseLinear([(1, 2, 2, 1)], activation=["gelu"]),
            ValueError,
            "activation is .'gelu'.; expected None",
        ),
        (
            lambda: KroneckerSparseLinear([(1, 2, 2, 1)], activation="gelu", dtype=torch.cfloat)(
                torch.ones(2, dtype=torch.cfloat)
            ),
            TypeError,
            "complex64; 'gelu' is for real numbers",
        ),
    ],
)
def test_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_half_precision_on_the_cpu_is_computed_in_float32(tensor, name, dtype):
    single = LAYERS[name](dtype=torch.float32).to(dtype).float()  # the same values in both
    half = copy.deepcopy(single).to(dtype)
    x = tensor(7, 12, dtype=torch.float32).to(dtype)
    y = half(x)
    assert y.dtype == dtype
    expected = single(x.float())
    within = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(y.float(), expected, rtol=within, atol=within)
    y.float().square().sum().backward()
    single(x.float()).square().sum().backward()
    for mine, other in zip(half.parameters(), single.parameters(), strict=True):
        assert mine.grad.dtype == dtype
        scale = other.grad.abs().max()
        assert (mine.grad.float() - other.grad).abs().max() < 8 * torch.finfo(dtype).eps * scale


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_functions_take_half_precision_on_the_cpu(tensor, dtype):
    a, b, x = (tensor(*shape).to(dtype) for shape in ((3, 3), (2, 4), (5, 6)))
    expected = x.double() @ torch.kron(a.double(), b.double())
    for found in (kron_matmul(x, [a, b]), gekmm([a.mT, b.mT], x.mT).mT):
        assert found.dtype == dtype
        error = (found.double() - expected).abs().max()
        assert error < 2 * torch.finfo(dtype).eps * expected.abs().max()
    pool, blocks = tensor(2, 3, 3).to(dtype), tensor(2, 9).to(dtype)
    found = batched_kron(pool, [[0, 1], [1, 1]], blocks, [0, 1], [1, 0])
    expected = torch.stack(
        [
            torch.kron(pool[1].double(), pool[1].double()) @ blocks[1].double(),
            torch.kron(pool[0].double(), pool[1].double()) @ blocks[0].double(),
        ]
    )
    assert found.dtype == dtype
    assert (found.double() - expected).abs().max() < 4e-2 * expected.abs().max()
    with pytest.raises(TypeError, match=r"has dtype torch\.float32, but x has"):
        kron_matmul(x, [a.float(), b])


def test_the_nearest_layer_of_a_product_is_that_product(tensor):
    a, b, c = tensor(2, 3), tensor(3, 2), tensor(2, 2)
    trained = nn.Linear(12, 12, dtype=torch.float64)
    with torch.no_grad():
        trained.weight.copy_(torch.kron(torch.kron(a, b), c))
    for sizes in (([3, 2, 2], [2, 3, 2]), ([6, 2], [6, 2]), ([12], [12])):
        layer = KroneckerLinear.from_linear(trained, *sizes)
        assert layer.relative_error < 1e-14
        x = tensor(5, 12)
        torch.testing.assert_close(layer(x), trained(x), rtol=1e-12, atol=1e-12)


def test_the_nearest_layer_has_the_least_error(tensor):
    trained = nn.Linear(12, 10, bias=False, dtype=torch.float64)
    with torch.no_grad():
        trained.weight.copy_(tensor(10, 12))
    layer = KroneckerLinear.from_linear(trained, [3, 4], [2, 5])
    weight = trained.weight.detach()
    sorted_entries = weight.reshape(2, 5, 3, 4).permute(0, 2, 1, 3).reshape(6, 20)
    singular = torch.linalg.svdvals(sorted_entries)
    least = float(singular[1:].square().sum().sqrt() / singular.square().sum().sqrt())
    assert layer.relative_error == pytest.approx(least, rel=1e-10)
    difference = weight - layer.dense_weight().detach()
    assert float(difference.norm() / weight.norm()) == pytest.approx(least, rel=1e-10)
    assert layer.bias is None


def test_the_nearest_layer_of_three_factors_is_a_stationary_point(tensor):
    trained = nn.Linear(12, 18, dtype=torch.float32)
    layer = KroneckerLinear.from_linear(trained, [3, 2, 2], [3, 2, 3])
    assert (layer.bias == trained.bias).all()
    assert layer.factors[0].dtype == torch.float32
    assert layer.relative_error < 1
    wide = copy.deepcopy(layer).double()
    loss = (trained.weight.double() - wide.dense_weight()).square().sum()
    loss.backward()
    for factor in wide.factors:
        assert float(factor.grad.norm() / factor.detach().norm()) < 1e-4 * loss.item()
    nothing = nn.Linear(4, 4)
    with torch.no_grad():
        nothing.weight.zero_()
    assert KroneckerLinear.from_linear(nothing, [2, 2], [2, 2]).relative_error == 0.0


def test_numbers_in_the_place_of_sizes_are_explained():
    with pytest.raises(TypeError, match=r"in_features is 16.*KroneckerLinear\(\[4, 4\]"):
        KroneckerLinear(16, 16)
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Linear"):
        KroneckerLinear.from_linear(nn.ReLU(), [2], [2])
    text = r"weight \(4, 4\), but that of linear is \(10, 12\); expected factors of 12 in_features"
    with pytest.raises(ValueError, match=text):
        KroneckerLinear.from_linear(nn.Linear(12, 10), [2, 2], [2, 2])


def test_dir_shows_public_names_only():
    shown = [name for name in dir(batchkron.torch) if not name.startswith("_")]
    assert shown == sorted(batchkron.torch.__all__)
