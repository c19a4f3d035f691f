"""torch.vmap, and Jacobians by torch.func, of all functions; against loops and dense products."""

import itertools

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacrev, vmap
from torch_checks import assert_same, dense_kron

import batchkron as bk
from batchkron.torch import (
    KroneckerSparseLinear,
    batched_kron,
    expm_apply,
    gekmm,
    interpolate,
    interpolated_kronecker,
    kron_matmul,
    kronecker_sparse,
    logdet,
    solve,
)

IDS = torch.tensor([[0, 1], [1, 1], [0, 0]])
IN, OUT = torch.tensor([1, 0, 1]), torch.tensor([0, 0, 1])
W = bk.Interpolation([[0.1, 0.6], [0.9, 0.3], [0.5, 0.5]], bk.RegularGrid(0.0, 1.0, sizes=(4, 5)))


def definite(matrix):
    """Symmetric positive definite, from any matrix."""
    return matrix @ matrix.mT + matrix.new_ones(matrix.shape[-1]).diag_embed()


# function, and the shapes of its operands
CALLS = {
    "kron_matmul": (lambda x, a, b: kron_matmul(x, [a, b]), [(3, 4), (2, 3), (2, 2)]),
    "a vector": (lambda x, a, b: kron_matmul(x, [a, b]), [(4,), (2, 3), (2, 2)]),
    "gekmm": (lambda x, a, b: gekmm([a, b], x), [(6, 2), (2, 3), (3, 2)]),
    "kronecker_sparse": (kronecker_sparse, [(3, 4), (2, 3, 2, 1)]),
    "batch-last": (
        lambda x, v: kronecker_sparse(x, v, layout="batch-last"),
        [(4, 3), (2, 3, 2, 1)],
    ),
    "batched_kron": (
        lambda x, a, b, w: batched_kron([a, b], IDS, x, IN, OUT, 2, weights=w),
        [(2, 4), (2, 3, 2), (2, 1, 2), (3,)],
    ),
    "interpolate": (lambda u: interpolate(u, W), [(2, 20)]),
    "interpolated_kronecker": (
        lambda x, a, b, s: interpolated_kronecker(x, W, [a, b], noise=s),
        [(2, 3), (4, 4), (5, 5), ()],
    ),
    "solve": (lambda b, p, q: solve([definite(p), definite(q)], b), [(2, 6), (2, 2), (3, 3)]),
    "solve a sum": (
        lambda b, p, q: solve([definite(p), definite(q)], b, kind="sum"),
        [(2, 6), (2, 2), (3, 3)],
    ),
    "logdet": (lambda p, q: logdet([definite(p), definite(q)]), [(2, 2), (3, 3)]),
    "expm_apply": (lambda x, p, q: expm_apply([p, q], x, 0.3), [(2, 6), (2, 2), (3, 3)]),
}


def batched(tensor, shapes, chosen, count, axis=0):
    """Operands, some of which have a batch; and the axes of the batches."""
    operands, axes = [], []
    for shape, has_batch in zip(shapes, chosen, strict=True):
        place = min(axis, len(shape))
        full = (*shape[:place], count, *shape[place:]) if has_batch else shape
        operands.append(tensor(*full))
        axes.append(place if has_batch else None)
    return operands, tuple(axes)


def elements(operands, axes, count):
    for b in range(count):
        pairs = zip(operands, axes, strict=True)
        yield [one if axis is None else one.select(axis, b) for one, axis in pairs]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", CALLS)
def test_vmap(tensor, name, axis):
    """All choices of the operands that have a batch."""
    function, shapes = CALLS[name]
    for chosen in itertools.product([False, True], repeat=len(shapes)):
        if not any(chosen):
            continue
        operands, axes = batched(tensor, shapes, chosen, 3, axis)
        found = vmap(function, in_dims=axes)(*operands)
        expected = torch.stack([function(*one) for one in elements(operands, axes, 3)])
        assert_same(found, expected, 1000)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_each_sample(tensor, name):
    """vmap of grad, for a batch of all operands."""
    function, shapes = CALLS[name]
    operands, axes = batched(tensor, shapes, [True] * len(shapes), 2)

    def loss(*given):
        return function(*given).square().sum()

    everything = tuple(range(len(shapes)))
    found = vmap(grad(loss, argnums=everything), in_dims=axes)(*operands)
    single = [grad(loss, argnums=everything)(*one) for one in elements(operands, axes, 2)]
    for one, expected in zip(found, zip(*single, strict=True), strict=True):
        assert_same(one, torch.stack(expected), 10_000)


@pytest.mark.parametrize("name", CALLS)
def test_jacobians(tensor, name):
    """Against rows of the Jacobian by autograd, one after another."""
    function, shapes = CALLS[name]
    operands = [tensor(*shape) for shape in shapes]
    found = jacrev(function, argnums=tuple(range(len(shapes))))(*operands)
    expected = torch.autograd.functional.jacobian(function, tuple(operands))
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, 10_000)


def test_a_hessian_and_nested_batches(tensor):
    factors, x = [tensor(2, 2), tensor(3, 3)], tensor(6)
    dense = dense_kron(factors)
    # by reverse mode alone: the operators have no forward derivatives
    found = jacrev(jacrev(lambda x: kron_matmul(x, factors).square().sum()))(x)
    assert_same(found, 2 * dense @ dense.mT, 1000)
    many = tensor(4, 5, 6)
    nested = vmap(vmap(lambda x: kron_matmul(x, factors)))(many)
    assert_same(nested, many @ dense, 100)
    outer, inner = tensor(4, 2, 2), tensor(5, 3, 3)
    found = vmap(lambda a: vmap(lambda b: kron_matmul(x, [a, b]))(inner))(outer)
    each = [[x @ torch.kron(a, b) for b in inner] for a in outer]
    assert_same(found, torch.stack([torch.stack(row) for row in each]), 100)


def test_vmap_of_the_operators_themselves(tensor):
    """Which graphs call: with a batch of vectors, and of vectors and factors."""
    operators = torch.ops.batchkron
    x, factors = tensor(3, 5, 6), [tensor(3, 2, 4), tensor(3, 3, 2)]
    found = vmap(lambda x: operators.kron_matmul(x, [f[0] for f in factors], [], []))(x)
    assert_same(found, x @ torch.kron(factors[0][0], factors[1][0]), 100)
    found = vmap(lambda x, *f: operators.kron_matmul(x, f, [], []))(x, *factors)
    dense = torch.stack([torch.kron(a, b) for a, b in zip(*factors, strict=True)])
    assert_same(found, x @ dense, 100)
    gradient = tensor(3, 5, 8)
    needed = [True, False]
    found = vmap(
        lambda x, g, *f: operators.kron_matmul_gradients(x, g, needed, f, [], []),
        in_dims=(0, 0, None, None),
    )(x, gradient, *[f[0] for f in factors])
    for b in range(3):
        A, B = (f[0].clone().requires_grad_() for f in factors)
        (expected,) = torch.autograd.grad(kron_matmul(x[b], [A, B]), A, gradient[b])
        assert_same(found[0][b], expected, 100)
    rows = tensor(4, 6)
    matrices = [definite(tensor(n, n)) for n in (2, 3)]
    assert operators.kronecker_sum_solve(rows, matrices).shape == (4, 6)
    found = vmap(lambda b: operators.kronecker_sum_solve(b, matrices))(rows)
    assert_same(found, operators.kronecker_sum_solve(rows, matrices), 100)


def test_an_empty_batch_of_factors(tensor):
    x, B = tensor(3, 4), tensor(2, 2)
    empty = tensor(2, 0, 2, grad=True)
    found = vmap(lambda a: kron_matmul(x, [a, B]), in_dims=1)(empty)
    assert found.shape == (0, 3, 4)
    (gradient,) = torch.autograd.grad(found.sum(), empty)
    assert gradient.shape == empty.shape
    slopes = vmap(grad(lambda a: kron_matmul(x, [a, B]).sum()), in_dims=1)(empty.detach())
    assert slopes.shape == (0, 2, 2)


def test_forward_mode_is_refused_in_words(tensor):
    with pytest.raises((NotImplementedError, RuntimeError), match="forward"):
        hessian(lambda x: kron_matmul(x, [tensor(2, 2)]).square().sum())(tensor(2))


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"solve", "logdet"}))
def test_tangents_are_not_taken_for_zero(tensor, name):
    """Dual tensors need no gradient, and would be multiplied without their tangents.

    The other two functions are made of those of torch.
    """
    function, shapes = CALLS[name]
    with forward_ad.dual_level():
        operands = [forward_ad.make_dual(tensor(*shape), tensor(*shape)) for shape in shapes]
        with pytest.raises(NotImplementedError, match="jvp"):
            function(*operands)
    function(*(tensor(*shape) for shape in shapes))


def test_an_ensemble_of_layers(tensor):
    """As torch's tutorial has it: parameters are stacked, the call is functional."""
    layers = [KroneckerSparseLinear([(1, 4, 2, 2), (2, 2, 3, 1)]).double() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    x = tensor(5, 6)

    def call(parameters, buffers):
        return torch.func.functional_call(layers[0], (parameters, buffers), (x,))

    found = vmap(call)(parameters, buffers)
    assert_same(found, torch.stack([layer(x) for layer in layers]), 1000)


def test_shifts_of_their_own_in_a_batch(tensor):
    factors, x = [tensor(2, 2), tensor(3, 3)], tensor(3, 6)
    shifts = torch.tensor([900.0, -900.0, 0.0], dtype=torch.float64)

    def moved(shift, x):
        pairs = zip(factors, (shift, -shift), strict=True)
        return expm_apply([f + s * torch.eye(len(f)).double() for f, s in pairs], x, 2.0)

    expected = expm_apply(factors, x, 2.0)
    for found in (
        vmap(moved)(shifts, x),
        torch.stack([moved(shift, one) for shift, one in zip(shifts, x, strict=True)]),
    ):
        assert_same(found / expected.abs().max(), expected / expected.abs().max(), 2000)
    slope = vmap(grad(lambda s, one: moved(s, one).sum()))(shifts, x)
    # the shifts cancel, whatever they are
    assert float(slope.abs().max()) <= 1e-10 * float(expected.abs().max())
