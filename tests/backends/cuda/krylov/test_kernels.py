"""How passes of Krylov methods are cut into kernels, without a device."""

import numpy as np
import pytest
from dense_oracle import DTYPES
from nvrtc import DEVICES

from batchkron.backends.cuda.krylov.kernels import krylov_kernels, parts_of

LIMITS = DEVICES["90"]
STEP = ("GmresProject", "GmresExtend")


def names_of(kernels):
    return [kernel.program.expression.split("<")[0].split("::")[1] for kernel in kernels]


def test_a_block_that_owns_a_system_does_a_step_in_one_kernel():
    float64 = np.dtype(np.float64)
    assert names_of(krylov_kernels(STEP, float64, 1000, 1, 20, LIMITS)) == ["krylov_step"]
    last = ("GmresCombine", "GmresCorrect", "GmresResidual")
    found = names_of(krylov_kernels(last, float64, 1000, 1, 20, LIMITS))
    assert found == ["krylov_combine", "krylov_whole"]
    assert len(krylov_kernels(("CgCurvature", "CgUpdate"), float64, 1000, 1, 0, LIMITS)) == 1


def test_several_blocks_take_a_kernel_for_each_pass():
    float64 = np.dtype(np.float64)
    found = names_of(krylov_kernels(STEP, float64, 100_000, 1, 20, LIMITS))
    assert found == ["krylov_project", "krylov_extend"]
    kernels = krylov_kernels(("CgCurvature", "CgUpdate"), float64, 100_000, 1, 0, LIMITS)
    assert [kernel.launch.blocks for kernel in kernels] == [parts_of(100_000, 1, 132)] * 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [500, 1_000_000])
def test_shared_memory_is_enough_for_the_sums(dtype, size):
    kind = np.dtype(dtype)
    reals = 2 if kind.kind == "c" else 1
    for restart in (1, 20, 300, 2000, 3000):
        for kernel in krylov_kernels(STEP, kind, size, 1, restart, LIMITS):
            assert kernel.launch.shared_bytes <= LIMITS.shared_bytes
            warps, name = kernel.launch.threads // 32, names_of([kernel])[0]
            staged = kernel.program.expression.endswith("true>")
            least = 1 if name == "krylov_extend" else warps * (2 * restart * reals + 2 + reals)
            least += (7 * reals + 2) * (restart + 1) * staged
            coefficients = 0 if name == "krylov_project" else 2 * restart * kind.itemsize
            assert kernel.launch.shared_bytes >= 8 * (least + 1) + coefficients
    with pytest.raises(ValueError, match=r"restart is 20000; the device has shared memory"):
        krylov_kernels(STEP, kind, size, 1, 20_000, LIMITS)


def test_few_blocks_over_the_basis_have_more_threads():
    """If each block has a multiprocessor of its own."""
    float64 = np.dtype(np.float64)
    for size, systems, expected in [
        (100_000, 1, [512, 1024]),
        (1_000, 1, [512]),
        (1_000, 133, [256]),
        (1_000_000, 1, [256, 256]),
        (100, 1, [32]),
    ]:
        kernels = krylov_kernels(STEP, float64, size, systems, 20, LIMITS)
        assert [kernel.launch.threads for kernel in kernels] == expected
    (combine,) = krylov_kernels(("GmresCombine",), float64, 100_000, 1, 20, LIMITS)
    assert combine.launch.threads == 256
