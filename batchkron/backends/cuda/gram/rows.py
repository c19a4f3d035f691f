"""The kernel of all gradients of a product whose rows fit into shared memory.

It is ``csrc/cuda/gram/rows.cuh``. A kernel for each multiply took 11.8 times as long for 1024: 3^7
(H100, docs/results/frameworks.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, LaunchShape, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import (
    MAX_THREAD_REGISTERS,
    REGISTER_FILE,
    WARP,
    DeviceLimits,
    resident_blocks,
    round_up,
    shared_bytes_for_blocks,
)
from batchkron.backends.cuda.runtime.program import Program, device_program, template_type
from batchkron.spec.kron import KronSpec

# Numbers below were chosen by hand, by times on an H100.
_THREADS = (256, 512)  # of a thread block
_MAX_SIZE = 16  # rows or columns of a factor
_MAX_MODES = 12
_TILE = 4  # rows, and columns, of the largest tile of sums; row_tile in C++
_FIBRES = (48, 32, 0)  # limits of a thread's elements of fibres, tried until registers suffice
_OTHER_REGISTERS = 36  # of a thread, beside sums and fibres: with fewer, values are spilled
_BANK_LINE = 128  # bytes of all banks of shared memory
_FIBRES_OF_THREAD = 4  # in a chunk; longer chunks gained nothing
_MANY_ELEMENTS = 1 << 20  # of x, with which one mode, or two large ones, are left to other kernels
_LARGE_MODE = 8  # rows or columns: more of them are large


Work = tuple[KronSpec, tuple[tuple[int, int], ...], tuple[bool, ...], bool, bool]
"""The gradients that are wanted of a product x (A_1 ⊗ … ⊗ A_d) of at least one row.

The strides of each A_k (P_k, Q_k) in elements; whether its gradient is wanted, at least one;
whether that of x is; and whether gradients of factors are written (Q_k, P_k).
"""


def rows_kernel(
    work: Work, device: DeviceLimits, variant: tuple[int, int] | None = None
) -> Kernel | None:
    """Return the kernel of all gradients, None if there is none or others are faster.

    A thread block must have a row of x in all steps. One mode, or two large ones, of many rows are
    left to kernels for each multiply: they read x and the gradient nearly as seldom, and factors
    from shared memory less often.

    The variant is (thread blocks, each of which writes a part of the sums; rows that a thread block
    has at a time).
    """
    product, strides, needed, _, _ = work
    largest, modes = max(product.inputs + product.outputs), len(product.inputs)
    elements = product.outer * math.prod(product.inputs)
    if product.dtype.kind != "f" or product.inner != 1 or modes > _MAX_MODES:
        return None
    few = modes == 1 or (modes == 2 and largest > _LARGE_MODE)
    if largest > _MAX_SIZE or (few and elements > _MANY_ELEMENTS):
        return None
    tiles = max(
        -(-rows // _TILE) * -(-columns // _TILE)
        for rows, columns in zip(product.inputs, product.outputs, strict=True)
    )
    threads = next((n for n in _THREADS if n >= tiles * WARP), None)
    if threads is None:
        return None
    sums, size = _sums(product, needed), product.dtype.itemsize
    most = min(MAX_THREAD_REGISTERS, REGISTER_FILE // threads)
    for fibres in _FIBRES:
        groups, held = _groups(product, fibres)
        registers = size // 4 * (sums + held) + _OTHER_REGISTERS
        if registers <= most:
            break
    else:
        return None
    fixed, sums_of_warps = _matrix_bytes(product), threads // WARP * sums * size
    for paddings in (_paddings(product, groups), (0,) * (len(groups) + 1)):
        row = _row_bytes(product, groups, paddings)
        fewest = fixed + max(row, sums_of_warps)
        if fewest <= device.shared_bytes:
            break
    else:
        return None
    by_registers = REGISTER_FILE // (threads * registers)
    resident = min(2, by_registers, resident_blocks(fewest, device))
    available = shared_bytes_for_blocks(resident, device) - fixed
    fibres_of_row = min(count * distance for count, _, distance in _lines(product, groups))
    useful = max(1, _FIBRES_OF_THREAD * threads // fibres_of_row)
    at_once = resident * device.multiprocessors
    if variant is None:
        chunk = max(1, min(available // row, useful, -(-product.outer // at_once)))
        variant = min(at_once, -(-product.outer // chunk)), chunk
    blocks, chunk = variant
    launch = LaunchShape(blocks, threads, resident, fixed + max(chunk * row, sums_of_warps))
    along, across = zip(*strides, strict=True)
    arguments = record(
        row_arguments(modes), along=along, across=across, rows=product.outer, chunk=chunk
    )
    program = _program(work, groups, paddings, launch)
    return Kernel(ROWS, work, variant, program, launch, arguments)


ROWS = Family("gram", "rows", rows_kernel)


def _program(
    work: Work, counts: Sequence[int], paddings: Sequence[int], launch: LaunchShape
) -> Program:
    """Return the program, for groups of so many neighbouring modes.

    Threads have whole fibres of a group. There are ``paddings`` elements between lines of the
    buffer before each group, and of the last buffer.
    """
    product, _, needed, with_x, turned = work
    wanted = sum(1 << k for k, one in enumerate(needed) if one)
    of_all = f"{wanted}u", with_x, turned, launch.threads, launch.resident
    modes = [
        template_type("RowMode", *sizes)
        for sizes in zip(product.inputs, product.outputs, strict=True)
    ]
    ends, (*before, last) = list(accumulate(counts)), paddings
    groups = [
        template_type("RowGroup", padding, *modes[end - count : end])
        for end, count, padding in zip(ends, counts, before, strict=True)
    ]
    return device_program("gram/rows", "row_gradients", product.dtype, *of_all, last, *groups)


def row_arguments(modes: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct RowGradientsArguments."""
    strides = f"along[{modes}] across[{modes}]"
    return struct(f"*x *gradient *of_x *parts *factors[{modes}]", strides, "rows chunk")


def _groups(product: KronSpec, fibres: int) -> tuple[tuple[int, ...], int]:
    """Return the modes of each group, and the most elements of fibres that a thread has of one.

    Neighbouring modes of small factors are a group, if a fibre before and after each multiply are
    at most ``fibres`` elements. Any mode may be a group of its own.
    """
    counts: list[int] = []
    held = begin = 0
    for end in range(1, len(product.inputs) + 1):
        small = max(product.inputs[begin:end] + product.outputs[begin:end]) <= _TILE
        if not small or _fibres(product, begin, end) > fibres or not counts:
            begin = end - 1
            counts.append(0)
        counts[-1] += 1
        largest = max(product.inputs[begin], product.outputs[begin])
        held = max(held, largest if largest > _TILE else _fibres(product, begin, end))
    return tuple(counts), held


def _fibres(product: KronSpec, begin: int, end: int) -> int:
    """Return the elements of a fibre before and after each multiply by the factors of a group."""
    steps = range(begin, end + 1)
    return sum(math.prod(product.outputs[begin:k] + product.inputs[k:end]) for k in steps)


def _sums(product: KronSpec, needed: Sequence[bool]) -> int:
    """Return the sums that a thread has, of all modes whose gradients are wanted."""
    sizes = zip(product.inputs, product.outputs, needed, strict=True)
    return sum(
        math.prod(-(-size // -(-size // _TILE)) for size in (rows, columns))
        for rows, columns, wanted in sizes
        if wanted
    )


def _lines(product: KronSpec, groups: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return of the buffer before each group, and of the last one: lines, elements, distance.

    A line has the elements of a fibre, that far from each other, and those between them.
    """
    ends = [0, *accumulate(groups)]
    found = [
        (
            math.prod(product.outputs[:k]),
            math.prod(product.inputs[k:]),
            math.prod(product.inputs[end:]),
        )
        for k, end in pairwise(ends)
    ]
    last = math.prod(product.outputs[ends[-2] :])
    return [*found, (math.prod(product.outputs) // last, last, 1)]


def _paddings(product: KronSpec, groups: Sequence[int]) -> tuple[int, ...]:
    """Return elements between lines for which fewest neighbouring threads read the same bank."""
    banks, found = _BANK_LINE // product.dtype.itemsize, []
    for _, line, distance in _lines(product, groups):
        places = [divmod(n, distance) for n in range(banks)]  # what as many threads read at once
        on_one_bank = [
            max(Counter((at * (line + padding) + r) % banks for at, r in places).values())
            for padding in range(banks)
        ]
        found.append(on_one_bank.index(min(on_one_bank)))
    return tuple(found)


def _row_bytes(product: KronSpec, groups: Sequence[int], paddings: Sequence[int]) -> int:
    """Return the shared memory of a row before and after each group."""
    return sum(
        round_up(count * (line + padding) * product.dtype.itemsize, 16)
        for (count, line, _), padding in zip(_lines(product, groups), paddings, strict=True)
    )


def _matrix_bytes(product: KronSpec) -> int:
    """Return the shared memory of the factors and their transposes, of whole words."""
    size = product.dtype.itemsize
    sizes = zip(product.inputs, product.outputs, strict=True)
    return sum(p * round_up(q * size, 16) + q * round_up(p * size, 16) for p, q in sizes)
