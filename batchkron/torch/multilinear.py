"""Registers functions that are linear in a tensor and in each of its arguments, with gradients.

A function y = F(x; A_1, …, A_n) that is linear in x and in each A_k has these gradients. Let G be
the gradient of y, F* the function with F(·; A)ᴴ G = F*(G; A), and D_k(x, G; A) the gradient of A_k.

    ∂x = F*(G; A)                              ∂A_k = D_k(x, G; A)

D_k does not depend on A_k; it is linear in G, and antilinear in x and in the other arguments. For
a gradient C_k of D_k the inner product is Re⟨C_k, D_k⟩ = Re⟨F(x; A with C_k for A_k), G⟩, because
D_k is the adjoint of C ↦ F(x; A with C for A_k) applied to G. Hence the gradients of D_1, …, D_n

    ∂G   = Σ_k F(x; A with C_k for A_k)
    ∂x   = Σ_k F*(G; A with C_k for A_k)
    ∂A_j = Σ_{k≠j} D_j(x, G; A with C_k for A_k)

are calls of F, F* and D again: so there are derivatives of all orders. Gradients of complex tensors
follow PyTorch's convention, the conjugate of the Wirtinger derivative (for L real, ∂L/∂z̄ times 2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["LIBRARY", "Multilinear", "register"]

LIBRARY = torch.library.Library("batchkron", "DEF")
"""The operators ``torch.ops.batchkron``."""

# A structure is what the function depends on otherwise: index tensors, and numbers.
_STRUCTURE = "Tensor[] lists, SymInt[] numbers"
_DEVICES = ("CPU", "CUDA")  # where kernels are


class Multilinear(ABC):
    """A function F(x; A_1, …, A_n) that is linear in x and in each A_k.

    All methods but `adjoint` get tensors whose gradients are not recorded. There conjugates have to
    be computed at once, by ``conj_physical()``: lazy ones gave wrong numbers where a compiled graph
    called the kernel (torch 2.14; opcheck finds it). ``lists`` and ``numbers`` are the function's
    structure.
    """

    name: str

    @abstractmethod
    def shape(
        self, x: Tensor, arguments: Sequence[Tensor], numbers: Sequence[int]
    ) -> tuple[int, ...]:
        """Return the shape of the result."""

    @abstractmethod
    def run(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        out: Tensor,
    ) -> None:
        """Write F(x; arguments) to ``out``, which is contiguous and not initialised."""

    @abstractmethod
    def gradients(
        self,
        x: Tensor,
        gradient: Tensor,
        arguments: Sequence[Tensor],
        needed: Sequence[bool],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> list[Tensor]:
        """Return D_k(x, gradient; arguments) of the arguments that are needed, in new memory."""

    @abstractmethod
    def adjoint(
        self,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        x_shape: Sequence[int],
    ) -> tuple[list[Tensor], list[Tensor], list[int]]:
        """Return arguments and structure of F*, by differentiable operations."""


def register(function: Multilinear) -> Any:
    """Register a function and its gradients as operators; return the function's operator.

    Parameters
    ----------
    function : Multilinear
        Its ``name`` becomes ``torch.ops.batchkron.name``.

    Returns
    -------
    torch.ops operator
        Called with (x, arguments, lists, numbers).
    """
    name, tags = function.name, torch.Tag.pt2_compliant_tag
    inputs = f"Tensor[] arguments, {_STRUCTURE}"
    LIBRARY.define(f"{name}(Tensor x, {inputs}) -> Tensor", tags=tags)
    LIBRARY.define(
        f"{name}_gradients(Tensor x, Tensor gradient, bool[] needed, {inputs}) -> Tensor[]",
        tags=tags,
    )

    def result(x: Tensor, arguments: Sequence[Tensor], numbers: Sequence[int]) -> Tensor:
        return x.new_empty(function.shape(x, arguments, numbers))

    def run(
        x: Tensor, arguments: Sequence[Tensor], lists: Sequence[Tensor], numbers: Sequence[int]
    ) -> Tensor:
        out = result(x, arguments, numbers)
        function.run(x, arguments, lists, numbers, out)
        return out

    def gradients(
        x: Tensor,
        gradient: Tensor,
        needed: Sequence[bool],
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> list[Tensor]:
        with torch.no_grad():
            return function.gradients(x, gradient, arguments, needed, lists, numbers)

    for device in _DEVICES:
        LIBRARY.impl(name, run, device)
        LIBRARY.impl(f"{name}_gradients", gradients, device)
    torch.library.register_fake(
        f"batchkron::{name}", lambda x, arguments, lists, numbers: result(x, arguments, numbers)
    )
    torch.library.register_fake(
        f"batchkron::{name}_gradients",
        lambda x, gradient, needed, arguments, lists, numbers: [
            argument.new_empty(argument.shape)
            for argument, wanted in zip(arguments, needed, strict=True)
            if wanted
        ],
    )
    operator = getattr(torch.ops.batchkron, name).default
    _register_gradients(function, operator)
    return operator


def _register_gradients(function: Multilinear, forward: Any) -> None:
    """Register the gradients of the function's operator, and the gradients of these."""
    derivative = getattr(torch.ops.batchkron, f"{function.name}_gradients").default

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, arguments, lists, ctx.numbers = inputs
        ctx.counts = len(arguments), len(lists)
        ctx.save_for_backward(x, *arguments, *lists)

    def saved(ctx: Any, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        count, lists = ctx.counts
        return list(tensors[:count]), list(tensors[count : count + lists])

    def nothing(ctx: Any, lists: Sequence[Tensor]) -> tuple[list[None], list[None] | None]:
        """Return no gradients of a structure; torch takes an empty list for one of tensors."""
        return [None] * len(lists), None if ctx.numbers else []

    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        x, *rest = ctx.saved_tensors
        arguments, lists = saved(ctx, rest)
        needs_x, needed = ctx.needs_input_grad[0], list(ctx.needs_input_grad[1])
        of_x = None
        if needs_x:
            of_x = forward(gradient, *function.adjoint(arguments, lists, ctx.numbers, x.shape))
        found = []
        if any(needed):
            found = derivative(x, gradient, needed, arguments, lists, ctx.numbers)
        return of_x, _spread(found, needed), *nothing(ctx, lists)

    def save_derivative(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, gradient, ctx.needed, arguments, lists, ctx.numbers = inputs
        ctx.counts = len(arguments), len(lists)
        ctx.save_for_backward(x, gradient, *arguments, *lists)

    def backward_derivative(ctx: Any, given: Sequence[Tensor | None]) -> tuple[Any, ...]:
        x, gradient, *rest = ctx.saved_tensors
        arguments, lists = saved(ctx, rest)
        needs_x, needs_gradient = ctx.needs_input_grad[:2]
        wanted = list(ctx.needs_input_grad[3])
        of_x: Any = None
        of_gradient: Any = None
        of_arguments: list[Any] = [None] * len(arguments)
        for k, direction in enumerate(_spread(given, ctx.needed)):
            if direction is None:
                continue
            replaced = [*arguments[:k], direction, *arguments[k + 1 :]]
            if needs_gradient:
                of_gradient = _plus(of_gradient, forward(x, replaced, lists, ctx.numbers))
            if needs_x:
                adjoint = function.adjoint(replaced, lists, ctx.numbers, x.shape)
                of_x = _plus(of_x, forward(gradient, *adjoint))
            others = [wanted[j] and j != k for j in range(len(arguments))]
            if any(others):
                found = derivative(x, gradient, others, replaced, lists, ctx.numbers)
                for j, one in enumerate(_spread(found, others)):
                    of_arguments[j] = (
                        of_arguments[j] if one is None else _plus(of_arguments[j], one)
                    )
        return of_x, of_gradient, None, of_arguments, *nothing(ctx, lists)

    name = f"batchkron::{function.name}"
    torch.library.register_autograd(name, backward, setup_context=save)
    torch.library.register_autograd(
        f"{name}_gradients", backward_derivative, setup_context=save_derivative
    )


def _spread(found: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
    """Return a list with the entries of ``found`` where ``needed`` is True, and None elsewhere."""
    entries = iter(found)
    return [next(entries) if wanted else None for wanted in needed]


def _plus(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total + term
