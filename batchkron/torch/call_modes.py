"""Whether a call of torch is eager, recorded, traced or transformed."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["applied", "has_tangents", "is_eager", "is_recorded", "is_transformed"]

_PLAIN = (Tensor, torch.nn.Parameter)  # subclasses of these may have no memory of their own
# How many modes trace or change calls now, and the transforms (torch.func) around a call. torch has
# no public names for them.
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack


def applied(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """Return what an autograd function with `setup_context` returns.

    Outside of transforms it is called by a twin without: for `setup_context`, which torch.func
    needs, torch looks up the names of the arguments in each call, which takes 30 µs and more. The
    twin calls ``forward_keeping`` of a function that has one: it returns also tensors for
    `setup_context` to save, which are neither inputs nor outputs.
    """
    chosen: Any = function
    if not is_transformed():
        chosen = _eager_twin(chosen)
    return chosen.apply(*arguments)


@cache
def _eager_twin(function: Any) -> Any:
    keeping = getattr(function, "forward_keeping", None)

    def forward(ctx: Any, *arguments: Any) -> Any:
        if keeping is None:
            output = function.forward(*arguments)
            function.setup_context(ctx, arguments, output)
        else:
            output, kept = keeping(ctx.needs_input_grad, *arguments)
            function.setup_context(ctx, arguments, output, kept)
        return output

    methods = {"forward": staticmethod(forward), "backward": staticmethod(function.backward)}
    return type(function.__name__, (torch.autograd.Function,), methods)


def is_transformed() -> bool:
    """Whether torch.func transforms calls now."""
    return _transforms() is not None


def has_tangents() -> bool:
    """Whether tensors may have tangents now, the derivatives of forward mode.

    There are none of our functions. Autograd functions refuse such tensors, as they should: without
    one the result has no tangent, as if it were zero.
    """
    return forward_ad._current_level >= 0  # torch has no public name for it


def is_eager(*tensors: Tensor) -> bool:
    """Whether a call is neither traced nor compiled, on tensors of a device that has kernels."""
    if torch.compiler.is_compiling() or _modes():
        return False
    for tensor in tensors:
        if type(tensor) not in _PLAIN or not (tensor.is_cpu or tensor.is_cuda):
            return False
    return True


def is_recorded(*tensors: Tensor) -> bool:
    """Whether a call's derivatives are wanted, or torch.func transforms it."""
    if is_transformed() or has_tangents():
        return True
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
