"""Gradients of Kronecker-sparse values: the kernel lane by lane on the CPU, and how work is cut."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import COPIES, Launch, compiled, mistake
from emulator.kron_matmul import placed
from kernel_resources import compile_kernel
from nvrtc import DEVICES

from batchkron.backends.cuda.kron_sparse.value_gradients import (
    GradientCut,
    GradientShape,
    gradient_kernel,
    has_kernel,
    kernel_of,
)
from batchkron.backends.cuda.runtime.hardware import MAX_THREAD_REGISTERS, REGISTER_FILE

linux = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")

DEVICE = DEVICES["90"]
# (a, b, c, d), vectors, whether they lie along the last axis, dtype;
# j of a tile, threads along rows and columns, rows and columns of a thread, teams; parts
CASES = [
    ((1, 1, 1, 1), 1, False, "float32", (1, 1, 1, 2, 2, 16), 1),
    ((2, 5, 7, 1), 37, False, "float32", (1, 2, 3, 2, 2, 16), 2),
    ((1, 19, 9, 2), 50, False, "float32", (2, 2, 2, 8, 4, 4), 3),
    ((2, 17, 20, 3), 40, False, "float32", (2, 3, 2, 4, 8, 2), 1),
    ((1, 3, 2, 11), 70, False, "float32", (8, 1, 1, 2, 2, 8), 2),
    ((3, 6, 18, 4), 33, False, "float32", (4, 3, 4, 2, 4, 1), 2),
    ((1, 70, 50, 1), 35, False, "float32", (1, 8, 6, 8, 8, 4), 2),
    ((2, 9, 5, 2), 45, True, "float32", (1, 2, 1, 4, 4, 16), 2),
    ((1, 33, 20, 1), 90, True, "float32", (1, 4, 3, 8, 8, 8), 3),
    ((2, 7, 7, 1), 21, False, "float64", (1, 2, 1, 4, 8, 4), 1),
    ((1, 10, 6, 5), 38, False, "float64", (4, 1, 2, 8, 4, 2), 2),
    ((2, 5, 12, 3), 36, True, "float64", (1, 1, 2, 4, 4, 16), 2),
]


def kernels(cases):
    for pattern, count, last, dtype, sizes, parts in cases:
        shape = GradientShape(*pattern, count, last, dtype)
        yield kernel_of(shape, GradientCut(*sizes, last, dtype), parts, 0.0)


def check_all(kernel, launch, rng):
    for copies in COPIES:
        check(kernel, launch, rng, copies)


def check(kernel, launch, rng, copies):
    """Sums of integers, which have no rounding errors, between neighbours that must stay."""
    shape, (_, parts) = kernel.work, kernel.variant
    each = -(-shape.count // parts)
    given, outputs = (
        rng.integers(-3, 4, (shape.count, shape.a, rows, shape.d)).astype(shape.dtype)
        for rows in (shape.c, shape.b)
    )
    expected = np.zeros((parts, shape.a, shape.b, shape.c, shape.d))
    for n in range(shape.count):
        expected[n // each] += outputs[n, :, :, None] * given[n, :, None]
    if shape.last:
        given, outputs = np.moveaxis(given, 0, -1).copy(), np.moveaxis(outputs, 0, -1).copy()
    x, _ = placed(given, 1)
    gradient, _ = placed(outputs, 3)
    parts, around = placed(np.full(expected.shape, np.nan, shape.dtype), 1)
    outside = np.isnan(around).sum() - parts.size
    arguments = kernel.arguments.copy()
    for name, array in (("x", x), ("gradient", gradient), ("parts", parts)):
        arguments[name] = array.ctypes.data
    how = kernel.launch
    emulated = Launch(
        blocks=how.blocks,
        threads=how.threads,
        shared_bytes=how.shared_bytes,
        when=COPIES[copies],
        seed=int(rng.integers(1 << 30)),
    )
    failure = launch(arguments.tobytes(), emulated, [x, gradient])
    assert not failure, f"{kernel}: {failure}"
    np.testing.assert_array_equal(parts, expected, str(kernel))
    assert np.isnan(around).sum() == outside, f"{kernel}: neighbours were written"


@linux
def test_sums_of_integers_are_exact(tmp_path, rng):
    found = list(kernels(CASES))
    launches = compiled([kernel.program for kernel in found], tmp_path)
    for kernel, launch in zip(found, launches, strict=True):
        check_all(kernel, launch, rng)


@linux
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("wait_for_copies<stages - 2>()", "wait_for_copies<stages - 1>()"),
        ("s + first < left", "s + first <= left"),
        ("__syncthreads();  // the panel is there, and the one before has been read", ""),
        ("at < size && ", ""),
        ("other < teams", "other < teams - 1"),
        ("part * a.each", "part * (a.each + 1)"),
    ],
)
def test_a_mistake_is_seen(tmp_path, rng, right, wrong):
    shape = GradientShape(1, 19, 9, 3, 75, False, "float32")
    kernel = kernel_of(shape, GradientCut(2, 2, 2, 8, 4, 4, False, "float32"), 2, 0.0)
    change = mistake("cuda/kron_sparse/gradients.cuh", right, wrong)
    (launch,) = compiled([kernel.program], tmp_path, change=change)
    with pytest.raises(AssertionError):
        check_all(kernel, launch, rng)


def shapes(rng, number):
    for _ in range(number):
        a, b, c, d = (int(2 ** rng.uniform(0, top)) for top in (4, 10, 10, 5))
        count = int(2 ** rng.uniform(0, 20))
        dtype = ("float32", "float64")[int(rng.integers(2))]
        yield GradientShape(a, b, c, d, count, bool(rng.integers(2)), dtype)


@pytest.mark.parametrize("capability", DEVICES)
def test_work_is_cut_for_every_shape(rng, capability):
    device = DEVICES[capability]
    for shape in shapes(rng, 60):
        kernel = gradient_kernel(shape, device)
        cut, parts = kernel.variant
        each = int(kernel.arguments["each"][0])
        assert cut.threads <= 256
        assert cut.threads - cut.team * cut.teams < 32
        assert cut.blocks * cut.threads * 64 < REGISTER_FILE
        assert cut.shared_bytes <= device.shared_bytes
        assert 0 < parts <= shape.count
        assert 0 <= parts * each - shape.count < each
        assert kernel.seconds > 0
        workspace = parts * shape.values * shape.itemsize
        assert kernel.launch.workspace == (workspace if parts > 1 else 0)


def test_which_shapes_have_a_kernel():
    assert has_kernel(GradientShape(1, 400, 400, 1, 9, False, "float32"))
    assert has_kernel(GradientShape(1, 400, 8, 1, 9, False, "float64"))
    assert not has_kernel(GradientShape(1, 400, 400, 1, 9, False, "float64"))
    assert not has_kernel(GradientShape(1, 4, 4, 1, 9, False, "complex64"))
    assert not has_kernel(GradientShape(1 << 20, 1, 1, 1 << 11, 9, False, "float32"))


COMPILED = [
    ((1, 192, 48, 2), False, "float32"),
    ((2, 48, 192, 1), False, "float32"),
    ((1, 768, 192, 2), False, "float32"),
    ((6, 64, 64, 1), True, "float32"),
    ((1, 2, 2, 64), False, "float32"),
    ((1, 64, 16, 4), False, "float64"),
]


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize(("pattern", "last", "dtype"), COMPILED)
def test_chosen_kernels_compile(capability, pattern, last, dtype):
    shape = GradientShape(*pattern, 25088, last, dtype)
    kernel = gradient_kernel(shape, DEVICES[capability])
    found = compile_kernel(kernel.program, capability)
    assert "kron_sparse_gradients" in found.name
    assert found.stack == 0
    cut, _ = kernel.variant
    assert found.registers <= min(MAX_THREAD_REGISTERS, REGISTER_FILE // (cut.blocks * cut.threads))
