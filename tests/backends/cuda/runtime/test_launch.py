"""Launches of device kernels, by a function that notes what the driver would be asked for."""

import ctypes
import re
import threading

import numpy as np
import pytest

from batchkron._core import DeviceLaunch
from batchkron.backends.cuda.runtime.program import device_sources

EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("_", ctypes.c_char * 4), ("value", ctypes.c_int * 16))


class Configuration(ctypes.Structure):
    _fields_ = (
        ("sizes", ctypes.c_uint * 6),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(Configuration),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class FakeDriver:
    """Notes launches of kernels whose arguments have `size` bytes, and returns `status`."""

    def __init__(self, size, status=0):
        self.calls, self.statuses = [], []
        self._size, self._status = size, status
        self._launch = LAUNCH(self._note)

    @property
    def address(self):
        return ctypes.cast(self._launch, ctypes.c_void_p).value

    def _note(self, configuration, kernel, parameters, extra):
        asked = configuration.contents
        early = [(a.id, a.value[0]) for a in asked.attributes[: asked.count]]
        arguments = ctypes.string_at(parameters[0], self._size)
        sizes = tuple(asked.sizes), asked.shared_bytes
        self.calls.append((sizes, asked.stream, early, kernel, arguments, extra))
        return self._status

    def check(self, status):
        self.statuses.append(status)
        raise OSError(f"status {status}")


def launch_by(driver, arguments, addresses, scalars, early=True):
    sizes = 7, 2, 3, 128, 5000
    return DeviceLaunch(
        driver.address, driver.check, 11, *sizes, early, arguments, addresses, scalars
    )


def words(*numbers):
    return np.array(numbers, np.uint64).tobytes()


@pytest.mark.parametrize("early", [False, True])
def test_the_driver_is_asked_for_what_was_laid_out(early):
    driver = FakeDriver(40)
    launch = launch_by(driver, words(1, 2, 3, 4, 5), 2, 32, early)
    launch(99, (2**63 + 1, 8), words(6))
    attributes = [(EARLY, 1)] if early else []
    sizes = (7, 2, 3, 128, 1, 1), 5000
    assert driver.calls == [(sizes, 99, attributes, 11, words(2**63 + 1, 8, 3, 4, 6), None)]
    launch(98, (9, 9), b"")  # the scalars stay
    assert driver.calls[1][1] == 98
    assert driver.calls[1][4] == words(9, 9, 3, 4, 5)


def test_arguments_may_come_from_memory():
    driver = FakeDriver(16)
    memory = np.array([3, 4], np.uint64)
    launch_by(driver, b"", 0, 0).run_with(99, memory.ctypes.data)
    assert driver.calls[0][1] == 99
    assert driver.calls[0][4] == words(3, 4)


def test_a_failed_launch_is_raised():
    driver = FakeDriver(8, status=2)
    launch = launch_by(driver, words(1), 1, 8)
    with pytest.raises(OSError, match="status 2"):
        launch(99, (4,), b"")
    assert driver.statuses == [2]


@pytest.mark.parametrize(
    ("addresses", "scalars", "error"),
    [
        ((1,), b"", ValueError),
        ((1, 2, 3), b"", ValueError),
        ((1, 2), bytes(9), ValueError),
        ((1, -2), b"", OverflowError),
        ((1, 2.5), b"", TypeError),
        ([1, 2], b"", TypeError),
    ],
)
def test_other_arguments_are_refused_before_the_launch(addresses, scalars, error):
    driver = FakeDriver(24)
    launch = launch_by(driver, words(1, 2, 3), 2, 16)
    with pytest.raises(error):
        launch(99, addresses, scalars)
    assert not driver.calls


@pytest.mark.parametrize(
    ("size", "addresses", "scalars"), [(4104, 0, 0), (16, 3, 16), (16, 1, 24), (16, 1 << 61, 16)]
)
def test_a_layout_that_does_not_fit_is_refused(size, addresses, scalars):
    with pytest.raises(ValueError, match="do not fit"):
        launch_by(FakeDriver(size), bytes(size), addresses, scalars)


def test_threads_share_a_launch():
    driver = FakeDriver(16)
    launch = launch_by(driver, bytes(16), 2, 16)

    def call(number):
        for i in range(200):
            launch(number, (number, i), b"")

    threads = [threading.Thread(target=call, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = {(stream, arguments) for _, stream, _, _, arguments, _ in driver.calls}
    assert seen == {(number, words(number, i)) for number in range(1, 5) for i in range(200)}


def test_every_kernel_waits_before_all_else():
    """Kernels are launched before those ahead of them have ended."""
    kernels = 0
    for name, text in device_sources().items():
        bodies = re.findall(r"__global__[^{;]*\)\s*\{\s*(.*)", text)
        assert len(bodies) == text.count("__global__"), name
        assert set(bodies) <= {"wait_for_earlier_kernels();"}, name
        kernels += len(bodies)
    assert kernels > 20
