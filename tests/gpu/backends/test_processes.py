"""What takes a process of its own: the cache on disk, and a device that fails."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

APPLY = """
import cupy, numpy as np, batchkron as bk
from batchkron.backends.cuda.runtime import device
if {refuse}:
    def refuse(*arguments):
        raise AssertionError("compiled again")
    device.compile_program = refuse
op = bk.KroneckerProduct([np.ones((3, 3)), np.ones((5, 5))]).to("cuda")
assert (op @ cupy.ones(15)).get().tolist() == [15.0] * 15
"""

COMMAND = """
from batchkron.cli import main
main({words})
"""

REFUSE = """
from batchkron.backends.cuda.runtime import device
def refuse(*arguments):
    raise AssertionError("compiled again")
device.compile_program = refuse
"""

FAIL = """
import os, cupy, numpy as np, batchkron as bk
op = bk.BatchedKron(np.ones((1, 2, 2)), [[0]], [0], [0]).to("cuda")
x, y = cupy.ones((1, 2)), cupy.ones((1, 2))
op.apply(x, out=y)
stray = cupy.RawKernel('extern "C" __global__ void stray(int* p) { p[1LL << 40] = 1; }', "stray")
stray((1,), (1,), (x,))
try:
    cupy.cuda.Device().synchronize()
except cupy.cuda.runtime.CUDARuntimeError:
    pass
try:
    op.apply(x, out=y)
except bk.ContextLostError as error:
    print("said:", error, flush=True)
os._exit(0)  # CuPy cannot tidy up any more
"""


FAIL_IN_A_RUN = """
import os, cupy, numpy as np
from batchkron.cli import main
from batchkron.cli.failure import describe
from batchkron.solvers.steppers.step_runner import StepRunner
stray = cupy.RawKernel('extern "C" __global__ void stray(int* p) { p[1LL << 40] = 1; }', "stray")
run, calls = StepRunner.run, []
def failing(self, steps, measures):
    calls.append(1)
    if len(calls) == 4:
        stray((1,), (1,), (self._like,))
    return run(self, steps, measures)
StepRunner.run = failing
words = ["run", "continuity-1d", "--device", "cuda", "--until", "0.5", "--quiet"]
words += ["--operator", "batch"]
try:
    main(words, standalone_mode=False)
except BaseException as error:
    print(*describe(error), flush=True)
os._exit(0)
"""


def run(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_second_process_does_not_compile(cupy, tmp_path):
    cache = {"BATCHKRON_CACHE_DIR": str(tmp_path)}
    missed = run(APPLY.format(refuse=True), **cache)
    assert "compiled again" in missed.stderr
    for refuse in (False, True):
        process = run(APPLY.format(refuse=refuse), **cache)
        assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("stepper", ["ssp-rk3", "crank-nicolson"])
def test_a_run_compiles_nothing_after_a_warmup(cupy, tmp_path, monkeypatch, stepper):
    monkeypatch.chdir(tmp_path)
    cache = {"BATCHKRON_CACHE_DIR": str(tmp_path / "cache")}
    problem = ["continuity-2d", "--level", "3", "--degree", "2", "--stepper", stepper]
    shown = []
    for _ in range(2):
        process = run(COMMAND.format(words=["warmup", *problem]), **cache)
        assert process.returncode == 0, process.stderr
        shown.append(
            dict(re.findall(r"^(compiled|in the cache) +([0-9]+) kernel", process.stdout, re.M))
        )
    first, second = shown
    assert int(first["compiled"]) > 0
    assert second == {"compiled": "0", "in the cache": first["compiled"]}
    words = ["run", *problem, "--device", "cuda", "--until", "0.02", "--dt", "0.005", "--quiet"]
    process = run(REFUSE + COMMAND.format(words=words), **cache)
    assert process.returncode == 0, process.stderr


def test_a_failed_device_says_that_the_context_is_lost(cupy):
    process = run(FAIL)
    assert "said: the CUDA context is lost" in process.stdout, process.stdout + process.stderr


def test_a_run_on_a_device_that_fails_ends_with_its_status(cupy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    process = run(FAIL_IN_A_RUN)
    assert "the CUDA context is lost" in process.stdout, process.stdout + process.stderr
    assert process.stdout.rstrip().endswith(" 6")
