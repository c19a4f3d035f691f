"""Fixtures that the tests share."""

import os
import sys
import warnings

import numpy as np
import pytest
import threadpoolctl
from dense_oracle import DTYPES

import batchkron as bk
from batchkron.solvers import free_workspaces
from batchkron.solvers.krylov.iteration import workspace_cache as kept_solvers

# Processes of pytest share the processors: threads that wait for each other by spinning would take
# them from the others, which took up to 20 times as long. Tests of threads say how many they want.
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _WORKERS > 1:
    _THREADS = max(1, len(os.sched_getaffinity(0)) // _WORKERS)
    bk.set_num_threads(_THREADS)
    threadpoolctl.threadpool_limits(1)
    os.environ.setdefault("OMP_NUM_THREADS", str(_THREADS))  # of processes that tests start

# Tests start Python in the folder that pytest runs in. In the root of the source, its own
# "batchkron" without the compiled module would be found before the installed one.
os.environ["PYTHONSAFEPATH"] = "1"


def reason_to_skip():
    """Why no test can run on a device here; empty if they can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what CuPy does not find on this machine
        try:
            import cupy
        except ImportError:
            return "CuPy is not installed"
    try:
        cupy.cuda.runtime.getDevice()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device: {error}"
    return ""


def pytest_collection_modifyitems(items):
    on_device = [item for item in items if item.get_closest_marker("gpu")]
    if on_device and (reason := reason_to_skip()):
        for item in on_device:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def rng(request):
    """A generator seeded by the test's name, wherever its file is, and by BATCHKRON_TEST_SEED."""
    seed = int(os.environ.get("BATCHKRON_TEST_SEED", "0"))
    return np.random.default_rng([seed, *request.node.name.encode()])


@pytest.fixture(params=["cpu", "reference"])
def backend(request):
    with bk.backends.using(request.param):
        yield request.param


@pytest.fixture(params=DTYPES)
def dtype(request):
    return np.dtype(request.param)


def _grid_or_matrix(monkeypatch, as_matrix):
    """Replaces the rule that says how interpolated products are computed, wherever it is."""
    for name, module in list(sys.modules.items()):
        if name.startswith("batchkron.") and "are_entries_few" in vars(module):
            monkeypatch.setattr(module, "are_entries_few", lambda *_: as_matrix)


@pytest.fixture
def on_the_grid(monkeypatch):
    """Vectors are multiplied on the grid, however few points there are."""
    _grid_or_matrix(monkeypatch, False)


@pytest.fixture(params=[False, True], ids=["on the grid", "as a matrix"])
def any_way(request, monkeypatch):
    """Vectors are multiplied on the grid, or by the whole matrix, however many points there are."""
    _grid_or_matrix(monkeypatch, request.param)


@pytest.fixture
def threads():
    """Restores the number of threads after the test."""
    before = bk.get_num_threads()
    yield bk.set_num_threads
    bk.set_num_threads(before)


@pytest.fixture
def no_cupy(monkeypatch):
    """Makes CuPy one that cannot be imported, as where it is not installed."""
    bk.backends._cuda.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    for name in ("backend", "runtime.device"):  # the latter imports CuPy, the former needs it
        monkeypatch.delitem(sys.modules, f"batchkron.backends.cuda.{name}", raising=False)


@pytest.fixture
def kept():
    """The solver objects that functions keep; none at first."""
    free_workspaces()
    yield kept_solvers._cache.entries
    free_workspaces()
