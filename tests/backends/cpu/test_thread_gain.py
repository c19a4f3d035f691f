"""Calls take as many threads as were the fastest lately: times are made up here."""

import numpy as np
import pytest

from batchkron._core import ThreadGain

AVAILABLE = 2
WORK = 1e6


class Calls:
    """Calls one after the other that take made-up times."""

    def __init__(self):
        self._gain, self._now = ThreadGain(), 5.0

    def pause(self, seconds):
        self._now += seconds

    def run(self, calls, alone, together, available=AVAILABLE, work=WORK):
        """Make calls that take such times; return their threads."""
        return self.run_by(
            lambda threads: next(alone if threads == 1 else together), calls, available, work
        )[0]

    def run_by(self, seconds, calls, available, work=WORK):
        """Make calls that take seconds(threads); return their threads and all seconds."""
        chosen, total = [], 0.0
        for _ in range(calls):
            threads = self._gain.choose(available, self._now)
            took = seconds(threads)
            self._gain.record(threads, work, self._now, self._now + took)
            self._now += took + 1e-6
            chosen.append(threads)
            total += took
        return chosen, total


def always(seconds):
    while True:
        yield seconds


def sometimes(rng, usual, late, share):
    """Times of calls of which a share waits for a thread that has no processor."""
    while True:
        yield late if rng.random() < share else usual


def test_threads_that_gain_are_taken():
    chosen = Calls().run(1000, always(100e-6), always(52e-6))
    assert chosen[:2] == [2, 2]
    assert np.mean(chosen) > 1.97  # and one is tried now and then
    assert 1 in chosen[500:]


@pytest.mark.parametrize("together", [105e-6, 800e-6])
def test_threads_that_lose_are_not(together):
    chosen = Calls().run(1000, always(100e-6), always(together))
    assert np.mean(chosen) < 1.25
    assert np.median(chosen[:20]) == 1
    assert 2 in chosen[100:]
    seconds = sum(100e-6 if threads == 1 else together for threads in chosen[100:])
    assert seconds < 1.05 * 900 * 100e-6


def test_moods_change():
    calls = Calls()
    calls.run(500, always(100e-6), always(55e-6))
    assert np.mean(calls.run(200, always(110e-6), always(600e-6))[20:]) < 1.2
    assert np.mean(calls.run(2000, always(100e-6), always(55e-6))[1000:]) > 1.9


def test_threads_whose_first_calls_are_slow():
    """A thread that sleeps is late; of a trial the fastest call counts."""
    calls, seconds = Calls(), []

    def warming():
        while True:
            after_one = not seconds or seconds[-1] == 100e-6
            seconds.append(140e-6 if after_one else 120e-6 if seconds[-1] == 140e-6 else 55e-6)
            yield seconds[-1]

    def alone():
        while True:
            seconds.append(100e-6)
            yield 100e-6

    assert np.mean(calls.run(500, alone(), warming())[100:]) > 1.9


def test_a_trial_of_calls_that_are_very_late_is_short():
    chosen = Calls().run(1000, always(100e-6), always(5e-3))
    assert "2, 2" not in str(chosen[4:])


def test_after_a_pause_the_slower_way_is_tried_soon():
    calls = Calls()
    calls.run(5000, always(100e-6), always(600e-6))
    calls.pause(0.1)
    assert 2 in calls.run(5, always(100e-6), always(55e-6))
    assert np.mean(calls.run(100, always(100e-6), always(55e-6))) > 1.8


def test_pauses_between_all_calls():
    calls, chosen = Calls(), []
    for _ in range(200):
        chosen += calls.run(1, always(100e-6), always(600e-6))
        calls.pause(0.1)
    assert np.mean(chosen[20:]) < 1.3


def test_threads_that_wait_for_others_are_left():
    """Where a fifth of the calls is ten times as long, one thread is faster on average."""
    rng = np.random.default_rng(5)
    chosen = Calls().run(2000, always(100e-6), sometimes(rng, 55e-6, 550e-6, 0.2))
    assert np.mean(chosen[200:]) < 1.2


def test_some_late_calls_count_by_their_mean(rng):
    few = Calls().run(2000, always(100e-6), sometimes(rng, 52e-6, 400e-6, 0.02))
    many = Calls().run(2000, always(100e-6), sometimes(rng, 52e-6, 400e-6, 0.4))
    assert np.mean(few) > 1.8
    assert np.mean(many) < 1.2


def test_fewer_are_not_tried_where_that_may_take_long():
    assert set(Calls().run(100, always(0.5), always(0.06))) == {2}
    chosen, _ = Calls().run_by(lambda threads: 0.32 / threads, 1500, 16)
    assert set(chosen) == {16, 8, 4}


def test_another_number_of_threads_is_another_question():
    calls = Calls()
    calls.run(100, always(100e-6), always(200e-6))
    assert calls.run(2, always(100e-6), always(30e-6), available=4) == [4, 4]
    assert np.mean(calls.run(100, always(100e-6), always(30e-6), available=4)) > 1.9


def test_work_differs_within_a_kind():
    calls, chosen = Calls(), []
    for k in range(500):
        seconds = 100e-6 * (1 + k % 2)
        more = calls.run(1, always(seconds), always(0.6 * seconds), work=WORK * (1 + k % 2))
        chosen += more
    assert np.mean(chosen) > 1.9


def scaling(threads):
    return 1e-3 / threads + 3e-6


def saturated(threads):
    """Memory is the limit of four threads."""
    return 1e-3 / min(threads, 4) + 2e-6 * threads


def crowded(threads):
    """Each thread makes all others wait."""
    return 1e-3 / threads + 40e-6 * threads


TIMES = [scaling, saturated, crowded]


@pytest.mark.parametrize("seconds", TIMES)
@pytest.mark.parametrize("available", [2, 3, 8, 12, 16, 32, 300])
def test_the_best_size_is_found(seconds, available):
    calls = Calls()
    calls.run_by(seconds, 300, available)
    chosen, total = calls.run_by(seconds, 4000, available)
    best = min(seconds(threads) for threads in range(1, available + 1))
    tried = set(chosen)
    assert min(seconds(threads) for threads in tried) < 1.1 * best or len(tried) == 8
    assert total < 1.08 * 4000 * min(seconds(threads) for threads in tried)


@pytest.mark.parametrize("seconds", TIMES)
@pytest.mark.parametrize("half", [1, 2, 4, 6, 8, 16])
def test_twice_as_many_threads_are_not_slower(seconds, half):
    few, many = (
        Calls().run_by(seconds, 2000, count)[1] if count > 1 else 2000 * seconds(1)
        for count in (half, 2 * half)
    )
    assert many < 1.05 * few


@pytest.mark.parametrize("late", [0.3e-3, 2e-3, 4e-3])
def test_what_was_lost_in_a_busy_moment_comes_back(late):
    """Threads that wait for others at first are all taken soon after."""
    calls = Calls()
    calls.run_by(lambda threads: scaling(threads) + late * (threads > 1), 60, 16)
    calls.run_by(scaling, 60, 16)
    chosen, total = calls.run_by(scaling, 300, 16)
    assert np.median(chosen) == 16
    assert total < 1.12 * 300 * scaling(16)


def test_all_are_left_for_one_where_threads_wait_for_others():
    calls = Calls()
    calls.run_by(scaling, 500, 16)
    calls.run_by(lambda threads: scaling(threads) + 3e-3 * (threads > 1), 30, 16)
    chosen, _ = calls.run_by(lambda threads: scaling(threads) + 3e-3 * (threads > 1), 200, 16)
    assert np.mean(chosen) < 1.5


def test_threads_that_must_be_woken_for_each_call():
    """With 2 threads that is slower than with 16 and with 1, which is the fastest."""
    calls, total = Calls(), 0.0
    for _ in range(400):
        total += calls.run_by(lambda n: 100e-6 / n + 100e-6 * (n > 1), 1, 16)[1]
        calls.pause(0.1)
    assert total < 1.06 * 400 * 100e-6


def test_late_calls_of_many_threads(rng):
    """A fiftieth of all calls with several threads is late by two milliseconds."""
    calls = Calls()

    def seconds(threads):
        return scaling(threads) + 2e-3 * (threads > 1 and rng.random() < 0.02)

    calls.run_by(seconds, 300, 16)
    assert calls.run_by(seconds, 4000, 16)[1] < 1.15 * 4000 * (scaling(16) + 0.02 * 2e-3)


def test_fewer_that_are_slow_at_first():
    """Eight threads are a tenth faster than sixteen, but not in the first call after these."""
    last = [16]

    def seconds(threads):
        moved, last[0] = last[0] != threads, threads
        return {16: 110e-6, 8: 100e-6}.get(threads, 1e-3 / threads) * (1.25 if moved else 1.0)

    calls = Calls()
    calls.run_by(seconds, 300, 16)
    chosen, _ = calls.run_by(seconds, 300, 16)
    assert np.median(chosen) == 8
