"""Measures the cells of a table that a file lacks, in the time that is given."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.core.timing import OURS, Call, seconds_of
from benchmarks.papers.results import ALONE, Cell, Key, Results
from benchmarks.patterns import LAYOUTS, Pattern, ratio

SLOWER = 3.0  # a contender that takes this many times as long as the fastest one is stopped early
# Seconds of a call that is repeated in any case: a single one of several small kernels takes as
# long as its launches, ten times what it takes in a graph.
ALWAYS_REPEATED = 2e-3
TRIED_FROM = 5e-4  # seconds of the fastest from which others are tried with some vectors first
TRIED_VECTORS = 2560  # as 25 088, a multiple of 512, not of 1024: torch takes the same kernels
MIN_SCALED = 2e-2  # seconds of all vectors from which a time is scaled from some vectors
SAMPLES = 8  # vectors of a result that are compared
DISTINCT = 97  # vectors of a batch that are not repeated ones
REPEATS = 5  # of a call whose time is a median
AHEAD = 256  # cells whose kernels are compiled at the same time
EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
PHASES = ("compile", "prepare", "check", "time")

Array = Any


class DeviceLostError(RuntimeError):
    """The device refuses all further work of this process."""


class Bench:
    """A device on which contenders run; ``module`` has its arrays, NumPy or CuPy."""

    machine: Mapping[str, Any]
    module: Any = np

    def compile(self, keys: Sequence[Key], cells: Iterable[Cell], seconds: float) -> bool:
        """Compile what cells need; False if so many seconds are too few.

        ``cells`` are those of earlier runs.
        """
        return True

    def prepare(self, given: Problem) -> Mapping[str, Callable[[], Call]]:
        """Return what makes each contender: a function that returns its call."""
        raise NotImplementedError

    def run(self, call: Call) -> Any:
        """Return the result of a call."""
        return call()

    def vectors(self, result: Any, given: Problem) -> Array:
        """Return the sampled vectors of a result, one in each row, in double precision."""
        raise NotImplementedError

    def once(self, call: Call) -> float:
        """Return the seconds of one call."""
        return seconds_of(call)

    def repeated(self, call: Call) -> float:
        """Return the median seconds of a call over several."""
        return statistics.median(self.once(call) for _ in range(REPEATS))

    def watts(self, call: Call, seconds: float) -> float:
        """Return the power while calls of so many seconds follow each other."""
        raise RuntimeError("not measured: the energy of a processor is not read")

    def release(self) -> None:
        """Free what contenders took.

        Raises
        ------
        DeviceLostError
            If the device works no more.
        """


@dataclass(frozen=True)
class Problem:
    """What a cell multiplies, on the host, and some vectors of the right result.

    Attributes
    ----------
    key : tuple
        Pattern, batch, dtype, layout.
    values : (a, b, c, d)
    few : (at most `DISTINCT`, a c d)
        Vectors that the batch repeats, one after another.
    chosen : sequence of int
        Those of the few whose results are compared.
    expected, bound : (len(chosen), a b d)
        The result in double precision, and the largest error that is right.
    """

    key: Key
    values: Array
    few: Array
    chosen: Array
    expected: Array
    bound: Array

    @property
    def repeated(self) -> Array:
        """Which of the few vectors each vector of the batch is."""
        return np.arange(self.key[1]) % len(self.few)

    @property
    def sampled(self) -> Array:
        """Vectors of the batch that are compared: the chosen ones, first to last in the batch."""
        turns = (self.key[1] - 1 - self.chosen) // len(self.few)
        shares = np.arange(len(self.chosen)) / max(1, len(self.chosen) - 1)
        return self.chosen + len(self.few) * (turns * shares).astype(int)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the result."""
        (a, b, _, d), batch, _, layout = self.key
        return (batch, a * b * d) if layout == "batch-first" else (a * b * d, batch)

    def with_vectors(self, batch: int) -> Problem:
        """Return the same with fewer vectors."""
        pattern, _, dtype, layout = self.key
        return replace(self, key=(pattern, batch, dtype, layout))


def problem(key: Key, module: Any = np) -> Problem:
    """Values uniform in ±1/√c and normal vectors, as in the paper; both layouts have the same.

    ``module`` computes what is expected.
    """
    return replace(_drawn(*key[:3], module), key=key)


@lru_cache(maxsize=1)  # the layouts of a pattern and dtype follow each other
def _drawn(pattern: Pattern, batch: int, dtype: str, module: Any) -> Problem:
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


def on_host(array: Array) -> Array:
    """An array of NumPy with the same numbers."""
    return array if isinstance(array, np.ndarray) else array.get()


def product(module: Any, vectors: Array, values: Array) -> Array:
    """The right result (n, a b d) of vectors (n, a c d), in double precision."""
    a, b, c, d = values.shape
    blocks = vectors.astype(np.float64).reshape(-1, a, c, d).transpose(1, 3, 0, 2)
    matrices = values.astype(np.float64).transpose(0, 3, 2, 1)  # (a, d, c, b)
    n = len(vectors)
    sums = module.matmul(blocks.reshape(a * d, n, c), matrices.reshape(a * d, c, b))
    return sums.reshape(a, d, n, b).transpose(2, 0, 3, 1).reshape(n, -1)


def keys_of(
    patterns: Sequence[Pattern], batch: int, dtypes: Sequence[str], layouts: Sequence[str] = LAYOUTS
) -> list[Key]:
    """The cells of a table, in the order in which they are measured."""
    return [(p, batch, dtype, layout) for p in patterns for dtype in dtypes for layout in layouts]


class CellRun:
    """Measures the contenders of one cell."""

    def __init__(self, bench: Bench, cell: Cell) -> None:
        self.bench, self.cell = bench, cell
        with self.phase("prepare"):
            self.given = problem(cell.key, bench.module)
            self.makers = bench.prepare(self.given)
        self.tried: tuple[Problem, Mapping[str, Callable[[], Call]]] | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of a block."""
        begun, phases = time.perf_counter(), self.cell.phases
        try:
            yield
        finally:
            phases[name] = phases.get(name, 0.0) + time.perf_counter() - begun

    @property
    def fastest(self) -> float:
        """The least time of a contender so far, infinite if there is none."""
        times = self.cell.seconds
        return min((times[name] for name in times if name != ALONE), default=math.inf)

    def measure(self, name: str, energy: bool) -> None:
        """Check and time a contender, and find its energy.

        Raises
        ------
        ArithmeticError
            If its result is wrong.
        """
        cell = self.cell
        if name in cell.stopped_early:  # in an earlier run
            cell.stopped_early.remove(name)
            cell.vectors.pop(name, None)
        if name in (OURS, ALONE) or not self.is_slow_with_some(name):
            seconds, call = self.checked(name, self.given, self.makers)
            is_slow = seconds > max(SLOWER * min(seconds, self.fastest), ALWAYS_REPEATED)
            if is_slow and name != ALONE:
                cell.stopped_early.append(name)
            else:
                with self.phase("time"):
                    seconds = self.bench.repeated(call)
            cell.seconds[name] = seconds
        if energy and (name in cell.stopped_early or name == ALONE):
            cell.failed[f"{name} energy"] = "not measured: too slow"
        elif energy:
            try:
                cell.joules[name] = self.bench.watts(call, seconds) * seconds
            except Exception as error:
                cell.failed[f"{name} energy"] = text_of(error)

    def is_slow_with_some(self, name: str) -> bool:
        """Try a contender with fewer vectors where all could take long; say whether that counts."""
        cell, batch = self.cell, self.given.key[1]
        if self.fastest < TRIED_FROM or batch < 4 * TRIED_VECTORS:
            return False
        if (batch - TRIED_VECTORS) % 1024:
            return False
        if self.tried is None:
            with self.phase("prepare"):
                given = self.given.with_vectors(TRIED_VECTORS)
                self.tried = given, self.bench.prepare(given)
        seconds, _ = self.checked(name, *self.tried)
        seconds *= batch / TRIED_VECTORS
        if seconds <= max(SLOWER * self.fastest, MIN_SCALED):
            return False
        cell.seconds[name] = seconds
        cell.vectors[name] = TRIED_VECTORS
        cell.stopped_early.append(name)
        return True

    def checked(
        self, name: str, given: Problem, makers: Mapping[str, Callable[[], Call]]
    ) -> tuple[float, Call]:
        """Return the seconds of the second call of a contender, and the call.

        The result of the first one must be right.
        """
        with self.phase("prepare"):
            call = makers[name]()
        with self.phase("check"):
            result = self.bench.run(call)
            if name != ALONE:
                check(self.bench.vectors(result, given), given)
            del result
        with self.phase("time"):
            return self.bench.once(call), call


def text_of(error: Exception) -> str:
    """An error as it stands in a file."""
    return f"{type(error).__name__}: {error}"[:160]


def measure_cell(bench: Bench, cell: Cell, names: Sequence[str], energy: bool) -> None:
    """Measure contenders, ours first; what fails has no time, and the others go on.

    Raises
    ------
    DeviceLostError
        If the device works no more; contenders behind the one that failed then have nothing.
    """
    run = None
    try:
        run = CellRun(bench, cell)
    except Exception as error:
        cell.failed |= dict.fromkeys(names, text_of(error))
    if run is None:
        bench.release()
        return
    for name in sorted(names, key=lambda name: name != OURS):
        try:
            run.measure(name, energy)
        except Exception as error:
            cell.failed[name] = text_of(error)
        if name in cell.failed:  # now that no traceback holds its arrays
            bench.release()
    del run
    bench.release()


def check(found: Array, given: Problem) -> None:
    """Compare some vectors with the result in double precision.

    Raises
    ------
    ArithmeticError
        If an error is larger than rounding can make it.
    """
    worst = np.abs(found - given.expected) / given.bound
    if not (worst <= 1).all():
        raise ArithmeticError(f"wrong result, {np.nanmax(worst):.1e} times the bound")


def measure_missing(
    bench: Bench,
    results: Results,
    keys: Sequence[Key],
    names: Sequence[str],
    energy: bool = False,
    seconds: float = 500.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Cell]:
    """Measure what cells lack, one after another, until the time is over; yield each when done.

    Raises
    ------
    DeviceLostError
        If the device works no more; the cell has been written.
    """
    end = clock() + seconds
    left = [key for key in keys if results.cell(key).lacks(names, energy)]
    for begin in range(0, len(left), AHEAD):
        chunk = left[begin : begin + AHEAD]
        begun = time.perf_counter()
        remaining = end - clock()
        if remaining < 0 or not bench.compile(chunk, results.cells.values(), remaining):
            return
        compiled = (time.perf_counter() - begun) / len(chunk)
        for key in chunk:
            if clock() > end:
                return
            cell = results.cell(key)
            cell.phases, cell.commit = {"compile": compiled}, results.machine.get("commit", "")
            try:
                measure_cell(bench, cell, cell.lacks(names, energy), energy)
            finally:
                results.add(cell)
            yield cell


def phase_texts(cells: Iterable[Cell]) -> str:
    """The mean seconds of a cell, and of its phases."""
    phases = [cell.phases for cell in cells]
    means = [statistics.fmean(one.get(name, 0.0) for one in phases) for name in PHASES]
    parts = [f"{name} {mean:.2f}" for name, mean in zip(PHASES, means, strict=True)]
    return f"{sum(means):.2f} s: {', '.join(parts)}"


def line(cell: Cell) -> str:
    """A cell in one line."""
    texts = [
        f"{name} {1e6 * value:.1f}{'+' * (name in cell.stopped_early)}"
        for name, value in cell.seconds.items()
    ]
    texts += [f"{name}: {why}" for name, why in cell.failed.items()]
    what = f"{cell.pattern} {cell.dtype} {cell.layout} (b+c)/(bc) {ratio(cell.pattern):.4f}"
    return f"{phase_texts([cell])}: {what}: µs: {', '.join(texts)}"
