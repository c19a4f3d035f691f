"""The kernel `kron_slices` run lane by lane on the CPU: its bits, and mistakes that tests see."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import COPIES, compiled, mistake
from emulator.kron_matmul import launch_of, run, run_often
from nvrtc import DEVICES
from plans import square_run

from batchkron.backends.cuda.kron.families import FAMILY_OF

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
SLICES = FAMILY_OF["slices"]
SHAPES = [  # sizes of the modes, L, R, dtype
    ((8,) * 5, 3, 1, "f8"),
    ((2, 2, 8, 4, 2, 8, 8), 3, 1, "f8"),
    ((6, 16, 16, 16), 3, 1, "f8"),
    ((4,) * 7, 4, 1, "f8"),
    ((2,) * 14, 3, 1, "f8"),
    ((4, 8, 8), 2, 128, "f8"),
    ((16, 4, 4, 2, 8), 1, 24, "f8"),
    ((8,) * 5, 3, 1, "f4"),
    ((4, 4, 2, 8, 16, 16), 2, 1, "f4"),
    ((8, 16, 16, 16), 3, 1, "f4"),
    ((8,) * 4, 7, 1, "f4"),
    ((16,) * 3, 7, 1, "f4"),
]


def run_of(shape):
    """Return a run of as many tiles as kernels are made for."""
    sizes, _, R, dtype = shape
    return square_run(sizes, 1000, R, dtype)


def kernel_of(shape, variant=None, capability="90"):
    """Return how a shape is launched, and its program; None where no tile fits."""
    given, device = run_of(shape), DEVICES[capability]
    if variant is None:
        kernel = SLICES.fastest(given, device)
    else:
        kernel = SLICES.kernel(given, variant, device)
    return None if kernel is None else (launch_of(kernel, device, shape[1]), kernel.program)


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "maximum"), [("90", len(SHAPES)), ("80", 3)])
def test_kernels_give_the_bits_of_the_definition(capability, maximum, tmp_path):
    found = [kernel_of(shape, capability=capability) for shape in SHAPES]
    found = [one for one in found if one is not None][:maximum]
    launches = compiled([program for _, program in found], tmp_path, int(capability) * 10)
    rng = np.random.default_rng(0)
    for (case, _), launch in zip(found, launches, strict=True):
        for copies in COPIES:
            run(case, launch, copies, rng)
        run(case, launch, "at random", rng, alpha=2, previous="other")
        run(case, launch, "at random", rng, previous="y")
        # alpha times a factor, 2^-150, is no float32
        run(case, launch, "late", rng, alpha=2.0**-90, powers=(80, -60))


def test_other_variants_give_the_same_bits(tmp_path):
    given = [
        (SHAPES[n], variant)
        for n in (0, 8)
        for variant in SLICES.variants(run_of(SHAPES[n]), DEVICES["90"])
    ]
    found = [kernel_of(shape, variant) for shape, variant in given]
    launches = compiled([program for _, program in found], tmp_path)
    rng = np.random.default_rng(1)
    for (case, _), launch in zip(found, launches, strict=True):
        run(case, launch, "at random", rng)


MISTAKES = {
    "a slice is not waited for": (0, "cuda/kron/slices.cuh", "wait_for_copies<slots - 2>();", ";"),
    "a tile's first slice is not waited for": (
        0,
        "cuda/kron/slices.cuh",
        "wait_for_copies<slots - 1>();",
        ";",
    ),
    "a slice is overwritten while others read it": (
        0,
        "cuda/kron/slices.cuh",
        "__syncthreads();\n      if (!first) ask();",
        "if (!first) ask();",
    ),
    "inner modes begin before outer ones end": (
        7,
        "cuda/kron/slices.cuh",
        "outer.run(here, middle, warp, lane);\n      __syncthreads();",
        "outer.run(here, middle, warp, lane);",
    ),
    "earlier kernels are not waited for": (
        0,
        "cuda/common/launch_order.cuh",
        "#if __CUDA_ARCH__ >= 900",
        "#if __CUDA_ARCH__ >= 9000",
    ),
    "a word is written where an element begins": (
        0,
        "cuda/kron/slices.cuh",
        "reinterpret_cast<unsigned long long>(first) % 16 == 0",
        "true",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_seen(name, tmp_path):
    index, *made = MISTAKES[name]
    case, program = kernel_of(SHAPES[index])
    (launch,) = compiled([program], tmp_path, change=mistake(*made))
    rng = np.random.default_rng(0)
    with pytest.raises(AssertionError):
        run_often(case, launch, rng)
