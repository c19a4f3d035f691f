"""Kron-Matmuls of tensors: on the CPU as arrays of NumPy, on a device by their addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import batchkron
from batchkron.torch.tensors import on_stream_of, view

if TYPE_CHECKING:
    from batchkron.backends.cuda.interface.device import PreparedMultiply

__all__ = ["computed", "launched", "multiply"]


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
        Contiguous; overlaps no other tensor.
    left : bool
    """
    if x.is_cuda:
        # copies are torch's, whose memory a graph that torch captures keeps
        x, factors = computed(x).contiguous(), [computed(factor) for factor in factors]
        prepared = _on_device(factors, x, shape, left)
        if prepared is not None:
            size = prepared.workspace // x.itemsize
            memory = x.new_empty(size) if size else None  # kept until all is queued
            held = 0 if memory is None else memory.data_ptr()
            places = x.data_ptr(), out.data_ptr(), 0, held
            addresses = (*places, *[factor.data_ptr() for factor in factors])
            launched(x, lambda stream: prepared.sequence(stream, addresses, b""))
            return
    with on_stream_of(x):
        matrices = [view(factor) for factor in factors]
        values = view(x)
        if values.shape != tuple(shape):
            values = values.reshape(shape)
        if left:
            batchkron.gekmm(matrices, values, out=view(out))
        else:
            batchkron.gemkm(values, matrices, out=view(out))


def launched(tensor: Tensor, run: Callable[[int], None]) -> None:
    """Call run(stream) with the current stream of a tensor's device, which is made current."""
    from batchkron.backends.cuda.interface.device import device_errors, prepare_thread

    index = tensor.get_device()
    if torch.cuda.current_device() != index:
        with torch.cuda.device(index):
            launched(tensor, run)
        return
    try:
        prepare_thread(index)
        run(torch._C._cuda_getCurrentRawStream(index))
    except Exception:
        with device_errors():
            raise


def computed(tensor: Tensor) -> Tensor:
    """Return a tensor whose memory has its values: real ones may be lazy negatives, too."""
    if tensor.is_conj() or tensor.is_neg():  # z.conj().imag is one
        return tensor.resolve_conj().resolve_neg()
    return tensor


def _on_device(
    factors: Sequence[Tensor], x: Tensor, shape: Sequence[int], left: bool
) -> PreparedMultiply | None:
    """Return the multiply of tensors like these by addresses, None if that needs arrays."""
    from batchkron.backends.cuda.interface.device import addressed_multiply

    dtype, device = x.dtype, x.get_device()
    key: list[Any] = [left, dtype, device, *shape]
    for factor in factors:
        if factor.dtype != dtype:
            return None
        key += factor.shape, factor.stride()

    def operands() -> tuple[list[Any], Any]:
        return [view(factor) for factor in factors], view(x).reshape(shape)

    return addressed_multiply(tuple(key), operands, left, device)
