"""The cells of a table, the file to which runs append, and how what it lacks is measured."""

import json
import math
import statistics
import time
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from types import SimpleNamespace

import numpy as np

import batchkron as bk
from benchmarks import kronecker_sparse as peers
from benchmarks.core.checks import on_host
from benchmarks.core.records import earlier, machine, save_text
from benchmarks.core.tables import groups
from benchmarks.core.timing import OURS, seconds_of
from benchmarks.patterns import LAYOUTS, Pattern

ALONE = "bmm, multiply alone"
SPECIALISED = ("bmm", "einsum", "bsr")  # baselines of the paper
GENERIC = ("dense", "sparse")
BASELINES = (*SPECIALISED, *GENERIC)
NAMES = (OURS, *BASELINES, ALONE)

DTYPES = ("float32", "float16")  # of the paper

Key = tuple[Pattern, int, str, str]
SLOWER = 3.0  # a contender that takes this many times as long as the fastest one is stopped early
# Seconds of a call that is repeated in any case: a single one of several small kernels takes as
# long as its launches, ten times what it takes in a graph.
ALWAYS_REPEATED = 2e-3
SAMPLES = 8  # vectors of a result that are compared
DISTINCT = 97  # vectors of a batch that are not repeated ones
REPEATS = 5  # of a call whose time is a median
AHEAD = 256  # cells whose kernels are compiled at the same time
EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


@dataclass
class Cell:
    """One product: a pattern, a batch, a dtype and a layout, and what was measured."""

    pattern: Pattern
    batch: int
    dtype: str
    layout: str
    seconds: dict[str, float] = field(default_factory=dict)
    joules: dict[str, float] = field(default_factory=dict)  # of one product
    failed: dict[str, str] = field(default_factory=dict)  # "NAME energy": has no energy, and why
    stopped_early: list[str] = field(default_factory=list)  # slow: the time of their second call
    commit: str = ""  # of the source that was measured last

    @property
    def key(self):
        return self.pattern, self.batch, self.dtype, self.layout

    def lacks(self, names, energy):
        timed = set(self.seconds)
        if energy:
            timed &= {*self.joules, *(one.removesuffix(" energy") for one in self.failed)}
        return [name for name in names if name not in timed and name not in self.failed]


def least(cells, dtype, layout="", what="seconds"):
    """The seconds, or joules, of each contender in a layout, or in the better one of both."""
    layouts, found = {layout} if layout else set(LAYOUTS), {}
    chosen = (one for one in cells if one.dtype == dtype and one.layout in layouts)
    own = (one for one in chosen if OURS in getattr(one, what))
    for pattern, several in groups(own, lambda one: one.pattern).items():
        if {one.layout for one in several} == layouts:
            known = [getattr(one, what) for one in several]
            names = dict.fromkeys(name for one in known for name in one)
            found[pattern] = {n: min(one[n] for one in known if n in one) for n in names}
    return found


class Results:
    """The cells of a file; ``device`` must be the one that all of them were measured on."""

    def __init__(self, path, machine=None):
        self.path = path
        self.machine = dict(machine or {})
        self.cells = {}
        report = earlier(path, self.machine, *(("device",) if machine else ()))
        self.machine = {**report.get("machine", {}), **self.machine}
        for given in report.get("cells", ()):
            known = {one.name: given[one.name] for one in fields(Cell) if one.name in given}
            cell = Cell(**{**known, "pattern": tuple(given["pattern"])})
            self.cells[cell.key] = cell

    def cell(self, key):
        return self.cells.get(key) or Cell(*key)

    def add(self, cell):
        self.cells[cell.key] = cell
        if self.path is not None:
            cells = [vars(cell) for cell in self.cells.values()]
            report = {"machine": self.machine, "cells": cells}
            text = json.dumps(report, ensure_ascii=False)
            save_text(self.path, text.replace('{"pattern"', '\n{"pattern"'))  # a cell a line


class DeviceLostError(RuntimeError):
    """The device refuses all further work of this process."""


class Bench:
    """The threads of this process, on which contenders run: ours, and NumPy's and SciPy's.

    ``module`` has the arrays; `cuda_bench.CudaBench` is a device.
    """

    module = np

    def __init__(self):
        described = machine()
        self.machine = {**described, "device": described["processor"]}

    def compile(self, keys):
        """Compile what cells need, all together."""

    def prepare(self, given):
        """Return what makes each contender: a function that returns its call."""
        pattern, batch, dtype, layout = given.key
        values, (a, _, c, d) = given.values, pattern
        x = given.few[given.repeated]
        if layout == "batch-last":
            x = np.ascontiguousarray(x.T)
        how = {"pattern": pattern, "batch": batch, "layout": layout}
        data = SimpleNamespace(**how, values=values, inputs=[x])
        op = bk.KroneckerSparse(values, layout=layout)

        def bsr():
            _, matrix = peers.bsr_matrix(values)
            if matrix is None:
                raise MemoryError("blocks with too many zeros")
            return peers.by_matrix(data, matrix)

        def alone():
            blocks = np.ascontiguousarray(values.transpose(0, 3, 1, 2))
            if layout == "batch-last":
                given = np.ascontiguousarray(x.reshape(a, c, d, batch).transpose(0, 2, 1, 3))
                return lambda: blocks @ given
            given = np.ascontiguousarray(x.reshape(batch, a, c, d).transpose(1, 3, 0, 2))
            turned = np.ascontiguousarray(blocks.swapaxes(2, 3))
            return lambda: given @ turned

        return {
            OURS: lambda: partial(op.apply, x, np.full(given.shape, np.nan, dtype)),
            "einsum": lambda: peers.einsum(data),
            "bmm": lambda: peers.permuted(data),
            "bsr": bsr,
            "dense": lambda: peers.by_matrix(data, op.to_dense()),
            "sparse": lambda: peers.by_matrix(data, peers.csr_matrix(values)),
            ALONE: alone,
        }

    def vectors(self, result, given):
        flat = result.reshape(given.shape)
        found = flat[given.sampled] if given.key[3] == "batch-first" else flat[:, given.sampled].T
        return np.asarray(found, np.float64)

    def run(self, call):
        return call()

    def once(self, call):
        return seconds_of(call)

    def repeated(self, call):
        return statistics.median(self.once(call) for _ in range(REPEATS))

    def watts(self, call, seconds):
        raise RuntimeError("not measured: the energy of a processor is not read")

    def release(self):
        """Free what contenders took; `DeviceLostError` if the device works no more."""


@dataclass(frozen=True)
class Problem:
    """What a cell multiplies, on the host, and some vectors of the right result."""

    key: Key
    values: object  # (a, b, c, d)
    few: object  # (at most `DISTINCT`, a c d): vectors that the batch repeats, one after another
    chosen: object  # those of the few whose results are compared
    expected: object  # their results in double precision, (len(chosen), a b d)
    bound: object  # the largest error that is right

    @property
    def repeated(self):
        """Which of the few vectors each vector of the batch is."""
        return np.arange(self.key[1]) % len(self.few)

    @property
    def sampled(self):
        """Vectors of the batch that are compared: the chosen ones, first to last in the batch."""
        turns = (self.key[1] - 1 - self.chosen) // len(self.few)
        shares = np.arange(len(self.chosen)) / max(1, len(self.chosen) - 1)
        return self.chosen + len(self.few) * (turns * shares).astype(int)

    @property
    def shape(self):
        (a, b, _, d), batch, _, layout = self.key
        return (batch, a * b * d) if layout == "batch-first" else (a * b * d, batch)


def problem(key, module=np):
    """Values uniform in ±1/√c and normal vectors, as in the paper; both layouts have the same."""
    return replace(_drawn(*key[:3], module), key=key)


@lru_cache(maxsize=1)  # the layouts of a pattern and dtype follow each other
def _drawn(pattern, batch, dtype, module):
    a, _, c, d = pattern
    rng = np.random.default_rng([*pattern, batch])
    values = (2 * rng.random(pattern, np.float32) - 1) / np.float32(math.sqrt(c))
    values = values.astype(dtype)
    few = rng.standard_normal((min(batch, DISTINCT), a * c * d), np.float32).astype(dtype)
    chosen = np.linspace(0, len(few) - 1, min(batch, SAMPLES)).astype(int)
    chosen[-1:] = (batch - 1) % len(few)  # the last vector of the batch
    given = module.asarray(few[chosen]), module.asarray(values)
    expected = product(module, *given)
    # sums in half precision are taken in single precision; their parts may be rounded in between
    terms = 8 if dtype == "float16" else c + 4
    sums = product(module, *(abs(one) for one in given))
    bound = 2 * EPS[dtype] * (terms * sums + (dtype == "float16"))
    key = (pattern, batch, dtype, "")
    return Problem(key, values, few, chosen, *map(on_host, (expected, bound)))


def product(module, vectors, values):
    """The right result (n, a b d) of vectors (n, a c d), in double precision."""
    a, b, c, d = values.shape
    blocks = vectors.astype(np.float64).reshape(-1, a, c, d).transpose(1, 3, 0, 2)
    matrices = values.astype(np.float64).transpose(0, 3, 2, 1)  # (a, d, c, b)
    n = len(vectors)
    sums = module.matmul(blocks.reshape(a * d, n, c), matrices.reshape(a * d, c, b))
    return sums.reshape(a, d, n, b).transpose(2, 0, 3, 1).reshape(n, -1)


def keys_of(patterns, batch, dtypes, layouts=LAYOUTS):
    return [(p, batch, dtype, layout) for p in patterns for dtype in dtypes for layout in layouts]


def measure_contender(bench, cell, given, makers, name, energy):
    if name in cell.stopped_early:  # in an earlier run
        cell.stopped_early.remove(name)
    call = makers[name]()
    result = bench.run(call)
    if name != ALONE:
        worst = np.abs(bench.vectors(result, given) - given.expected) / given.bound
        if not (worst <= 1).all():
            raise ArithmeticError(f"wrong result, {np.nanmax(worst):.1e} times the bound")
    del result
    seconds = bench.once(call)
    others = (time for known, time in cell.seconds.items() if known != ALONE)
    bound = max(SLOWER * min([seconds, *others]), ALWAYS_REPEATED)
    if seconds > bound and name != ALONE:
        cell.stopped_early.append(name)
    else:
        seconds = bench.repeated(call)
    cell.seconds[name] = seconds
    if energy and (name in cell.stopped_early or name == ALONE):
        cell.failed[f"{name} energy"] = "not measured: too slow"
    elif energy:
        try:
            cell.joules[name] = bench.watts(call, seconds) * seconds
        except Exception as error:
            cell.failed[f"{name} energy"] = text_of(error)


def text_of(error):
    return f"{type(error).__name__}: {error}"[:160]


def measure_cell(bench, cell, names, energy):
    given = makers = None
    try:
        given = problem(cell.key, bench.module)
        makers = bench.prepare(given)
    except Exception as error:
        cell.failed |= dict.fromkeys(names, text_of(error))
    for name in sorted(names, key=lambda name: name != OURS) if makers is not None else ():
        try:
            measure_contender(bench, cell, given, makers, name, energy)
        except Exception as error:
            cell.failed[name] = text_of(error)
        if name in cell.failed:  # now that no traceback holds its arrays
            bench.release()
    del given, makers
    bench.release()


def measure_missing(
    bench, results, keys, names, energy=False, seconds=500.0, clock=time.perf_counter
):
    """Measure what cells lack, one after another, until the time is over; yield each when done."""
    end = clock() + seconds
    left = [key for key in keys if results.cell(key).lacks(names, energy)]
    for number, key in enumerate(left):
        if clock() > end:
            return
        if number % AHEAD == 0:
            bench.compile(left[number : number + AHEAD])
        cell = results.cell(key)
        cell.commit = results.machine.get("commit", "")
        try:
            measure_cell(bench, cell, cell.lacks(names, energy), energy)
        finally:
            results.add(cell)
        yield cell
