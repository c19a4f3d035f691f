"""log det of Kronecker sums whose factors need not be diagonalisable, with gradients.

Let r_i be the eigenvalues of the sum of all factors but A_k. In a Schur basis of these the inverse
of the whole sum is block triangular, and the blocks on its diagonal are (A_k + r_i I)⁻¹. So

    ∂ log det (A_1 ⊕ … ⊕ A_d) / ∂A_k = P_kᵀ,    P_k = Σ_i (A_k + r_i I)⁻¹,

the partial trace of the inverse. Sums over all r_i are as accurate as computed eigenvalues are
those of a matrix nearby; their own errors, large for factors far from normal, do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from batchkron.torch.call_modes import has_tangents, is_eager, is_transformed
from batchkron.torch.multilinear import looped
from batchkron.torch.registration import LIBRARY

__all__ = ["outer_sum", "real_logarithm", "sum_logdet"]

_MAX_ENTRIES = 1 << 22  # of the shifted matrices that are inverted at once: 64 MiB of complex128


def sum_logdet(factors: Sequence[Tensor]) -> Tensor:
    """Return log det (A_1 ⊕ … ⊕ A_d), complex for complex factors, NaN for a negative one of real.

    Raises
    ------
    torch.linalg.LinAlgError
        In a backward pass, if the sum is singular; in one of second order, if the eigenvectors of a
        factor are too ill-conditioned. In compiled and transformed calls the latter gives NaN.
    """
    # torch.compile takes no autograd functions with rules for forward mode
    if torch.compiler.is_compiling():
        return _operator(factors)  # type: ignore[no-any-return]
    return _SumLogdet.apply(*factors)  # type: ignore[no-any-return, no-untyped-call]


def outer_sum(values: Sequence[Tensor], zero: Tensor) -> Tensor:
    """Return all sums with one entry of each tensor (n_k,), (Π n_k,); of no tensor, zero (1,)."""
    total = zero
    for entries in values:
        total = (total[:, None] + entries).reshape(-1)
    return total


def _logarithm(factors: Sequence[Tensor]) -> Tensor:
    """Return log det of the sum from its eigenvalues."""
    zero = factors[0].new_zeros(1)
    values = outer_sum([torch.linalg.eigvals(one) for one in factors], zero)
    logarithm = values.abs().log().sum()
    if factors[0].is_complex():
        phase = values.angle().sum(dtype=torch.float64)
        phase = phase - 2 * math.pi * (phase / (2 * math.pi)).round()
        phase = torch.where(logarithm == -math.inf, 0.0, phase)  # a determinant of 0 has none
        return torch.complex(logarithm, phase.to(logarithm.dtype))
    # conjugate pairs are there twice, so that they do not change the parity
    return real_logarithm(logarithm, ((values.imag == 0) & (values.real < 0)).sum() % 2 == 1)


def real_logarithm(logarithm: Tensor, is_odd: Tensor) -> Tensor:
    """Return log det of a real determinant from the logarithm of its modulus.

    It is NaN for an odd number of negative eigenvalues, unless the determinant is 0.
    """
    is_negative = is_odd & (logarithm != -math.inf)
    return torch.where(is_negative, torch.full_like(logarithm, math.nan), logarithm)


class _SumLogdet(torch.autograd.Function):
    """log det of the sum of the factors that are its arguments."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*factors: Tensor) -> Tensor:
        return _logarithm(factors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(_gradients(ctx, gradient, ctx.needs_input_grad))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        wanted = [tangent is not None for tangent in tangents]
        found = zip(_partial_traces(ctx.saved_tensors, wanted), tangents, strict=True)
        terms = [(P.mT * tangent).sum() for P, tangent in found if P is not None]
        return sum(terms[1:], terms[0])


def _gradients(ctx: Any, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    found = _partial_traces(ctx.saved_tensors, wanted)
    return [None if P is None else gradient * P.mH for P in found]


LIBRARY.define("kronecker_sum_logdet(Tensor[] factors) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
for _device in ("CPU", "CUDA"):
    LIBRARY.impl("kronecker_sum_logdet", _logarithm, _device)
torch.library.register_fake(
    "batchkron::kronecker_sum_logdet", lambda factors: factors[0].new_empty(())
)
torch.library.register_autograd(
    "batchkron::kronecker_sum_logdet",
    lambda ctx, gradient: _gradients(ctx, gradient, ctx.needs_input_grad[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[0]),
)
_operator: Any = torch.ops.batchkron.kronecker_sum_logdet.default
torch.library.register_vmap(
    "batchkron::kronecker_sum_logdet",
    lambda info, in_dims, factors: looped(_operator, info, in_dims, (factors,)),
)


def _partial_traces(factors: Sequence[Tensor], wanted: Sequence[bool]) -> list[Tensor | None]:
    """Return the P_k that are wanted."""
    recorded = is_transformed() or has_tangents() or torch.is_grad_enabled()
    plain = is_eager(*factors) and not recorded
    spectrum: Any = _Eigenvalues.apply if recorded else torch.linalg.eigvals
    spectra = [spectrum(one) for one in factors]
    found: list[Tensor | None] = []
    for k, factor in enumerate(factors):
        if not wanted[k]:
            found.append(None)
            continue
        shifts = outer_sum([*spectra[:k], *spectra[k + 1 :]], factor.new_zeros(1))
        trace = _by_eigenvectors(factor, shifts) if plain else None
        trace = _by_inverses(factor, shifts) if trace is None else trace
        found.append(trace if factor.is_complex() else trace.real)
    return found


def _by_eigenvectors(matrix: Tensor, shifts: Tensor) -> Tensor | None:
    """Return Σ_i (A + r_i I)⁻¹ from well-conditioned eigenvectors, None if they are not.

    It takes N numbers instead of N n_k, and is a hundred times faster than inverses for n_k = 64.
    """
    values, vectors = torch.linalg.eig(matrix)
    inverse, _ = torch.linalg.inv_ex(vectors)
    if not bool(_condition(vectors, inverse) < torch.finfo(matrix.dtype).eps ** -0.25):
        return None
    diagonal = (1 / (values[:, None] + shifts)).sum(1)
    return (vectors * diagonal) @ inverse


def _by_inverses(matrix: Tensor, shifts: Tensor) -> Tensor:
    """Return Σ_i (A + r_i I)⁻¹."""
    n = matrix.shape[0]
    identity = torch.eye(n, dtype=shifts.dtype, device=shifts.device)
    total = torch.zeros_like(identity)
    for some in shifts.split(max(1, _MAX_ENTRIES // max(1, n * n))):
        total = total + torch.linalg.inv(matrix + some[:, None, None] * identity).sum(0)
    return total


def _condition(vectors: Tensor, inverse: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(vectors) * torch.linalg.matrix_norm(inverse)


class _Eigenvalues(torch.autograd.Function):
    """Eigenvalues whose gradients are refused where they are wrong.

    Symmetric functions of them are differentiated, so that repeated ones may mix.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> Tensor:
        return torch.linalg.eig(matrix)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (matrix,) = ctx.saved_tensors
        vectors, inverse = _checked_vectors(matrix)
        found = (inverse.mH * gradient) @ vectors.mH
        return found if matrix.is_complex() else found.real

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        vectors, inverse = _checked_vectors(ctx.saved_tensors[0])
        return (inverse * (tangent.to(vectors.dtype) @ vectors).mT).sum(1)


def _checked_vectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvectors and their inverse; NaN, or an error, if their condition is bad."""
    vectors = torch.linalg.eig(matrix)[1]
    inverse, _ = torch.linalg.inv_ex(vectors)
    condition = _condition(vectors, inverse)
    good = condition < torch.finfo(matrix.dtype).eps ** -0.5
    if is_eager(matrix) and not is_transformed() and not has_tangents() and not bool(good):
        raise torch.linalg.LinAlgError(  # type: ignore[attr-defined]
            f"second derivatives of logdet(kind='sum') need factors whose eigenvectors are "
            f"well-conditioned; those of a factor of shape {tuple(matrix.shape)} have a condition "
            f"number of {float(condition):.1e}"
        )
    return vectors, torch.where(good, inverse, math.nan)
