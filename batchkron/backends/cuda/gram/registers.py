"""The kernel of Gram matrices of small modes, ``csrc/cuda/gram/registers.cuh``.

No device is needed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.hardware import (
    MAX_THREAD_REGISTERS,
    REGISTER_FILE,
    WARP,
    DeviceLimits,
)
from batchkron.backends.cuda.runtime.program import SCALARS, Program, flag, template_type
from batchkron.spec.kron import Array

# Numbers below were chosen by hand.
_MAX_SUMS = 64  # of a thread
_OTHER_REGISTERS = 30  # of a thread, beside its sums and what it reads
_THREADS = (256, 128)  # of a thread block, the first of which two fit on a multiprocessor
_MAX_BLOCKS = 4  # thread blocks of a multiprocessor
_MIN_PAIRS = 4  # of a thread, so that parts are little beside x and y


@dataclass(frozen=True, slots=True)
class SmallGram:
    """The kernel for x (outer, rows, inner) and y (outer, columns, inner) on a device.

    Attributes
    ----------
    shape : tuple of int
        (outer, rows, columns, inner).
    dtype : numpy.dtype
    threads : int
        Of a thread block.
    resident : int
        Thread blocks that a multiprocessor has at a time.
    blocks : int
        Thread blocks, each of which writes a part of the sums.
    """

    shape: tuple[int, int, int, int]
    dtype: np.dtype[Any]
    threads: int
    resident: int
    blocks: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a thread block: the sums of each warp."""
        _, rows, columns, _ = self.shape
        return self.threads // WARP * rows * columns * self.dtype.itemsize

    def program(self) -> Program:
        """Return the program to compile."""
        _, rows, columns, inner = self.shape
        sizes = rows, columns, flag(inner == 1), self.threads, self.resident
        expression = template_type("gram_registers", SCALARS[self.dtype], *sizes)
        return Program("cuda/gram/registers.cuh", expression)

    def arguments(self) -> Array:
        """Return the kernel's arguments, without addresses: of x, y and the parts."""
        outer, _, _, inner = self.shape
        arguments = np.zeros(1, small_arguments())
        arguments["pairs"], arguments["inner"] = outer * inner, inner
        arguments["l_step"], arguments["r_step"] = divmod(self.blocks * self.threads, inner)
        return arguments


def small_gram(
    shape: tuple[int, int, int, int], dtype: np.dtype[Any], limits: DeviceLimits
) -> SmallGram | None:
    """Return the kernel for a shape, None if a thread has not the registers for it."""
    outer, rows, columns, inner = shape
    if dtype.kind != "f" or rows * columns > _MAX_SUMS:
        return None
    words = dtype.itemsize // 4 * (rows * columns + 2 * (rows + columns))
    registers = words + _OTHER_REGISTERS
    if registers > MAX_THREAD_REGISTERS:
        return None
    threads = next(n for n in _THREADS if 2 * n * registers <= REGISTER_FILE)
    resident = min(_MAX_BLOCKS, REGISTER_FILE // (threads * registers))
    blocks = -(-outer * inner // (_MIN_PAIRS * threads))
    return SmallGram(
        shape, dtype, threads, resident, min(blocks, resident * limits.multiprocessors)
    )


@cache
def small_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct SmallGramArguments."""
    sizes = size_fields("pairs", "inner", "l_step", "r_step")
    return np.dtype([*pointer_fields("x", "y", "sums"), *sizes], align=True)
