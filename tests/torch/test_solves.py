"""solve, logdet and expm_apply against torch's dense functions, with gradients."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch_checks import assert_same, dense_kron

from batchkron.torch import expm_apply, logdet, solve

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SIZES = (2, 3, 2)


def dense_sum(factors):
    """A_1 ⊕ … ⊕ A_d by torch."""
    total = 0
    for k, factor in enumerate(factors):
        eyes = [torch.eye(len(one), dtype=one.dtype) for one in factors]
        total = total + dense_kron([*eyes[:k], factor, *eyes[k + 1 :]])
    return total


@pytest.fixture
def regular(tensor):
    """Makes factors far from singular ones, whose sums are as well; Hermitian ones on request."""

    def make(dtype=torch.float64, hermitian=False, sizes=SIZES, grad=False):
        factors = []
        for n in sizes:
            factor = tensor(n, n, dtype=dtype) / 4
            if hermitian:
                factor = factor + factor.mH
            factor = factor + (3 + len(factors) / 8) * torch.eye(n, dtype=dtype)
            factors.append(factor.detach().requires_grad_(grad))
        return factors

    return make


def symmetric(function):
    """The function of the Hermitian parts, so that differences in one entry stay Hermitian."""
    return lambda *factors: function([(one + one.mH) / 2 for one in factors])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("kind", ["product", "sum"])
@pytest.mark.parametrize("leading", [(), (3,), (2, 2), (0,)])
def test_solve_against_the_dense_matrix(regular, tensor, kind, hermitian, dtype, leading):
    factors = regular(dtype, hermitian)
    b = tensor(*leading, math.prod(SIZES), dtype=dtype)
    dense = (dense_kron if kind == "product" else dense_sum)(factors)
    expected = torch.linalg.solve(dense, b.reshape(-1, len(dense)).T).T.reshape(b.shape)
    assert_same(solve(factors, b, kind=kind), expected, 100)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_gradients_of_a_solve(regular, tensor, kind, precise):
    factors = regular(precise, grad=True)[:2]
    b = tensor(2, 6, dtype=precise, grad=True)

    def function(b, *factors):
        return solve(factors, b, kind=kind)

    assert gradcheck(function, (b, *factors))
    assert gradgradcheck(function, (b, *factors))


def test_repeated_eigenvalues_do_no_harm_to_gradients(tensor):
    factors = [3 * torch.eye(2, dtype=torch.float64).requires_grad_(), torch.eye(2).double()]
    factors[0] = factors[0].detach().requires_grad_()
    b = tensor(4)
    assert gradcheck(lambda a: solve([a, factors[1]], b, kind="sum"), (factors[0],))


def test_a_sum_with_a_large_entry_beside_a_phase(tensor):
    """1 + 1j is no rounding error of 1e17, beside which it is small."""
    diagonals = ([1e17, 1 + 1j], [0.5, 0.5])
    factors = [torch.tensor(one, dtype=torch.complex128).diag() for one in diagonals]
    b = tensor(4, dtype=torch.complex128)
    expected = b / torch.diagonal(dense_sum(factors))
    torch.testing.assert_close(solve(factors, b, kind="sum"), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("kind", ["product", "sum"])
def test_logdet_against_the_dense_matrix(regular, kind, hermitian, dtype):
    factors = regular(dtype, hermitian)
    dense = (dense_kron if kind == "product" else dense_sum)(factors)
    sign, logarithm = torch.linalg.slogdet(dense)
    found = logdet(factors, kind=kind, hermitian=hermitian)
    assert found.is_complex() == (dtype.is_complex and not hermitian)
    assert_same(found.real if found.is_complex() else found, logarithm, 200)
    if found.is_complex():
        assert_same(torch.exp(1j * found.imag), sign, 2000)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_gradients_of_logdet(regular, kind, precise):
    factors = regular(precise, grad=True)[:2]

    def function(*factors):
        return logdet(factors, kind=kind)

    assert gradcheck(function, factors)
    assert gradgradcheck(function, factors)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_gradients_of_logdet_of_hermitian_factors(regular, kind, precise):
    factors = regular(precise, hermitian=True, grad=True)[:2]
    function = symmetric(lambda given: logdet(given, kind=kind, hermitian=True))
    assert gradcheck(function, factors)
    assert gradgradcheck(function, factors)


@pytest.mark.parametrize("kind", ["product", "sum"])
def test_the_sign_of_a_determinant(kind):
    one = torch.diag(torch.tensor([-5.0, 2.0])).double()
    odd = [one] if kind == "sum" else [one, torch.ones(1, 1).double()]
    assert torch.isnan(logdet(odd, kind=kind))
    even = logdet([one, torch.eye(2).double()], kind=kind)
    expected = 2 * math.log(10) if kind == "product" else math.log(4 * 4 * 3 * 3)
    assert float(even) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [2, 60, 200])
def test_the_determinant_of_many_factors(dtype, count):
    """3^count is odd, and no float from count = 34 on."""
    eyes = [torch.eye(3, dtype=dtype)] * count
    flipped = torch.tensor([-1, 1, 1]).diag().to(dtype)
    odd, even = logdet([flipped, *eyes]), logdet([flipped, flipped, *eyes])
    assert even == 0
    if dtype.is_complex:
        assert odd.real == 0
        assert float(odd.imag) == pytest.approx(math.pi, rel=1e-6)
        quarter = logdet([torch.tensor([1j, 1, 1]).diag().to(dtype), *eyes])
        assert float(quarter.imag) == pytest.approx(math.pi / 2, rel=1e-6)  # 9^k is 1 modulo 4
        assert logdet([flipped, *eyes], hermitian=True).isnan()
    else:
        assert odd.isnan()


def test_the_determinant_beside_empty_factors():
    empty, zero = torch.zeros(0, 0), torch.zeros(2, 2)
    assert logdet([zero, empty]) == 0
    assert logdet([zero, empty], kind="sum") == 0
    assert logdet([zero] + [torch.eye(2)] * 70) == -math.inf


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("entries", [(1, -1), (1, -1, -2)])
def test_the_determinant_of_a_singular_sum(dtype, hermitian, entries):
    """An odd number of negative eigenvalues, and a zero: of diag(1, -1) ⊕ diag(entries)."""
    factors = [torch.tensor(one).diag().to(dtype) for one in ((1, -1), entries)]
    assert logdet(factors, kind="sum", hermitian=hermitian) == -math.inf


def test_the_gradient_of_a_determinant_of_many_factors(tensor):
    factors = [tensor(2, 2, grad=True), *[torch.eye(2).double()] * 60]
    (found,) = torch.autograd.grad(logdet([factors[0].mT @ factors[0], *factors[1:]]), factors[0])
    assert_same(found, 2.0**61 * torch.linalg.inv(factors[0].detach()).mT, 100)


def test_memory_is_counted_before_it_is_taken():
    for hermitian in (False, True):
        with pytest.raises(MemoryError, match=r"the 1\.18e\+21 eigenvalues of the sum take"):
            logdet([torch.eye(2)] * 70, kind="sum", hermitian=hermitian)


def upwind(n, dtype=torch.float64):
    """One eigenvalue, with one eigenvector."""
    return 2 * torch.eye(n, dtype=dtype) - torch.ones(n - 1, dtype=dtype).diag(-1)


def defective(tensor, name, dtype):
    """Factors that are not diagonalisable; in rotated ones rounding splits eigenvalues."""
    if name == "alone":
        return [upwind(5, dtype)]
    sizes = (5, 4, 3) if name == "rotated" else (5, 4)
    factors = [upwind(n, dtype) * (1 + k / 3) for k, n in enumerate(sizes)]
    if name == "rotated":
        turns = [torch.linalg.qr(tensor(n, n, dtype=dtype))[0] for n in sizes]
        return [q @ one @ q.mH for q, one in zip(turns, factors, strict=True)]
    return factors if name == "upwind" else [factors[0], tensor(4, 4, dtype=dtype) / 4 + factors[1]]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["upwind", "rotated", "beside another", "alone"])
def test_gradients_of_logdet_of_defective_factors(tensor, name, dtype, recorded):
    factors = [one.requires_grad_() for one in defective(tensor, name, dtype)]

    def gradients(logarithm):
        number = logarithm.real - 2 * logarithm.imag if dtype.is_complex else logarithm
        return torch.autograd.grad(number, factors, create_graph=recorded)

    sign, logarithm = torch.linalg.slogdet(dense_sum(factors))
    expected = torch.complex(logarithm, sign.angle()) if dtype.is_complex else logarithm
    found = logdet(factors, kind="sum")
    assert_same(found.detach(), expected.detach(), 2000)
    for one, other in zip(gradients(found), gradients(expected), strict=True):
        assert_same(one.detach(), other.detach(), 1000)


def test_gradients_of_logdet_of_repeated_eigenvalues(precise):
    factors = [2 * torch.eye(2, dtype=precise), torch.eye(3, dtype=precise)]
    factors = [one.requires_grad_() for one in factors]

    def function(*factors):
        return logdet(factors, kind="sum")

    assert gradcheck(function, factors)
    assert gradgradcheck(function, factors)


def test_second_derivatives_that_would_be_wrong_are_refused(tensor):
    factors = [upwind(5).requires_grad_(), upwind(4).requires_grad_()]
    found = torch.autograd.grad(logdet(factors, kind="sum"), factors, create_graph=True)
    with pytest.raises(torch.linalg.LinAlgError, match="eigenvectors are well-conditioned"):
        torch.autograd.grad(found[0].sum(), factors)
    alone = upwind(3).requires_grad_()
    assert gradgradcheck(lambda one: logdet([one], kind="sum"), (alone,))
    pair = tuple(one.detach() for one in factors)
    hessian = torch.func.hessian(lambda a, b: logdet([a, b], kind="sum"), (0, 1))(*pair)
    assert hessian[0][1].isnan().all()


@pytest.mark.parametrize("name", ["upwind", "rotated"])
def test_transforms_of_logdet_of_a_sum(tensor, name):
    factors = defective(tensor, name, torch.float64)
    tangents = tuple(tensor(*one.shape) for one in factors)

    def own(*factors):
        return logdet(factors, kind="sum")

    def dense(*factors):
        return torch.linalg.slogdet(dense_sum(factors))[1]

    found, expected = (torch.func.jvp(one, tuple(factors), tangents) for one in (own, dense))
    assert_same(torch.stack(found), torch.stack(expected), 2000)
    stacked = [torch.stack([one, 2 * one]) for one in factors]
    every = tuple(range(len(factors)))
    mapped = torch.func.vmap(torch.func.grad(own, every))(*stacked)
    expected = torch.func.grad(dense, every)(*[2 * one for one in factors])
    for one, other in zip(mapped, expected, strict=True):
        assert_same(one[1], other, 1000)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("leading", [(), (3,), (0,)])
def test_expm_apply_against_the_dense_matrix(tensor, dtype, leading):
    factors = [tensor(n, n, dtype=dtype) / 2 for n in SIZES]
    x = tensor(*leading, math.prod(SIZES), dtype=dtype)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    dense = torch.linalg.matrix_exp(0.5 * dense_sum([one.to(wide) for one in factors]))
    expected = (x.to(wide) @ dense.T).to(dtype)
    assert_same(expm_apply(factors, x, 0.5), expected, 100)


def test_gradients_of_expm_apply(tensor, precise):
    factors = [tensor(n, n, dtype=precise, grad=True) for n in SIZES[:2]]
    x = tensor(2, 6, dtype=precise, grad=True)
    t = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)

    def function(x, t, *factors):
        return expm_apply(factors, x, t)

    assert gradcheck(function, (x, t, *factors))
    assert gradgradcheck(function, (x, t, *factors))


SHIFTS = (120.0, -80.0, -40.0)


def shifted(factors, shifts):
    pairs = zip(factors, shifts, strict=True)
    return [f.detach() + s * torch.eye(len(f), dtype=f.dtype) for f, s in pairs]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("t", [4.0, -4.0, torch.tensor(2.5)])
def test_exponentials_of_shifts_that_cancel(tensor, dtype, t):
    factors = [tensor(n, n, dtype=dtype) / 4 for n in SIZES]
    x = tensor(3, 12, dtype=dtype)
    moved = shifted(factors, SHIFTS)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    # the sum of the rounded factors, minus what their shifts add to in exact arithmetic
    exact = shifted([one.to(wide) for one in moved], [-s for s in SHIFTS])
    expected = (x.to(wide) @ torch.linalg.matrix_exp(t * dense_sum(exact)).T).to(dtype)
    scale = float(expected.abs().max())
    found = expm_apply(moved, x, t)
    assert found.dtype == dtype
    assert_same(found / scale, expected / scale, 100)


@pytest.mark.parametrize("shift", [700.0, -700.0])
def test_gradients_of_shifts_that_cancel(tensor, shift):
    factors = [tensor(n, n, grad=True) for n in (3, 1, 2)]
    x, t = tensor(2, 6, grad=True), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    moved = [one.requires_grad_() for one in shifted(factors, (shift, -2 * shift, shift))]
    found = expm_apply(moved, x, t)
    expected = x @ torch.linalg.matrix_exp(t * dense_sum(factors)).T
    assert_same(found, expected, 2000)
    inputs, others = [x, t, *moved], [x, t, *factors]
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), others),
        strict=True,
    ):
        # that of t is a sum of numbers of some 700 times its size
        assert_same(one, other, 700 * 200)


def laplacian(n, dtype):
    off = torch.ones(n - 1, dtype=dtype)
    return off.diag(1) + off.diag(-1) - 2 * torch.eye(n, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize(
    ("growth", "t", "scale"),
    [(15.0, 1.0, 1.0), (20.0, 1.0, 1.0), (0.0, -6.0, 1.0), (0.0, 1.0, 1e20), (0.0, 1.0, 1e-290)],
)
def test_gradients_of_large_results_and_losses(tensor, dtype, growth, t, scale):
    """Of Σ scale · y, by SciPy's Fréchet derivatives."""
    A = laplacian(5, dtype) + growth * torch.eye(5, dtype=dtype)
    B = A + tensor(5, 5, dtype=dtype) / 8
    x = tensor(25, dtype=dtype)
    factors = [one.clone().requires_grad_() for one in (A, B)]
    y = expm_apply(factors, x, t)
    found = torch.autograd.grad(y, factors, torch.full_like(y, scale))
    matrices = [t * one.numpy() for one in (A, B)]
    E, F = (scipy.linalg.expm(one) for one in matrices)
    X, G = x.reshape(5, 5).numpy(), np.ones((5, 5))
    cotangents = G @ F.conj() @ X.conj().T, G.T @ E.conj() @ X.conj()
    for one, matrix, cotangent in zip(found, matrices, cotangents, strict=True):
        unit = np.abs(cotangent).max()
        derivative = scipy.linalg.expm_frechet(
            matrix.conj().T, cotangent / unit, compute_expm=False
        )
        size = np.abs(derivative).max()
        expected = torch.from_numpy(t * derivative / size)
        # the exponents have norms up to 24, of which each rounding is one of the result
        assert_same((one / scale / unit / size).to(dtype), expected.to(dtype), 1000)


def test_second_gradients_of_large_results(tensor):
    """A shift of all factors, and a scale of the loss, are factors of all derivatives."""
    x, steps = tensor(6), [tensor(2, 2), tensor(3, 3)]
    factors = [tensor(n, n) for n in (2, 3)]

    def second(shift, scale):
        moved = shifted(factors, (shift, shift))
        moved = [one.requires_grad_() for one in moved]
        loss = scale * expm_apply(moved, x).sum()
        first = torch.autograd.grad(loss, moved, create_graph=True)
        slope = sum((one * step).sum() for one, step in zip(first, steps, strict=True))
        return torch.autograd.grad(slope, moved)

    growth = math.exp(-40.0)
    for large, plain in zip(second(20.0, growth), second(0.0, 1.0), strict=True):
        assert_same(large, plain, 5000)
    for large, plain in zip(second(0.0, 2.0**70), second(0.0, 1.0), strict=True):
        assert_same(large / 2.0**70, plain, 5000)


def test_exponentials_that_overflow_or_vanish():
    one = torch.ones(1, dtype=torch.float64)
    factors = [torch.full((1, 1), shift).double() for shift in (500.0, 400.0)]
    assert float(expm_apply(factors, one)) == math.inf
    assert float(expm_apply(factors, one, -1.0)) == 0.0
    assert float(expm_apply(factors, 0 * one)) == 0.0
    small = 1e-200 * one
    assert math.isclose(
        float(expm_apply(factors, small)), math.exp(450) * 1e-200 * math.exp(450), rel_tol=1e-12
    )
    lost = torch.tensor([[0.0, 0.0], [1.0, 900.0]]).double()
    assert expm_apply([lost], torch.ones(2).double()).isnan().tolist() == [True, False]
    assert expm_apply([torch.zeros(0, 0), torch.ones(1, 1)], torch.ones(0)).shape == (0,)


def test_singular_ones_are_refused(tensor):
    zero = torch.zeros(2, 2, dtype=torch.float64)
    with pytest.raises(torch.linalg.LinAlgError):
        solve([zero, torch.eye(2).double()], tensor(4))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        solve([zero, zero], tensor(4), kind="sum")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda t: ([], t(4)), ValueError, "factors is empty"),
        (lambda t: ([t(2, 3)], t(4)), ValueError, "expected a square matrix"),
        (lambda t: ([t(2, 2)], t(4)), ValueError, r"b has shape \(4,\); expected \(..., 2\)"),
        (lambda t: ([t(2, 2)], t(2).float()), TypeError, "but b has torch.float32"),
    ],
)
def test_refused(tensor, given, error, text):
    with pytest.raises(error, match=text):
        solve(*given(tensor))


def test_times_that_are_refused(tensor):
    with pytest.raises(ValueError, match=r"t has shape \(1,\); expected a single number"):
        expm_apply([tensor(2, 2)], tensor(2), tensor(1))
    for t in (1j, torch.tensor(1j)):
        with pytest.raises(TypeError, match=r"t is complex, but x has dtype torch\.float64"):
            expm_apply([tensor(2, 2)], tensor(2), t)


def test_other_kinds_are_refused(tensor):
    with pytest.raises(ValueError, match="kind is 'sums'; expected 'product' or 'sum'"):
        solve([tensor(2, 2)], tensor(2), kind="sums")
    with pytest.raises(ValueError, match="kind is"):
        logdet([tensor(2, 2)], kind="sums")


def test_scales_of_a_product_that_cancel(regular, tensor):
    """The product of the first two inverses is out of range; so would their gradients be."""
    factors = regular(sizes=(2, 3, 2, 2))
    scales = (1e200, 1e200, 1e-200, 1e-200)
    scaled = [
        (scale * factor).requires_grad_() for scale, factor in zip(scales, factors, strict=True)
    ]
    b = tensor(24)
    x = solve(scaled, b)
    plain = [factor.clone().requires_grad_() for factor in factors]
    torch.testing.assert_close(x, solve(plain, b), rtol=1e-11, atol=0)
    x.sum().backward()
    solve(plain, b).sum().backward()
    for scale, one, other in zip(scales, scaled, plain, strict=True):
        torch.testing.assert_close(one.grad * scale, other.grad, rtol=1e-10, atol=1e-12)
