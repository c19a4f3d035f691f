"""Kernels of Kronecker-sparse matrices lane by lane on the CPU."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import compiled, mistake
from emulator.kron_sparse import run, run_ending, run_often, run_store, run_transpositions
from nvrtc import DEVICES

from batchkron.backends.cuda.kron_sparse.block_transposition import block_transposition
from batchkron.backends.cuda.kron_sparse.families import FAMILIES
from batchkron.backends.cuda.kron_sparse.kernel import SparseShape, with_ending
from batchkron.backends.cuda.kron_sparse.stored import (
    are_stored,
    store_kernel,
    stored_values,
)
from batchkron.backends.cuda.kron_sparse.tiles.tile import TileVariant

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

DEVICE = DEVICES["90"]
TILES, REGISTERS, GENERAL = FAMILIES
# pattern, (outer, inner), dtype, products, alignment, variant
PANELS = [
    ((2, 20, 37, 5), (37, 1), "float16", 0, 16, TileVariant(4, 2, 16, 32, 1, 2)),
    ((1, 70, 24, 12), (40, 1), "float16", 0, 16, TileVariant(8, 4, 64, 32, 2, 1)),
    ((2, 64, 50, 4), (33, 1), "bfloat16", 0, 16, TileVariant(4, 4, 64, 32, 2, 2)),
    ((3, 33, 36, 2), (35, 1), "float16", 0, 16, TileVariant(2, 2, 32, 64, 1, 4)),
    ((1, 20, 35, 24), (35, 1), "float16", 0, 16, TileVariant(16, 8, 16, 32, 1, 2)),
    ((2, 21, 33, 8), (33, 1), "bfloat16", 0, 16, TileVariant(8, 8, 32, 16, 2, 1)),
    ((1, 20, 19, 8), (20, 1), "float16", 0, 2, TileVariant(8, 8, 32, 16, 2, 1)),
    ((1, 37, 40, 16), (90, 1), "float16", 0, 16, TileVariant(16, 8, 16, 16, 1, 1, True)),
    ((2, 37, 70, 2), (150, 1), "bfloat16", 0, 16, TileVariant(2, 2, 32, 32, 1, 2, True)),
    ((2, 65, 40, 1), (70, 1), "float16", 0, 16, TileVariant(1, 1, 64, 64, 2, 2)),
    ((1, 20, 33, 1), (35, 1), "bfloat16", 0, 2, TileVariant(1, 1, 16, 64, 1, 4)),
    ((2, 33, 40, 3), (2, 72), "float16", 0, 16, TileVariant(1, 1, 32, 64, 2, 2)),
    ((1, 64, 33, 2), (1, 136), "bfloat16", 0, 16, TileVariant(1, 1, 64, 128, 1, 2)),
    ((1, 20, 17, 2), (1, 33), "float16", 0, 2, TileVariant(1, 1, 16, 64, 1, 4)),
    ((2, 48, 19, 8), (34, 1), "float32", 0, 16, TileVariant(8, 1, 48, 32, 1, 1)),
    ((1, 21, 20, 3), (33, 1), "float32", 0, 4, TileVariant(3, 1, 16, 32, 1, 1)),
    ((2, 30, 18, 4), (33, 1), "float32", 0, 16, TileVariant(4, 4, 32, 16, 1, 2)),
    ((2, 30, 18, 4), (90, 1), "float32", 0, 16, TileVariant(4, 4, 32, 16, 1, 2, True)),
    ((2, 30, 18, 6), (33, 1), "float32", 0, 8, TileVariant(4, 2, 32, 32, 1, 2)),
    ((2, 30, 18, 2), (33, 1), "float32", 0, 16, TileVariant(2, 2, 32, 32, 1, 2)),
    ((3, 66, 28, 1), (70, 1), "float32", 0, 16, TileVariant(1, 1, 64, 64, 2, 2)),
    ((3, 66, 28, 1), (70, 1), "float32", 0, 16, TileVariant(1, 1, 128, 64, 1, 2, True)),
    ((2, 33, 18, 2), (2, 136), "float32", 0, 16, TileVariant(1, 1, 64, 256, 1, 4)),
    ((1, 48, 31, 1), (40, 1), "float32", 0, 4, TileVariant(1, 1, 48, 32, 2, 1)),
    ((2, 33, 18, 2), (2, 68), "float32", 0, 16, TileVariant(1, 1, 32, 64, 2, 2)),
    ((1, 17, 40, 1), (1, 67), "float32", 0, 4, TileVariant(1, 1, 32, 64, 2, 2)),
    ((2, 40, 20, 4), (35, 1), "float32", 1, 16, TileVariant(4, 4, 32, 32, 2, 2)),
    ((2, 40, 36, 1), (35, 1), "float32", 3, 16, TileVariant(1, 1, 32, 64, 1, 4)),
    ((1, 33, 20, 3), (2, 36), "float32", 3, 16, TileVariant(1, 1, 32, 32, 2, 2)),
    ((1, 33, 20, 3), (1, 50), "float32", 1, 4, TileVariant(1, 1, 32, 64, 2, 2)),
    ((2, 33, 20, 8), (33, 1), "float64", 0, 16, TileVariant(4, 2, 32, 32, 1, 2)),
    ((2, 33, 20, 2), (33, 1), "float64", 0, 16, TileVariant(2, 2, 32, 32, 1, 2)),
    ((1, 33, 40, 6), (70, 1), "float64", 0, 16, TileVariant(4, 2, 32, 16, 1, 1, True)),
    ((2, 33, 21, 2), (3, 100), "float64", 0, 16, TileVariant(1, 1, 32, 32, 2, 2, True)),
    ((1, 33, 21, 7), (20, 1), "float64", 0, 8, TileVariant(2, 1, 32, 32, 2, 1)),
    ((3, 40, 18, 1), (40, 1), "float64", 0, 16, TileVariant(1, 1, 48, 32, 3, 1)),
    ((2, 33, 21, 2), (1, 41), "float64", 0, 8, TileVariant(1, 1, 32, 32, 2, 2)),
    ((1, 40, 34, 2), (3, 34), "float64", 0, 16, TileVariant(1, 1, 32, 64, 2, 2)),
]
OTHERS = [
    (REGISTERS, (1, 2, 2, 16), (21, 1), "float16", 16, (8, 4)),
    (REGISTERS, (5, 2, 3, 1), (21, 1), "bfloat16", 2, (1, 16)),
    (REGISTERS, (2, 4, 2, 8), (7, 1), "float32", 16, (4, 4)),
    (REGISTERS, (2, 3, 4, 5), (2, 12), "float32", 16, (4, 1)),
    (REGISTERS, (3, 2, 2, 2), (1, 11), "float64", 8, (1, 1)),
    (REGISTERS, (3, 2, 2, 2), (9, 1), "complex128", 16, (1, 4)),
    (GENERAL, (2, 9, 7, 3), (5, 1), "float16", 2, (4,)),
    (GENERAL, (2, 9, 7, 3), (5, 4), "bfloat16", 2, (8,)),
    (GENERAL, (2, 3, 17, 2), (1, 5), "complex64", 8, (1,)),
    (GENERAL, (1, 12, 5, 1), (6, 1), "float64", 8, (8,)),
]


def kernels():
    for pattern, vectors, dtype, products, alignment, variant in PANELS:
        shape = SparseShape(*pattern, *vectors, dtype, products, alignment)
        yield TILES.kernel(shape, variant, DEVICE)
    for family, pattern, vectors, dtype, alignment, variant in OTHERS:
        shape = SparseShape(*pattern, *vectors, dtype, 0, alignment)
        yield family.kernel(shape, variant, DEVICE)


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_kernels_give_the_bits_of_the_definition(tmp_path, rng, first):
    found = list(kernels())
    assert None not in found
    found = found[first::3]
    launches = compiled([kernel.program for kernel in found], tmp_path)
    for kernel, launch in zip(found, launches, strict=True):
        for copies in ("late", "at once"):
            run(kernel, launch, DEVICE, copies, rng)
        run(kernel, launch, DEVICE, "at random", rng, alpha=2, accumulate=True)
        run(kernel, launch, DEVICE, "late", rng, alpha=-1, blocks=1)


def with_endings():
    """Kernels of each layout of tiles and of all other families, with all endings in turn."""
    found = [kernel for kernel in kernels() if not kernel.work.dtype.startswith("complex")]
    endings = "bias", "gelu", "gelu-tanh"
    chosen = [endings[k // 3 % 3] for k in range(len(found))]
    return [(with_ending(*one), one[1]) for one in zip(found, chosen, strict=True)]


@pytest.mark.parametrize(
    "first", [None, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3))]
)
def test_biases_and_activations(tmp_path, rng, first):
    """Every seventh of the kernels, with all endings; the slow tests take a third each."""
    found = with_endings()[::7] if first is None else with_endings()[first::3]
    launches = compiled([kernel.program for kernel, _ in found], tmp_path)
    for (kernel, ending), launch in zip(found, launches, strict=True):
        run_ending(kernel, ending, launch, "late", rng)
        run_ending(kernel, ending, launch, "at once", rng, before=False)
        run_ending(kernel, ending, launch, "at random", rng, bias=False)


@pytest.mark.parametrize(
    ("header", "right", "wrong"),
    [
        ("arguments", "feature + n * next", "feature + n"),
        ("arguments", "a.before + (target - a.y)", "a.before"),
        ("tiles", "tile.j + (rows ? 0 : own_j)", "tile.j"),
        ("tiles", "feature + (rows ? 0 : offset)", "feature"),
    ],
)
def test_a_mistake_in_an_ending_is_seen(tmp_path, rng, header, right, wrong):
    rows = "next" in right
    pattern, vectors = ((2, 33, 18, 2), (2, 68)) if rows else ((2, 30, 18, 6), (33, 1))
    variant = TileVariant(1, 1, 32, 64, 2, 2) if rows else TileVariant(4, 2, 32, 32, 1, 2)
    shape = SparseShape(*pattern, *vectors, "float32", 0, 16 if rows else 8)
    kernel = with_ending(TILES.kernel(shape, variant, DEVICE), "gelu")
    change = mistake(f"cuda/kron_sparse/{header}.cuh", right, wrong)
    (launch,) = compiled([kernel.program], tmp_path, change=change)
    with pytest.raises(AssertionError):
        run_ending(kernel, "gelu", launch, "late", rng)


def test_many_tiles_of_columns_go_through_the_same_values(tmp_path, rng, monkeypatch):
    """Where the values do not fit in the second-level cache."""
    monkeypatch.setattr("batchkron.backends.cuda.kron_sparse.tiles.tile._CACHED_VALUES", 0)
    shape = SparseShape(2, 40, 10, 2, 200, 1, "float64")
    kernel = TILES.kernel(shape, TileVariant(2, 1, 32, 32, 1, 1), DEVICE)
    assert kernel.arguments[["tiles", "together"]].item() == (7 * 2 * 2, 7)
    (launch,) = compiled([kernel.program], tmp_path)
    run(kernel, launch, DEVICE, "late", rng)
    monkeypatch.setattr("batchkron.backends.cuda.kron_sparse.tiles.tile._TOGETHER", 4)
    kernel = TILES.kernel(shape, kernel.variant, DEVICE)
    # those of the eighth are skipped
    assert kernel.arguments[["tiles", "together"]].item() == (8 * 2 * 2, 4)
    run(kernel, launch, DEVICE, "late", rng, accumulate=True)


@pytest.mark.parametrize(
    ("header", "right", "wrong"),
    [
        ("tiles", "wait_for_copies<Cut::stages - 2>()", "wait_for_copies<Cut::stages - 1>()"),
        ("tiles", "kept += Panels::value_elements", "kept += 0"),
        ("copies", "left_entries -= depth", "left_entries -= 0"),
        ("copies", "k < left_rows", "k <= left_rows"),
        ("tiles", "__syncthreads();  // the panel is there, and the one before has been read", ""),
    ],
)
def test_a_mistake_is_seen(tmp_path, rng, header, right, wrong):
    kept = "kept" in right
    shape = SparseShape(2, 20, 50, 5, 77 if kept else 37, 1, "float16")
    kernel = TILES.kernel(shape, TileVariant(4, 2, 16, 16 if kept else 32, 1, 1, kept), DEVICE)
    change = mistake(f"cuda/kron_sparse/{header}.cuh", right, wrong)
    (launch,) = compiled([kernel.program], tmp_path, change=change)
    with pytest.raises(AssertionError):
        run_often(kernel, launch, DEVICE, rng)


def test_before_compute_capability_9(tmp_path, rng):
    """The same templates without what only later devices have."""
    device = DEVICES["80"]
    shape = SparseShape(2, 33, 20, 3, 1, 41, "float64", alignment=8)
    kernel = TILES.kernel(shape, TileVariant(1, 1, 32, 32, 2, 2), device)
    (launch,) = compiled([kernel.program], tmp_path, architecture=800)
    run(kernel, launch, device, "at random", rng)
    assert np.isfinite(kernel.seconds)


STORES = [  # pattern, strides in elements, dtype, how it is stored
    ((2, 20, 37, 5), (3700, 185, 5, 1), "float16", "blocks"),
    ((2, 20, 37, 5), (3700, 5, 100, 1), "bfloat16", "blocks"),  # a transposed matrix
    ((3, 9, 33, 1), (297, 1, 9, 1), "float32", "blocks"),
    ((1, 3, 1, 2), (0, 2, 0, 1), "float64", "blocks"),
    ((2, 5, 40, 3), (0, 0, 0, 0), "float64", "blocks"),  # one number
    ((2, 3, 4, 5), (60, 5, 15, 1), "complex64", "given"),
    ((1, 70, 2, 1), (140, 1, 70, 1), "complex128", "given"),
    ((2, 2, 3, 40), (480, 240, 80, 2), "float32", "given"),  # every second number
    ((2, 20, 37, 3), (2220, 111, 3, 1), "float16", "expanded"),
    ((1, 5, 40, 2), (400, 80, 2, 1), "float64", "expanded"),
    ((2, 3, 9, 1), (27, 9, 1, 1), "float32", "expanded"),
    ((2, 6, 5, 7), (210, 1, 6, 30), "float32", "expanded"),
    ((3, 6, 5, 7), (210, 1, 6, 30), "float32", "whole"),
    ((5, 4, 33, 1), (132, 33, 1, 1), "float16", "whole"),
]


def test_values_are_copied_to_where_kernels_read_them(tmp_path, rng):
    programs = []
    for pattern, strides, dtype, stored in STORES:
        size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        in_bytes = tuple(step * size for step in strides)
        programs.append(store_kernel(pattern, in_bytes, size, dtype, stored, DEVICE).program)
    for case, launch in zip(STORES, compiled(programs, tmp_path), strict=True):
        for _ in range(3):
            run_store(case, launch, DEVICE, rng)


@pytest.mark.parametrize("stored", ["given", "blocks", "expanded", "whole"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2), (0, 2, 1, 3)])
def test_which_values_need_no_copy(rng, stored, order):
    """Those that the host stores with the same bytes."""
    for pattern in (
        (1, 1, 1, 1),
        (2, 3, 4, 1),
        (2, 3, 4, 2),
        (1, 3, 5, 1),
        (2, 1, 8, 3),
        (1, 1, 2, 3),
    ):
        held = rng.integers(1, 9, [pattern[axis] for axis in order]).astype("f8")
        values = held.transpose(np.argsort(order))
        same = stored_values(values, stored).tobytes() == held.tobytes()
        assert are_stored(values.shape, values.strides, 8, stored) == same


TRANSPOSITIONS = [
    (block_transposition(blocks, length, width, itemsize, to_long, alignment, DEVICE), alignment)
    for to_long in (False, True)
    for blocks, length, width, itemsize, alignment in (
        (3, 48, 4, 2, 16),
        (7, 96, 3, 2, 16),
        (2, 1100, 16, 2, 16),  # parts
        (3, 101, 64, 2, 2),
        (5, 64, 16, 4, 16),
        (2, 130, 96, 4, 8),
        (9, 1, 5, 4, 16),
        (40, 7, 1, 4, 16),
        (4, 33, 12, 8, 16),
        (2, 300, 8, 8, 8),
    )
]


def test_transpositions(tmp_path, rng):
    launches = compiled([one.program for one, _ in TRANSPOSITIONS], tmp_path)
    for (one, alignment), launch in zip(TRANSPOSITIONS, launches, strict=True):
        run_transpositions(one, alignment, launch, rng, 2)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("__syncthreads();\n      each_run([&](int, int s", "each_run([&](int, int s"),
        ("__syncthreads();  // all have read the tile", ""),
        ("l / length) * width", "0 * l) * width"),
        ("* width + s) * length", "* width) * length"),
    ],
)
def test_a_mistake_in_a_transposition_is_seen(tmp_path, rng, right, wrong):
    one = block_transposition(700, 40, 8, 4, True, 4, DEVICE)
    change = mistake("cuda/kron_sparse/transpose_blocks.cuh", right, wrong)
    (launch,) = compiled([one.program], tmp_path, change=change)
    with pytest.raises(AssertionError):
        run_transpositions(one, 4, launch, rng, 10, blocks=1)
