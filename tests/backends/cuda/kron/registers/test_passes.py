"""The passes of small factors through registers: each is carried out here as the kernel would."""

import math

import numpy as np
import pytest
from dense_oracle import DTYPES, dense_kron
from nvrtc import DEVICES
from plans import check_launch, check_runs, plan_of, product

from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.kron.registers.passes import staged_elements
from batchkron.backends.cuda.kron.registers.variants import factor_words, variant_of_few_tiles

SHAPES = [
    ([(1, 1)], 3, 1),
    ([(5, 3)], 40, 7),
    ([(2, 2)] * 9, 20, 1),
    ([(4, 4)] * 5, 3, 1),
    ([(3, 2), (2, 4), (5, 5)], 11, 1),
    ([(3, 2), (2, 4), (5, 5)], 2, 37),
    ([(16, 16)] * 2, 70, 1),
    ([(7, 7)] * 3, 2, 33),
    ([(8, 8)] * 4, 300, 1),
    ([(16, 5), (6, 16), (9, 9)], 4, 1),
    ([(3, 1), (4, 1), (8, 5), (4, 3), (5, 1), (4, 5)], 100, 7),
]


def offsets(sizes, strides):
    """All offsets of axes, the first one slowest."""
    if not sizes:
        return np.zeros(1, int)
    grids = np.indices(sizes).reshape(len(sizes), -1)
    return (grids * np.reshape(strides, (-1, 1))).sum(axis=0)


def places(one, in_memory, R, which):
    """Offsets (threads, registers) where a pass reads ("from_") or writes ("to")."""
    size = "C" if which == "from_" else "K"
    axes = one.threads[::-1]  # the first one fastest
    strides = [getattr(axis, which) * (R if in_memory and axis.bound != 2 else 1) for axis in axes]
    threads = offsets([axis.size for axis in axes], strides)
    registers = offsets(
        [getattr(axis, size) for axis in one.registers],
        [getattr(axis, which) * (R if in_memory else 1) for axis in one.registers],
    )
    return threads[:, None] + registers


def carried_out(kernel, factors, x):
    """The kernel's passes on one tile x (slices, inputs, columns)."""
    place, (passes, _, buffer), columns = x.ravel(), kernel.tile, kernel.variant.columns
    for number, one in enumerate(passes):
        first, last = number == 0, number == len(passes) - 1
        reads = places(one, first, columns, "from_")
        assert len(np.unique(reads)) == reads.size, "elements are read once"
        blocks = place[reads].reshape(-1, *(axis.C for axis in one.registers))
        for k, axis in enumerate(one.registers):
            if axis.factor >= 0:
                blocks = np.moveaxis(
                    np.tensordot(factors[axis.factor], blocks, (1, k + 1)), 0, k + 1
                )
        writes = places(one, last, columns, "to")
        block = math.prod(kernel.work.outputs) * columns
        size = kernel.variant.slices * block if last else buffer
        assert len(np.unique(writes)) == writes.size <= size
        place = np.full(size, np.nan, x.dtype)
        place[writes.ravel()] = blocks.reshape(-1)
    return place.reshape(kernel.variant.slices, -1, columns)


def register_plan(shapes, outer, inner, dtype, limits, constant=True):
    """The kernels where there is no other family."""
    return plan_of(shapes, outer, inner, dtype, limits, constant=constant, families=("registers",))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("index", range(len(SHAPES)))
def test_passes_apply_the_product(index, capability, constant):
    shapes, outer, inner = SHAPES[index]
    dtype = np.dtype(DTYPES[index % len(DTYPES)])
    limits, rng = DEVICES[capability], np.random.default_rng(index)
    kernels = register_plan(shapes, outer, inner, dtype, limits, constant)
    check_runs(kernels, product(shapes, outer, inner, dtype, constant=constant))
    for kernel in kernels:
        (_, buffers, buffer), variant, run = kernel.tile, kernel.variant, kernel.work
        factors = [rng.standard_normal(shapes[mode]) for mode in kernel.modes]
        x = rng.standard_normal((variant.slices, math.prod(run.inputs), variant.columns))
        result = carried_out(kernel, factors, x)
        np.testing.assert_allclose(result, dense_kron(*factors) @ x, rtol=1e-11, atol=1e-11)
        check_launch(kernel, limits)
        in_shared = buffers * buffer
        if not kernel.program.constants:
            in_shared += staged_elements(run.inputs, run.outputs, dtype.itemsize)
        assert kernel.launch.shared_bytes == in_shared * dtype.itemsize


def test_each_pass_of_square_factors_stays_in_place():
    (kernel,) = register_plan([(8, 8)] * 4, 64, 1, "f4", DEVICES["90"])
    passes, buffers, _ = kernel.tile
    assert buffers == 1
    for one in passes[1:-1]:
        assert all(axis.from_ == axis.to for axis in (*one.registers, *one.threads))


def test_large_factors_and_many_modes_are_left_to_other_kernels():
    limits = DEVICES["90"]
    for sizes in ((17, 2), (2, 17), (2,) * 13):
        run = product([(n, n) for n in sizes], 5, 1, "f8")
        assert not FAMILY_OF["registers"].accepts(run, limits)
        assert FAMILY_OF["registers"].fastest(run, limits) is None
    assert register_plan([(17, 17), (2, 2)], 5, 1, "f8", limits, False) == ()


def test_groups_are_few_and_cover_large_rows():
    kernels = register_plan([(8, 8)] * 6, 64, 1, "f4", DEVICES["90"])
    assert len(kernels) == 2
    assert all(kernel.work.results == 64 * 8**6 for kernel in kernels)


def test_words_of_factors_are_padded_rows_of_inputs(dtype):
    factors = [np.arange(6, dtype=dtype).reshape(3, 2), np.ones((1, 4), dtype)]
    words = factor_words(factors)
    pack = 16 // dtype.itemsize
    stride = -(-3 // pack) * pack
    assert words.dtype == dtype
    assert len(words) == staged_elements((2, 4), (3, 1), dtype.itemsize)
    np.testing.assert_array_equal(words[:3], factors[0][:, 0])
    np.testing.assert_array_equal(words[stride : stride + 3], factors[0][:, 1])


def kernels_of(sizes, rows, dtype, limits=DEVICES["90"]):
    return register_plan([(n, n) for n in sizes], rows, 1, dtype, limits)


def test_small_tiles_become_one_where_there_are_more_than_multiprocessors():
    (kernel,) = kernels_of((8,) * 3, 156, "f4")
    assert (kernel.variant.slices, kernel.launch.blocks) == (2, 78)
    (kernel,) = kernels_of((8,) * 3, 132, "f4")
    assert (kernel.variant.slices, kernel.launch.blocks) == (1, 132)
    (kernel,) = kernels_of((4,) * 6, 200, "f8")  # too many elements for one multiprocessor
    assert (kernel.variant.slices, kernel.launch.blocks) == (1, 200)


@pytest.mark.parametrize(
    ("sizes", "rows", "passes", "threads"), [((2,) * 11, 1, 3, 512), ((2,) * 9, 20, 3, 128)]
)
def test_few_tiles_may_take_few_passes_and_threads_that_have_work(sizes, rows, passes, threads):
    run, device = product([(n, n) for n in sizes], rows, 1, "f4", constant=True), DEVICES["90"]
    fastest = FAMILY_OF["registers"].fastest(run, device)
    assert fastest.variant == variant_of_few_tiles(run, device)
    assert len(fastest.tile[0]) == passes
    assert fastest.launch.threads == threads, "more have no work"


def test_tiles_in_many_rounds_are_no_choice():
    (kernel,) = kernels_of((5,) * 6, 64, "f4")
    assert kernel.launch.blocks == 64
    many = product([(5, 5)] * 6, 3 * 132, 1, "f4", constant=True)
    assert variant_of_few_tiles(many, DEVICES["90"]) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("capability", DEVICES)
def test_kernels_are_what_their_variants_make(capability, dtype):
    limits = DEVICES[capability]
    for inputs, outputs in [
        ((2,) * 10, (2,) * 10),
        ((4,) * 5, (4,) * 5),
        ((8,) * 5, (8,) * 5),
        ((10, 11), (9, 10)),
        ((16,) * 3, (16,) * 3),
    ]:
        for rows in (1, 64, 200):
            shapes = list(zip(outputs, inputs, strict=True))
            kernels = register_plan(shapes, rows, 1, dtype, limits)
            check_runs(kernels, product(shapes, rows, 1, dtype, constant=True))
            for kernel in kernels:
                assert kernel.family.kernel(kernel.work, kernel.variant, limits) == kernel
                (planned, _, _), shape = kernel.tile, kernel.launch
                held = max(math.prod(max(a.C, a.K) for a in one.registers) for one in planned)
                words = held * np.dtype(dtype).itemsize // 4
                assert words + 32 <= 65536 // (shape.threads * shape.resident), (
                    "no registers are left"
                )
