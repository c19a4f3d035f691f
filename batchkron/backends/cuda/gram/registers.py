"""The kernel of Gram matrices of small modes, ``csrc/cuda/gram/registers.cuh``.

What it gains over tiles has not been measured by itself; ``without("gram.registers")`` leaves them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.gram.tiles import GramWork
from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import (
    MAX_THREAD_REGISTERS,
    REGISTER_FILE,
    WARP,
    DeviceLimits,
)
from batchkron.backends.cuda.runtime.program import device_program

# Numbers below were chosen by hand.
_MAX_SUMS = 64  # of a thread
_OTHER_REGISTERS = 30  # of a thread, beside its sums and what it reads
_THREADS = (256, 128)  # of a thread block, the first of which two fit on a multiprocessor
_MAX_BLOCKS = 4  # thread blocks of a multiprocessor at a time
_MIN_PAIRS = 4  # of a thread, so that parts are little beside x and y


def registers_kernel(
    work: GramWork, device: DeviceLimits, parts: int | None = None
) -> Kernel | None:
    """Return the kernel whose threads have all sums, or None; its variant is how many parts."""
    outer, rows, columns, inner, dtype = work
    if dtype.kind != "f" or rows * columns > _MAX_SUMS:
        return None
    words = dtype.itemsize // 4 * (rows * columns + 2 * (rows + columns))
    registers = words + _OTHER_REGISTERS
    if registers > MAX_THREAD_REGISTERS:
        return None
    threads = next(n for n in _THREADS if 2 * n * registers <= REGISTER_FILE)
    resident = min(_MAX_BLOCKS, REGISTER_FILE // (threads * registers))
    if parts is None:
        wanted = -(-outer * inner // (_MIN_PAIRS * threads))
        parts = min(wanted, resident * device.multiprocessors)
    sizes = rows, columns, inner == 1, threads, resident
    l_step, r_step = divmod(parts * threads, inner)
    arguments = record(
        small_arguments(), pairs=outer * inner, inner=inner, l_step=l_step, r_step=r_step
    )
    shared = threads // WARP * rows * columns * dtype.itemsize  # the sums of each warp
    launch = LaunchShape(parts, threads, resident, shared)
    program = device_program("gram/registers", "gram_registers", dtype, *sizes)
    return Kernel(REGISTERS, work, parts, program, launch, arguments)


REGISTERS = Family("gram", "registers", registers_kernel)


@cache
def small_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct SmallGramArguments."""
    return struct("*x *y *sums pairs inner l_step r_step")
