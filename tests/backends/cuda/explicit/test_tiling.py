"""The cutting of explicit products: every element is written once, by offsets that fit."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import DTYPES
from hypothesis import given, settings
from hypothesis import strategies as st

from batchkron.backends.cuda.choose import families, needed_kernel
from batchkron.backends.cuda.explicit.bands import BandVariant, bands_kernel
from batchkron.backends.cuda.explicit.kernel import (
    RESULT_BYTES,
    DeviceMatrix,
    ProductShape,
    balanced_split,
    explicit_steps,
)
from batchkron.backends.cuda.explicit.tiles import TileVariant, tiles_kernel
from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

LIMITS = DeviceLimits(227 << 10, 132)
BASE = 1 << 40

sizes = st.one_of(st.integers(1, 9), st.integers(1, 5000))
variants = st.builds(
    BandVariant,
    threads=st.sampled_from([32, 256]),
    words=st.integers(1, 3),
    batch=st.integers(1, 4),
    repeats=st.sampled_from([1, 4, 16, 1000]),
)


def matrix(rows, columns, dtype):
    return DeviceMatrix(BASE, rows, columns, columns, 1)


def numbers_of(kernel):
    """The arguments of a kernel, its template arguments of bands, and the slices of the result."""
    (given,) = kernel.arguments
    found = {name: given[name] for name in given.dtype.names}
    found = {name: int(n) if n.dtype.names is None else n for name, n in found.items()}
    if kernel.family.name == "bands":
        names = "elements", "bytes", "entries", "offset", "threads", "words", "batch"
        values = kernel.program.expression.rstrip(">").split(", ")[-8:-1]
        found["kernel"] = SimpleNamespace(
            **{name: int(n) if n.isdigit() else n for name, n in zip(names, values, strict=True)}
        )
        found["slices"] = found["parts"] // found["groups"]
    return SimpleNamespace(**found)


def check_bands(chosen, a, b, out, dtype):
    """Bands, groups and words cover a slice; every band begins at the same place of a word."""
    cut = numbers_of(chosen)
    kernel = cut.kernel
    width = int(cut.b["columns"])
    block = int(cut.b["rows"]) * int(cut.a["columns"]) * width
    assert cut.slices * cut.total == a.rows * a.columns * b.rows * b.columns
    assert cut.whole * cut.out_band + cut.rest == int(cut.a["rows"]) * block
    assert cut.out_band % block == 0
    assert cut.out_band == cut.words * kernel.elements
    assert 0 <= cut.rest < cut.out_band
    bands = cut.whole + (cut.rest > 0)
    assert (cut.groups - 1) * cut.repeats < bands <= cut.groups * cut.repeats
    across, down = chosen.launch.blocks, chosen.launch.down
    chunk = kernel.threads * kernel.words
    words = cut.words if cut.whole else -(-cut.rest // kernel.elements)
    assert (across - 1) * chunk < words <= across * chunk
    assert 1 <= down <= 65535
    assert cut.repeats % kernel.batch == 0
    if kernel.offset == "unsigned":
        assert cut.out_band + (chunk + 2) * kernel.elements < 2**31
        assert b.reach < 2**31
    begins = {(out // dtype.itemsize + z * cut.total) % kernel.elements for z in range(4)}
    begins = begins if cut.slices > 1 else {out // dtype.itemsize % kernel.elements}
    for begin in begins:
        head = -begin % kernel.elements
        check_entries(kernel, width, head)


def check_entries(kernel, width, head):
    """No word has elements of more rows of b than the kernel has entries of a for."""
    for word in range(min(1000, 4 * width)):
        first = head + word * kernel.elements
        rows = len({(first + t) // width for t in range(kernel.elements)})
        assert rows <= kernel.entries
    if kernel.entries == 2 and kernel.elements == 4:
        assert width >= 2


def check_tiles(kernel, a, b, itemsize):
    """Tiles cover both matrices, and fit in shared memory; runs are in one row of each tile."""
    cut, how = numbers_of(kernel), kernel.launch
    left, right = cut.tile_rows * cut.tile_columns, cut.b_tile_rows * cut.b_tile_columns
    assert how.shared_bytes == (left + right) * itemsize <= 48 << 10
    whole = (cut.a_rows, cut.a_columns, cut.b_rows, cut.b_columns)
    assert whole == (a.rows, a.columns, b.rows, b.columns)
    parts = cut.tile_rows, cut.tile_columns, cut.b_tile_rows, cut.b_tile_columns
    assert all(1 <= part <= size for part, size in zip(parts, whole, strict=True))
    tiles = math.prod(-(-size // part) for part, size in zip(parts, whole, strict=True))
    assert (how.blocks, how.down) == (tiles, 1)
    assert (cut.b_column_tiles == 1) == (cut.b_tile_columns == b.columns)


@settings(deadline=None, max_examples=300)
@given(sizes, sizes, sizes, sizes, st.sampled_from(DTYPES), st.integers(0, 3), variants)
def test_every_element_is_written_once(p, q, r, s, name, offset, variant):
    dtype = np.dtype(name)
    a, b = matrix(p, q, dtype), matrix(r, s, dtype)
    out = BASE + offset * dtype.itemsize
    shape = ProductShape(a, b, out, dtype)
    check_bands(bands_kernel(shape, LIMITS, variant), a, b, out, dtype)
    assert needed_kernel("explicit", shape, LIMITS).family in families("explicit")
    found = [tiles_kernel(shape, LIMITS, v) for v in (None, TileVariant(run=4096, total=16384))]
    assert len({kernel is None for kernel in found}) == 1
    for kernel in filter(None, found):
        check_tiles(kernel, a, b, dtype.itemsize)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_numbers_may_begin_between_their_multiples(name):
    dtype = np.dtype(name)
    a, b = matrix(40, 30, dtype), matrix(20, 10, dtype)
    shape = ProductShape(a, b, BASE + dtype.itemsize // 2, dtype)
    bands, tiles = (family.kernel(shape, LIMITS) for family in families("explicit"))
    word = numbers_of(bands).kernel
    assert (word.elements, word.bytes) == (1, dtype.itemsize // 2)
    assert f", {dtype.itemsize // 2}, {tiles.launch.threads}, " in tiles.program.expression


def test_few_rows_of_a_are_cut_into_tiles_or_slices():
    dtype = np.dtype("f4")

    def family(a, b):
        shape = ProductShape(matrix(*a, dtype), matrix(*b, dtype), BASE, dtype)
        return needed_kernel("explicit", shape, LIMITS).family.name

    def bands_of(a, b):
        assert family(a, b) == "bands"
        shape = ProductShape(matrix(*a, dtype), matrix(*b, dtype), BASE, dtype)
        return numbers_of(needed_kernel("explicit", shape, LIMITS))

    assert family((3, 3), (2001, 2001)) == "tiles"
    assert family((3, 3), (2000, 2000)) == "bands", "rows of whole words"
    with without("explicit.tiles"):
        assert family((3, 3), (2001, 2001)) == "bands"
    with without("explicit.bands"):
        assert family((3, 3), (2000, 2000)) == "tiles"
    across = bands_of((1, 5000), (65, 129))
    assert across.slices == 65
    flat = bands_of((2, 50_000), (3, 3))
    assert (flat.slices, flat.a["columns"], flat.b["rows"]) == (6, 1, 1)
    assert flat.whole + 1 >= 8
    for a, b in [((4096, 4096), (2, 2)), ((1024, 1024), (32, 32)), ((64, 64), (512, 512))]:
        bands = bands_of(a, b)
        assert bands.slices == 1
        assert bands.kernel.entries == 1 + (b == (2, 2))


def test_a_row_of_the_right_matrix_meets_many_entries_of_the_left_one():
    """What is read is little next to what is written, and runs have whole lines."""
    for n, m in [(8192, 2), (5461, 3), (2341, 7), (501, 33), (3, 2000), (3, 2001)]:
        for dtype in map(np.dtype, DTYPES):
            shape = ProductShape(matrix(n, n, dtype), matrix(m, m, dtype), BASE, dtype)
            kernel = tiles_kernel(shape, LIMITS, TileVariant())
            cut = numbers_of(kernel)
            run = cut.tile_columns * cut.b_tile_columns
            assert 4096 <= run * dtype.itemsize <= TileVariant().run + 127 * m
            written = run * cut.tile_rows * cut.b_tile_rows
            assert written >= 2 * kernel.launch.shared_bytes // dtype.itemsize
            if m < 2000:
                assert cut.tile_columns == n or run * dtype.itemsize % 128 == 0


def test_the_last_three_products_of_four_factors_are_one_launch():
    dtype = np.dtype("f8")
    eight = matrix(8, 8, dtype)
    shape = ProductShape(eight, eight, BASE, dtype, eight, eight)
    assert (shape.left, shape.right, shape.addresses) == ((64, 64), (64, 64), 5)
    assert [one.name for one in families("explicit") if one.kernel(shape, LIMITS)] == ["tiles"]
    kernel = needed_kernel("explicit", shape, LIMITS)
    assert kernel.family.name == "tiles"
    check_tiles(kernel, matrix(64, 64, dtype), matrix(64, 64, dtype), 8)
    tiny = matrix(2, 2, dtype)
    with pytest.raises(LookupError, match="no family"):
        needed_kernel("explicit", ProductShape(tiny, tiny, BASE, dtype, tiny, None), LIMITS)


def test_bands_are_whole_lines_where_there_are_enough():
    dtype = np.dtype("f4")

    def cut(n, m, lines=True):
        shape = ProductShape(matrix(n, n, dtype), matrix(m, m, dtype), BASE, dtype)
        return numbers_of(bands_kernel(shape, LIMITS, BandVariant(lines=lines)))

    for n, m in [(5461, 3), (2341, 7), (1024, 17)]:
        lines = cut(n, m)
        assert (lines.out_band * 4 % 128, lines.alignment) == (0, 128)
    words = cut(2341, 7, lines=False)
    assert (words.out_band * 4 % 128, words.alignment) == (80, 16)
    few = cut(101, 33)
    assert few.out_band * 4 % 128 > 0


def test_products_beyond_32_bits_are_wide():
    dtype = np.dtype("f4")
    large, one = matrix(60_000, 40_000, dtype), matrix(1, 1, dtype)

    def is_wide(a, b):
        shape = ProductShape(a, b, BASE, dtype)
        return numbers_of(bands_kernel(shape, LIMITS)).kernel.offset == "batchkron::Index"

    assert is_wide(one, large)
    strided = DeviceMatrix(BASE, 10, 10, -(2**30), 1)
    assert is_wide(matrix(9, 9, dtype), strided)
    assert not is_wide(matrix(900, 900, dtype), matrix(90, 90, dtype))


@given(st.lists(st.integers(1, 100), min_size=2, max_size=8))
def test_factors_are_split_where_both_parts_are_small(factors):
    split = balanced_split(factors)
    assert 0 < split < len(factors)
    total = math.prod(factors[:split]) + math.prod(factors[split:])
    right_first = factors[0] + math.prod(factors[1:])
    assert total <= right_first


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=9),
    st.sampled_from([4, 8, 16]),
)
def test_steps_multiply_all_factors_in_order(shapes, itemsize):
    """Each result is read once, from memory of its own."""
    steps, offsets = explicit_steps(shapes, itemsize)
    assert len(steps) == len(offsets) == len(shapes) - 1
    factors = [[k] for k in range(len(shapes))]
    sizes = list(shapes)
    for left, right in steps:
        factors.append(factors[left] + factors[right])
        (p, q), (r, s) = sizes[left], sizes[right]
        sizes.append((p * r, q * s))
    assert factors[-1] == list(range(len(shapes)))
    read = sorted(place for step in steps for place in step)
    assert read == list(range(2 * len(steps)))
    results = sizes[len(shapes) : -1]
    assert offsets[0] == 0
    for (p, q), offset, begin in zip(results, offsets[:-1], offsets[1:], strict=True):
        last = offset + p * q * itemsize
        assert last <= begin < last + RESULT_BYTES
        assert begin % RESULT_BYTES == 0


def test_four_factors_of_one_size_are_two_pairs():
    steps, offsets = explicit_steps([(8, 8)] * 4, 8)
    assert steps == [(0, 1), (2, 3), (4, 5)]
    assert offsets == [0, 64**2 * 8, 2 * 64**2 * 8]
