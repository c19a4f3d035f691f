"""What the tests on a device share."""

from contextlib import suppress

import numpy as np
import pytest


@pytest.fixture(scope="session")
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture(scope="session", autouse=True)
def kernels_of_this_run(tmp_path_factory):
    """A kernel cache of the session's own: tests neither use nor change the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHKRON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def first_device():
    """The first device is current: JAX leaves another one so, in the thread that called it."""
    cupy = pytest.importorskip("cupy")
    with suppress(cupy.cuda.runtime.CUDARuntimeError):  # where there is none, tests say so
        cupy.cuda.Device(0).use()


@pytest.fixture
def poisoned_on_device(cupy):
    """Makes outputs on the device that must be overwritten."""
    return lambda shape, dtype: cupy.asarray(np.full(shape, np.nan, dtype))


@pytest.fixture
def captured(cupy):
    """Makes the graph of one call on a stream, after an eager one."""

    def capture(stream, call):
        cupy.cuda.Device().synchronize()
        with stream:
            call()  # compiles, and allocates the workspace
            stream.synchronize()
            stream.begin_capture()
            call()
            return stream.end_capture()

    return capture


@pytest.fixture
def refuses_capture():
    """Checks that a call on a stream cannot be captured, and what it says."""

    def check(stream, call, text):
        with stream:
            stream.begin_capture()
            try:
                with pytest.raises(RuntimeError, match=text):
                    call()
            finally:
                stream.end_capture()

    return check
