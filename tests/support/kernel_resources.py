"""The kernels that shapes of all kinds need, compiled without a device, and their registers.

Registers and stack of each kernel are read from its machine code. They are kept in
``tests/support/kernel_resources.json``, so that a change that spills does not go by unnoticed:

    python tests/support/kernel_resources.py

writes that file again, by the release of NVRTC that pyproject.toml names for the tests.
"""

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import groupby, product
from math import prod
from pathlib import Path

import numpy as np
from dense_oracle import DTYPES
from nvrtc import DEVICES, compile_program
from plans import plan_of, square_run

from batchkron.backends.cuda.batch.matrix_units import unit_program, unit_tiling
from batchkron.backends.cuda.batch.registers.tile import register_batch_program, register_tiling
from batchkron.backends.cuda.batch.slices import slice_program, slice_tiling
from batchkron.backends.cuda.batch.unit_slices import unit_slice_program, unit_slice_tiling
from batchkron.backends.cuda.batch.unsorted import unsorted_program, unsorted_tile
from batchkron.backends.cuda.diagonal.kernel import diagonal_program
from batchkron.backends.cuda.explicit.families import FAMILIES as PRODUCT_FAMILIES
from batchkron.backends.cuda.explicit.kernel import DeviceMatrix, ProductShape
from batchkron.backends.cuda.general_kernel import (
    batch_program,
    batch_tiling,
)
from batchkron.backends.cuda.gram.registers import small_gram
from batchkron.backends.cuda.gram.rows import ProductLayout, row_gradients
from batchkron.backends.cuda.gram.tiles import gram_cut, gram_program
from batchkron.backends.cuda.gram.total import Total
from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.kron_sum.systems import sum_program, sum_tiling
from batchkron.backends.cuda.krylov.kernels import krylov_kernels, rank_passes, systems_kernel
from batchkron.backends.cuda.runtime.cubin import resources
from batchkron.backends.cuda.runtime.program import compile_options, device_sources
from batchkron.backends.cuda.segmented.edges import SegmentMode
from batchkron.backends.cuda.segmented.general import segment_tiling, segmented_program
from batchkron.backends.cuda.segmented.staged import staged_sums_program, staged_tiling
from batchkron.backends.cuda.steps import plan_order, plan_steps
from batchkron.backends.krylov_arguments import Stage

TABLE = Path(__file__).with_suffix(".json")
NVRTC = version("nvidia-cuda-nvrtc")
EXPLICIT = "explicit product"
KRYLOV = [  # passes that one call of `krylov_kernels` takes, in their order
    ("StartExtent", "StartNorms"),
    ("TrueResidual",),
    ("ScaleResidual",),
    ("OperatorExtent",),
    ("CgProduct", "CgDirection"),
    ("CgCurvature", "CgUpdate", "CgDirection"),
    ("MinresBegin",),
    ("MinresFirstNorm",),
    ("MinresDiagonal", "MinresLanczos", "MinresUpdate"),
    ("MinresNextNorm", "MinresUpdate"),
    ("BicgstabBegin",),
    ("BicgstabProject", "BicgstabFirstUpdate"),
    ("BicgstabSmoothing", "BicgstabSecondUpdate", "BicgstabDirection"),
    ("GmresProject", "GmresExtend"),
    ("GmresCombine", "GmresCorrect"),
    ("GmresResidual", "GmresAccept"),
]
# unknowns of a system that has one thread block, and of one that has many; not all in each dtype
KRYLOV_SIZES = {"f": [500], "d": [500, 1_000_000], "F": [1_000_000], "D": [500]}
SEGMENTED = "sums over edges"
WIDTHS = (1, 3, 32, 60_000)  # of the right factor
SEGMENTS = (  # modes of blocks, nodes, vectors at once
    ([(3, 3)] * 6, 1700, 1),
    ([(3, 3)] * 6, 100_000, 1),
    ([(3, 3)] * 2, 1300, 4),
    ([(8, 8)] * 3, 1000, 1),
    ([(1, 1)], 5000, 1),
    ([(9, 13)], 50, 1),
    ([(170, 170), (180, 180)], 10, 1),
)
STAGED = "staged sums over edges"
STAGED_BLOCKS = [(3,) * 6, (5,) * 4, (7,) * 3]
SUMS = [(8, 8, 8), (5, 7), (32, 32), (16, 16, 16), (40, 33), (2,) * 9]  # sizes of the modes
_CG, _BICGSTAB = (0, 1, 2, 3, 1), (0, 1, 3, 2, 4, 5)  # numbers of the vectors of passes
ITERATIONS = [  # stages of an iteration, how many vectors the next one reads, how many there are
    (
        (
            Stage("", (2, 3)),
            *[Stage(name, _CG) for name in ("CgCurvature", "CgUpdate", "CgDirection")],
        ),
        3,
        4,
    ),
    (
        (
            Stage("", (2, 4)),
            *[Stage(name, (*_BICGSTAB, 2)) for name in ("BicgstabProject", "BicgstabFirstUpdate")],
            Stage("", (1, 5)),
            *[
                Stage(f"Bicgstab{n}", (*_BICGSTAB, 1))
                for n in ("Smoothing", "SecondUpdate", "Direction")
            ],
        ),
        5,
        6,
    ),
]
UNITS = "lists on matrix units"
UNIT_LISTS = [  # sizes of the modes, or rows and columns, and outputs
    ((8, 8), 31_250),
    ((8, 8, 8), 3906),
    ((2, 8, 8), 3000),
    ((4, 8, 8, 8), 500),
    ((4,) * 4, 7812),
    ((4,) * 5, 1953),
    ((2,) + (4,) * 5, 900),
    ((4,) * 6, 488),
    ((12, 12), 13_888),
    ((16, 16), 7812),
    ((4, 12, 16), 2000),
    ((8, 12, 16), 1302),
    ((12, 12, 12), 1157),
    ((16, 16, 16), 488),
    ((7, 7), 40_816),
    ((7, 7, 7), 5830),
    ((3, 9, 15), 4938),
    (((12, 10), (9, 14)), 14_285),
]
SLICES = "products by slices"
SLICED = [  # sizes of the modes, columns, dtype
    ((8,) * 5, 1, "f8"),
    ((6, 8, 8, 8, 8), 1, "f8"),
    ((8, 16, 16, 16), 1, "f8"),
    ((4,) * 7, 1, "f8"),
    ((2,) * 14, 1, "f8"),
    ((8, 8, 8), 64, "f8"),
    ((16, 16, 16), 8, "f8"),
    ((8,) * 5, 1, "f4"),
    ((16,) * 4, 1, "f4"),
    ((4,) * 8, 1, "f4"),
    ((8,) * 4, 1, "f4"),
    ((16,) * 3, 1, "f4"),
]
_MIN_PANELS = 40  # rows or columns of a factor from which panels are compiled, too
MORE_REGISTERS = 8  # than in the table are no failure: the hardware hands them out in eights

TEMPLATES = {  # the kernel that a header defines
    "cuda/batch/general.cuh": "batched_kron",
    "cuda/batch/matrix_units.cuh": "batched_units",
    "cuda/batch/registers.cuh": "batched_registers",
    "cuda/batch/slices.cuh": "batched_slices",
    "cuda/batch/unit_slices.cuh": "batched_unit_slices",
    "cuda/batch/unsorted.cuh": "batched_unsorted",
    "cuda/explicit/bands.cuh": "explicit_kron",
    "cuda/explicit/tiles.cuh": "explicit_tiles",
    "cuda/kron/fibres/kernel.cuh": "kron_fibres",
    "cuda/kron/general.cuh": "kron_group",
    "cuda/kron/panels.cuh": "kron_panels",
    "cuda/kron/registers/kernel.cuh": "kron_registers",
    "cuda/kron/slices.cuh": "kron_slices",
    "cuda/segmented/general.cuh": "segmented_multiply",
    "cuda/segmented/staged.cuh": "staged_sums",
}

# factors (P, Q), rows of a Kron-Matmul, vectors of a batch at once; each shape in one dtype
SHAPES = [
    ([(1, 1)], 1, 1),
    ([(4, 4)], 1, 1),
    ([(2, 2)] * 2, 5, 3),
    ([(4, 4)] * 2, 1024, 1),
    ([(2, 2)] * 3, 1024, 1),
    ([(3, 3)] * 3, 1, 33),
    ([(8, 8)] * 3, 156, 1),
    ([(4, 4)] * 4, 1024, 1),
    ([(3, 3)] * 6, 1024, 1),
    ([(2, 2)] * 9, 20, 1),
    ([(8, 8)] * 5, 1024, 1),
    ([(32, 32)] * 3, 1024, 1),
    ([(16, 16)] * 4, 1024, 1),
    ([(64, 64)] * 2, 1024, 1),
    ([(64, 64)] * 3, 16, 1),
    ([(128, 128)] * 3, 16, 1),
    ([(128, 128)] * 2, 1024, 1),
    ([(52, 65), (50, 20)], 10, 1),
    ([(3, 4), (4, 3), (2, 5)], 1, 7),
    ([(7, 7), (5, 5), (6, 6)], 64, 1),
    ([(1, 31), (17, 1), (13, 2)], 300, 1),
    ([(2, 2)] * 13, 1, 1),
    ([(2, 20_000)], 3, 2),
    ([(20_000, 3), (2, 2)], 1, 1),
    ([(2, 2)] * 6, 1, 1),
    ([(3, 3)] * 4, 1, 1),
    ([(4, 4)] * 6, 1, 1),
    ([(5, 5)] * 4, 1, 1),
    ([(8, 8)] * 2, 1, 1),
    ([(2, 3), (4, 3), (3, 4), (3, 2)], 1, 1),
    ([(12, 12)] * 3, 64, 1),
    ([(5, 5), (5, 5), (5, 5), (2, 2)], 1, 1),
    ([(32, 32)] * 4, 1024, 1),
    ([(32, 32)] * 5, 16, 1),
    ([(3, 3), (4, 4), (5, 5), (6, 6)], 64, 1),
    ([(52, 50), (65, 20)], 10, 1),
    ([(32, 8), (64, 128)], 50, 1),
    ([(8, 8)] * 5, 1024, 1),
    ([(5, 5), (5, 5), (2, 2), (25, 25)], 1, 1),
    ([(16, 16)] * 2, 1, 1),
    ([(6, 6)] * 7, 1024, 1),
    ([(16, 16)] * 4, 1024, 1),
    ([(300, 200), (4, 4)], 3, 7),
    ([(316, 316)] * 2, 1, 1),
    ([(200, 200)] * 2, 1024, 1),
    ([(130, 131), (50, 50)], 10, 1),
    ([(40, 33), (2, 2)], 100, 1),
]

# Shapes that the tests compile for each capability; the table has all of them for both. On sm_80
# these have every template in every dtype and with every flag, which a test says.
TESTED = {
    "80": [1, 3, 12, 15, 16, 17, 18, 20, 21, 22, 28, 32, 37, 45],
    "90": [*range(len(SHAPES))],
}

# factors, rows and precision of Kron-Matmuls in float32
PRECISIONS = [
    ([(64, 64)] * 3, 1024, "tf32x3"),
    ([(128, 128)] * 3, 16, "tf32x3"),
    ([(32, 32)] * 3, 1024, "tf32x3"),
    ([(33, 40), (3, 2)], 100, "tf32x3"),
    ([(64, 64)] * 2, 1024, "tf32"),
    ([(128, 128)] * 2, 1024, "tf32"),
]


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its header, lowered name, registers and bytes of stack of a thread."""

    header: str
    name: str
    registers: int
    stack: int


def dtype_of(index):
    """The dtype that a shape is compiled for."""
    return np.dtype(DTYPES[index % len(DTYPES)])


def _sizes(factors):
    runs = [(p, q, len(list(run))) for (p, q), run in groupby(factors)]
    return " ".join(f"{p if p == q else f'{p}×{q}'}" + f"^{n}" * (n > 1) for p, q, n in runs)


def label_of(index):
    """A shape as the table names it."""
    factors, rows, inner = SHAPES[index]
    vectors = f", {inner} vectors" if inner > 1 else ""
    return f"{rows}: {_sizes(factors)}{vectors} {dtype_of(index)}"


def precision_label(case):
    """An entry of PRECISIONS as the table names it."""
    factors, rows, precision = case
    return f"{rows}: {_sizes(factors)} {precision}"


def programs_of(shapes, rows, inner, dtype, limits):
    """All kernels that a Kron-Matmul and a batch list of this shape need."""
    vectors = {"general": [(1, False)], "fibres": [(inner, False)]}
    vectors["registers"] = [(inner, False), (inner, True)]
    for name, some in vectors.items():
        for columns, constant in some:
            sizes = shapes, rows, columns, dtype
            for kernel in plan_of(*sizes, limits, constant=constant, families=(name,)):
                yield kernel.program()
    if max(map(max, shapes)) >= _MIN_PANELS:
        for kernel in plan_of(shapes, rows, inner, dtype, limits, families=("panels",)):
            yield kernel.program()
    outputs, inputs = ([shape[axis] for shape in shapes] for axis in (0, 1))
    steps = plan_steps(inputs, outputs, plan_order(inputs, outputs), dtype)
    for owner, buffers in ((False, 2), (True, 3)):
        tiling = batch_tiling(steps, inner, buffers, dtype.itemsize, limits)
        yield batch_program(dtype, tiling, owner)
    for short_ids, identities, results, maximum in ((True, False, 500, 64), (False, True, 5, 400)):
        numbers = dtype.itemsize, results, 64 * results
        registers = register_tiling(steps, *numbers, short_ids, identities, limits)
        if registers is not None:
            yield register_batch_program(dtype, registers)
        slices = slice_tiling(steps, *numbers, maximum, short_ids, identities, limits)
        if slices is not None:
            yield slice_program(dtype, slices)
    by_row = len(shapes) % 2 == 1
    for held in (4, 9, 16, 32):
        tile = unsorted_tile(steps, dtype.itemsize, held, limits)
        if tile is not None:
            yield unsorted_program(
                dtype, tile, "long long" if by_row else "int", by_row, not by_row
            )
            break


def compile_kernel(program, capability):
    """Compile a program."""
    name, code = compile_program(
        program.source, device_sources(), program.expression, compile_options(capability)
    )
    found = resources(code)
    return Kernel(program.header, name, found.registers, found.stack)


@cache
def _processes():
    """One for each processor: within a process the compiler does one program at a time."""
    return ProcessPoolExecutor(min(8, os.cpu_count() or 1), multiprocessing.get_context("spawn"))


@cache
def _begun(program, capability):
    """Begin to compile a program, once for all tests."""
    return _processes().submit(compile_kernel, program, capability)


@cache
def _begun_shape(index, capability):
    programs = programs_of(*SHAPES[index], dtype_of(index), DEVICES[capability])
    return [_begun(program, capability) for program in programs]


def kernels_of(index, capability):
    """All kernels of a shape; those of the next one are begun."""
    kernels = _begun_shape(index, capability)
    following = next((other for other in TESTED[capability] if other > index), None)
    if following is not None:
        _begun_shape(following, capability)
    return [kernel.result() for kernel in kernels]


def explicit_programs(dtype, limits):
    """The kernels of explicit products, of each family, to aligned addresses and to others."""
    a = DeviceMatrix(0, 5, 7, 7, 1)
    for width in WIDTHS:
        b = DeviceMatrix(0, width, width, width, 1)
        for out in (0, dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize):
            for family in PRODUCT_FAMILIES:
                way = family.fastest(ProductShape(a, b, out, dtype), limits)
                if way is not None:
                    yield way[1].program()


def explicit_kernels(dtype, capability):
    """The kernels of explicit products, compiled."""
    programs = dict.fromkeys(explicit_programs(np.dtype(dtype), DEVICES[capability]))
    begun = [_begun(program, capability) for program in programs]
    return [kernel.result() for kernel in begun]


def precision_kernels(case, capability):
    """The kernels of an entry of PRECISIONS, the fastest on matrix units."""
    factors, rows, precision = case
    limits, fibres, begun = DEVICES[capability], FAMILY_OF["fibres"], []
    plan = plan_of(factors, rows, 1, "f4", limits, precision, families=("fibres",))
    for run in (kernel.run for kernel in plan):
        variant = next(one for one in fibres.variants(run, limits) if one.units)
        begun.append(_begun(fibres.kernel(run, variant, limits).program(), capability))
    return [kernel.result() for kernel in begun]


def krylov_programs(dtype, limits):
    """The kernels of all Krylov methods."""
    for n in KRYLOV_SIZES[dtype.char]:
        for names in KRYLOV:
            for kernel in krylov_kernels(names, dtype, n, 1, 20, limits):
                yield kernel.program


def rank_programs(dtype, limits):
    """The kernels of Krylov methods whose vectors are spread over ranks."""
    for names in KRYLOV:
        for each in rank_passes(names, dtype, 1_000_000, 1, 20, limits):
            yield each.first.program
            if each.after is not None:
                yield each.after.program


def rank_kernels(dtype, capability):
    """The same, compiled; those that one rank takes as well are left out."""
    programs = dict.fromkeys(rank_programs(np.dtype(dtype), DEVICES[capability]))
    begun = [_begun(program, capability) for program in programs if "ranks" in program.header]
    return [kernel.result() for kernel in begun]


def diagonal_kernels(dtype, capability):
    """The kernels of products with diagonal matrices."""
    kind = np.dtype(dtype)
    begun = [
        _begun(diagonal_program(kind, 256, repeated), capability) for repeated in (False, True)
    ]
    return [kernel.result() for kernel in begun]


def gram_kernels(dtype, capability):
    """The kernels of Gram matrices: of small, middle and large modes."""
    kind, limits = np.dtype(dtype), DEVICES[capability]
    programs = [
        Total(kind, *of).program() for of in (((64,), 300), ((4096,), 264), ((9, 25, 16, 36), 264))
    ]
    for shape in ((1 << 20, 5, 3, 1), (1 << 20, 8, 8, 1), (1024, 3, 7, 64), (1024, 8, 8, 512)):
        small = small_gram(shape, kind, limits)
        if small is not None:
            programs.append(small.program())
    for shape in ((1 << 20, 5, 3, 1), (1024, 16, 16, 512), (1024, 64, 64, 64)):
        cut = gram_cut(*shape, kind.itemsize, limits)
        programs.append(gram_program(kind, *shape[1:3], cut))
    return [_begun(program, capability).result() for program in programs]


def row_gradients_kernels(dtype, capability):
    """The kernels of all gradients of a product, with how many threads a multiprocessor has."""
    kind, limits = np.dtype(dtype), DEVICES[capability]
    shapes = (3,) * 7, (2,) * 9, (8,) * 4, (3, 5, 4, 6), (4,) * 6, (16, 16), (10,) * 3
    found = []
    for sizes in shapes:
        strides = tuple((n, 1) for n in sizes)
        layout = ProductLayout(kind, 100, 1, sizes, sizes, strides)
        rows = row_gradients(layout, [True] * len(sizes), True, False, limits)
        if rows is not None:
            found.append((_begun(rows.program(), capability), rows.threads * rows.resident))
    return [(kernel.result(), threads) for kernel, threads in found]


def krylov_methods_kernels(dtype, capability):
    """The kernels of all Krylov methods, compiled."""
    programs = dict.fromkeys(krylov_programs(np.dtype(dtype), DEVICES[capability]))
    begun = [_begun(program, capability) for program in programs]
    return [kernel.result() for kernel in begun]


def unit_kernels(capability):
    """The kernels of lists on matrix units, in float64 (ids of 16 bits) and float32 (of 32)."""
    begun, limits = [], DEVICES[capability]
    for sizes, outputs in UNIT_LISTS:
        rows, columns = zip(*(n if isinstance(n, tuple) else (n, n) for n in sizes), strict=True)
        for dtype, short_ids in ((np.dtype("f8"), True), (np.dtype("f4"), False)):
            steps = plan_steps(columns, rows, plan_order(columns, rows), dtype)
            numbers = outputs, 64 * outputs, short_ids, False
            tiling = unit_tiling(steps, dtype, *numbers, limits)
            shared = unit_slice_tiling(steps, dtype, outputs, short_ids, False, limits)
            if tiling is not None:
                begun.append(_begun(unit_program(dtype, tiling), capability))
            elif shared is not None:
                begun.append(_begun(unit_slice_program(dtype, shared), capability))
            else:
                assert dtype == np.float32, sizes
    return [kernel.result() for kernel in begun]


def sliced_kernels(capability):
    """The kernels of products whose tiles are loaded slice by slice, where they fit."""
    begun = []
    for sizes, columns, dtype in SLICED:
        run = square_run(sizes, 1000, columns, dtype)
        kernel = FAMILY_OF["slices"].fastest(run, DEVICES[capability])
        if kernel is not None:
            begun.append(_begun(kernel.program(), capability))
    return [kernel.result() for kernel in begun]


def segment_modes(sizes):
    """The multiplies along each mode of a block of (P, Q): square ones, or the only one."""
    numbers = [q for _, q in sizes]
    for mode, (outputs, inputs) in enumerate(sizes):
        yield SegmentMode(prod(numbers[:mode]), inputs, outputs, prod(numbers[mode + 1 :]))


def segmented_kernels(dtype, capability):
    """The kernels that sum mode multiplies over lists of edges."""
    kind, limits = np.dtype(dtype), DEVICES[capability]
    tilings = [
        segment_tiling(list(segment_modes(sizes)), kind.itemsize, nodes, 1, inner, limits)
        for sizes, nodes, inner in SEGMENTS
    ]
    begun = [_begun(segmented_program(kind, tiling), capability) for tiling in tilings]
    return [kernel.result() for kernel in begun]


def staged_kernels(dtype, capability):
    """The kernels that stage children in shared memory: none before compute capability 9.0."""
    kind, limits = np.dtype(dtype), DEVICES[capability]
    begun = []
    for sizes, between, nodes in product(STAGED_BLOCKS, (False, True), (100, 10_000)):
        modes = list(segment_modes([(n, n) for n in sizes]))
        tiling = staged_tiling(modes, kind.itemsize, nodes, between, limits)
        if tiling is not None:
            begun.append(_begun(staged_sums_program(kind, tiling), capability))
    return [kernel.result() for kernel in begun]


def sums_kernels(dtype, capability):
    """The kernels of Kronecker sums of many systems."""
    kind, limits = np.dtype(dtype), DEVICES[capability]
    tilings = [sum_tiling(sizes, kind.itemsize, limits) for sizes in SUMS]
    begun = [_begun(sum_program(kind, tiling), capability) for tiling in tilings]
    return [kernel.result() for kernel in begun]


def systems_kernels(dtype, capability):
    """The kernels of whole iterations for many small systems, where they fit."""
    kind, limits = np.dtype(dtype), DEVICES[capability]
    begun = []
    for sizes in SUMS[:3]:
        tiling = sum_tiling(sizes, kind.itemsize, limits)
        for stages, kept, count in ITERATIONS:
            kernel = systems_kernel(kind, tiling, 100, stages, kept, count, limits)
            if kernel is not None:
                begun.append(_begun(kernel.program, capability))
    return [kernel.result() for kernel in begun]


def rows_of(kernels):
    """Kernels as the table has them."""
    names = [k.header.removeprefix("cuda/").removesuffix(".cuh") for k in kernels]
    return [[name, k.registers, k.stack] for name, k in zip(names, kernels, strict=True)]


def all_kernels(capability):
    """All kernels of one capability, by the table's names."""
    table = {label_of(index): kernels_of(index, capability) for index in range(len(SHAPES))}
    for dtype in DTYPES:
        table[f"{EXPLICIT} {dtype}"] = explicit_kernels(dtype, capability)
        table[f"{SEGMENTED} {dtype}"] = segmented_kernels(dtype, capability)
        table[f"{STAGED} {dtype}"] = staged_kernels(dtype, capability)
    table[UNITS] = unit_kernels(capability)
    table[SLICES] = sliced_kernels(capability)
    for case in PRECISIONS:
        table[precision_label(case)] = precision_kernels(case, capability)
    return table


def growth(kernels, rows):
    """What is wrong with kernels where the table has ``rows``, a line for each."""
    if [row[0] for row in rows_of(kernels)] != [row[0] for row in rows]:
        yield f"other kernels than in the table: {rows_of(kernels)} instead of {rows}"
        return
    for kernel, (header, registers, stack) in zip(kernels, rows, strict=True):
        if kernel.registers > registers + MORE_REGISTERS:
            yield f"{header} takes {kernel.registers} registers, {registers} in the table"
        if kernel.stack > stack:
            yield f"{header} takes {kernel.stack} bytes of stack, {stack} in the table"


def main():
    table = {
        f"sm_{capability}": {
            label: rows_of(kernels) for label, kernels in all_kernels(capability).items()
        }
        for capability in DEVICES
    }
    text = json.dumps({"nvrtc": NVRTC, "kernels": table}, ensure_ascii=False, indent=1)
    # a kernel a line
    lines = text.replace("[\n     ", "[").replace("\n    ]", "]").replace(",\n     ", ", ")
    TABLE.write_text(lines + "\n")


if __name__ == "__main__":
    main()
