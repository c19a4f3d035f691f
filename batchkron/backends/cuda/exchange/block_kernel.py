"""The kernel of copies of blocks, ``csrc/cuda/exchange/block_copies.cuh``, and its arguments.

Nothing here needs a device, as in `kernel.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from batchkron.backends.cuda.exchange.kernel import WORDS
from batchkron.backends.cuda.kernel import THREADS
from batchkron.backends.cuda.runtime.program import Program, device_program
from batchkron.spec.kron import Array

MAX_RANKS = 32  # kMaxRanks
_PIECE = 4 * THREADS  # words that a thread block copies at a time
_LINE = 128  # bytes
_MAX_WORDS = (1 << 31) - 1  # of a block; the kernel counts them in 32 bits

_TARGET = np.dtype(
    [("to", "u8"), ("stride", "i8"), ("first", "i8"), ("count", "i8"), ("pieces", "i8")]
)

ARGUMENTS = np.dtype(
    [
        ("from", "u8"),
        ("stride", "i8"),
        ("chosen", "u8"),
        ("words", "i8"),
        ("vectors", "i8"),
        ("ranks", "i8"),
        ("most", "i8"),
        ("targets", _TARGET, (MAX_RANKS,)),
    ]
)
"""The C++ struct BlockCopyArguments, of any word."""


def block_program(word: int) -> Program:
    """Return the kernel for words of 4, 8 or 16 bytes."""
    return device_program("exchange/block_copies", "copy_blocks", WORDS[word], THREADS)


def arguments_of(
    source: Array, chosen: Array, begins: Sequence[int], targets: Sequence[Array]
) -> tuple[int, Array]:
    """Return the bytes of the largest possible word, and a launch's arguments.

    ``source``, ``targets``: layouts (vectors, blocks, size) whose blocks are contiguous.
    ``begins``: where each target's blocks begin among the chosen ones, and after the last where
      they end.
    """
    vectors, _, size = source.shape
    run = size * source.itemsize
    arrays = source, *targets
    firsts = [int(array.__array_interface__["data"][0]) for array in arrays]
    numbers = [run, *firsts, *(array.strides[0] for array in arrays if vectors > 1)]
    word = next(word for word in (16, 8, 4) if math.gcd(*numbers) % word == 0)
    if run // word > _MAX_WORDS:
        raise ValueError(f"blocks have {run} bytes; at most {_MAX_WORDS} words can be copied")
    found = np.zeros(1, ARGUMENTS)
    found["from"], found["stride"] = firsts[0], source.strides[0] // word
    found["chosen"] = chosen.__array_interface__["data"][0]
    found["words"], found["vectors"], found["ranks"] = run // word, vectors, len(targets)
    records = found["targets"][0]
    for record, target, to, first, end in zip(
        records, targets, firsts[1:], begins, begins[1:], strict=False
    ):
        pieces = -(-((end - first) * run // word + _LINE // word - 1) // _PIECE)
        record["to"], record["stride"] = to, target.strides[0] // word
        record["first"], record["count"] = first, end - first
        record["pieces"] = pieces if end > first and run else 0
    found["most"] = vectors * int(records["pieces"].max(initial=0))
    return word, found
