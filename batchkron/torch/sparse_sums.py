"""Gradients of the values of a Kronecker-sparse matrix by torch's products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

__all__ = ["contract_first", "contract_last", "sums_by_products"]

_HALF = (torch.float16, torch.bfloat16)
# Whether torch multiplies numbers of 16 bits with results in float32 (from torch 2.8 on)
_HAS_WIDE_RESULTS = "dtype" in torch.ops.aten.bmm.overloads()
_TILE = 64  # rows and columns of a matrix product that a thread block computes, about
_MIN_PIECE = 256  # vectors of a sum at least, so that a thread block has work for its start
_BLOCKS = 2  # thread blocks of a matrix product for each multiprocessor
# Floating-point operations in the time that a device takes to read or write a byte: of an H100,
# 67 TFLOP/s in float32 and float64, 990 in 16 bits, less what small products lack; 3.35 TB/s.
# A complex multiply-add is four real ones.
_OPERATIONS_PER_BYTE = {
    torch.float16: 128,
    torch.bfloat16: 128,
    torch.float32: 16,
    torch.float64: 16,
    torch.complex64: 4,
    torch.complex128: 4,
}


def sums_by_products(x: Tensor, gradient: Tensor, pattern: Sequence[int], last: bool) -> Tensor:
    """Return Σ_n gradient[n, i, k, j] conj(x[n, i, l, j]), (a, b, c, d), in new memory.

    There are d products of (b × n) by (n × c) matrices, of few rows and columns and with long sums:
    on a device the sums are cut into pieces, so that all multiprocessors have work. No operand is
    copied for d = 1. Elsewhere the elements of a matrix are d apart, which no library multiplies:
    either both operands are copied, or each block i is multiplied as a whole, (b d × n) by
    (n × c d), of whose results one in d is wanted, whichever takes less by the numbers of bytes and
    operations. Sums of 16 bits are in float32.

    ``x``, ``gradient``: as for `contract_first`, or with ``last`` for `contract_last`.
    ``pattern``: (a, b, c, d), none of which is zero.
    """
    factor = x.conj_physical()
    if last:
        found = contract_last(factor, gradient, pattern, _pieces(x, pattern))
    else:
        whole = _are_multiplied_whole(x, pattern)
        found = contract_first(factor, gradient, pattern, _pieces(x, pattern, whole), whole)
    return found.to(x.dtype).contiguous()


@cache
def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _are_multiplied_whole(x: Tensor, pattern: Sequence[int]) -> bool:
    """Whether d² products of a block take less time than copies of the operands and d products."""
    a, b, c, d = pattern
    if d == 1:
        return True
    if not x.is_cuda or not x.numel():
        return False
    operations, copied = b * c * (d - 1), (b + c) * x.element_size()  # n a d times, both twice
    written = b * c * d * x.element_size() / (x.numel() // (a * c * d))  # results; n a d times
    return operations + _OPERATIONS_PER_BYTE[x.dtype] * written < (
        _OPERATIONS_PER_BYTE[x.dtype] * copied
    )


def _pieces(x: Tensor, pattern: Sequence[int], whole: bool = False) -> int:
    """Return the number of pieces of a sum over vectors, a power of two; 1 on the CPU."""
    if not x.is_cuda:
        return 1
    a, b, c, d = pattern
    matrices, width = (a, d) if whole else (a * d, 1)
    blocks = matrices * -(-b * width // _TILE) * -(-c * width // _TILE)
    count = x.numel() // (a * c * d)
    most = min(_BLOCKS * _multiprocessors(x.device) // blocks, count // _MIN_PIECE)
    return 1 << (max(1, most).bit_length() - 1)


def _products(left: Tensor, right: Tensor) -> Tensor:
    """Return the products of matrices (p, k, n) and (p, n, l), of 16 bits in float32."""
    if left.dtype not in _HALF:
        return torch.bmm(left, right)
    if left.is_cuda and _HAS_WIDE_RESULTS:
        return torch.bmm(left, right, out_dtype=torch.float32)
    return torch.bmm(left.float(), right.float())


def contract_first(
    x: Tensor, gradient: Tensor, pattern: Sequence[int], pieces: int, whole: bool
) -> Tensor:
    """Return Σ_n gradient[n, i, k, j] x[n, i, l, j], (a, b, c, d), of 16 bits in float32.

    ``x`` (Tensor, (..., a c d)).
    ``gradient`` (Tensor, (..., a b d)).
    ``pattern``: (a, b, c, d), none of which is zero.
    ``pieces``: the sums are over every ``pieces``-th n first: then pieces and blocks i have one
      stride.
    ``whole``: whether blocks i are multiplied as a whole, else both operands are copied unless d =
      1.
    """
    a, b, c, d = pattern
    count = x.numel() // (a * c * d)
    if whole:
        left, right = gradient.reshape(count, a, b * d), x.reshape(count, a, c * d)
    else:
        left = gradient.reshape(count, a, b, d).transpose(2, 3).reshape(count, a * d, b)
        right = x.reshape(count, a, c, d).transpose(2, 3).reshape(count, a * d, c)
    end = count - count % pieces
    cut = end // pieces, pieces * left.shape[1]
    found = _products(
        left[:end].reshape(*cut, left.shape[2]).permute(1, 2, 0),
        right[:end].reshape(*cut, right.shape[2]).transpose(0, 1),
    )
    if pieces > 1:
        found = found.reshape(pieces, -1, *found.shape[1:]).sum(0)
    if end < count:
        found += _products(left[end:].permute(1, 2, 0), right[end:].transpose(0, 1))
    if whole:
        return found.reshape(a, b, d, c, d).diagonal(0, 2, 4)
    return found.reshape(a, d, b, c).permute(0, 2, 3, 1)


def contract_last(x: Tensor, gradient: Tensor, pattern: Sequence[int], pieces: int) -> Tensor:
    """Return Σ_n gradient[i, k, j, n] x[i, l, j, n], (a, b, c, d), of 16 bits in float32.

    ``x`` (Tensor, (a c d, ...)).
    ``gradient`` (Tensor, (a b d, ...)).
    ``pattern``: (a, b, c, d), none of which is zero.
    ``pieces``: the sums are over so many ranges of n first. Operands are copied only if the strides
      of i, j and the pieces cannot be one.
    """
    a, b, c, d = pattern
    count = x.numel() // (a * c * d)
    outputs, inputs = gradient.reshape(a, b, d, count), x.reshape(a, c, d, count)

    def matrices(given: Tensor, first: int, end: int, pieces: int) -> Tensor:
        cut = given[..., first:end].unflatten(-1, (pieces, -1)).permute(0, 2, 3, 1, 4)
        return cut.reshape(a * d * pieces, given.shape[1], (end - first) // pieces)

    end = count - count % pieces
    left, right = matrices(outputs, 0, end, pieces), matrices(inputs, 0, end, pieces)
    found = _products(left, right.mT)
    if pieces > 1:
        found = found.reshape(a * d, pieces, b, c).sum(1)
    if end < count:
        left, right = matrices(outputs, end, count, 1), matrices(inputs, end, count, 1)
        found += _products(left, right.mT)
    return found.reshape(a, d, b, c).permute(0, 2, 3, 1)
