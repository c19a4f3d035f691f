"""Kernels that write products out, run lane by lane on the CPU against the definition."""

import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from nvrtc import DEVICES

from batchkron.backends.cuda.explicit.bands import BANDS, BandVariant
from batchkron.backends.cuda.explicit.kernel import DeviceMatrix, ProductShape
from batchkron.backends.cuda.explicit.tiles import TILES, TileVariant
from batchkron.backends.cuda.kernel import Kernel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
LIMITS = replace(DEVICES["90"], multiprocessors=1)
LINE, ROOM = 128, 256  # bytes
SMALL_BANDS = BandVariant(threads=32, words=1, batch=2, repeats=3)
SMALL_TILES = TileVariant(threads=32, run=1024, total=4096)
PAIRS = [  # shapes of a and b, the second of a or None, the second of b or None
    ((90, 40), (2, 2), None, None),
    ((41, 90), (3, 3), None, None),
    ((5, 31), (7, 11), None, None),
    ((3, 3), (5, 301), None, None),
    ((1, 2), (3, 700), None, None),
    ((2, 700), (3, 1), None, None),
    ((1, 1), (2, 513), None, None),
]
SEVERAL = [
    ((3, 4), (2, 5), (2, 3), (3, 7)),
    ((4, 9), (5, 31), (3, 2), None),
    ((2, 31), (2, 3), None, (1, 9)),
]


@dataclass(frozen=True)
class Case:
    """A kernel for matrices of these shapes, and where the result begins in a line, in bytes."""

    kernel: Kernel
    shapes: tuple
    offset: int


def layout(shape, strides):
    return DeviceMatrix(0, *shape, *strides)


def strided(shape, turned):
    """Strides in elements: row-major, or of a view that goes backwards through columns."""
    rows, columns = shape
    return (columns, 1) if not turned else (-1, rows)


def case_of(family, variant, shapes, dtype, offset, turned=False):
    """Return a kernel, or None where the family has none."""
    a, b, a_inner, b_inner = (
        None if shape is None else layout(shape, strided(shape, turned)) for shape in shapes
    )
    work = ProductShape(a, b, offset % 16, np.dtype(dtype), a_inner, b_inner)
    kernel = family.kernel(work, LIMITS, variant)
    return None if kernel is None else Case(kernel, shapes, offset)


def placed(values, matrix):
    """An array with the strides of a layout, and the address of its first element."""
    itemsize = values.itemsize
    memory = np.empty(values.size, values.dtype)
    first = matrix.rows - 1 if matrix.row < 0 else 0
    view = np.ndarray(
        values.shape,
        values.dtype,
        memory,
        first * itemsize,
        (matrix.row * itemsize, matrix.column * itemsize),
    )
    view[...] = values
    return view, memory


def run(case, launch, rng):
    """Run a kernel on random numbers; every element is rounded as NumPy's, its neighbours stay."""
    work = case.kernel.work
    layouts = (work.a, work.b, work.a_inner, work.b_inner)
    views, memories = [], []
    for shape, matrix in zip(case.shapes, layouts, strict=True):
        if shape is None:
            views.append(None)
            continue
        values = rng.integers(1, 9, shape) * rng.choice([-1.0, 1.0], shape)
        if work.dtype.kind == "c":
            values = values + 1j * rng.integers(1, 9, shape)
        view, memory = placed(values.astype(work.dtype), matrix)
        views.append(view)
        memories.append(memory)
    a, b, a_inner, b_inner = views
    left = a if a_inner is None else np.kron(a, a_inner)
    right = b if b_inner is None else np.kron(b, b_inner)
    expected = np.kron(left, right)
    memory = np.full(expected.nbytes + 2 * ROOM + LINE, 255, np.uint8)
    begin = ROOM + (-memory.ctypes.data - ROOM) % LINE + case.offset
    out = memory[begin : begin + expected.nbytes].view(work.dtype).reshape(expected.shape)
    arguments = case.kernel.arguments.copy()
    names = [name for name in arguments.dtype.names if name.endswith("_data")]
    for name, view in zip(names, views, strict=False):
        if view is not None:
            arguments[name] = view.ctypes.data
    arguments["out"] = out.ctypes.data
    shape = case.kernel.launch
    how = Launch(shape.blocks, shape.threads, shape.shared_bytes, COPIES["late"], 1)
    how.down = shape.down
    failure = launch(arguments.tobytes(), how, [*memories, memory])
    assert not failure, f"{case}: {failure}"
    np.testing.assert_array_equal(out, expected, err_msg=str(case))
    assert (memory[:begin] == 255).all()
    assert (memory[begin + out.nbytes :] == 255).all()


def cases(dtype):
    """Every family with small tiles, with results at the begin of a line and elsewhere."""
    itemsize = np.dtype(dtype).itemsize
    half = itemsize // 2 if np.dtype(dtype).kind == "c" else itemsize
    for number, shapes in enumerate(PAIRS):
        for family, variant in ((BANDS, SMALL_BANDS), (TILES, SMALL_TILES)):
            for offset in (0, 5 * itemsize, half):
                yield case_of(family, variant, shapes, dtype, offset, number % 2 == 1)
    for number, shapes in enumerate(SEVERAL):
        for offset in (0, 3 * itemsize):
            yield case_of(TILES, SMALL_TILES, shapes, dtype, offset, number % 2 == 1)


@pytest.mark.parametrize(
    "dtype",
    [
        "f4",
        "f8",
        pytest.param("c8", marks=pytest.mark.slow),
        pytest.param("c16", marks=pytest.mark.slow),
    ],
)
def test_products_are_those_of_the_definition(dtype, tmp_path):
    rng = np.random.default_rng(3)
    found = [case for case in cases(dtype) if case is not None]
    assert {case.kernel.family.name for case in found} == {"bands", "tiles"}
    programs = list(dict.fromkeys(case.kernel.program for case in found))
    launches = dict(zip(programs, compiled(programs, tmp_path), strict=True))
    for case in found:
        run(case, launches[case.kernel.program], rng)


MISTAKES = {
    "late threads leave out an element": ("late ? threads : 0", "late ? 2 * threads : 0"),
    "a column is not carried": ("l -= width;\n      ++j;", "l -= width;"),
    "the end of a run is not seen": ("at < length; advance()", "at < length + 1; advance()"),
    "tiles begin where the first one does": ("column_tile * x.tile_columns", "0 * column_tile"),
    "tiles are read before they are complete": ("__syncthreads();", ""),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_seen(name, tmp_path):
    case = case_of(TILES, SMALL_TILES, ((41, 90), (3, 3), None, None), "f4", 20)
    change = mistake("cuda/explicit/tiles.cuh", *MISTAKES[name])
    (launch,) = compiled([case.kernel.program], tmp_path, change=change)
    with pytest.raises(AssertionError):
        run(case, launch, np.random.default_rng(0))
