"""Powers of two that are taken out of tensors whose squares, or products, would be out of range."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["exponents_of", "times_power_of_two", "unit_exponents"]


def exponents_of(matrices: Tensor) -> Tensor:
    """Return e of each matrix (..., n, n) of size 2^e, 0 of those that are 0 or not finite.

    They have no gradient. Sizes are those of `batchkron.operators.scaling`.
    """
    given = matrices.detach()
    if given.shape[-1] == 0:
        return torch.zeros(given.shape[:-2], dtype=torch.int32, device=given.device)
    sizes = given.real.abs().amax((-2, -1))
    if given.is_complex():
        sizes = torch.maximum(sizes, given.imag.abs().amax((-2, -1)))
    return torch.where(sizes.isfinite() & (sizes != 0), torch.frexp(sizes).exponent - 1, 0)


def unit_exponents(matrices: Tensor) -> Tensor:
    """Return `exponents_of` matrices, and 0 for sizes that are ordinary there."""
    exponents = exponents_of(matrices)
    ordinary = math.frexp(torch.finfo(matrices.dtype).max)[1] // 8
    return torch.where(exponents.abs() > ordinary, exponents, 0)


def times_power_of_two(x: Tensor, exponents: Tensor) -> Tensor:
    """Compute 2^exponents · x, by two factors, since one may be out of range."""
    half = torch.div(exponents, 2, rounding_mode="floor")
    real = x.real.dtype if x.is_complex() else x.dtype
    return x * torch.exp2(half.to(real)) * torch.exp2((exponents - half).to(real))
