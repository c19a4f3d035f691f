"""The kernels that shapes of all kinds need, as programs to compile.

``limits`` are those of the device. What depends on a dtype takes it before.
"""

from itertools import product
from math import prod

import numpy as np
from plans import list_shape, plan_of, square_run

from batchkron.backends.cuda.batch.general import batch_program, batch_tiling
from batchkron.backends.cuda.batch.matrix_units import MATRIX_UNITS
from batchkron.backends.cuda.batch.registers import REGISTERS
from batchkron.backends.cuda.batch.slices import SLICES
from batchkron.backends.cuda.batch.unit_slices import UNIT_SLICES
from batchkron.backends.cuda.batch.unsorted import unsorted_program, unsorted_tile
from batchkron.backends.cuda.choose import families
from batchkron.backends.cuda.diagonal.kernel import diagonal_program
from batchkron.backends.cuda.explicit.kernel import DeviceMatrix, ProductShape
from batchkron.backends.cuda.formula.kernel import formula_program
from batchkron.backends.cuda.gram.registers import registers_kernel
from batchkron.backends.cuda.gram.rows import rows_kernel
from batchkron.backends.cuda.gram.tiles import tiles_kernel
from batchkron.backends.cuda.gram.total import total_kernel
from batchkron.backends.cuda.kernel import first_kernel
from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.kron_sum.systems import SYSTEMS, sum_tiling
from batchkron.backends.cuda.krylov.kernels import krylov_kernels, rank_passes, systems_kernel
from batchkron.backends.cuda.segmented.edges import SegmentMode, SumsShape
from batchkron.backends.cuda.segmented.general import general_kernel
from batchkron.backends.cuda.segmented.staged import staged_kernel
from batchkron.backends.cuda.step_sums.kernel import MAX_VECTORS as MAX_STEP_VECTORS
from batchkron.backends.cuda.step_sums.kernel import step_sum_program
from batchkron.backends.cuda.steps import plan_order, plan_steps
from batchkron.backends.cuda.vector_sum.kernel import MAX_VECTORS, vector_sum_program
from batchkron.backends.krylov_arguments import Stage
from batchkron.problems.statement.formula import Formula
from batchkron.spec.kron import KronSpec

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

# factors, rows and precision of Kron-Matmuls in float32
PRECISIONS = [
    ([(64, 64)] * 3, 1024, "tf32x3"),
    ([(128, 128)] * 3, 16, "tf32x3"),
    ([(32, 32)] * 3, 1024, "tf32x3"),
    ([(33, 40), (3, 2)], 100, "tf32x3"),
    ([(64, 64)] * 2, 1024, "tf32"),
    ([(128, 128)] * 2, 1024, "tf32"),
]


def programs_of(shapes, rows, inner, dtype, limits):
    """All kernels that a Kron-Matmul and a batch list of this shape need."""
    vectors = {"general": [(1, False)], "fibres": [(inner, False)]}
    vectors["registers"] = [(inner, False), (inner, True)]
    for name, some in vectors.items():
        for columns, constant in some:
            sizes = shapes, rows, columns, dtype
            for kernel in plan_of(*sizes, limits, constant=constant, families=(name,)):
                yield kernel.program
    if max(map(max, shapes)) >= _MIN_PANELS:
        for kernel in plan_of(shapes, rows, inner, dtype, limits, families=("panels",)):
            yield kernel.program
    outputs, inputs = ([shape[axis] for shape in shapes] for axis in (0, 1))
    steps = plan_steps(inputs, outputs, plan_order(inputs, outputs), dtype)
    for owner, buffers in ((False, 2), (True, 3)):
        tiling = batch_tiling(steps, inner, buffers, dtype.itemsize, limits)
        yield batch_program(dtype, tiling, owner)
    for short_ids, identities, results, maximum in ((True, False, 500, 64), (False, True, 5, 400)):
        numbers = results, 64 * results, maximum, short_ids, identities
        shape = list_shape(shapes, dtype, *numbers)
        for family in (REGISTERS, SLICES):
            kernel = family.kernel(shape, limits)
            if kernel is not None:
                yield kernel.program
    by_row = len(shapes) % 2 == 1
    for held in (4, 9, 16, 32):
        tile = unsorted_tile(steps, dtype.itemsize, held, limits)
        if tile is not None:
            yield unsorted_program(
                dtype, tile, "long long" if by_row else "int", by_row, not by_row
            )
            break


def explicit_programs(dtype, limits):
    """The kernels of explicit products, of each family, to aligned addresses and to others."""
    a = DeviceMatrix(0, 5, 7, 7, 1)
    for width in WIDTHS:
        b = DeviceMatrix(0, width, width, width, 1)
        for out in (0, dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize):
            for family in families("explicit"):
                kernel = family.kernel(ProductShape(a, b, out, dtype), limits)
                if kernel is not None:
                    yield kernel.program


def precision_programs(case, limits):
    """The kernels of an entry of PRECISIONS, the fastest on matrix units."""
    factors, rows, precision = case
    fibres = FAMILY_OF["fibres"]
    plan = plan_of(factors, rows, 1, "f4", limits, precision, families=("fibres",))
    for run in (kernel.work for kernel in plan):
        variant = next(one for one in fibres.variants(run, limits) if one.units)
        yield fibres.kernel(run, variant, limits).program


def krylov_programs(dtype, limits):
    """The kernels of all Krylov methods."""
    for n in KRYLOV_SIZES[dtype.char]:
        for names in KRYLOV:
            for kernel in krylov_kernels(names, dtype, n, 1, 20, limits):
                yield kernel.program


def rank_programs(dtype, limits):
    """The same of vectors that are spread over ranks, without those that one rank takes as well."""
    for names in KRYLOV:
        for each in rank_passes(names, dtype, 1_000_000, 1, 20, limits):
            for kernel in filter(None, each[:2]):
                if "ranks" in kernel.program.header:
                    yield kernel.program


def diagonal_programs(dtype, limits):
    """The kernels of products with diagonal matrices."""
    for repeated in (False, True):
        yield diagonal_program(dtype, 256, repeated)


FORMULAS = [
    "f * (1 - f)",
    "-exp(-x**2) * sin(y - t) + cos(f) / sqrt(2 + f**2)",
    "f**3 - f**0.5 * x + (+t)",
]


def formula_programs(dtype, limits):
    """The kernels of formulas of the state, two axes and the time, in double precision."""
    for text in FORMULAS if dtype == np.float64 else ():
        spec, _ = Formula(text, ("f", "x", "y", "t")).compiled(["f", "x", "y"], ["t"])
        yield formula_program(spec, 256)


def vector_sum_programs(dtype, limits):
    """The kernels of linear combinations, of which complex vectors are real ones."""
    for vectors in (1, 2, 3, MAX_VECTORS) if dtype.kind == "f" else ():
        yield vector_sum_program(dtype, 256, vectors)


def step_sum_programs(dtype, limits):
    """The kernels of sums in steps, of which complex vectors are real ones."""
    for vectors in (1, 2, 3, 7, 12, MAX_STEP_VECTORS) if dtype.kind == "f" else ():
        yield step_sum_program(dtype, 256, vectors)


def gram_programs(dtype, limits):
    """The kernels of Gram matrices: of small, middle and large modes."""
    for counts, parts in (((64,), 300), ((4096,), 264), ((9, 25, 16, 36), 264)):
        yield total_kernel(dtype, counts, parts).program
    for shape in ((1 << 20, 5, 3, 1), (1 << 20, 8, 8, 1), (1024, 3, 7, 64), (1024, 8, 8, 512)):
        small = registers_kernel((*shape, dtype), limits)
        if small is not None:
            yield small.program
    for shape in ((1 << 20, 5, 3, 1), (1024, 16, 16, 512), (1024, 64, 64, 64)):
        yield tiles_kernel((*shape, dtype), limits).program


def row_gradients_kernels(dtype, limits):
    """The kernels of all gradients of a product of small factors, planned."""
    for sizes in (3,) * 7, (2,) * 9, (8,) * 4, (3, 5, 4, 6), (4,) * 6, (16, 16), (10,) * 3:
        strides = tuple((n, 1) for n in sizes)
        spec = KronSpec(sizes, sizes, 100, 1, dtype)
        rows = rows_kernel((spec, strides, (True,) * len(sizes), True, False), limits)
        if rows is not None:
            yield rows


def unit_programs(limits):
    """The kernels of lists on matrix units, in float64 (ids of 16 bits) and float32 (of 32)."""
    for sizes, outputs in UNIT_LISTS:
        factors = [n if isinstance(n, tuple) else (n, n) for n in sizes]
        for dtype, short_ids in ((np.dtype("f8"), True), (np.dtype("f4"), False)):
            shape = list_shape(factors, dtype, outputs, 64 * outputs, short_ids=short_ids)
            kernel = first_kernel((MATRIX_UNITS, UNIT_SLICES), shape, limits)
            if kernel is not None:
                yield kernel.program
            else:
                assert dtype == np.float32, sizes


def sliced_programs(limits):
    """The kernels of products whose tiles are loaded slice by slice, where they fit."""
    for sizes, columns, dtype in SLICED:
        run = square_run(sizes, 1000, columns, dtype)
        kernel = FAMILY_OF["slices"].fastest(run, limits)
        if kernel is not None:
            yield kernel.program


def segment_modes(sizes):
    """The multiplies along each mode of a block of (P, Q): square ones, or the only one."""
    numbers = [q for _, q in sizes]
    for mode, (outputs, inputs) in enumerate(sizes):
        yield SegmentMode(prod(numbers[:mode]), inputs, outputs, prod(numbers[mode + 1 :]))


def segmented_programs(dtype, limits):
    """The kernels that sum mode multiplies over lists of edges."""
    for sizes, nodes, inner in SEGMENTS:
        shape = SumsShape(tuple(segment_modes(sizes)), dtype, nodes, 1, False, 1, inner)
        yield general_kernel(shape, limits).program


def staged_programs(dtype, limits):
    """The kernels that stage children in shared memory: none before compute capability 9.0."""
    for sizes, between, nodes in product(STAGED_BLOCKS, (False, True), (100, 10_000)):
        modes = tuple(segment_modes([(n, n) for n in sizes]))
        kernel = staged_kernel(SumsShape(modes, dtype, nodes, 1, between, 1, 1), limits)
        if kernel is not None:
            yield kernel.program


def sums_programs(dtype, limits):
    """The kernels of Kronecker sums of many systems."""
    for sizes in SUMS:
        yield SYSTEMS.kernel((sizes, dtype, 1), limits).program


def systems_programs(dtype, limits):
    """The kernels of whole iterations for many small systems, where they fit."""
    for sizes in SUMS[:3]:
        tiling = sum_tiling(sizes, dtype.itemsize, limits)
        for stages, kept, count in ITERATIONS:
            kernel = systems_kernel(dtype, tiling, 100, stages, kept, count, limits)
            if kernel is not None:
                yield kernel.program
