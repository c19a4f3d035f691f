"""The kernel of sums in steps, run lane by lane on the CPU against NumPy."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import compiled, run_kernel

from batchkron.backends.cuda.step_sums.kernel import step_sum_arguments, step_sum_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

THREADS = 64
CASES = [("f4", 1), ("f4", 16), ("f8", 2), ("f8", 5)]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    programs = [step_sum_program(np.dtype(dtype), THREADS, vectors) for dtype, vectors in CASES]
    return compiled(programs, tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("case", range(len(CASES)), ids=["-".join(map(str, c)) for c in CASES])
def test_sums_norms_and_steps(rng, kernels, case):
    """Rows and results of three steps; elements around the edges of blocks; in place, or no sum."""
    dtype, vectors = np.dtype(CASES[case][0]), CASES[case][1]
    for count in (0, 1, 63, 255, 257, 1000):
        blocks = max(1, min(3, -(-count // (4 * THREADS))))
        step, ended, partial = np.array([1]), np.zeros(1, np.uint32), np.full(8, np.nan)
        rows, results = rng.uniform(-2.0, 2.0, (4, vectors + 2)), np.full((4, 2), np.nan)
        x = [rng.standard_normal(count).astype(dtype) for _ in range(vectors)]
        untouched = results.copy()
        for result, ends, target in ((-1, 0, "new"), (1, 0, "first"), (0, 1, None), (-1, 1, "new")):
            y = {"new": np.full(count, np.nan, dtype), "first": x[0], None: None}[target]
            number = int(step[0])
            expected = sum(a * v for a, v in zip(rows[number, 2:].astype(dtype), x, strict=True))
            bound = 4 * vectors * np.finfo(dtype).eps
            scale = sum(abs(a) * abs(v) for a, v in zip(rows[number, 2:], x, strict=True))
            arguments = np.zeros(1, step_sum_arguments(vectors))
            arrays = [rows, step, results, partial, ended, *x]
            arguments["x"] = [v.ctypes.data for v in x]
            arguments["y"] = 0 if y is None else y.ctypes.data
            for name, array in zip(("rows", "step", "results", "partial", "ended"), arrays,
                                   strict=False):  # fmt: skip
                arguments[name] = array.ctypes.data
            for name, value in (("count", count), ("width", vectors + 2), ("first", 2),
                                ("columns", 2), ("result", result), ("ends", ends)):  # fmt: skip
                arguments[name] = value
            shared = 8 * (THREADS // 32 + 2)
            given = arrays if y is None else [*arrays, y]
            run_kernel(kernels[case], arguments, blocks, THREADS, shared, given, rng)
            if y is not None:
                assert (abs(y - expected) <= bound * scale).all()
            if result >= 0:
                square = np.sum(np.asarray(expected, np.float64) ** 2)
                tolerance = 4 * bound * np.sum(np.asarray(scale, np.float64) ** 2)
                assert abs(results[number, result] - square) <= tolerance
                untouched[number, result] = results[number, result]
            assert (int(step[0]), int(ended[0])) == (number + ends, 0)
            np.testing.assert_array_equal(results, untouched)
