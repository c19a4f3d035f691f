"""The time left: right within 20 % once a tenth of a run is done, on a clock that the test sets."""

import errno
import io
import re
import sys
from itertools import accumulate

import numpy as np
import pytest

from batchkron.solvers.evolution.observation.progress import (
    ProgressBar,
    ProgressLines,
    RemainingTime,
    make_progress,
)


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def constant(rng, steps):
    return np.full(steps, 60.0)


def slow_first_step(rng, steps):
    seconds = np.full(steps, 60.0)
    seconds[0] = 60.0 * 50
    return seconds


def slow_beginning(rng, steps):
    seconds = np.full(steps, 60.0)
    seconds[: steps // 25] = 600.0
    return seconds


def irregular(rng, steps):
    return rng.uniform(30.0, 90.0, steps)


def checkpoints_now_and_then(rng, steps):
    seconds = np.full(steps, 60.0)
    seconds[19::20] += 600.0
    return seconds


COSTS = [constant, slow_first_step, slow_beginning, irregular, checkpoints_now_and_then]


@pytest.fixture(params=COSTS, ids=lambda cost: cost.__name__)
def seconds(request, rng):
    """Seconds that each of a thousand steps takes."""
    return request.param(rng, 1000)


def seconds_of(text):
    """Read 1:02:03 or 2 days, 1:02:03 or 02:03."""
    days, clock = re.fullmatch(r"(?:(\d+) days?, )?([\d:]+)", text).groups()
    return 86400 * int(days or 0) + list(accumulate(map(int, clock.split(":")), sixty))[-1]


def sixty(total, part):
    return 60 * total + part


def shown_by_lines(seconds, first, capsys):
    """The time left that each plain line shows, by the number of steps done."""
    clock = Clock()
    lines = ProgressLines(first, first + len(seconds), clock=clock)
    for done, cost in enumerate(seconds, 1):
        clock.now += cost
        lines.update(first + done, 0.0)
    pattern = r"^step (\d+)/.*  left (.*)$"
    found = re.findall(pattern, capsys.readouterr().err, re.MULTILINE)
    return {int(step) - first: seconds_of(left) for step, left in found}


def shown_by_the_bar(seconds, first, done):
    """The time left that the bar shows after so many steps."""
    clock = Clock()
    with ProgressBar(first, first + len(seconds), clock=clock) as bar:
        for step, cost in enumerate(seconds[:done], first + 1):
            clock.now += cost
            bar.update(step, 0.0)
        return seconds_of(re.search(r"<([^,]*),", str(bar._bar))[1])


@pytest.mark.parametrize("first", [0, 12345])
def test_a_tenth_of_the_run_is_enough_for_the_lines(seconds, first, capsys):
    shown = shown_by_lines(seconds, first, capsys)
    assert list(shown) == [100 * (tenth + 1) for tenth in range(10)]
    for done, left in shown.items():
        assert left == pytest.approx(seconds[done:].sum(), rel=0.2)
    assert shown[1000] == 0


@pytest.mark.parametrize("first", [0, 12345])
@pytest.mark.parametrize("done", [100, 137, 500])
def test_a_tenth_of_the_run_is_enough_for_the_bar(seconds, first, done):
    left = shown_by_the_bar(seconds, first, done)
    assert left == pytest.approx(seconds[done:].sum(), rel=0.2)


@pytest.mark.parametrize("steps", [20, 50])
def test_a_slow_first_step_spoils_no_short_run(steps, capsys):
    seconds = np.full(steps, 10.0)
    seconds[0] = 1000.0
    assert shown_by_lines(seconds, 0, capsys)[steps // 10] == 10 * (steps - steps // 10)
    assert shown_by_the_bar(seconds, 0, steps // 10) == 10 * (steps - steps // 10)


def test_before_the_first_step_nothing_is_known():
    remaining = RemainingTime(7, 9, Clock())
    assert remaining.seconds_per_step is None
    assert remaining.left is None
    assert remaining.elapsed == 0.0


def test_long_runs_need_little_memory():
    clock = Clock()
    remaining = RemainingTime(0, 10**9, clock)
    for step in range(1, 100_001):
        clock.now += 0.5
        remaining.update(step)
    assert len(remaining._marked) <= 256
    assert remaining.left == pytest.approx(0.5 * (10**9 - 100_000), rel=1e-9)
    assert remaining.elapsed == pytest.approx(50_000.0)


def test_a_clock_that_has_not_moved_is_no_error(capsys):
    lines = ProgressLines(0, 10, clock=Clock())
    lines.update(1, 0.5)
    assert capsys.readouterr().err.endswith("left 0:00:00\n")
    with ProgressBar(0, 10, clock=Clock()) as bar:
        bar.update(1, 0.5)
    assert "t = 0.5" in capsys.readouterr().err


def test_a_bar_may_leave_nothing_behind(capsys):
    with ProgressBar(0, 10, stays=False, clock=Clock()) as bar:
        bar.update(10, 0.5)
    assert capsys.readouterr().err.endswith("\r")


class Gone(io.StringIO):
    """A terminal or a pipe whose other end has gone."""

    encoding = "utf-8"

    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@pytest.mark.parametrize("display", [ProgressBar, ProgressLines])
@pytest.mark.parametrize("closed", [False, True])
def test_nothing_is_shown_to_a_reader_that_has_gone(monkeypatch, display, closed):
    stream = Gone()
    monkeypatch.setattr(sys, "stderr", stream)
    with display(0, 20) as shown:
        if closed:
            stream.close()
        for step in range(1, 21):
            shown.update(step, 0.1 * step)


def test_without_standard_error_nothing_is_shown(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert make_progress(0, 10) is None
