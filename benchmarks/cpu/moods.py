"""Our calls on one thread and on more in turn, while the machine is in one of three moods.

``alone``: nothing else runs. ``blas``: a matrix multiply by NumPy before each call, outside of the
time, whose threads then wait for more work and spin. ``busy``: another process computes.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

import batchkron as bk
from benchmarks.core.checks import Data
from benchmarks.core.timing import Contender, Failure, Lane, Times, nothing, settle, verified

MOODS = ("alone", "blas", "busy")
BLAS_SIZE = 256  # rows of the matrix multiply between calls: about 0.4 ms on two threads
TURN_SECONDS = 0.15  # of one contender in one mood, all numbers of threads together
WARM_SECONDS = 0.02  # before, not counted
AGAIN_SECONDS = 0.6  # of another turn, where threads seem to make the calls slower
MIN_SAMPLES = 5  # of each number of threads
MAX_SLOWER = 1.1  # largest median time on several threads over that on one
# Says that it runs, then computes until it is ended or the process that started it is gone.
BUSY_PROGRAM = """
import os
parent = os.getppid()
print(flush=True)
while os.getppid() == parent:
    sum(range(100_000))
"""

Between = Callable[[], object]


@contextmanager
def mood(name: str) -> Iterator[Between]:
    """Bring the machine into a mood; give what is to be done before each call."""
    if name == "blas":
        a, b = np.random.default_rng(0).standard_normal((2, BLAS_SIZE, BLAS_SIZE))
        yield partial(np.matmul, a, b, out=np.empty_like(a))
    elif name == "busy":
        command = [sys.executable, "-ISc", BUSY_PROGRAM]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield nothing
        finally:
            process.kill()
            process.communicate()
    else:
        settle()
        yield nothing


def in_turn(
    contenders: Sequence[Contender], data: Data, threads: Sequence[int], between: Between
) -> list[Times | Failure]:
    """Time each contender call by call, on one number of threads after the other."""

    def prepare(count: int) -> None:
        bk.set_num_threads(count)
        between()

    lanes, failures = verified(contenders, data, threads, prepare)
    for contender in contenders:
        own = [lane for lane in lanes if lane.contender is contender]
        take_turns(own, prepare, WARM_SECONDS, 1)
        for lane in own:
            lane.samples.clear()
        take_turns(own, prepare, TURN_SECONDS, MIN_SAMPLES)
        if any(lane.times().median > MAX_SLOWER * own[0].times().median for lane in own[1:]):
            take_turns(own, prepare, AGAIN_SECONDS, MIN_SAMPLES)
    return [*(lane.times() for lane in lanes), *failures]


def take_turns(
    lanes: Sequence[Lane], prepare: Callable[[int], None], seconds: float, samples: int
) -> None:
    """Take one sample of a call of each lane in turn, for so long, and so many at least."""
    end = time.perf_counter() + seconds
    taken = 0
    while lanes and (taken < samples or time.perf_counter() < end):
        for lane in lanes:
            prepare(lane.threads)
            lane.samples.append(lane.sample())
        taken += 1
