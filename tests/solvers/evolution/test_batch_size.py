"""How many steps are taken before their ends are looked at."""

import pytest

from batchkron.solvers.evolution import stepping
from batchkron.solvers.evolution.stepping import BatchSize


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""

    class Clock:
        now = 100.0

        def perf_counter(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(stepping, "time", found)
    return found


def taken(own, clock, seconds_each):
    """The next number of steps, each of so many seconds."""
    count = own.steps()
    with own.of(count):
        clock.now += count * seconds_each
    return count


def test_short_steps_are_many(clock):
    own = BatchSize()
    assert [taken(own, clock, 1e-6) for _ in range(5)] == [1, 4, 16, 64, 64]


def test_steps_take_a_twentieth_of_a_second(clock):
    own = BatchSize()
    counts = [taken(own, clock, 2.1e-3) for _ in range(5)]
    assert counts == [1, 4, 16, 23, 23]
    assert taken(own, clock, 1.0) == 23
    assert taken(own, clock, 1.0) == 1
    assert [taken(own, clock, 0.0) for _ in range(4)] == [1, 4, 16, 64]


def test_single_steps_on_demand(clock):
    own = BatchSize()
    taken(own, clock, 1e-6)
    own.take_singly(3)
    assert [own.steps() for _ in range(5)] == [0, 0, 0, 4, 4]


def test_steps_that_end_with_an_error_teach_nothing(clock):
    own = BatchSize()

    def fail():
        with own.of(8):
            clock.now += 1e3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert own.steps() == 1
