"""Exponentials of matrices whose gradients are right for losses of any scale."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from batchkron.torch.call_modes import applied
from batchkron.torch.registration import LIBRARY
from batchkron.torch.scaling import exponents_of, times_power_of_two

__all__ = ["matrix_exp"]


def matrix_exp(matrices: Tensor) -> Tensor:
    """Return exp(A) of each matrix (..., n, n), with gradients of any order."""
    # the operator has none under torch.func; torch.compile fails for an autograd function that its
    # own backward calls
    if torch.compiler.is_compiling():
        return _operator(matrices)  # type: ignore[no-any-return]
    return applied(_Exponential, matrices)  # type: ignore[no-any-return]


def _save(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> Tensor:
    """Return the block at the right of exp [[Aᴴ, G], [0, Aᴴ]], which is linear in the gradient G.

    The whole matrix is scaled by its norm, so that beside a large G the digits of Aᴴ would be lost:
    G is scaled to size 1, and the block back.
    """
    adjoint = ctx.saved_tensors[0].mH
    exponents = exponents_of(gradient)[..., None, None]
    top = torch.cat((adjoint, times_power_of_two(gradient, -exponents)), -1)
    bottom = torch.cat((torch.zeros_like(adjoint), adjoint), -1)
    n = adjoint.shape[-1]
    block = matrix_exp(torch.cat((top, bottom), -2))[..., :n, n:]
    return times_power_of_two(block, exponents)


class _Exponential(torch.autograd.Function):
    """The exponential that torch.func transforms."""

    generate_vmap_rule = True
    setup_context = staticmethod(_save)
    backward = staticmethod(_backward)

    @staticmethod
    def forward(matrices: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(matrices)


LIBRARY.define("matrix_exp(Tensor matrices) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
for _device in ("CPU", "CUDA"):
    LIBRARY.impl("matrix_exp", torch.linalg.matrix_exp, _device)
torch.library.register_fake(
    "batchkron::matrix_exp",
    lambda matrices: torch.empty_like(matrices, memory_format=torch.contiguous_format),
)
torch.library.register_autograd("batchkron::matrix_exp", _backward, setup_context=_save)
_operator: Any = torch.ops.batchkron.matrix_exp.default
torch.library.register_vmap(
    "batchkron::matrix_exp",
    lambda info, in_dims, matrices: (_operator(matrices.movedim(in_dims[0], 0)), 0),
)
