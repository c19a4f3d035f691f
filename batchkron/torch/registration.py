"""Registers functions and their gradients as operators of torch, which traced calls take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from batchkron.torch.multilinear import Entry, Multilinear, looped

__all__ = ["LIBRARY", "register"]

LIBRARY = torch.library.Library("batchkron", "DEF")
"""The operators ``torch.ops.batchkron``."""

# A structure is what the function depends on otherwise: index tensors, and numbers.
_STRUCTURE = "Tensor[] lists, SymInt[] numbers"
_DEVICES = ("CPU", "CUDA")  # where kernels are


def register(function: Multilinear) -> Entry:
    """Register a function and its gradients as operators of torch.

    ``function``: its ``name`` becomes ``torch.ops.batchkron.name``.

    Result: called with (x, arguments, lists, numbers).
    """
    name, tags = function.name, torch.Tag.pt2_compliant_tag
    inputs = f"Tensor[] arguments, {_STRUCTURE}"
    LIBRARY.define(f"{name}(Tensor x, {inputs}) -> Tensor", tags=tags)
    LIBRARY.define(
        f"{name}_gradients(Tensor x, Tensor gradient, bool[] needed, {inputs}) -> Tensor[]",
        tags=tags,
    )
    entry = Entry(function)
    for device in _DEVICES:
        LIBRARY.impl(name, entry.run, device)
        LIBRARY.impl(f"{name}_gradients", entry.run_gradients, device)
    torch.library.register_fake(f"batchkron::{name}", entry.result)
    torch.library.register_fake(
        f"batchkron::{name}_gradients",
        lambda x, gradient, needed, arguments, lists, numbers: [
            argument.new_empty(argument.shape)
            for argument, wanted in zip(arguments, needed, strict=True)
            if wanted
        ],
    )
    _register_backward(entry)
    _register_vmap(entry)
    return entry


def _register_backward(entry: Entry) -> None:
    """Register the gradients of the function's operator, and the gradients of these."""

    def nothing(ctx: Any) -> tuple[list[None], list[None] | None]:
        """Return no gradients of a structure; torch takes an empty list for one of tensors."""
        return [None] * ctx.counts[1], None if ctx.numbers else []

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, arguments, lists, ctx.numbers = inputs
        ctx.counts = len(arguments), len(lists)
        ctx.save_for_backward(x, *arguments, *lists)

    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        needs_x, needed = ctx.needs_input_grad[:2]
        return *entry.backward(ctx, gradient, needs_x, list(needed)), *nothing(ctx)

    def save_gradients(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, gradient, ctx.needed, arguments, lists, ctx.numbers = inputs
        ctx.counts = len(arguments), len(lists)
        ctx.save_for_backward(x, gradient, *arguments, *lists)

    def backward_of_gradients(ctx: Any, given: Sequence[Tensor | None]) -> tuple[Any, ...]:
        needs_x, needs_gradient, _, wanted = ctx.needs_input_grad[:4]
        found = entry.backward_of_gradients(ctx, given, (needs_x, needs_gradient), list(wanted))
        return *found[:2], None, found[2], *nothing(ctx)

    name = f"batchkron::{entry.function.name}"
    torch.library.register_autograd(name, backward, setup_context=save)
    torch.library.register_autograd(
        f"{name}_gradients", backward_of_gradients, setup_context=save_gradients
    )


def _register_vmap(entry: Entry) -> None:
    """Register what `torch.vmap` makes of the operators."""
    operators, name = torch.ops.batchkron, entry.function.name
    product, gradients = getattr(operators, name), getattr(operators, f"{name}_gradients")

    def of_product(info: Any, in_dims: Any, *given: Any) -> Any:
        return entry.mapped(product, info, in_dims, given)

    def of_gradients(info: Any, in_dims: Any, *given: Any) -> Any:
        return looped(gradients, info, in_dims, given)

    torch.library.register_vmap(f"batchkron::{name}", of_product)
    torch.library.register_vmap(f"batchkron::{name}_gradients", of_gradients)
