"""A thread for each result: where it is chosen, compiled, and lane by lane on the CPU."""

import sys

import numpy as np
import pytest
from emulator.host_compiler import COPIES, compiled, mistake
from emulator.kron_matmul import launch_of, run, run_often
from kernel_resources import compile_kernel
from nvrtc import DEVICES
from plans import check_launch, check_runs, product, square_run

from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.kron.choose import fastest_plan
from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.steps import ModeRun

DIRECT = FAMILY_OF["direct"]
RUNS = [
    ModeRun(0, (5,), (5,), 7, 3, np.dtype("f8")),
    ModeRun(0, (9,), (4,), 3, 70, np.dtype("f4")),
    ModeRun(0, (1,), (33,), 40, 1, np.dtype("f8")),
]


def test_it_is_chosen_where_the_others_are_off():
    whole = product([(4, 3), (5, 5)], 10, 2, "c16")
    with without(*(f"kron.{name}" for name in FAMILY_OF if name != "direct")):
        plan = fastest_plan(whole, DEVICES["90"])
    assert [kernel.family for kernel in plan] == [DIRECT, DIRECT]
    check_runs(plan, whole)
    for kernel in plan:
        check_launch(kernel, DEVICES["90"])


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_kernels_compile(dtype, capability):
    kernel = DIRECT.fastest(square_run((9,), 100, 3, dtype), DEVICES[capability])
    made = compile_kernel(kernel.program, capability)
    assert "kron_direct" in made.name
    assert made.registers <= 64
    assert made.stack == 0


@pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
def test_kernels_give_the_bits_of_the_definition(tmp_path):
    device = DEVICES["90"]
    found = [
        DIRECT.kernel(one, variant, device)
        for one in RUNS
        for variant in DIRECT.variants(one, device)
    ]
    launches = compiled([kernel.program for kernel in found], tmp_path)
    rng = np.random.default_rng(0)
    for kernel, launch in zip(found, launches, strict=True):
        case = launch_of(kernel, device)
        for copies in COPIES:
            run(case, launch, copies, rng)
        run(case, launch, "late", rng, alpha=2, previous="other")
        run(case, launch, "late", rng, previous="y")


@pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
def test_a_mistake_is_seen(tmp_path):
    wrong = mistake("cuda/kron/direct.cuh", "i < results", "i + 1 < results")
    kernel = DIRECT.fastest(RUNS[0], DEVICES["90"])
    (launch,) = compiled([kernel.program], tmp_path, change=wrong)
    with pytest.raises(AssertionError):
        run_often(launch_of(kernel, DEVICES["90"]), launch, np.random.default_rng(0))
