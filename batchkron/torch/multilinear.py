"""Functions that are linear in a tensor and in each of their arguments, with gradients.

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

from batchkron.torch.call_modes import applied, is_eager, is_recorded
from batchkron.torch.tensors import are_filled

__all__ = ["Entry", "Multilinear", "looped"]


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

    def run_keeping(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        out: Tensor,
    ) -> list[Tensor]:
        """Do what `run` does, and return what `all_gradients` would have to compute again."""
        self.run(x, arguments, lists, numbers, out)
        return []

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

    def all_gradients(
        self,
        x: Tensor,
        gradient: Tensor,
        arguments: Sequence[Tensor],
        needed: Sequence[bool],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        with_x: bool,
        kept: Sequence[Tensor],
    ) -> tuple[Tensor | None, list[Tensor]] | None:
        """Return the gradients of x, if wanted, and of the needed arguments, None if it costs more.

        ``kept`` is what `run_keeping` returned, or empty.
        """
        return None

    @abstractmethod
    def adjoint(
        self,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        x_shape: Sequence[int],
    ) -> tuple[list[Tensor], list[Tensor], list[int]]:
        """Return arguments and structure of F*, by differentiable operations."""

    def batch_axis(self, numbers: Sequence[int]) -> int:
        """Return where x and F(x; A) may have one more axis of vectors: 0, or -1."""
        return 0


class Entry:
    """How a function and its gradients are called: directly, or by the operators of torch.

    Tensors of an eager call go straight to the kernels, and gradients to an autograd function:
    the dispatch of an operator registered from Python takes longer than a small product, and
    torch.func has no gradients of such operators. Traced and compiled calls take the operators.
    """

    def __init__(self, function: Multilinear) -> None:
        self.function = function
        operators = torch.ops.batchkron
        self._product = getattr(operators, function.name).default
        self._gradients = getattr(operators, f"{function.name}_gradients").default

    def __call__(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> Tensor:
        """Return F(x; arguments)."""
        if not is_eager(x, *arguments):
            return self._product(x, arguments, lists, numbers)  # type: ignore[no-any-return]
        if is_recorded(x, *arguments):
            counts = len(arguments), len(lists)
            return applied(_Product, self, counts, numbers, x, *arguments, *lists)  # type: ignore[no-any-return]
        return self.run(x, arguments, lists, numbers)

    def derivative(
        self,
        x: Tensor,
        gradient: Tensor,
        needed: Sequence[bool],
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> Sequence[Tensor]:
        """Return D_k(x, gradient; arguments) of the arguments that are needed."""
        if not is_eager(x, gradient, *arguments):
            return self._gradients(x, gradient, needed, arguments, lists, numbers)  # type: ignore[no-any-return]
        if is_recorded(x, gradient, *arguments):
            counts = len(arguments), len(lists)
            rest = *arguments, *lists
            return applied(_Gradients, self, counts, numbers, needed, x, gradient, *rest)  # type: ignore[no-any-return]
        return self.run_gradients(x, gradient, needed, arguments, lists, numbers)

    def result(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> Tensor:
        """Return an uninitialised tensor for F(x; arguments)."""
        return x.new_empty(self.function.shape(x, arguments, numbers))

    def run(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> Tensor:
        """Return F(x; arguments), which records no gradient."""
        out = self.result(x, arguments, lists, numbers)
        self.function.run(x, arguments, lists, numbers, out)
        return out

    def run_keeping(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> tuple[Tensor, list[Tensor]]:
        """Return F(x; arguments), and tensors that gradients make use of."""
        out = self.result(x, arguments, lists, numbers)
        return out, self.function.run_keeping(x, arguments, lists, numbers, out)

    def run_gradients(
        self,
        x: Tensor,
        gradient: Tensor,
        needed: Sequence[bool],
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> list[Tensor]:
        """Return the gradients of the needed arguments, which record none themselves."""
        if not are_filled(x, gradient, *arguments):  # F is linear in an empty one: it is zero
            wanted = [one for one, is_needed in zip(arguments, needed, strict=True) if is_needed]
            return [one.new_zeros(one.shape) for one in wanted]
        with torch.no_grad():
            return self.function.gradients(x, gradient, arguments, needed, lists, numbers)

    def mapped(
        self, call: Any, info: Any, in_dims: Sequence[Any], given: Sequence[Any]
    ) -> tuple[Tensor, int]:
        """Return F and its batch axis under `torch.vmap`: one call if only x has a batch.

        ``call`` is this entry, or its operator; ``given`` is (x, arguments, lists, numbers).
        """
        if in_dims[0] is not None and not _has_batch(in_dims[1:]):
            axis = self.function.batch_axis(given[3])
            return call(given[0].movedim(in_dims[0], axis), *given[1:]), axis
        return looped(call, info, in_dims, given)  # type: ignore[no-any-return]

    def backward(
        self, ctx: Any, gradient: Tensor, needs_x: bool, needed: Sequence[bool]
    ) -> tuple[Tensor | None, list[Any]]:
        """Return the gradients of x and the arguments of a product, from its context."""
        (x,), arguments, lists, kept = _saved(ctx, 1)
        of_x, found = None, []
        tensors = x, gradient, *arguments
        is_plain = is_eager(*tensors) and not is_recorded(*tensors)
        if any(needed) and is_plain and are_filled(*tensors):
            given = x, gradient, arguments, needed, lists, ctx.numbers
            both = self.function.all_gradients(*given, needs_x, kept)
            if both is not None:
                return both[0], _spread(both[1], needed)
        if needs_x:
            adjoint = self.function.adjoint(arguments, lists, ctx.numbers, x.shape)
            of_x = self(gradient, *adjoint)
        if any(needed):
            found = list(self.derivative(x, gradient, needed, arguments, lists, ctx.numbers))
        return of_x, _spread(found, needed)

    def backward_of_gradients(
        self,
        ctx: Any,
        given: Sequence[Tensor | None],
        needs: tuple[bool, bool],
        wanted: Sequence[bool],
    ) -> tuple[Any, Any, list[Any]]:
        """Return the gradients of x, of the gradient, and of the arguments of `derivative`."""
        (x, gradient), arguments, lists, _ = _saved(ctx, 2)
        of_x: Any = None
        of_gradient: Any = None
        of_arguments: list[Any] = [None] * len(arguments)
        for k, direction in enumerate(_spread(given, ctx.needed)):
            if direction is None:
                continue
            replaced = [*arguments[:k], direction, *arguments[k + 1 :]]
            if needs[0]:
                adjoint = self.function.adjoint(replaced, lists, ctx.numbers, x.shape)
                of_x = _plus(of_x, self(gradient, *adjoint))
            if needs[1]:
                of_gradient = _plus(of_gradient, self(x, replaced, lists, ctx.numbers))
            others = [wanted[j] and j != k for j in range(len(arguments))]
            if any(others):
                found = self.derivative(x, gradient, others, replaced, lists, ctx.numbers)
                for j, one in enumerate(_spread(found, others)):
                    if one is not None:
                        of_arguments[j] = _plus(of_arguments[j], one)
        return of_x, of_gradient, of_arguments


class _Product(torch.autograd.Function):
    """An eager product whose gradients are wanted."""

    @staticmethod
    def forward(entry: Entry, counts: Any, numbers: Any, x: Tensor, *rest: Tensor) -> Any:
        return entry.run(x, rest[: counts[0]], rest[counts[0] :], numbers)

    @staticmethod
    def forward_keeping(
        needs: Sequence[bool], entry: Entry, counts: Any, numbers: Any, x: Tensor, *rest: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        given = x, rest[: counts[0]], rest[counts[0] :], numbers
        if any(needs[4 : 4 + counts[0]]):
            return entry.run_keeping(*given)
        return entry.run(*given), []

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any, kept: Sequence[Tensor] = ()) -> None:
        ctx.entry, ctx.counts, ctx.numbers, *tensors = inputs
        ctx.save_for_backward(*tensors, *kept)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        count, lists = ctx.counts
        needs_x, *needed = ctx.needs_input_grad[3 : 4 + count]
        of_x, of_arguments = ctx.entry.backward(ctx, gradient, needs_x, needed)
        return None, None, None, of_x, *of_arguments, *[None] * lists

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, entry: Entry, counts: Any, numbers: Any, x: Tensor, *rest: Tensor
    ) -> Any:
        arguments, lists = rest[: counts[0]], rest[counts[0] :]
        dims = in_dims[3], in_dims[4 : 4 + counts[0]], in_dims[4 + counts[0] :], None
        return entry.mapped(entry, info, dims, (x, arguments, lists, numbers))


class _Gradients(torch.autograd.Function):
    """The gradients of an eager product, whose gradients are wanted."""

    @staticmethod
    def forward(
        entry: Entry,
        counts: Any,
        numbers: Any,
        needed: Any,
        x: Tensor,
        gradient: Tensor,
        *rest: Tensor,
    ) -> Any:
        arguments, lists = rest[: counts[0]], rest[counts[0] :]
        return tuple(entry.run_gradients(x, gradient, needed, arguments, lists, numbers))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.entry, ctx.counts, ctx.numbers, ctx.needed, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> Any:
        count, lists = ctx.counts
        needs_x, needs_gradient, *wanted = ctx.needs_input_grad[4 : 6 + count]
        found = ctx.entry.backward_of_gradients(ctx, given, (needs_x, needs_gradient), wanted)
        of_x, of_gradient, of_arguments = found
        return None, None, None, None, of_x, of_gradient, *of_arguments, *[None] * lists

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Any,
        entry: Entry,
        counts: Any,
        numbers: Any,
        needed: Any,
        x: Tensor,
        gradient: Tensor,
        *rest: Tensor,
    ) -> Any:
        count = counts[0]
        given = x, gradient, needed, rest[:count], rest[count:], numbers
        dims = *in_dims[4:6], None, in_dims[6 : 6 + count], in_dims[6 + count :], None
        found, axes = looped(entry.derivative, info, dims, given)
        return tuple(found), tuple(axes)


def looped(function: Any, info: Any, in_dims: Sequence[Any], given: Sequence[Any]) -> Any:
    """Return what `torch.vmap` makes of a function by a call for each element of the batch."""
    calls = []
    for b in range(max(info.batch_size, 1)):  # a batch of 0: of zeros, for the shapes of results
        chosen = [_chosen(one, dims, b) for one, dims in zip(given, in_dims, strict=True)]
        calls.append(function(*chosen))
    if isinstance(calls[0], Tensor):
        return torch.stack(calls)[: info.batch_size], 0
    stacked = [torch.stack(one)[: info.batch_size] for one in zip(*calls, strict=True)]
    return stacked, [0] * len(stacked)


def _chosen(given: Any, dims: Any, b: int) -> Any:
    """Return element b of an argument's batch, or zeros if it has none; else the argument."""
    if isinstance(given, Tensor):
        if dims is None:
            return given
        if not given.shape[dims]:
            return given.sum(dims, dtype=given.dtype)
        return given.select(dims, b)
    if isinstance(dims, (list, tuple)):
        return [_chosen(one, dim, b) for one, dim in zip(given, dims, strict=True)]
    return given


def _has_batch(dims: Any) -> bool:
    """Whether an argument, or one in a list of arguments, has a batch."""
    return any(map(_has_batch, dims)) if isinstance(dims, (list, tuple)) else dims is not None


def _saved(ctx: Any, leading: int) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Return the first tensors that a context has saved, the arguments, the lists, and all else."""
    tensors, first = list(ctx.saved_tensors), leading + ctx.counts[0]
    end = first + ctx.counts[1]
    return tensors[:leading], tensors[leading:first], tensors[first:end], tensors[end:]


def _spread(found: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
    """Return a list with the entries of ``found`` where ``needed`` is True, and None elsewhere."""
    entries = iter(found)
    return [next(entries) if wanted else None for wanted in needed]


def _plus(total: Tensor | None, term: Tensor) -> Tensor:
    return term if total is None else total + term
