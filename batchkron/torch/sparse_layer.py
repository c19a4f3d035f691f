"""Layers activation(K_1 ⋯ K_L x + bias) of Kronecker-sparse matrices, one node of autograd each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from batchkron.torch.call_modes import has_tangents, is_eager, is_recorded, is_transformed
from batchkron.torch.products import computed
from batchkron.torch.sparse import multiply, product
from batchkron.torch.sparse_chain import (
    APPROXIMATE,
    Activation,
    LayerEnd,
    broadcast,
    chain_gradients,
    multiply_chain,
)
from batchkron.torch.tensors import are_filled

__all__ = ["layer"]


def layer(
    x: Tensor,
    chain: Sequence[Tensor],
    bias: Tensor | None,
    activation: Activation | None,
    last: bool,
) -> Tensor:
    """Return activation(K_1 ⋯ K_L x + bias), with gradients.

    In an eager call the kernel of K_1 adds the bias and applies the activation before it writes,
    where one kernel multiplies by K_1. If gradients are wanted it writes z, what the activation is
    applied to, as well: the backward pass reads it. All else is computed by operations of torch.

    ``x``, ``chain``: as `check_chain` has accepted them.
    ``bias`` (Tensor or None, (features,)).
    ``activation`` ({None, "gelu", "gelu-tanh"}).
    ``last``: whether vectors lie along the last axis.
    """
    if bias is None and activation is None:
        return product(x, chain, last)
    tensors = [x, *chain] if bias is None else [x, *chain, bias]
    if (
        not is_eager(*tensors)
        or is_transformed()
        or has_tangents()
        or not _is_plain(bias, x, chain)
    ):
        return _ended(product(x, chain, last), bias, activation, last)
    if is_recorded(*tensors):
        return _Layer.apply(activation, last, x, bias, *chain)  # type: ignore[no-any-return]
    return _run(x, chain, bias, activation, last, keep=False)[0]


def _is_plain(bias: Tensor | None, x: Tensor, chain: Sequence[Tensor]) -> bool:
    """Whether kernels can read a bias: torch's operations take others, or refuse them."""
    if bias is None:
        return True
    a, b, _, d = chain[0].shape
    same = bias.dtype == x.dtype and bias.device == x.device
    return same and bias.shape == (a * b * d,)


def _ended(y: Tensor, bias: Tensor | None, activation: Activation | None, last: bool) -> Tensor:
    """Return activation(y + bias) by differentiable operations of torch."""
    if bias is not None:
        y = y + broadcast(bias, y, last)
    if activation is not None:
        y = torch.nn.functional.gelu(y, approximate=APPROXIMATE[activation])
    return y


def _run(
    x: Tensor,
    chain: Sequence[Tensor],
    bias: Tensor | None,
    activation: Activation | None,
    last: bool,
    *,
    keep: bool,
    with_z: bool = False,
) -> tuple[Tensor, Tensor | None, list[Tensor]]:
    """Return y, z if it is wanted, and what `chain_gradients` makes use of, if ``keep``."""
    a, b, _, d = chain[0].shape
    rows = a * b * d
    out = x.new_empty((rows, *x.shape[1:]) if last else (*x.shape[:-1], rows))
    before = torch.empty_like(out) if with_z else None
    added = None if bias is None else computed(bias.detach()).contiguous()
    end = LayerEnd(added, activation, before)
    return out, before, multiply_chain(x, chain, last, out, keep=keep, end=end)


class _Layer(torch.autograd.Function):
    """An eager layer whose gradients are wanted, outside of transforms."""

    @staticmethod
    def forward(
        ctx: Any,
        activation: Activation | None,
        last: bool,
        x: Tensor,
        bias: Tensor | None,
        *chain: Tensor,
    ) -> Tensor:
        ctx.activation, ctx.last, ctx.length = activation, last, len(chain)
        keep = any(ctx.needs_input_grad[4:])
        given = x, chain, bias, activation, last
        out, before, kept = _run(*given, keep=keep, with_z=activation is not None)
        ctx.save_for_backward(x, bias, before, *chain, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, bias, z, *rest = ctx.saved_tensors
        chain, kept, last = rest[: ctx.length], rest[ctx.length :], ctx.last
        needs_x, needs_bias, *needed = ctx.needs_input_grad[2:]
        biases = [] if bias is None else [bias]
        recorded = is_recorded(gradient, x, *biases, *chain)
        if ctx.activation is not None:
            if recorded:  # by operations whose gradients are recorded
                z = _ended(multiply(x, chain, [], [int(last)]), bias, None, last)
            how = APPROXIMATE[ctx.activation]
            gradient = torch.ops.aten.gelu_backward(gradient, z, approximate=how)
        of_x, of_bias, found = None, None, iter(())
        if needs_bias:
            axes = range(1, gradient.dim()) if last else range(gradient.dim() - 1)
            of_bias = gradient.sum(list(axes)) if len(axes) else gradient.clone()
        if not recorded and (needs_x or any(needed)) and are_filled(x, gradient, *chain):
            given = x, gradient, chain, needed, last
            of_x, of_values = chain_gradients(*given, with_x=needs_x, kept=kept)
            found = iter(of_values)
        else:
            numbers = [int(last)]
            if needs_x:
                adjoint = multiply.function.adjoint(chain, [], numbers, x.shape)
                of_x = multiply(gradient, *adjoint)
            if any(needed):
                found = iter(multiply.derivative(x, gradient, needed, chain, [], numbers))
        return None, None, of_x, of_bias, *[next(found) if one else None for one in needed]
