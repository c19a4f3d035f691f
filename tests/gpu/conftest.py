"""What the tests on a device share; they are skipped where there is none."""

import warnings

import numpy as np
import pytest


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


@pytest.fixture(scope="session")
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture(scope="session", autouse=True)
def kernels_of_this_run(tmp_path_factory):
    """A kernel cache of the session's own: tests neither use nor change the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHKRON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def poisoned_on_device(cupy):
    """Makes outputs on the device that must be overwritten."""
    return lambda shape, dtype: cupy.asarray(np.full(shape, np.nan, dtype))
