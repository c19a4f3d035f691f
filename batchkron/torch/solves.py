"""Solves, determinants and exponentials of products and sums of matrices, by factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from batchkron.operators import KroneckerSum
from batchkron.operators.determinants import (
    repeated_phases,
    repeated_signs,
    repeated_sum,
    repetitions,
)
from batchkron.operators.kronecker_sum.scaled_exponential import (
    LN2,
    MAX_FOLDED,
    MAX_STEP,
    scaled_exponential,
)
from batchkron.operators.memory import refuse_without_memory
from batchkron.torch.call_modes import applied, has_tangents, is_eager, is_transformed
from batchkron.torch.kron import kron_matmul
from batchkron.torch.matrix_exponential import matrix_exp
from batchkron.torch.multilinear import looped
from batchkron.torch.registration import LIBRARY
from batchkron.torch.scaling import times_power_of_two, unit_exponents
from batchkron.torch.sum_logdet import outer_sum, real_logarithm, sum_logdet
from batchkron.torch.tensors import check_tensors, numbered, on_stream_of, view

__all__ = ["expm_apply", "logdet", "solve"]

_MAX_BITS = 4  # |log2| of an exponential's size that is left in it
Kind = Literal["product", "sum"]
"""Whether factors are those of A_1 ⊗ … ⊗ A_d, or of A_1 ⊕ … ⊕ A_d."""


def _checked(factors: Sequence[Tensor], x: Tensor | None, name: str) -> list[Tensor]:
    """Return factors as a list after checking that they are square and fit the vectors x.

    Raises `ValueError`, `TypeError` as `solve` documents.
    """
    matrices = list(factors)
    if not matrices:
        raise ValueError("factors is empty; expected at least one factor")
    if x is None:
        check_tensors(matrices, numbered(rest="factors"))
    else:
        check_tensors([x, *matrices], numbered(name, rest="factors"))
    size = 1
    for k, factor in enumerate(matrices):
        if factor.dim() != 2 or factor.shape[0] != factor.shape[1]:
            raise ValueError(
                f"factors[{k}] has shape {tuple(factor.shape)}; expected a square matrix"
            )
        size = size * factor.shape[0]
    if x is not None and (x.dim() == 0 or x.shape[-1] != size):
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}; expected (..., {size}), the product of the "
            f"factors' sizes"
        )
    return matrices


def _check_kind(kind: str) -> None:
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; expected 'product' or 'sum'")


def solve(factors: Sequence[Tensor], b: Tensor, *, kind: Kind = "product") -> Tensor:
    """Solve (A_1 ⊗ … ⊗ A_d) x = b, or (A_1 ⊕ … ⊕ A_d) x = b, with gradients.

    Parameters
    ----------
    factors : sequence of Tensor, each (n_k, n_k)
        The square matrices.
    b : Tensor, (..., Π n_k)
        Right-hand sides along the last axis; float32, float64, complex64 or complex128.
    kind : {"product", "sum"}
        The Kronecker product, or the Kronecker sum Σ_k I ⊗ … ⊗ A_k ⊗ … ⊗ I.

    Returns
    -------
    Tensor, (..., Π n_k)

    Raises
    ------
    ValueError
        If there is no factor, one is not square, b does not fit, or the kind is another one.
    TypeError
        If dtypes or devices differ, or the dtype has no kernels.
    torch.linalg.LinAlgError, numpy.linalg.LinAlgError
        If the product, or the sum, is singular.

    Notes
    -----
    A product is solved factor by factor with `torch.linalg.solve`. A sum is solved as by
    `batchkron.KroneckerSum.solve`, by diagonalising the factors or by their Schur forms, which
    are computed on the host: on a CUDA device the call waits for the factors. With the gradient G
    of x and λ = A⁻ᴴ G the gradients are ∂b = λ, and for a sum ∂A_k = -Σ λ[l, p, r] conj(x[l, q, r])
    over all indices but those of mode k: no derivative of an eigenvalue occurs, so that repeated
    ones do no harm.

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import solve
    >>> A, B = torch.diag(torch.tensor([1.0, 2.0])), torch.diag(torch.tensor([4.0, 5.0]))
    >>> solve([A, B], torch.tensor([4.0, 5.0, 8.0, 10.0]))
    tensor([1., 1., 1., 1.])
    >>> solve([A, B], torch.tensor([5.0, 6.0, 6.0, 7.0]), kind="sum")
    tensor([1., 1., 1., 1.])
    """
    _check_kind(kind)
    matrices = _checked(factors, b, "b")
    if kind == "sum":
        return _solve_sum(b, matrices)
    x, before, after = b, math.prod(b.shape[:-1]), b.shape[-1]
    exponents = [unit_exponents(factor) for factor in matrices]  # added up, where scales cancel
    for factor, exponent in zip(matrices, exponents, strict=True):
        n = factor.shape[0]
        after = after // max(1, n)
        front = x.reshape(before, n, after).transpose(0, 1).reshape(n, before * after)
        scaled = times_power_of_two(factor, -exponent)
        x = torch.linalg.solve(scaled, front).reshape(n, before, after).transpose(0, 1)
        before = before * n
    return times_power_of_two(x.reshape(b.shape), -sum(exponents[1:], exponents[0]))


def _run_solve_sum(b: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Solve (A_1 ⊕ … ⊕ A_d) x = b for vectors along the last axis."""
    out = torch.empty_like(b, memory_format=torch.contiguous_format)
    if b.numel() == 0:
        return out
    operator = KroneckerSum([view(factor.cpu()) for factor in factors])
    with on_stream_of(b):
        vectors = view(b.reshape(-1, b.shape[-1])).T
        placed: Any = operator.to(b.device.type)
        solution = placed.factorise().solve(vectors)
        view(out).reshape(-1, b.shape[-1])[...] = solution.T
    return out


class _SolveSum(torch.autograd.Function):
    """The solve that torch.func transforms."""

    @staticmethod
    def forward(b: Tensor, *factors: Tensor) -> Tensor:
        return _run_solve_sum(b, factors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(output, *inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        dual, found = _gradients_of_solve(ctx, gradient, ctx.needs_input_grad[1:])
        return dual, *found

    @staticmethod
    def vmap(info: Any, in_dims: Any, b: Tensor, *factors: Tensor) -> Any:
        return _mapped(_solve_sum, info, (in_dims[0], in_dims[1:]), b, factors)


def _solve_sum(b: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Solve with gradients: by the registered operator, which has none under torch.func.

    The operator would also drop tangents, where an autograd function refuses them.
    """
    if (is_transformed() or has_tangents()) and is_eager(b, *factors):
        return applied(_SolveSum, b, *factors)  # type: ignore[no-any-return]
    return _operator(b, factors)  # type: ignore[no-any-return]


def _save_solve_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs[1])


def _gradients_of_solve(
    ctx: Any, gradient: Tensor, needed: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """Return the gradients of b and of the factors."""
    x, *factors = ctx.saved_tensors
    dual = _solve_sum(gradient, [factor.mH for factor in factors])
    found: list[Tensor | None] = []
    before, after = math.prod(x.shape[:-1]), x.shape[-1]
    for factor, is_needed in zip(factors, needed, strict=True):
        n = factor.shape[0]
        after = after // max(1, n)
        left, right = dual.reshape(before, n, after), x.reshape(before, n, after)
        found.append(-torch.einsum("lpr,lqr->pq", left, right.conj()) if is_needed else None)
        before = before * n
    return dual, found


def _mapped(call: Any, info: Any, in_dims: Any, b: Tensor, factors: Sequence[Tensor]) -> Any:
    """One solve if only b has a batch, else a solve for each of its elements."""
    if in_dims[0] is not None and all(dim is None for dim in in_dims[1]):
        return call(b.movedim(in_dims[0], 0), factors), 0
    return looped(call, info, in_dims, (b, factors))


LIBRARY.define(
    "kronecker_sum_solve(Tensor b, Tensor[] factors) -> Tensor", tags=torch.Tag.pt2_compliant_tag
)
for _device in ("CPU", "CUDA"):
    LIBRARY.impl("kronecker_sum_solve", _run_solve_sum, _device)
torch.library.register_fake(
    "batchkron::kronecker_sum_solve",
    lambda b, factors: torch.empty_like(b, memory_format=torch.contiguous_format),
)
torch.library.register_autograd(
    "batchkron::kronecker_sum_solve",
    lambda ctx, gradient: _gradients_of_solve(ctx, gradient, ctx.needs_input_grad[1]),
    setup_context=_save_solve_sum,
)
_operator: Any = torch.ops.batchkron.kronecker_sum_solve.default
torch.library.register_vmap("batchkron::kronecker_sum_solve", partial(_mapped, _operator))


def logdet(factors: Sequence[Tensor], *, kind: Kind = "product", hermitian: bool = False) -> Tensor:
    """Compute log det (A_1 ⊗ … ⊗ A_d), or log det (A_1 ⊕ … ⊕ A_d), with gradients.

    Parameters
    ----------
    factors : sequence of Tensor, each (n_k, n_k)
        The square matrices; float32, float64, complex64 or complex128.
    kind : {"product", "sum"}
        As for `solve`.
    hermitian : bool
        Whether all factors are Hermitian (symmetric, if real). For sums it is faster and more
        precise; only the lower triangles are read then.

    Returns
    -------
    Tensor, ()
        Real for real factors: NaN if the determinant is negative. For complex factors that are not
        Hermitian complex, with an imaginary part in (-π, π].

    Raises
    ------
    ValueError
        If there is no factor, one is not square, or the kind is another one.
    TypeError
        If dtypes or devices differ, or the dtype has no kernels.
    MemoryError
        If the memory cannot hold the N eigenvalues of a sum on the CPU, in three arrays.
    torch.linalg.LinAlgError
        In the backward pass, if a sum is singular.

    Notes
    -----
    log det of a product is Σ_k (N / n_k) log det A_k, N = Π n_k; ∂A_k = (N / n_k) A_k⁻ᴴ times the
    gradient. That of a sum is the sum of the logarithms of λ_1 + … + λ_d over all combinations of
    the factors' eigenvalues. Its gradients are partial traces of the inverse: ∂A_k is the adjoint
    of Σ (A_k + r I)⁻¹ over all sums r of eigenvalues of the other factors, by the eigenvectors of
    A_k if they are well-conditioned, else by N / n_k inverses. Factors need not be diagonalisable.
    Second derivatives of sums of more than one factor need well-conditioned eigenvectors: for
    others, as of upwind differences, they are an error, and NaN in compiled and transformed calls.
    With ``hermitian`` second derivatives need factors whose eigenvalues are simple.

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import logdet
    >>> A, B = torch.diag(torch.tensor([1.0, 2.0])), torch.diag(torch.tensor([1.0, 3.0]))
    >>> logdet([A, B]).exp()  # of diag(1, 3, 2, 6)
    tensor(36.)
    >>> logdet([A, B], kind="sum", hermitian=True).exp()  # of diag(2, 4, 3, 5)
    tensor(120.0000)
    """
    _check_kind(kind)
    matrices = _checked(factors, None, "")
    if kind == "product":
        return _product_logdet(matrices, hermitian)
    if matrices[0].is_cpu and not torch.compiler.is_compiling():
        size = math.prod([factor.shape[0] for factor in matrices])
        item_bytes = torch.finfo(matrices[0].dtype).bits // 8 * (1 if hermitian else 2)
        refuse_without_memory(size, 3, item_bytes, "eigenvalues of the sum")
    if not hermitian:
        return sum_logdet(matrices)
    zero = matrices[0].new_zeros(1).real
    values = outer_sum([torch.linalg.eigvalsh(factor) for factor in matrices], zero)
    return real_logarithm(values.abs().log().sum(), (values < 0).sum() % 2 == 1)


def _product_logdet(matrices: Sequence[Tensor], hermitian: bool) -> Tensor:
    """Return Σ_k (N / n_k) log det A_k."""
    counts = repetitions([factor.shape[0] for factor in matrices])
    found = [torch.linalg.slogdet(factor) for factor in matrices]
    signs, logarithms = [one[0] for one in found], [one[1] for one in found]
    logarithm = repeated_sum(logarithms, counts, matrices[0].new_zeros(()).real)
    if not matrices[0].is_complex() or hermitian:
        one = matrices[0].new_ones(()).real
        return real_logarithm(logarithm, repeated_signs([s.real for s in signs], counts, one) < 0)
    turns = torch.stack(signs).to(torch.complex128).angle() / (2 * math.pi)
    phases = repeated_phases(turns, counts, turns.new_tensor)
    return torch.complex(logarithm, (2 * math.pi * phases).to(logarithm.dtype))


def expm_apply(factors: Sequence[Tensor], x: Tensor, t: float | Tensor = 1.0) -> Tensor:
    """Compute exp(t (A_1 ⊕ … ⊕ A_d)) x of a Kronecker sum, with gradients of all, t as well.

    Parameters
    ----------
    factors : sequence of Tensor, each (n_k, n_k)
        The square matrices A_k.
    x : Tensor, (..., Π n_k)
        Vectors along the last axis; float32, float64, complex64 or complex128.
    t : float, or Tensor of shape ()
        The time; it may be complex if x is.

    Returns
    -------
    Tensor, (..., Π n_k)
        Numbers beyond the range of the dtype are infinite, those below are 0.

    Raises
    ------
    ValueError
        If there is no factor, one is not square, x does not fit, or t is no single number.
    TypeError
        If dtypes or devices differ, the dtype has no kernels, or t is complex and x is not.

    Notes
    -----
    The exponential of a Kronecker sum is the Kronecker product of the exponentials of its factors,
    exp(t A_1) ⊗ … ⊗ exp(t A_d). These are computed by `torch.linalg.matrix_exp`, in float64 for
    float32 factors, because its errors in float32 are some hundred roundings. Factors may have
    shifts that cancel in their sum, as for `batchkron.KroneckerSum.expm_apply`: the sizes of their
    exponentials are found on the host, for which the call waits on a CUDA device.

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import expm_apply
    >>> decay = torch.diag(torch.tensor([0.0, -1.0]))
    >>> expm_apply([decay, decay], torch.ones(4), 0.5)
    tensor([1.0000, 0.6065, 0.6065, 0.3679])
    """
    matrices = _checked(factors, x, "x")
    if isinstance(t, Tensor) and t.dim():
        raise ValueError(f"t has shape {tuple(t.shape)}; expected a single number")
    if not x.is_complex() and (t.is_complex() if isinstance(t, Tensor) else isinstance(t, complex)):
        raise TypeError(f"t is complex, but x has dtype {x.dtype}; convert x and factors, too")
    wide = torch.complex128 if x.is_complex() else torch.float64
    exponents = [t * factor.to(wide) for factor in matrices]
    powers = [_powers(exponent.detach()) for exponent in exponents]
    exponentials = []
    for exponent, power in zip(exponents, powers, strict=True):
        one = torch.eye(len(exponent), dtype=wide, device=x.device)
        rest = exponent - power * LN2[0] * one - power * LN2[1] * one
        exponentials.append(matrix_exp(rest))
    total = torch.stack(powers).sum(0)
    folded = total.clamp(-MAX_FOLDED, MAX_FOLDED)
    exponentials[0] = exponentials[0] * folded.exp2()
    y = kron_matmul(x, [exponential.mT.to(x.dtype) for exponential in exponentials])
    if is_eager(x) and not is_transformed() and bool(total == folded):
        return y
    return _scaled(y, total - folded)


def _scaled(y: Tensor, power: Tensor) -> Tensor:
    """Return 2^power y; beside infinity, zeros may be lost numbers, and become NaN."""
    step = MAX_STEP["d" if y.dtype in (torch.float64, torch.complex128) else "f"]
    scaled = y
    for _ in range(3):  # enough to take the largest number to 0, and the smallest one to infinity
        part = power.clamp(-step, step)
        scaled, power = scaled * part.exp2().to(y.real.dtype), power - part
    lost = (y == 0) & scaled.isinf().any(-1, keepdim=True)
    return scaled.masked_fill(lost, math.nan)


def _run_powers(matrices: Tensor) -> Tensor:
    """Return integers p, as floats, for which 2^-p exp(A) have entries near 1."""
    found = matrices.new_zeros(matrices.shape[:-2], dtype=torch.float64)
    if matrices.numel() and not float(matrices.abs().sum(-2).amax()) <= _MAX_BITS * math.log(2):
        power = scaled_exponential(view(matrices.cpu()), 1.0)[1].max(axis=-1)
        found.copy_(torch.from_numpy(np.where(abs(power) <= _MAX_BITS, 0.0, power)))
    return found


LIBRARY.define("exponential_powers(Tensor matrices) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
for _device in ("CPU", "CUDA"):
    LIBRARY.impl("exponential_powers", _run_powers, _device)
torch.library.register_fake(
    "batchkron::exponential_powers",
    lambda matrices: matrices.new_empty(matrices.shape[:-2], dtype=torch.float64),
)
_powers: Any = torch.ops.batchkron.exponential_powers.default
torch.library.register_vmap(
    "batchkron::exponential_powers",
    lambda info, in_dims, matrices: (_powers(matrices.movedim(in_dims[0], 0)), 0),
)
