"""What OMP_NUM_THREADS and BATCHKRON_ISA may ask for, and what is said where they ask too much."""

import os
import subprocess
import sys

import pytest

import batchkron as bk
from batchkron.backends.cpu import environment

# imports, multiplies with enough work for threads, and says what it was warned of on the way
COUNTED = """
import os, warnings
before = dict(os.environ)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np, batchkron as bk, batchkron.problems, batchkron.solvers
    print(len(caught), before == dict(os.environ))
    for _ in range(2):
        ones = bk.gekmm([np.ones((32, 32))] * 3, np.ones(32**3))
    print(len(caught), ones[0], bk.get_num_threads() == len(os.sched_getaffinity(0)))
    print(caught[0].category.__name__, caught[0].message)
"""

ISA = """
import numpy as np, batchkron as bk
for call in (
    bk.instruction_set,
    lambda: bk.gekmm([np.eye(2)], np.ones(2)),
    lambda: bk.KroneckerProduct([np.eye(2)]) @ np.ones(2),
    lambda: bk.BatchedKron(np.ones((1, 2, 2)), [[0]], [0], [0]) @ np.ones(2),
    lambda: bk.batched_gemm(np.ones((1, 2, 2)), np.ones((1, 2, 2))),
    lambda: bk.linear_combination([1.0, 2.0], [np.ones(2), np.ones(2)], np.empty(2)),
):
    try:
        call()
    except bk.BackendUnavailableError as error:
        print(error, error.__suppress_context__)
"""
UNKNOWN = (
    "BATCHKRON_ISA=foo is unknown or not supported by this processor; expected baseline, avx2 or "
    "avx512, or unset it to let batchkron choose."
)


def python(*words, **variables):
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_far_too_many_threads_are_limited_when_first_needed():
    run = python("-c", COUNTED, OMP_NUM_THREADS="99999")
    assert run.returncode == 0, run.stderr
    imported, multiplied, warning = run.stdout.splitlines()
    assert imported == "0 True"
    assert multiplied == "1 32768.0 True"
    count = len(os.sched_getaffinity(0))
    assert warning.startswith("RuntimeWarning OMP_NUM_THREADS asks for 99999 threads, but")
    assert f"may use {count} processor" in warning
    assert "use batchkron.set_num_threads, or --threads" in warning
    assert run.stderr == ""


@pytest.fixture
def two_processors(threads, monkeypatch):
    """A process on two processors whose number of threads has not been checked yet."""
    monkeypatch.setattr(environment, "_num_processors", lambda: 2)

    def asks_for(count):
        threads(count)  # stands for what OpenMP takes from the environment
        monkeypatch.setattr(environment, "_threads_are_checked", False)

    return asks_for


def test_eight_threads_per_processor_are_allowed(two_processors):
    two_processors(16)
    assert bk.get_num_threads() == 16
    two_processors(17)
    with pytest.warns(RuntimeWarning, match="asks for 17 threads, but this process may use 2 proc"):
        assert bk.get_num_threads() == 2
    assert bk.get_num_threads() == 2  # and no second warning


def test_what_the_user_sets_is_taken(two_processors):
    two_processors(17)
    bk.set_num_threads(40)
    assert bk.get_num_threads() == 40


def test_a_warning_as_an_error_leaves_the_limit(two_processors):
    two_processors(17)
    with pytest.raises(RuntimeWarning):  # warnings are errors here
        bk.get_num_threads()
    assert bk.get_num_threads() == 2


def test_an_unknown_instruction_set_is_one_line_of_python():
    run = python("-c", ISA, BATCHKRON_ISA="foo")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [f"{UNKNOWN} True"] * 6


def test_an_unknown_instruction_set_is_one_line_of_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "continuity-1d", "--level", "2", "--until", "0.01"]
    run = python("-m", "batchkron.cli", *words, BATCHKRON_ISA="foo")
    assert run.returncode == 2
    assert run.stderr == f"batchkron: {UNKNOWN}\n"
    assert run.stdout == ""
    assert not list(tmp_path.iterdir())
