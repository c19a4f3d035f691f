"""Fixtures that the tests share."""

import os
import sys

import numpy as np
import pytest
from oracle import DTYPES

import batchkron as bk

# Tests start Python in the folder that pytest runs in. In the root of the source, its own
# "batchkron" without the compiled module would be found before the installed one.
os.environ["PYTHONSAFEPATH"] = "1"


@pytest.fixture
def rng(request):
    """A generator seeded by the test's name, or by BATCHKRON_TEST_SEED."""
    seed = int(os.environ.get("BATCHKRON_TEST_SEED", "0"))
    return np.random.default_rng([seed, *request.node.nodeid.encode()])


@pytest.fixture(params=["cpu", "reference"])
def backend(request):
    with bk.backends.using(request.param):
        yield request.param


@pytest.fixture(params=DTYPES)
def dtype(request):
    return np.dtype(request.param)


@pytest.fixture
def threads():
    """Restores the number of threads after the test."""
    before = bk.get_num_threads()
    yield bk.set_num_threads
    bk.set_num_threads(before)


@pytest.fixture
def no_cupy(monkeypatch):
    """Makes CuPy one that cannot be imported, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    for name in [name for name in sys.modules if name.startswith("batchkron.backends.cuda")]:
        monkeypatch.delitem(sys.modules, name)
