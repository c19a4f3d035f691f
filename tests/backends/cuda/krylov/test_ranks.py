"""Passes over vectors of which each rank has a part, lane by lane on the CPU."""

import re
import sys

import numpy as np
import pytest
from dense_oracle import DTYPES
from emulator.host_compiler import COPIES, Launch, compiled
from nvrtc import DEVICES

from batchkron.backends.cuda.krylov.kernels import SUMLESS, krylov_kernels, rank_passes, rank_sums
from batchkron.backends.cuda.runtime.program import device_sources
from batchkron.backends.krylov_arguments import ARGUMENTS, STATE_FIELDS, max_sums, small_size

LIMITS = DEVICES["90"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="coroutines of Linux")
STEP = ("GmresProject", "GmresExtend")
RESTART, SYSTEMS = 4, 3
_SCALE, _OPERATOR, _TOLERANCE, _LIMIT = 5, 6, 2, 9  # of StateField in krylov/common.hpp


def test_passes_without_sums_are_those_of_the_headers():
    found = {"GmresCombine"}  # a kernel of its own
    for name, text in device_sources().items():
        if name.startswith("krylov/"):
            for each in re.finditer(r"^struct (\w+) : \w+Pass \{(.*?)^\};", text, re.S | re.M):
                if "static constexpr int sums" not in each[2]:
                    found.add(each[1])
    assert found == SUMLESS


class Rank:
    """The vectors of one rank, (systems, n), and the scalars of the systems."""

    def __init__(self, basis, ranks):
        self.basis = np.array(basis, order="C")  # (slots, systems, n), a copy
        self.state = np.zeros((SYSTEMS, STATE_FIELDS))
        self.state[:, _SCALE] = self.state[:, _OPERATOR] = 1
        self.state[:, _LIMIT] = 100
        self.progress = np.zeros((2, SYSTEMS), np.int32)
        self.progress[0, 1] = 8  # a system that is done
        self.small = np.zeros((SYSTEMS, small_size(RESTART, basis.dtype)))
        self.history = np.zeros((8, SYSTEMS))
        most = max_sums(RESTART, basis.dtype)
        self.partial = np.full(SYSTEMS * 8 * most, np.nan)
        self.tickets = np.zeros(SYSTEMS, np.uint32)
        self.sums = np.full(SYSTEMS * most, np.nan)
        self.gathered = np.full(ranks * SYSTEMS * most, np.nan)

    def arguments(self, column, parts, ranks=0, count=0):
        record = np.zeros(1, ARGUMENTS)
        record["n"], record["systems"] = self.basis.shape[2], SYSTEMS
        record["vectors"][0, 1] = self.basis.ctypes.data
        for name in ("state", "progress", "small", "history", "partial", "tickets"):
            record[name] = getattr(self, name).ctypes.data
        record["parts"], record["small_size"] = parts, self.small.shape[1]
        record["rows"], record["column"], record["restart"] = 8, column, RESTART
        more = np.array([self.sums.ctypes.data, self.gathered.ctypes.data, ranks, count], np.uint64)
        return record.tobytes() + more.tobytes()


def launch(kernel, function, arguments, rng, parts):
    how = Launch(
        blocks=SYSTEMS * parts
        if kernel.launch.threads > 32 or "_sums" in str(kernel.program)
        else SYSTEMS,
        threads=kernel.launch.threads,
        shared_bytes=kernel.launch.shared_bytes,
        when=COPIES["at random"],
        seed=int(rng.integers(1 << 30)),
    )
    assert function(arguments, how, []) == ""


def steps_on_ranks(functions, passes, bases, rng, multiply):
    """Do steps of GMRES with A, ``multiply(rank, v)``: w is what the step before left as u."""
    ranks = [Rank(basis, len(bases)) for basis in bases]
    for column in range(RESTART):
        for number, rank in enumerate(ranks):
            rank.basis[column + 1] = multiply(number, rank.basis[column])
        for first, after, name in passes:
            count = rank_sums(name, column, bases[0].dtype)
            for number, rank in enumerate(ranks):
                parts = 1 + number % 2
                given = rank.arguments(column, parts, len(ranks), count)
                launch(first, functions[first.program], given, rng, parts)
            together = np.concatenate([rank.sums[: SYSTEMS * count] for rank in ranks])
            for rank in ranks:
                rank.gathered[: together.size] = together
                given = rank.arguments(column, 1, len(ranks), count)
                launch(after, functions[after.program], given, rng, 1)
    return ranks


@linux
@pytest.mark.parametrize("dtype", DTYPES)
def test_gmres_on_ranks_is_that_of_one_process(dtype, rng, tmp_path):
    kind = np.dtype(dtype)
    size, cuts = 137, [60, 60, 100]  # one rank has nothing
    passes = rank_passes(STEP, kind, 60, SYSTEMS, RESTART, LIMITS)
    programs = [kernel.program for first, after, _ in passes for kernel in (first, after)]
    alone = krylov_kernels(STEP[:1], kind, 60, SYSTEMS, RESTART, LIMITS)
    alone += krylov_kernels(STEP[1:], kind, 60, SYSTEMS, RESTART, LIMITS)
    programs += [kernel.program for kernel in alone]
    functions = dict(zip(programs, compiled(programs, tmp_path), strict=True))
    basis = np.zeros((RESTART + 1, SYSTEMS, size), kind)
    basis[0] = rng.standard_normal((SYSTEMS, size))

    def turned(number, v):
        return 0.9 * v + 0.1 * np.roll(v, 1, axis=-1)

    one = Rank(basis, 1)
    for column in range(RESTART):
        one.basis[column + 1] = turned(0, one.basis[column])
        for kernel in alone:
            launch(kernel, functions[kernel.program], one.arguments(column, 1), rng, 1)
    (same,) = steps_on_ranks(functions, passes, [basis], rng, turned)
    np.testing.assert_array_equal(same.basis, one.basis)
    np.testing.assert_array_equal(same.state, one.state)
    np.testing.assert_array_equal(same.progress, one.progress)
    assert one.progress[1].tolist() == [RESTART, 0, RESTART]

    parts = np.split(basis, cuts, axis=2)
    several = steps_on_ranks(functions, passes, parts, rng, with_diagonal(size, cuts))
    (whole,) = steps_on_ranks(functions, passes, [basis], rng, with_diagonal(size, []))
    for rank in several[1:]:
        np.testing.assert_array_equal(rank.state, several[0].state)  # the same bits
        np.testing.assert_array_equal(rank.small, several[0].small)
        np.testing.assert_array_equal(rank.progress, several[0].progress)
    joined = np.concatenate([rank.basis for rank in several], axis=2)
    eps = float(np.finfo(kind).eps)
    np.testing.assert_allclose(joined, whole.basis, rtol=0, atol=2000 * eps)
    np.testing.assert_allclose(several[0].state, whole.state, rtol=2000 * eps, atol=2000 * eps)


def with_diagonal(size, cuts):
    """A matrix that keeps ranks apart, so that each computes its part of w by itself."""
    entries = np.split(1 + np.arange(size) / size, cuts)
    return lambda number, v: entries[number] * v
