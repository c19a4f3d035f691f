"""Kernels of batch lists run lane by lane on the CPU: their bits, and mistakes that tests see."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from nvrtc import DEVICES
from plans import list_shape

from batchkron.backends.cuda.batch.kernel import (
    list_records,
    matrix_pitch,
    register_batch_arguments,
)
from batchkron.backends.cuda.batch.matrix_units import MATRIX_UNITS
from batchkron.backends.cuda.batch.slices import SLICES
from batchkron.backends.cuda.batch.unit_slices import UNIT_SLICES
from batchkron.backends.cuda.kernel import Kernel, first_kernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
LISTS = [  # rows and columns of each factor where they differ, else sizes
    (8, 8),
    (4, 4, 4, 4),
    (2, 8, 8),
    (12, 12),
    (16, 16),
    (12, 16),
    (4, 16, 12),
    (2, 4, 8, 7),
    (7, 7),
    (7, 7, 7),
    (3, 6, 6, 8),
    (3, 13, 15),
    ((12, 10), (9, 14)),
    ((3, 16), (7, 9)),
    (2, (16, 5), (11, 3)),
    (16, 16, 16),
    (12, 12, 12),
    (8, 12, 16),
    (12, 16, 12),
]
SLICED = [  # split modes first, in the middle and last, with exchanged ones of all sizes
    (4,),
    (3, 3),
    (3, 3, 3),
    (3, 3, 3, 3),
    (3, 3, 3, 3, 3),
    (2, 2, 2, 2, 2, 2),
    (5, 5, 5),
    (5, 2, 5),
    (4, 4, 4),
    ((2, 5), (6, 3), 4),
    ((4, 3), (4, 3), (4, 3)),
    ((3, 7), 3, 2),
    (4, 4, 7),
    (2, 7, 7),
    (4, 7, 7),
]


@dataclass(frozen=True)
class Case:
    """A kernel, and the list that it is run on."""

    factors: list  # (rows, columns) of each
    kernel: Kernel
    num_outputs: int
    products: int


def case_of(factors, dtype, num_outputs, products, short_ids):
    """Return a list and its kernel, None without, on a device that few outputs fill."""
    device = DeviceLimits(DEVICES["90"].shared_bytes, 1, 8)
    # as if outputs had so many products that groups share them
    shape = list_shape(factors, dtype, num_outputs, 4 * products, short_ids=short_ids)
    kernel = first_kernel((UNIT_SLICES, MATRIX_UNITS), shape, device)
    return None if kernel is None else Case(factors, kernel, num_outputs, products)


def sliced_case(factors, dtype, num_outputs, products, short_ids, padded):
    """Return a list and its kernel in slices, None without.

    padded: all outputs have as many records as the one with most.
    """
    maximum = products if padded else 100 * products
    shape = list_shape(factors, dtype, num_outputs, 4 * products, maximum, short_ids)
    kernel = SLICES.kernel(shape, DEVICES["90"])
    if kernel is None:
        return None
    assert (kernel.arguments["slots"][0] > 0) == padded
    return Case(factors, kernel, num_outputs, products)


def run(case, launch, rng, copies, weighted=False, infinite=None):
    """Run a kernel on a list of random integers, and compare with the definition, bit by bit.

    weighted: adds to y with weights, else overwrites it. infinite: "x" or "factor" for an infinity
    in one of its blocks, or "weight", amid positive numbers.
    """
    factors, kernel, shape = case.factors, case.kernel, case.kernel.work
    dtype = shape.dtype
    num_outputs, products, accumulate = case.num_outputs, case.products, weighted
    least = -2 if infinite is None else 1
    rows, columns = zip(*factors, strict=True)
    outputs = np.sort(rng.integers(0, num_outputs, products))
    starts = np.searchsorted(outputs, np.arange(num_outputs + 1)).astype(np.int64)
    num_inputs, count = 3, 4
    inputs = rng.integers(0, num_inputs, products)
    ids = rng.integers(0, count, (products, len(factors)))
    pools = [rng.integers(least, 3, (count, *shape)).astype(dtype) for shape in factors]
    weights = (
        rng.integers(1, 4, (1, products)).astype(dtype)
        if weighted
        else np.ones((1, products), dtype)
    )
    x = rng.integers(least, 4, (2, num_inputs, *columns)).astype(dtype)
    if infinite is not None:
        split = getattr(kernel.variant, "split", None)
        factor = pools[-1 if split is None else 0][2]
        array = {"x": x[1, 1], "factor": factor, "weight": weights[:, ::7]}[infinite]
        array[tuple(rng.integers(0, size) for size in array.shape)] = np.inf
    before = rng.integers(-5, 6, (2, num_outputs, *rows)).astype(dtype)
    expected = before.copy() if accumulate else np.zeros_like(before)
    with np.errstate(invalid="ignore"):
        for b in range(products):
            part = x[:, inputs[b]]
            for mode in reversed(range(len(pools))):  # the kernels' order, which infinities show
                turned = np.tensordot(pools[mode][ids[b, mode]], part, (1, mode + 1))
                part = np.moveaxis(turned, 0, mode + 1)
            expected[:, outputs[b]] += 2 * weights[0, b] * part
    y = before.copy() if accumulate else np.full_like(before, np.nan)

    by_step = ids[:, [step.mode for step in shape.steps]]
    slots = int(kernel.arguments["slots"][0])
    records = list_records(by_step, inputs, starts, shape.short_ids, slots)
    held, places = [], []
    for step in shape.steps:
        pitch = matrix_pitch(step.C * step.K, dtype.itemsize) // dtype.itemsize
        padded = np.full((count, pitch), np.nan, dtype)
        padded[:, : step.C * step.K] = pools[step.mode].swapaxes(1, 2).reshape(count, -1)
        held.append(padded)
        places.append((padded.ctypes.data, 0))
    unit = np.array([not weighted], np.int32)
    arguments = np.zeros(1, register_batch_arguments(dtype, len(factors)))
    for key, array in (
        ("x", x),
        ("y", y),
        ("list", records),
        ("starts", starts),
        ("weights", weights),
    ):
        arguments[key] = array.ctypes.data
    arguments["unit_weights"], arguments["pools"] = unit.ctypes.data, places
    arguments["outer"], arguments["systems"], arguments["alpha"] = 2, 1, 2
    arguments["num_inputs"], arguments["num_outputs"] = num_inputs, num_outputs
    arguments["accumulate"], arguments["slots"] = accumulate, slots
    how = Launch(
        blocks=kernel.launch.blocks,
        threads=kernel.launch.threads,
        shared_bytes=kernel.launch.shared_bytes,
        when=COPIES[copies],
        seed=int(rng.integers(1 << 30)),
    )
    failure = launch(arguments.tobytes(), how, held)
    assert not failure, f"{factors}: {failure}"
    np.testing.assert_array_equal(y, expected, err_msg=str(factors))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "dtype"), [("90", np.float32), ("90", np.float64), ("80", np.float64)]
)
def test_lists_give_the_bits_of_the_definition(capability, dtype, tmp_path):
    rng, dtype = np.random.default_rng(int(capability)), np.dtype(dtype)
    cases = []
    for number, sizes in enumerate(LISTS):
        factors = [n if isinstance(n, tuple) else (n, n) for n in sizes]
        num_outputs, short_ids = 4 if number % 2 else 2, bool(number % 3)
        case = case_of(factors, dtype, num_outputs, 9 * num_outputs, short_ids)
        cases += [] if case is None else [case]
    assert len(LISTS) - len(cases) == (0 if dtype == np.float64 else 3)
    launches = compiled([case.kernel.program for case in cases], tmp_path, int(capability) * 10)
    for case, launch in zip(cases, launches, strict=True):
        run(case, launch, rng, "late")
        run(case, launch, rng, "at random", weighted=True)
        run(case, launch, rng, "late", infinite="x")
        run(case, launch, rng, "at random", infinite="factor")
        run(case, launch, rng, "late", weighted=True, infinite="weight")


def sliced_cases(dtype):
    """Yield lists of all kinds that threads take in slices, some padded to one length."""
    for number, sizes in enumerate(SLICED):
        factors = [n if isinstance(n, tuple) else (n, n) for n in sizes]
        num_outputs = 4 if number % 2 else 2
        kinds = bool(number % 3), bool(number % 2)
        case = sliced_case(factors, dtype, num_outputs, 9 * num_outputs, *kinds)
        if case is not None:
            yield case


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lists_in_slices_give_the_bits_of_the_definition(dtype, tmp_path):
    rng, cases = np.random.default_rng(3), list(sliced_cases(np.dtype(dtype)))
    steps = [case.kernel.work.steps for case in cases]
    places = {s[case.kernel.variant.split].mode for s, case in zip(steps, cases, strict=True)}
    assert places >= {0, 1, 2}
    assert {case.kernel.variant.parts for case in cases} >= {1, 2 if dtype == np.float64 else 3, 7}
    assert len(SLICED) - len(cases) == (3 if dtype == np.float64 else 0)
    launches = compiled([case.kernel.program for case in cases], tmp_path)
    for case, launch in zip(cases, launches, strict=True):
        run(case, launch, rng, "late")
        run(case, launch, rng, "at random", weighted=True)


def run_often(case, launch, rng, **options):
    for _ in range(5):
        run(case, launch, rng, "at random", **options)


MISTAKES = {
    "infinities meet the padding": (
        (7, 7),
        ("cuda/batch/unit_multiply.cuh", "lane)) first[i] = 0;", "lane)) first[i] += 0;"),
        {"infinite": "factor"},
    ),
    "an infinite weight meets the padding": (
        (7, 7),
        ("cuda/batch/unit_multiply.cuh", "if (Rows::has_step(s, lane)) slow", "slow"),
        {"weighted": True, "infinite": "weight"},
    ),
    "an infinite share meets the padding": (
        (2, 3, 8, 7),
        ("cuda/batch/unit_multiply.cuh", "Columns::has_step(s, lane) ? sum : 0", "sum"),
        {"infinite": "factor"},
    ),
    "a slice is not waited for": (
        (12, 12, 12),
        ("cuda/batch/unit_slices.cuh", "__syncthreads();  // slices of this", "// slices of this"),
        {},
    ),
    "matrices are overwritten while others read them": (
        (12, 12, 12),
        ("cuda/batch/unit_slices.cuh", "round % 3", "round % 2"),
        {"weighted": True},
    ),
    "sums of the lanes beyond a power of two are lost": (
        (3, 3, 3, 3),
        ("cuda/batch/slices.cuh", "if (place < lanes - whole) sums[i] =", "if (false) sums[i] ="),
        {},
    ),
    "lanes beyond a power of two write": (
        (3, 3, 3, 3),
        ("cuda/batch/slices.cuh", "if (whole * parts < 32 && place >= whole) end = 0;", ""),
        {},
    ),
    "lanes that are left over write": (
        (2, 7, 7),
        ("cuda/batch/slices.cuh", "if (whole * parts < 32 &&", "if (whole < lanes &&"),
        {},
    ),
    "results are placed as if the first mode were split": (
        (3, 3, 3),
        ("cuda/batch/slices.cuh", "(r / to * K + k)", "(k * (output / to) + r / to)"),
        {},
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_seen(name, tmp_path):
    sizes, made, options = MISTAKES[name]
    factors = [n if isinstance(n, tuple) else (n, n) for n in sizes]
    what = factors, np.dtype(np.float64), 4, 36, True
    case = sliced_case(*what, True) if made[0] == "cuda/batch/slices.cuh" else case_of(*what)
    (launch,) = compiled([case.kernel.program], tmp_path, change=mistake(*made))
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError):
        run_often(case, launch, rng, **options)
