"""What OMP_NUM_THREADS and BATCHKRON_ISA may ask for, and what is said where they ask too much."""

import os
import re
import resource
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
UNKNOWN = re.compile(
    r"BATCHKRON_ISA=foo is not supported by this processor and this build; expected one of "
    r"baseline(, avx2)?(, avx512)?, or unset it to let batchkron choose\."
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


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_threads_that_openmp_binds_are_not_taken_for_one_processor():
    wanted = min(9, 8 * len(os.sched_getaffinity(0)))  # more than 8 for the caller's processor
    program = "import ctypes; ctypes.CDLL('libgomp.so.1')\n"
    program += "import batchkron as bk; print(bk.get_num_threads())"
    run = python("-c", program, OMP_PROC_BIND="close", OMP_NUM_THREADS=str(wanted))
    assert (run.stdout, run.stderr) == (f"{wanted}\n", "")


@pytest.fixture
def two_processors(threads, monkeypatch):
    """A process on two processors whose number of threads has not been checked yet."""
    monkeypatch.setattr(environment._native, "num_processors", lambda: 2)

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


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/a/b\n", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "150000 100000", "a/b/cpu.max": "100000 100000"}, 1.0),
        ("0::/gone\n", {"cpu.max": "max 100000"}, None),
        ("0::/gone\n", {"cpu.max": "200000 100000"}, 2.0),  # a container sees its group as the root
        (
            "2:cpu,cpuacct:/c\n1:memory:/m\n",
            {
                "cpu,cpuacct/c/cpu.cfs_quota_us": "25000\n",
                "cpu,cpuacct/c/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            0.25,
        ),
        ("1:memory:/m\n", {"cpu.max": "1 2"}, None),
        ("0::/\n", {"cpu.max": "nonsense"}, None),
        (None, {}, None),
    ],
)
def test_limits_of_control_groups(tmp_path, groups, files, quota):
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert environment._processor_quota(tmp_path) == quota


LIMITED = """
import batchkron as bk
from batchkron.backends.cpu import environment
environment._processor_quota = lambda: 0.5
print(bk.get_num_threads())
bk.set_num_threads(3)
print(bk.get_num_threads())
"""


def test_a_limit_holds_where_nobody_says_how_many():
    own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    run = subprocess.run(
        [sys.executable, "-c", LIMITED], env=own, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.split() == ["1", "3"]
    run = python("-c", LIMITED, OMP_NUM_THREADS="2")
    assert run.stdout.split() == ["2", "3"]


@pytest.mark.parametrize(
    ("text", "limit", "count"),
    [("3", "", 3), (" 3 ", "", 3), ("5,2", "", 5), ("5", "2", 2), ("", "1", 1)]
    + [(text, "", len(os.sched_getaffinity(0))) for text in ("", "0", "-2", "3x", "two", "3.5")],
)
def test_variables_of_openmp_say_how_many_threads(text, limit, count):
    program = "import batchkron as bk; print(bk.get_num_threads())"
    run = python("-c", program, OMP_NUM_THREADS=text, OMP_THREAD_LIMIT=limit)
    assert (run.stdout, run.stderr) == (f"{count}\n", "")


REFUSED = """
import resource, warnings
import numpy as np, batchkron as bk
bk.set_num_threads(4)
x, factors = np.ones(32**3), [np.eye(32)] * 3
# the stack of a new thread takes 64 MiB, more than is left
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (48 << 20), resource.RLIM_INFINITY))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    results = [bk.gekmm(factors, x) for _ in range(8)]
assert all((one == 1).all() for one in results)
print(bk.get_num_threads(), len(caught), caught[0].message)
"""


def large_stacks():
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, hard))


def test_threads_that_the_system_refuses():
    run = subprocess.run(
        [sys.executable, "-c", REFUSED],
        preexec_fn=large_stacks,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "1 1 the system refuses to start more threads; the kernels take 1\n"


def test_an_unknown_instruction_set_is_one_line_of_python():
    run = python("-c", ISA, BATCHKRON_ISA="foo")
    assert run.returncode == 0, run.stderr
    lines = [line.removesuffix(" True") for line in run.stdout.splitlines()]
    assert len(lines) == 6
    assert all(UNKNOWN.fullmatch(line) for line in lines), lines


def test_an_unknown_instruction_set_is_one_line_of_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "continuity-1d", "--level", "2", "--until", "0.01"]
    run = python("-m", "batchkron.cli", *words, BATCHKRON_ISA="foo")
    assert run.returncode == 2
    assert UNKNOWN.fullmatch(run.stderr.removeprefix("batchkron: ").removesuffix("\n")), run.stderr
    assert run.stdout == ""
    assert not list(tmp_path.iterdir())
