"""Jobs of the processes that compile ahead."""

import importlib
import math
import multiprocessing
import os
import sys
import time
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True, scope="module")
def source_root():
    """The benchmarks are found in the source, behind what is installed."""
    sys.path.append(str(ROOT))
    yield
    sys.path.remove(str(ROOT))


@pytest.mark.slow
def test_jobs_that_do_not_end_are_stopped():
    compiling = importlib.import_module("benchmarks.gpu.compiling")
    before = set(multiprocessing.active_children())  # other tests keep theirs
    jobs = [partial(math.sqrt, 4.0), partial(math.sqrt, -1.0), partial(time.sleep, 600.0)]
    good, bad, endless = compiling.outcomes(jobs, 3, 10.0)
    assert (good, endless) == ("", None)
    assert bad.startswith("ValueError: ")
    assert set(multiprocessing.active_children()) <= before
    died = compiling.outcomes([partial(os._exit, 3)], 2)
    assert died[0].startswith("BrokenProcessPool: ")
    assert compiling.outcomes([], 2) == []
