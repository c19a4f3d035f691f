"""Kernels that add products atomically, run lane by lane on the CPU against the definition."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from nvrtc import DEVICES

from batchkron.backends.cuda.batch.kernel import matrix_pitch, unsorted_arguments
from batchkron.backends.cuda.batch.passes import PassTiling
from batchkron.backends.cuda.batch.unsorted import (
    unsorted_program,
    unsorted_shared_bytes,
    unsorted_tile,
)
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import plan_order, plan_steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
NUMBERS = {"int": np.int32, "long long": np.int64}
SHAPES = [  # rows and columns of each factor; elements that a thread holds
    ([(4, 4)], 4),
    ([(5, 3)], 8),
    ([(2, 2)] * 2, 4),
    ([(4, 4)] * 2, 8),
    ([(3, 3)] * 3, 9),
    ([(4, 4)] * 3, 16),
    ([(2, 2)] * 6, 16),
    ([(3, 3)] * 4, 27),
    ([(4, 4)] * 4, 16),
    ([(8, 8)] * 2, 16),
    ([(8, 8)] * 3, 32),
    ([(2, 5), (6, 3), (4, 4)], 12),
    ([(3, 7), (3, 3), (2, 2)], 9),
    ([(12, 10), (9, 14)], 27),
    ([(1, 3), (3, 1), (2, 2)], 8),
    ([(13, 9)], 16),
    # a whole thread block for a product; with three passes and two buffers; with padding
    ([(6, 6)] * 4, 36),
    ([(2, 7), (2, 10), (2, 6)], 16),
    ([(6, 6), (8, 8), (6, 6)], 12),
    # four passes, idle threads
    ([(3, 5), (3, 1), (1, 4), (6, 4)], 16),
]


@dataclass(frozen=True)
class Case:
    """A kernel, and how its list is stored."""

    factors: list  # (rows, columns) of each
    dtype: np.dtype
    number: str
    by_row: bool
    identities: bool
    tile: PassTiling
    program: Program


def case_of(factors, dtype, held, number="int", by_row=True, identities=False):
    """Return a kernel for products of these factors."""
    dtype = np.dtype(dtype)
    outputs, inputs = zip(*factors, strict=True)
    steps = plan_steps(inputs, outputs, plan_order(inputs, outputs), dtype)
    if held * dtype.itemsize > 256:
        held = 16
    tile = unsorted_tile(steps, dtype.itemsize, held, DEVICES["90"])
    assert tile is not None
    program = unsorted_program(dtype, tile, number, by_row, identities)
    return Case(factors, dtype, number, by_row, identities, tile, program)


def numbers(rng, shape, dtype):
    values = rng.integers(-3, 4, shape)
    if dtype.kind == "c":
        values = values + 1j * rng.integers(-3, 4, shape)
    return values.astype(dtype)


def stored_pools(case, pools):
    """The pools of all steps as the kernel reads them: as they are, or (C, K) and padded."""
    if case.by_row:
        return [np.ascontiguousarray(pools[step.mode]) for step in case.tile.steps]
    stored = []
    for step in case.tile.steps:
        pool = pools[step.mode]
        pitch = matrix_pitch(step.C * step.K, case.dtype.itemsize) // case.dtype.itemsize
        padded = np.full((len(pool), pitch), np.nan, case.dtype)
        padded[:, : step.C * step.K] = pool.swapaxes(1, 2).reshape(len(pool), -1)
        stored.append(padded)
    return stored


def aligned(array):
    """A copy that begins at a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def run(case, launch, rng, copies="late", products=37, blocks=2, weighted=True, wrong=()):
    """Run a kernel on a list of small integers, whose sums are exact in any order.

    wrong: what to put out of range, as (index of the product, "ids", "inputs" or "outputs").
    Returns what the kernel reports of it.
    """
    dtype, tile, count = case.dtype, case.tile, 5
    rows, columns = zip(*case.factors, strict=True)
    number = NUMBERS[case.number]
    num_inputs, num_outputs, systems = 3, 4, 2
    ids = rng.integers(-1 if case.identities else 0, count, (products, len(rows))).astype(number)
    if case.identities:
        ids[:, [r != c for r, c in case.factors]] = np.maximum(
            ids[:, [r != c for r, c in case.factors]], 0
        )
    inputs = rng.integers(0, num_inputs, products).astype(number)
    outputs = rng.integers(0, num_outputs, products).astype(number)
    weights = numbers(rng, (systems, products), dtype)
    pools = [numbers(rng, (count, *shape), dtype) for shape in case.factors]
    x = numbers(rng, (3, num_inputs, *columns), dtype)
    y = numbers(rng, (3, num_outputs, *rows), dtype)
    left_out = {b for b, _ in wrong}
    expected = y.copy()
    for b in set(range(products)) - left_out:
        for e in range(3):
            part = x[e, inputs[b]]
            for mode, pool in enumerate(pools):
                matrix = np.eye(rows[mode]) if ids[b, mode] < 0 else pool[ids[b, mode]]
                part = np.moveaxis(np.tensordot(matrix, part, (1, mode)), 0, mode)
            scale = weights[e % systems, b] if weighted else 1
            expected[e, outputs[b]] += (2 * scale * part).astype(dtype)
    for b, name in wrong:
        if name == "ids":
            ids[b, -1] = count
        else:
            {"inputs": inputs, "outputs": outputs}[name][b] = -1 if b % 2 else 100

    held = [aligned(array) for array in (x, y, ids, inputs, outputs, weights)]
    stored = [aligned(pool) for pool in stored_pools(case, pools)]
    refused = np.array([1 << 60])
    arguments = np.zeros(1, unsorted_arguments(dtype, len(rows)))
    for key, array in zip(("x", "y", "ids", "inputs", "outputs"), held, strict=False):
        arguments[key] = array.ctypes.data
    if weighted:
        arguments["weights"], arguments["weight_system"] = held[5].ctypes.data, products
    arguments["refused"] = refused.ctypes.data
    arguments["pools"] = [pool.ctypes.data for pool in stored]
    arguments["limits"] = count
    arguments["columns"] = [step.mode for step in tile.steps]
    arguments["products"], arguments["outer"], arguments["systems"] = products, 3, systems
    arguments["num_inputs"], arguments["num_outputs"] = num_inputs, num_outputs
    arguments["alpha"] = 2
    shared, seed = unsorted_shared_bytes(tile), int(rng.integers(1 << 30))
    how = Launch(blocks, tile.block, shared, COPIES[copies], seed)
    failure = launch(arguments.tobytes(), how, [*held, *stored])
    assert not failure, f"{case.factors}: {failure}"
    np.testing.assert_array_equal(held[1], expected, err_msg=str(case.factors))
    return int(refused[0])


@pytest.mark.parametrize(
    ("dtype", "architecture"),
    [
        ("f4", 900),
        ("f8", 900),
        pytest.param("f4", 800, marks=pytest.mark.slow),
        pytest.param("c8", 900, marks=pytest.mark.slow),
        pytest.param("c16", 900, marks=pytest.mark.slow),
    ],
)
def test_lists_give_the_sums_of_the_definition(dtype, architecture, tmp_path):
    rng = np.random.default_rng(architecture)
    cases = []
    for k, (factors, held) in enumerate(SHAPES):
        number = "int" if k % 2 else "long long"
        cases.append(case_of(factors, dtype, held, number, k % 3 > 0, k % 4 == 0))
    for case, launch in zip(
        cases, compiled([case.program for case in cases], tmp_path, architecture), strict=True
    ):
        run(case, launch, rng)
        run(case, launch, rng, "at random", products=1, weighted=False)
        run(case, launch, rng, "at once", products=200, blocks=1)


def test_products_out_of_range_are_left_out_and_named(tmp_path):
    rng = np.random.default_rng(5)
    cases = [case_of([(3, 3)] * 2, "f8", 9), case_of([(8, 8)] * 3, "f4", 32, "long long")]
    launches = compiled([case.program for case in cases], tmp_path)
    for case, launch in zip(cases, launches, strict=True):
        assert run(case, launch, rng) == 1 << 60
        for name in ("ids", "inputs", "outputs"):
            assert run(case, launch, rng, wrong=[(30, name), (7, name)]) == 7
            assert run(case, launch, rng, wrong=[(36, name)]) == 36


def run_often(case, launch, rng):
    for _ in range(10):
        run(case, launch, rng, "at random", products=100)
        run(case, launch, rng, "late", products=100, wrong=[(3, "ids")])


HEADER = "cuda/batch/unsorted.cuh"
MISTAKES = {
    "data are not waited for": (HEADER, "wait_for_copies<1>();", ""),
    "buffers are overwritten while others read them": (
        HEADER,
        "Cut::sync_loaders();  // what the next copies overwrite has been read",
        "",
    ),
    "numbers out of range are used": (HEADER, "valid = valid && id >=", "valid = valid || id >="),
    "weights of the other system": (HEADER, "system * a.weight_system", "0 * a.weight_system"),
    "rows for columns": (
        "cuda/batch/held_modes.cuh",
        "c_step = by_row ? 1 : K",
        "c_step = by_row ? C : K",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_seen(name, tmp_path):
    shape = [(8, 8)] * 3 if "overwritten" in name else [(2, 3), (3, 2)]
    case = case_of(shape, "f8", 32 if "overwritten" in name else 9)
    (launch,) = compiled([case.program], tmp_path, change=mistake(*MISTAKES[name]))
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError):
        run_often(case, launch, rng)
