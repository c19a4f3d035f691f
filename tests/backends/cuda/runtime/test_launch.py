"""Launches of device kernels, by a function that notes what the driver would be asked for."""

import gc
import re
import threading

import numpy as np
import pytest
from fake_driver import EARLY, FakeDriver

from batchkron._core import DeviceLaunch, DeviceSequence
from batchkron.backends.cuda.runtime.program import device_sources


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


def sequence_of(*parts, addresses=3):
    """A sequence of (driver, its arguments, where the scalars begin, places)."""
    launches = [launch_by(driver, given, 0, scalars) for driver, given, scalars, _ in parts]
    return DeviceSequence(launches, [places for *_, places in parts], addresses)


def test_a_sequence_shares_addresses():
    first, last = FakeDriver(24), FakeDriver(32)
    sequence = sequence_of(
        (first, words(1, 2, 3), 24, [(0, 1, 0), (16, 0, 8)]),
        (last, words(4, 5, 6, 7), 16, [(8, 2, 5), (0, 2, 0)]),
    )
    sequence(99, (100, 200, 300), words(8))
    assert [call[4] for call in first.calls + last.calls] == [
        words(200, 2, 108),
        words(300, 305, 8, 7),
    ]
    sequence(98, (0, 2**63 + 1, 0), b"")
    assert first.calls[1][1] == last.calls[1][1] == 98
    assert first.calls[1][4] == words(2**63 + 1, 2, 8)
    assert last.calls[1][4] == words(0, 5, 6, 7)


def test_a_sequence_ends_at_a_launch_that_fails():
    good, bad, never = FakeDriver(8), FakeDriver(8, status=7), FakeDriver(8)
    sequence = sequence_of(*((one, words(1), 8, [(0, 0, 0)]) for one in (good, bad, never)))
    with pytest.raises(OSError, match="status 7"):
        sequence(99, (1, 2, 3), b"")
    assert (len(good.calls), len(bad.calls), len(never.calls)) == (1, 1, 0)
    assert bad.statuses == [7]


@pytest.mark.parametrize(
    ("addresses", "scalars", "error"),
    [
        ((1, 2), b"", ValueError),
        ((1, 2, 3, 4), b"", ValueError),
        ((1, 2, -3), b"", OverflowError),
        ((1, 2, 3), bytes(9), ValueError),
    ],
)
def test_other_arguments_of_a_sequence_are_refused_before_a_launch(addresses, scalars, error):
    driver = FakeDriver(16)
    sequence = sequence_of((driver, words(1, 2), 8, []), (driver, words(1, 2), 8, []))
    with pytest.raises(error):
        sequence(99, addresses, scalars)
    assert not driver.calls


@pytest.mark.parametrize("place", [(9, 0, 0), (2**64 - 4, 0, 0), (0, 3, 0)])
def test_places_that_do_not_fit_are_refused(place):
    with pytest.raises(ValueError, match="does not fit"):
        sequence_of((FakeDriver(16), words(1, 2), 16, [(8, 2, 0), place]))


def test_a_sequence_has_launches():
    launch = launch_by(FakeDriver(8), words(1), 0, 8)
    for launches, places in (([], []), ([launch], []), ([launch], [[], []])):
        with pytest.raises(ValueError, match="for each of its calls"):
            DeviceSequence(launches, places, 1)
    for other in (1, None):
        with pytest.raises((RuntimeError, TypeError)):
            DeviceSequence([other], [[]], 1)


def test_a_sequence_keeps_its_launches():
    driver = FakeDriver(8)
    sequence = sequence_of((driver, words(1), 8, [(0, 0, 0)]))
    gc.collect()
    sequence(99, (4, 5, 6), b"")
    assert driver.calls[0][4] == words(4)


def test_every_kernel_waits_before_all_else():
    """Kernels are launched before those ahead of them have ended."""
    kernels = 0
    for name, text in device_sources().items():
        bodies = re.findall(r"__global__[^{;]*\)\s*\{\s*(.*)", text)
        assert len(bodies) == text.count("__global__"), name
        assert set(bodies) <= {"wait_for_earlier_kernels();"}, name
        kernels += len(bodies)
    assert kernels > 20
