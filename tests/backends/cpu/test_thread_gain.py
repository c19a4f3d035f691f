"""Calls take as many threads as were faster lately: times are made up here."""

import numpy as np
import pytest

from batchkron._core import ThreadGain

AVAILABLE = 2
WORK = 1e6


def run(gain, calls, alone, together, available=AVAILABLE):
    """Make calls that take such times; return their threads."""
    chosen = []
    for _ in range(calls):
        threads = gain.choose(available)
        gain.record(threads, WORK, next(alone) if threads == 1 else next(together))
        chosen.append(threads)
    return chosen


def always(seconds):
    while True:
        yield seconds


def sometimes(rng, usual, late, share):
    """Times of calls of which a share waits for a thread that has no processor."""
    while True:
        yield late if rng.random() < share else usual


def test_threads_that_gain_are_taken():
    chosen = run(ThreadGain(), 1000, always(100e-6), always(52e-6))
    assert chosen[:2] == [2, 2]
    assert np.mean(chosen) > 1.97  # and one is tried now and then
    assert 1 in chosen[500:]


@pytest.mark.parametrize("together", [105e-6, 800e-6])
def test_threads_that_lose_are_not(together):
    chosen = run(ThreadGain(), 1000, always(100e-6), always(together))
    assert np.mean(chosen) < 1.15
    assert np.median(chosen[:20]) == 1
    assert 2 in chosen[100:]
    seconds = sum(100e-6 if threads == 1 else together for threads in chosen[100:])
    assert seconds < 1.05 * 900 * 100e-6


def test_moods_change():
    gain = ThreadGain()
    run(gain, 500, always(100e-6), always(55e-6))
    assert np.mean(run(gain, 200, always(110e-6), always(600e-6))[20:]) < 1.2
    assert np.mean(run(gain, 2000, always(100e-6), always(55e-6))[1000:]) > 1.9


def test_some_late_calls_count_by_their_mean(rng):
    few = run(ThreadGain(), 2000, always(100e-6), sometimes(rng, 52e-6, 400e-6, 0.02))
    many = run(ThreadGain(), 2000, always(100e-6), sometimes(rng, 52e-6, 400e-6, 0.4))
    assert np.mean(few) > 1.8
    assert np.mean(many) < 1.2


def test_one_is_not_tried_where_that_may_take_long():
    assert set(run(ThreadGain(), 100, always(0.5), always(0.06))) == {2}
    assert set(run(ThreadGain(), 100, always(0.1), always(0.01), available=16)) == {16}


def test_another_number_of_threads_is_another_question():
    gain = ThreadGain()
    run(gain, 100, always(100e-6), always(200e-6))
    assert run(gain, 2, always(100e-6), always(30e-6), available=4) == [4, 4]
    assert np.mean(run(gain, 100, always(100e-6), always(30e-6), available=4)) > 3.7


def test_work_differs_within_a_kind():
    gain = ThreadGain()
    for k in range(500):
        work = WORK * (1 + k % 2)
        threads = gain.choose(AVAILABLE)
        gain.record(threads, work, work * (100e-12 if threads == 1 else 60e-12))
    assert gain.choose(AVAILABLE) == 2 or gain.choose(AVAILABLE) == 2
