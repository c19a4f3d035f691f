"""Checks of tensors, and their memory as arrays of NumPy and CuPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from batchkron import array_kinds

__all__ = [
    "are_filled",
    "as_single",
    "check_tensors",
    "in_autocast",
    "numbered",
    "on_stream_of",
    "view",
]

_NO_STREAM: AbstractContextManager[None] = nullcontext()

_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
_HALF = (torch.float16, torch.bfloat16)
_PLAIN = (*_DTYPES, torch.float16)  # bfloat16 has no dtype of NumPy alone


def check_tensors(
    tensors: Sequence[Any], names: Callable[[int], str], *, half: bool = False
) -> None:
    """Check that arguments are tensors of one dtype that kernels take, on one device.

    ``tensors``: at least one.
    ``names``: returns the name of tensor number k, for errors.
    ``half``: whether float16 and bfloat16 have kernels, on a CUDA device (and none is needed on
      "meta").

    Raises `TypeError` if one is no tensor, or dtypes or devices differ, or the dtype has no
    kernels.
    """
    first = tensors[0]
    if not isinstance(first, Tensor):
        raise TypeError(f"{names(0)} is a {type(first).__name__}; expected a torch.Tensor")
    dtype, device = first.dtype, first.device
    for k, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{names(k)} is a {type(tensor).__name__}; expected a torch.Tensor")
        if tensor.dtype != dtype:
            raise TypeError(
                f"{names(k)} has dtype {tensor.dtype}, but {names(0)} has {dtype}; convert one "
                f"with .to(dtype)"
            )
        if tensor.device != device:
            raise TypeError(
                f"{names(k)} is on {tensor.device}, but {names(0)} is on {device}; move one with "
                f".to(device)"
            )
    # a tensor without memory may stand for one of a CUDA device
    if dtype in _DTYPES or (half and dtype in _HALF and device.type in ("cuda", "meta")):
        return
    more = ", float16 or bfloat16" if half else ""
    raise TypeError(
        f"{names(0)} has dtype {dtype}; expected float32, float64, complex64 or complex128{more}"
    )


def as_single(*tensors: Any) -> tuple[torch.dtype | None, tuple[Any, ...]]:
    """Return tensors of 16 bits on a CPU as float32, in which they are computed there.

    Returns the dtype that the result is to have, and what is computed with; None, and the arguments
    themselves, where they are not all of one such dtype.
    """
    first = tensors[0]
    if not isinstance(first, Tensor) or first.dtype not in _HALF or first.device.type != "cpu":
        return None, tensors
    for one in tensors:
        if isinstance(one, Tensor) and (one.dtype != first.dtype or one.device != first.device):
            return None, tensors
    return first.dtype, tuple(one.float() if isinstance(one, Tensor) else one for one in tensors)


def are_filled(*tensors: Tensor) -> bool:
    """Whether none of some tensors is empty."""
    return all(tensor.numel() for tensor in tensors)


def in_autocast(*tensors: Tensor, half: bool) -> tuple[Tensor, ...]:
    """Return tensors as a layer takes them: converted in a region of `torch.autocast`.

    As there, float64 and complex numbers stay as they are.

    ``half``: whether float16 and bfloat16 have kernels, on a CUDA device; else they become float32.
    """
    kind = tensors[0].device.type if isinstance(tensors[0], Tensor) else "cpu"
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind) if half and kind == "cuda" else torch.float32
    return tuple(one.to(dtype) if one.dtype in (torch.float32, *_HALF) else one for one in tensors)


def on_stream_of(tensor: Tensor) -> AbstractContextManager[None]:
    """Return a context in which torch's current stream is CuPy's; else it does nothing."""
    return _NO_STREAM if tensor.is_cpu or tensor.is_meta else array_kinds.on_stream_of(tensor)


def numbered(*single: str, rest: str) -> Callable[[int], str]:
    """Return the names of arguments, of which those after the first ones are a sequence."""
    return lambda k: single[k] if k < len(single) else f"{rest}[{k - len(single)}]"


def view(tensor: Tensor) -> Any:
    """Return an array of NumPy or CuPy in a tensor's memory, which does not record gradients."""
    if tensor.dtype not in _PLAIN:
        return array_kinds.native(tensor.detach(), "a tensor")
    if tensor.is_cpu:
        return tensor.numpy(force=True)  # of a lazy conjugate it is a copy
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return array_kinds.cuda_view(tensor)
