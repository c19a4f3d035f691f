"""Kron-Matmuls of tensors: on the CPU as arrays of NumPy, on a device by their addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

import batchkron
from batchkron.torch.tensors import view

__all__ = ["multiply"]


def multiply(
    factors: Sequence[Tensor], x: Tensor, shape: Sequence[int], out: Tensor, *, left: bool
) -> None:
    """Write (A_1 ⊗ … ⊗ A_d) x, or x (A_1 ⊗ … ⊗ A_d) unless ``left``, to ``out``.

    Parameters
    ----------
    factors : sequence of Tensor
    x : Tensor
        Taken as contiguous of ``shape`` if that is another one than its own.
    shape : sequence of int
    out : Tensor
        Contiguous; overlaps no other tensor. On a device, torch's current stream is CuPy's.
    left : bool
    """
    if x.is_cuda:
        # copies are torch's, whose memory a graph that torch captures keeps
        x, factors = _computed(x).contiguous(), [_computed(factor) for factor in factors]
        run = _on_device(factors, x, shape, left)
        if run is not None:
            run(x.data_ptr(), out.data_ptr())
            return
    matrices = [view(factor) for factor in factors]
    values = view(x)
    if values.shape != tuple(shape):
        values = values.reshape(shape)
    if left:
        batchkron.gekmm(matrices, values, out=view(out))
    else:
        batchkron.gemkm(values, matrices, out=view(out))


def _computed(tensor: Tensor) -> Tensor:
    """Return a tensor whose memory has its values: real ones may be lazy negatives, too."""
    if tensor.is_conj() or tensor.is_neg():  # z.conj().imag is one
        return tensor.resolve_conj().resolve_neg()
    return tensor


def _on_device(
    factors: Sequence[Tensor], x: Tensor, shape: Sequence[int], left: bool
) -> Callable[[int, int], None] | None:
    """Return what multiplies vectors like x at an address, None if that needs arrays."""
    from batchkron.backends.cuda.kron.function_calls import addressed_multiply

    dtype = x.dtype
    key: list[Any] = [left, dtype, x.get_device(), *shape]
    for factor in factors:
        if factor.dtype != dtype:
            return None
        key += factor.data_ptr(), factor.shape, factor.stride()

    def operands() -> tuple[list[Any], Any]:
        return [view(factor) for factor in factors], view(x).reshape(shape)

    return addressed_multiply(tuple(key), operands, left)
