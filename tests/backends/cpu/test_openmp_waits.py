"""Idle threads of the core leave their processors to others soon, and wake on free ones."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import batchkron as bk

SHOW = "import os, batchkron; print(os.environ.get('GOMP_SPINCOUNT'))"


def settings(**environment):
    """What the OpenMP library says it uses, and what the environment has afterwards."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GOMP_", "OMP_"))}
    run = subprocess.run(
        [sys.executable, "-c", SHOW],
        env=kept | {"OMP_DISPLAY_ENV": "verbose"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    if "GOMP_SPINCOUNT" not in run.stderr:
        pytest.skip("the OpenMP library is not libgomp")
    (line,) = [line for line in run.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    return int(line.split("'")[1]), run.stdout.strip()


def test_threads_wait_briefly():
    assert settings() == settings(OMP_WAIT_POLICY="") == (3000, "None")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"GOMP_SPINCOUNT": "12345"}, (12345, "12345")),
        ({"OMP_WAIT_POLICY": "passive"}, (0, "None")),
    ],
)
def test_what_the_user_says_counts(environment, expected):
    assert settings(**environment) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="threads are placed on Linux only")
def test_threads_may_use_the_same_processors_as_before(rng, threads):
    """Threads that wake on the processor of another one are moved, and are bound to none."""
    op = bk.KroneckerSparse(rng.standard_normal((4, 32, 32, 4)))
    x = rng.standard_normal((64, 512))
    expected = op.apply(x)
    threads(2)
    for _ in range(30):  # both ways are taken, threads that sleep among them
        np.testing.assert_array_equal(op.apply(x), expected)
        time.sleep(0.001)
    allowed = os.sched_getaffinity(0)
    tasks = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    assert all(os.sched_getaffinity(task) == allowed for task in tasks)
