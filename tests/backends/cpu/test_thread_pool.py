"""Threads do each range of a pass once, whoever calls, and leave processors to others."""

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import batchkron as bk
from batchkron import _core

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
@pytest.mark.parametrize(
    ("size", "grain"), [(0, 1), (1, 1), (5, 1), (64, 3), (1000, 7), (999, 999)]
)
def test_each_number_is_in_one_range(threads, count, size, grain):
    threads(count)
    for ranges in _core.ranges_of_team(size, grain, passes=20):
        numbers = [k for begin, end, _ in ranges for k in range(begin, end)]
        assert sorted(numbers) == list(range(size))
        assert all(0 <= thread < count for _, _, thread in ranges)
        if count > 1 and size > 1:
            assert all(end - begin <= grain for begin, end, _ in ranges)


def test_ranges_are_as_many_as_fit_in_their_bits(threads):
    threads(3)
    (ranges,) = _core.ranges_of_team(50_000_000, 1)
    edges = sorted((begin, end) for begin, end, _ in ranges)
    assert edges[0][0] == 0
    assert edges[-1][1] == 50_000_000
    assert all(one[1] == two[0] for one, two in itertools.pairwise(edges))


def products(rng):
    """Calls of all kinds, each of which has enough work for several threads."""
    factors, x = list(rng.standard_normal((3, 16, 16))), rng.standard_normal((40, 4096))
    batch = bk.BatchedKron(
        rng.standard_normal((5, 4, 4)), rng.integers(0, 5, (900, 3)), np.arange(900) % 90,
        np.arange(900) // 30,
    )  # fmt: skip
    blocks = rng.standard_normal(batch.shape[1])
    sparse, rows = bk.KroneckerSparse(rng.standard_normal((4, 16, 16, 4))), x[:, :256].copy()
    vectors, y = list(rng.standard_normal((3, 50_000))), np.empty(50_000)
    return [
        lambda: bk.gemkm(x, factors),
        lambda: batch @ blocks,
        lambda: sparse.apply(rows),
        lambda: bk.linear_combination([1.0, 0.5, -2.0], vectors, y).copy(),
        lambda: bk.kron(rows[:8], rows[8:16]),
    ]


def test_bits_do_not_depend_on_the_team(rng, threads):
    calls = products(rng)
    threads(1)
    expected = [call() for call in calls]
    for count in (2, 3, 5, 16):
        threads(count)
        for _ in range(4):  # teams of several sizes are tried
            for call, wanted in zip(calls, expected, strict=True):
                np.testing.assert_array_equal(call(), wanted)


def test_several_threads_call_at_once(rng, threads):
    threads(1)
    calls = products(np.random.default_rng(7))
    expected = [call() for call in calls]
    threads(3)
    wrong, start = [], threading.Barrier(4)

    def work(seed):
        own = products(np.random.default_rng(7))
        start.wait()
        for k in range(30):
            at = (seed + k) % len(own)
            if not np.array_equal(own[at](), expected[at]):
                wrong.append(at)
            for ranges in _core.ranges_of_team(101, 4, passes=10):
                if sorted(k for b, e, _ in ranges for k in range(b, e)) != list(range(101)):
                    wrong.append(ranges)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a call does not return"
    assert not wrong


FORKED = """
import os, threading
import numpy as np, batchkron as bk
from batchkron import _core
bk.set_num_threads(3)
x, factors = np.ones(32**3), [np.eye(32)] * 3
_core.ranges_of_team(1000, 1)
goes_on = True
def at_work():
    while goes_on:
        _core.ranges_of_team(1000, 1, passes=100)
other = threading.Thread(target=at_work, daemon=True)
other.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        ok = (bk.gekmm(factors, x) == 1).all() and bk.get_num_threads() == 1
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
goes_on = False
other.join()
assert (bk.gekmm(factors, x) == 1).all() and bk.get_num_threads() == 3
"""


def python(program, **variables):
    own = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=own | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_fork_while_another_thread_has_the_pool():
    run = python(FORKED)
    assert run.returncode == 0, run.stderr


BOUND = """
import ctypes, os, time
from pathlib import Path
allowed = os.sched_getaffinity(0)
ctypes.CDLL("libgomp.so.1")  # as other libraries load it; it binds this thread
assert len(os.sched_getaffinity(0)) == 1
import numpy as np, batchkron as bk
print(bk.get_num_threads() == len(allowed))
for _ in range(3):
    bk.gekmm([np.eye(32)] * 3, np.ones(32**3))
for _ in range(500):  # they may be on their way to other processors
    tasks = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    free = sum(os.sched_getaffinity(task) == allowed for task in tasks)
    if free == len(allowed) - 1:
        break
    time.sleep(0.01)
print(free == len(allowed) - 1)
"""


@linux
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_threads_of_a_caller_that_openmp_binds_use_all_processors():
    run = python(BOUND, OMP_PROC_BIND="close", OPENBLAS_NUM_THREADS="1")
    assert (run.stdout, run.stderr) == ("True\nTrue\n", "")


WAITING = """
import time
from pathlib import Path
import numpy as np, batchkron as bk
bk.set_num_threads(2)
for _ in range(20):
    assert (bk.gekmm([np.eye(32)] * 3, np.ones(32**3)) == 1).all()
states = {}
for _ in range(500):
    time.sleep(0.02)
    for task in Path("/proc/self/task").iterdir():
        states[task.name] = (task / "stat").read_text().rpartition(")")[2].split()[0]
    if sorted(states.values()).count("R") == 1:  # this one
        break
print(sorted(states.values()).count("R"), len(states))
"""


@linux
@pytest.mark.parametrize(
    "policy", [{}, {"OMP_WAIT_POLICY": "passive"}, {"OMP_WAIT_POLICY": "active"}]
)
def test_threads_that_wait_sleep_in_the_end(policy):
    run = python(WAITING, OPENBLAS_NUM_THREADS="1", **policy)
    assert (run.stdout, run.stderr) == ("1 2\n", "")


@linux
def test_threads_may_use_the_same_processors_as_before(rng, threads):
    """Threads that wake on the processor of another one are moved, and are bound to none."""
    op = bk.KroneckerSparse(rng.standard_normal((4, 32, 32, 4)))
    x = rng.standard_normal((64, 512))
    expected = op.apply(x)
    threads(2)
    for _ in range(30):  # both ways are taken, threads that sleep among them
        np.testing.assert_array_equal(op.apply(x), expected)
        time.sleep(0.001)
    allowed = os.sched_getaffinity(0)
    tasks = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    assert all(os.sched_getaffinity(task) == allowed for task in tasks)
