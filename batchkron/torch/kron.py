"""Multiply by a Kronecker product from the right or from the left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from batchkron.array_kinds import dtype_in_numpy
from batchkron.backends.cpu.gradients import by_one_call
from batchkron.backends.cpu.native import kron_gradients
from batchkron.spec.identities import IdentityFactor, runs_between_identities
from batchkron.spec.kron import KronSpec
from batchkron.torch.multilinear import Multilinear
from batchkron.torch.products import computed, launched, multiply
from batchkron.torch.registration import register
from batchkron.torch.tensors import as_single, check_tensors, view

if TYPE_CHECKING:
    from batchkron.backends.cuda.interface.device import Place

__all__ = ["gekmm", "kron_matmul"]

_FROM_THE_LEFT = [1]  # the structure of (A_1 ⊗ … ⊗ A_d) x


class _KronMatmul(Multilinear):
    """F(x; A) = x (A_1 ⊗ … ⊗ A_d), or (A_1 ⊗ … ⊗ A_d) x if the structure has the number 1."""

    name = "kron_matmul"

    def shape(
        self, x: Tensor, arguments: Sequence[Tensor], numbers: Sequence[int]
    ) -> tuple[int, ...]:
        if numbers:
            rows = math.prod(factor.shape[0] for factor in arguments)
            return (*x.shape[:-2], rows, x.shape[-1])
        return (*x.shape[:-1], math.prod(factor.shape[1] for factor in arguments))

    def run(
        self,
        x: Tensor,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        out: Tensor,
    ) -> None:
        multiply(arguments, x, x.shape, out, left=bool(numbers))

    def adjoint(
        self,
        arguments: Sequence[Tensor],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
        x_shape: Sequence[int],
    ) -> tuple[list[Tensor], list[Tensor], list[int]]:
        return [factor.mH for factor in arguments], [], list(numbers)

    def gradients(
        self,
        x: Tensor,
        gradient: Tensor,
        arguments: Sequence[Tensor],
        needed: Sequence[bool],
        lists: Sequence[Tensor],
        numbers: Sequence[int],
    ) -> list[Tensor]:
        return _found(x, gradient, arguments, needed, numbers, with_x=False)[1]

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
        if not (with_x and needed[0]):
            return None
        return _found(x, gradient, arguments, needed, numbers, with_x=True)


def _found(
    x: Tensor,
    gradient: Tensor,
    arguments: Sequence[Tensor],
    needed: Sequence[bool],
    numbers: Sequence[int],
    *,
    with_x: bool,
) -> tuple[Tensor | None, list[Tensor]]:
    """Return the gradients of x, if wanted, and of the factors of either form."""
    x, gradient = computed(x).contiguous(), computed(gradient).contiguous()
    if x.is_cuda:
        return _on_device(x, gradient, arguments, needed, bool(numbers), with_x)
    if not numbers:
        outer = math.prod(x.shape[:-1])
        return _gradients(x, gradient, arguments, needed, outer, with_x=with_x)
    turned = [factor.mT for factor in arguments]
    outer = math.prod(x.shape[:-2])
    of_x, found = _gradients(x, gradient, turned, needed, outer, with_x=with_x)
    return of_x, [one.mT.contiguous() for one in found]


def _on_device(
    x: Tensor,
    gradient: Tensor,
    arguments: Sequence[Tensor],
    needed: Sequence[bool],
    left: bool,
    with_x: bool,
) -> tuple[Tensor | None, list[Tensor]]:
    """Return the gradients by a plan for these layouts: most launches are one call from Python."""
    from batchkron.backends.cuda.interface.device import gradients_plan

    factors = [computed(factor) for factor in arguments]
    conjugates = factors
    if x.is_complex():
        factors = [factor.contiguous() for factor in factors]
        conjugates = [factor.conj_physical() for factor in factors]
    shapes = [factor.shape for factor in factors]
    strides = [factor.stride() for factor in factors]
    if left:
        columns, rows = zip(*shapes, strict=True)
        oriented = tuple((across, along) for along, across in strides)
        outer, inner = math.prod(x.shape[:-2]), x.shape[-1]
    else:
        rows, columns = zip(*shapes, strict=True)
        oriented, outer, inner = tuple(strides), math.prod(x.shape[:-1]), 1
    spec = KronSpec(rows, columns, outer, inner, dtype_in_numpy(x))
    plan = gradients_plan(spec, oriented, tuple(needed), with_x, left, x.get_device())
    of_x = x.new_empty(x.shape) if with_x else None
    found = {k: x.new_empty(shape) for k, shape in enumerate(shapes) if needed[k]}
    memory = x.new_empty((plan.kept + plan.scratch) // x.itemsize)
    addresses = plan.addresses(
        x.data_ptr(),
        gradient.data_ptr(),
        memory.data_ptr(),
        memory.data_ptr() + plan.kept,
        0 if of_x is None else of_x.data_ptr(),
        *([one.data_ptr() for one in group] for group in (factors, conjugates, found.values())),
    )

    def run(stream: int) -> None:
        for sequence, contraction in plan.parts:
            if sequence is not None:
                sequence(stream, addresses, b"")
            if contraction is not None:
                mode, u, v, (outer, rows, columns, inner) = contraction
                first, second = (
                    _at(place, (outer, size, inner), x, gradient, memory)
                    for place, size in ((u, rows), (v, columns))
                )
                _contract(first, second, found[mode])

    launched(x, run)
    if left and x.is_complex():
        for one in found.values():
            one.conj_physical_()
    return of_x, list(found.values())


def _at(
    place: Place, shape: tuple[int, int, int], x: Tensor, gradient: Tensor, memory: Tensor
) -> Tensor:
    """Return the contiguous tensor of a shape that begins at a place of `Contraction`."""
    tensor = (x, gradient, memory)[place.number]
    _, size, inner = shape
    begin = tensor.storage_offset() + place.offset // x.itemsize
    return tensor.as_strided(shape, (size * inner, inner, 1), begin)


def _gradients(
    x: Tensor,
    gradient: Tensor,
    factors: Sequence[Tensor],
    needed: Sequence[bool],
    outer: int,
    *,
    with_x: bool,
) -> tuple[Tensor | None, list[Tensor]]:
    """Contract x with the factors before A_k, the gradient with those after it, on the CPU.

    ∂A_k = Σ conj(x (A_1 ⊗ … ⊗ A_{k-1} ⊗ I ⊗ … ⊗ I)) · G (I ⊗ … ⊗ I ⊗ A_{k+1} ⊗ … ⊗ A_d)ᴴ,

    summed over all indices but those of mode k. The modes lie behind the ``outer`` first indices;
    others may follow. Both tensors are contiguous.
    """
    is_empty = not x.numel() or not gradient.numel()
    numbers = max(x.numel(), gradient.numel())
    largest = max(size for factor in factors for size in factor.shape)
    if x.is_complex() or is_empty or not by_one_call(outer, numbers, largest):
        return _by_modes(x, gradient, factors, needed, outer, with_x=with_x)
    of_x = torch.empty_like(x) if with_x else None
    found = [x.new_empty(A.shape) if one else None for A, one in zip(factors, needed, strict=True)]
    kron_gradients(
        [view(factor) for factor in factors],
        view(x),
        view(gradient),
        outer,
        None if of_x is None else view(of_x),
        [None if one is None else view(one) for one in found],
    )
    return of_x, [one for one in found if one is not None]


def _by_modes(
    x: Tensor,
    gradient: Tensor,
    factors: Sequence[Tensor],
    needed: Sequence[bool],
    outer: int,
    *,
    with_x: bool,
) -> tuple[Tensor | None, list[Tensor]]:
    """Return the same by a multiply for each step, which all threads share.

    The second parts are computed for all k first, and kept; one more multiply makes the gradient of
    x of the first of them.
    """
    rows = [factor.shape[0] for factor in factors]
    columns = [factor.shape[1] for factor in factors]
    wanted = [k for k, is_needed in enumerate(needed) if is_needed]
    found, before, last = [], x, gradient
    after = {len(rows) - 1: last}
    for k in range(len(rows) - 1, -1 if with_x else wanted[0], -1):
        last = _mode(factors[k].conj_physical(), last, outer * math.prod(columns[:k]))
        after[k - 1] = last
    for k in range(wanted[-1] + 1):
        size = outer * math.prod(columns[:k])
        if needed[k]:
            inner = before.numel() // max(1, size * rows[k])
            pair = before.view(size, rows[k], inner), after[k].view(size, columns[k], inner)
            found.append(_contract(*pair))
        if k < wanted[-1]:
            before = _mode(factors[k].mT, before, size)
    return last.view(x.shape) if with_x else None, found


def _mode(matrix: Tensor, x: Tensor, outer: int) -> Tensor:
    """Return matrix · x over the middle axis of the contiguous x (outer, columns, inner)."""
    rows, columns = matrix.shape
    inner = x.numel() // max(1, outer * columns)
    result = x.new_empty((outer, rows, inner))
    multiply([matrix], x, (outer, columns, inner), result, left=True)
    return result


def _contract(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """Return Σ conj(x[l, p, r]) y[l, q, r] over l and r, (rows, columns), of contiguous tensors.

    Functions with ``out`` multiply in the dtype of the tensors, also in a region of autocast.
    """
    outer, rows, inner = x.shape
    columns = y.shape[1]
    if out is None:
        out = x.new_empty((rows, columns))
    if x.is_complex():
        x = x.conj_physical()
    if inner >= max(rows, columns):  # the products of all l take no more memory than x and y
        products = torch.bmm(x, y.mT, out=x.new_empty((outer, rows, columns)))
        return torch.sum(products, 0, out=out)
    left = x.transpose(1, 2).reshape(outer * inner, rows)
    return torch.mm(left.mT, y.transpose(1, 2).reshape(outer * inner, columns), out=out)


_multiply = register(_KronMatmul())


def kron_matmul(x: Tensor, factors: Sequence[Tensor | IdentityFactor]) -> Tensor:
    """Compute y = x (A_1 ⊗ … ⊗ A_d), with gradients of x and of the factors.

    Parameters
    ----------
    x : Tensor, (..., ΠP)
        Vectors along the last axis; float32, float64, complex64 or complex128, on the CPU or on a
        CUDA device. On the CPU also float16 or bfloat16, which are computed in float32.
    factors : sequence of Tensor, each (P_k, Q_k), or of `batchkron.Identity`
        The matrices, of the dtype of x and on its device. A_1 belongs to the slowest index, as in
        `torch.kron`. An ``Identity(n)`` is skipped, by the product and by all gradients.

    Returns
    -------
    Tensor, (..., ΠQ)

    Raises
    ------
    ValueError
        If there is no factor, one is no matrix, or x does not have ΠP columns.
    TypeError
        If dtypes or devices differ, or the dtype has no kernels.

    Notes
    -----
    With the gradient G of y: ∂x = G (A_1 ⊗ … ⊗ A_d)ᴴ, one product; ∂A_k is the sum, over all
    indices but those of mode k, of conj(x multiplied by the factors before A_k) times (G multiplied
    by the adjoints of those after A_k). All ∂A_k together take 2 (d - 1) multiplies by one factor,
    and memory for d tensors of the size of x; one more makes ∂x of what they share. Gradients
    have gradients (batchkron/torch/multilinear.py). The product itself is `batchkron.gemkm`:
    algorithm 1 of FastKron (Jangda and Yadav, PPoPP 2024).

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import kron_matmul
    >>> A = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> y = kron_matmul(torch.ones(1, 4), [A, torch.eye(2)])
    >>> y.detach()
    tensor([[4., 4., 6., 6.]])
    >>> y.sum().backward()
    >>> A.grad
    tensor([[2., 2.],
            [2., 2.]])
    """
    half, (x, *factors) = as_single(x, *factors)
    if half is not None:
        return kron_matmul(x, factors).to(half)
    matrices = _checked(x, factors)
    rows = math.prod([factor.shape[0] for factor in factors])
    if x.dim() == 0 or x.shape[-1] != rows:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; expected {rows} columns, the product of the factors' "
            f"rows"
        )
    if len(matrices) < len(factors):
        return _by_runs(x, factors, left=False)
    return _multiply(x, matrices, [], [])


def gekmm(factors: Sequence[Tensor | IdentityFactor], x: Tensor) -> Tensor:
    """Compute y = (A_1 ⊗ … ⊗ A_d) x, with gradients of x and of the factors.

    Parameters
    ----------
    factors : sequence of Tensor, each (P_k, Q_k), or of `batchkron.Identity`
        The matrices, as for `kron_matmul`.
    x : Tensor, (ΠQ,) or (..., ΠQ, M)
        Vectors, as the right operand of `torch.matmul`; of a dtype as for `kron_matmul`.

    Returns
    -------
    Tensor, (ΠP,) or (..., ΠP, M)

    Raises
    ------
    ValueError
        If there is no factor, one is no matrix, or x does not have ΠQ rows.
    TypeError
        If dtypes or devices differ, or the dtype has no kernels.

    Notes
    -----
    `kron_matmul` of the transposed factors, for vectors that lie along the last but one axis: they
    are neither moved before nor after. Gradients are those of `kron_matmul` accordingly.

    Examples
    --------
    >>> import torch
    >>> from batchkron.torch import gekmm
    >>> A = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> gekmm([A, torch.eye(2)], torch.ones(4, 1)).mT
    tensor([[3., 3., 7., 7.]])
    """
    half, (x, *factors) = as_single(x, *factors)
    if half is not None:
        return gekmm(factors, x).to(half)
    matrices = _checked(x, factors)
    columns = math.prod([factor.shape[1] for factor in factors])
    if x.dim() == 0 or x.shape[-2 if x.dim() > 1 else 0] != columns:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; expected {columns} rows, the product of the factors' "
            f"columns"
        )
    if len(matrices) < len(factors):
        return _by_runs(x, factors, left=True)
    if x.dim() == 1:
        return _multiply(x[:, None], matrices, [], _FROM_THE_LEFT)[:, 0]
    return _multiply(x, matrices, [], _FROM_THE_LEFT)


def _by_runs(x: Tensor, factors: Sequence[Any], *, left: bool) -> Tensor:
    """Multiply by the runs of factors between identities, the last one first."""
    skipped = [isinstance(factor, IdentityFactor) for factor in factors]
    rows, columns = zip(*[factor.shape for factor in factors], strict=True)
    inputs, outputs = (columns, rows) if left else (rows, columns)
    axis = x.dim() - 2 if left and x.dim() > 1 else x.dim() - 1
    shape = (*x.shape[:axis], math.prod(outputs), *x.shape[axis + 1 :])
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    for low, high, before, behind in runs_between_identities(inputs, outputs, skipped):
        size, run = math.prod(inputs[low:high]), factors[low:high]
        if behind * inner == 1 and not left:
            x = _multiply(x.reshape(outer * before, size), run, [], [])
        else:
            turned = run if left else [factor.mT for factor in run]
            vectors = x.reshape(outer * before, size, behind * inner)
            x = _multiply(vectors, turned, [], _FROM_THE_LEFT)
    return x.clone() if all(skipped) else x.reshape(shape)


def _checked(x: Tensor, factors: Sequence[Any]) -> list[Tensor]:
    """Return the matrices after checking that they and x are tensors that kernels take."""
    if not factors:
        raise ValueError("factors is empty; a Kronecker product needs at least one factor")
    places = [k for k, factor in enumerate(factors) if not isinstance(factor, IdentityFactor)]
    matrices = [factors[k] for k in places]
    check_tensors([x, *matrices], lambda k: f"factors[{places[k - 1]}]" if k else "x")
    for k, factor in zip(places, matrices, strict=True):
        if factor.dim() != 2:
            raise ValueError(
                f"factors[{k}] has shape {tuple(factor.shape)}; expected 2 dimensions, "
                f"(rows, columns)"
            )
    return matrices
