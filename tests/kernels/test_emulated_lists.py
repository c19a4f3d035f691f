"""Batch lists on matrix units, lane by lane on the CPU: the bits of the definition."""

import sys

import numpy as np
import pytest
from emulation import COPIES, Launch, compiled
from nvrtc import DEVICES

from batchkron.backends.device_arguments import register_batch_arguments
from batchkron.backends.device_batch_unit_slices import unit_slice_tiling
from batchkron.backends.device_batch_units import unit_tiling
from batchkron.backends.device_batches import matrix_pitch, record_words
from batchkron.backends.device_programs import unit_program, unit_slice_program
from batchkron.backends.device_tiling import DeviceLimits, plan_order, plan_steps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
FLOAT64 = np.dtype(np.float64)
SIZES = [
    (8, 8),
    (4, 4, 4, 4),
    (2, 8, 8),
    (12, 12),
    (16, 16),
    (12, 16),
    (4, 16, 12),
    (2, 4, 8, 8),
    (16, 16, 16),
    (12, 12, 12),
    (8, 12, 16),
    (12, 16, 12),
]


def tiling_of(sizes, num_outputs, products, short_ids):
    """Return how a list is cut, and its kernel, on a device so small that few outputs fill it."""
    steps = plan_steps(sizes, sizes, plan_order(sizes, sizes), FLOAT64)
    device = DeviceLimits(DEVICES["90"].shared_bytes, 1, 8)
    tiling = unit_tiling(steps, FLOAT64, num_outputs, products, short_ids, False, device)
    if tiling is not None:
        return tiling, unit_program(tiling)
    tiling = unit_slice_tiling(steps, FLOAT64, num_outputs, short_ids, False, device)
    return tiling, unit_slice_program(tiling)


def run(sizes, tiling, launch, num_outputs, products, rng, weighted, accumulate):
    """Run a kernel on a list of random integers, and compare with the definition, bit by bit."""
    outputs = np.sort(rng.integers(0, num_outputs, products))
    starts = np.searchsorted(outputs, np.arange(num_outputs + 1)).astype(np.int64)
    num_inputs, count = 3, 4
    inputs = rng.integers(0, num_inputs, products)
    ids = rng.integers(0, count, (products, len(sizes)))
    pools = [rng.integers(-2, 3, (count, n, n)).astype(float) for n in sizes]
    weights = (
        rng.integers(1, 4, (1, products)).astype(float) if weighted else np.ones((1, products))
    )
    x = rng.integers(-3, 4, (2, num_inputs, *sizes)).astype(float)
    before = rng.integers(-5, 6, (2, num_outputs, *sizes)).astype(float)
    expected = before.copy() if accumulate else np.zeros_like(before)
    for b in range(products):
        part = x[:, inputs[b]]
        for mode, pool in enumerate(pools):
            turned = np.tensordot(pool[ids[b, mode]], part, (1, mode + 1))
            part = np.moveaxis(turned, 0, mode + 1)
        expected[:, outputs[b]] += 2 * weights[0, b] * part
    y = before.copy() if accumulate else np.full_like(before, np.nan)

    words = record_words(len(sizes), tiling.short_ids)
    records = np.zeros((products, words), np.int32)
    records[:, 0] = inputs
    by_step = ids[:, [step.mode for step in tiling.steps]]
    if tiling.short_ids:
        records[:, 1:].view(np.uint16)[:, : len(sizes)] = by_step
    else:
        records[:, 1 : 1 + len(sizes)] = by_step
    held, places = [], []
    for step in tiling.steps:
        pitch = matrix_pitch(step.C * step.K, 8) // 8
        padded = np.full((count, pitch), np.nan)
        padded[:, : step.C * step.K] = pools[step.mode].swapaxes(1, 2).reshape(count, -1)
        held.append(padded)
        places.append((padded.ctypes.data, 0))
    unit = np.array([not weighted], np.int32)
    arguments = np.zeros(1, register_batch_arguments(FLOAT64, len(sizes)))
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
    arguments["accumulate"] = accumulate
    how = Launch(
        blocks=-(-num_outputs // tiling.outputs),
        threads=tiling.block,
        shared_bytes=tiling.shared_bytes,
        when=COPIES["late"],
        seed=int(rng.integers(1 << 30)),
    )
    failure = launch(arguments.tobytes(), how, held)
    assert not failure, f"{sizes}: {failure}"
    np.testing.assert_array_equal(y, expected, err_msg=str(sizes))


@pytest.mark.parametrize("capability", ["90", "80"])
def test_lists_give_the_bits_of_the_definition(capability, tmp_path):
    rng = np.random.default_rng(int(capability))
    shapes = [
        (sizes, 8 if number % 2 else 4, bool(number % 3)) for number, sizes in enumerate(SIZES)
    ]
    cut = [tiling_of(sizes, n, 20 * n, short) for sizes, n, short in shapes]
    launches = compiled([program for _, program in cut], tmp_path, int(capability) * 10)
    for (sizes, n, _), (tiling, _), launch in zip(shapes, cut, launches, strict=True):
        for weighted, accumulate in ((False, False), (True, True)):
            run(sizes, tiling, launch, n, 20 * n, rng, weighted, accumulate)
