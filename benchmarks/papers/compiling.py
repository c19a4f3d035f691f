"""What cells compile before they are measured: our kernels by NVRTC, torch's BSR ones by Triton.

torch multiplies by BSR matrices with kernels of Triton where blocks are squares of a power of two.
There is one for each size of a block, dtype and layout, and for the numbers of blocks and of rows
of blocks being multiples of 16, or 1. They multiply whole blocks in registers, so that to compile
those of large blocks may take very long: all are compiled by processes that can be stopped, and
what these did not end is not tried again.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable

from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from benchmarks.papers.results import Cell, Key

MIN_SIDE = 16  # rows of a block from which torch takes Triton

BlockKind = tuple[int, str, str]  # rows of a block, dtype, layout
BlockKernel = tuple[BlockKind, bool, bool, bool]  # and what is known of numbers of blocks


class NotCompiledError(RuntimeError):
    """A kernel was not compiled in the time that there was."""


def shape_of(key: Key) -> SparseShape:
    """The product as our kernels are chosen for it."""
    pattern, batch, dtype, layout = key
    vectors = (batch, 1) if layout == "batch-first" else (1, batch)
    return SparseShape(*pattern, *vectors, dtype)


def block_kind(key: Key) -> BlockKind | None:
    """The blocks of a cell's BSR matrix, None if torch does not multiply by them with Triton."""
    (_, b, c, _), batch, dtype, layout = key
    side = math.gcd(b, c)
    is_taken = side >= MIN_SIDE and side & (side - 1) == 0 and batch % side == 0
    return (side, dtype, layout) if is_taken and dtype != "float64" else None


def block_kernels(keys: Iterable[Key]) -> dict[BlockKernel, Key]:
    """The smallest cell that needs each kernel of Triton, in the order of compiling.

    The first one of each kind comes first, small blocks before large ones.
    """
    found: dict[BlockKernel, Key] = {}
    for key in sorted(keys, key=lambda key: math.prod(key[0])):
        kind = block_kind(key)
        if kind is not None:
            (a, b, c, d), side = key[0], kind[0]
            rows, blocks = a * d * (b // side), a * d * (b // side) * (c // side)
            kernel = kind, (rows + 1) % 16 == 0, blocks % 16 == 0, blocks == 1
            found.setdefault(kernel, key)
    kinds = Counter[BlockKind]()
    places = {}
    for kernel in found:
        places[kernel] = kinds[kernel[0]], kernel[0]
        kinds[kernel[0]] += 1
    return {kernel: found[kernel] for kernel in sorted(found, key=places.__getitem__)}


def compile_blocks(key: Key) -> None:
    """Let torch compile what it multiplies by a cell's BSR matrix with, into Triton's cache."""
    import torch

    from benchmarks.gpu.peers.torch_sparse import bsr

    warnings.simplefilter("ignore")
    (a, b, c, d), batch, dtype, layout = key
    how = {"dtype": getattr(torch, dtype), "device": "cuda"}
    shape = (batch, a * c * d) if layout == "batch-first" else (a * c * d, batch)
    with torch.no_grad():
        bsr(torch, torch.zeros((a, b, c, d), **how), torch.zeros(shape, **how), layout)()
    torch.cuda.synchronize()


def not_compiled(cells: Iterable[Cell]) -> list[Key]:
    """The cells whose kernel of Triton an earlier run has given up."""
    name = NotCompiledError.__name__
    return [one.key for one in cells if one.failed.get("bsr", "").startswith(name)]
