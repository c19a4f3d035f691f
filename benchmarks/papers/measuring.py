"""Measures the cells of a table that a file lacks, in the time that is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.papers.patterns import Pattern, ratio
from benchmarks.papers.results import ALONE, LAYOUTS, OURS, Cell, Key, Results

SLOWER = 5.0  # a contender that takes this many times as long as the fastest one is not repeated
# Seconds of a call that is repeated in any case: a single one of several small kernels takes as
# long as its launches, ten times what it takes in a graph.
ALWAYS_REPEATED = 2e-3
MAX_REPEATED = 0.2  # seconds of a call that is repeated before it counts as slow
SAMPLES = 8  # vectors of a result that are compared
DISTINCT = 97  # vectors of a batch that are not repeated ones
EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}

Array = Any


class Bench(Protocol):
    """A device on which contenders run."""

    machine: Mapping[str, Any]

    def prepare(self, given: Problem) -> Mapping[str, Callable[[], Any]]:
        """Return what makes each contender: a function that returns its call."""

    def run(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call."""

    def vectors(self, result: Any, given: Problem) -> Array:
        """Return the sampled vectors of a result, one in each row, in double precision."""

    def once(self, call: Callable[[], Any]) -> float:
        """Return the seconds of one call."""

    def repeated(self, call: Callable[[], Any]) -> float:
        """Return the median seconds of a call over several."""

    def watts(self, call: Callable[[], Any], seconds: float) -> float:
        """Return the power while calls of so many seconds follow each other."""

    def release(self) -> None:
        """Free what the last cell took."""


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
    sampled : sequence of int
        Vectors of the batch that are compared.
    expected, bound : (len(sampled), a b d)
        The result in double precision, and the largest error that is right.
    """

    key: Key
    values: Array
    few: Array
    sampled: Array
    expected: Array
    bound: Array

    @property
    def repeated(self) -> Array:
        """Which of the few vectors each vector of the batch is."""
        return np.arange(self.key[1]) % len(self.few)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the result."""
        (a, b, _, d), batch, _, layout = self.key
        return (batch, a * b * d) if layout == "batch-first" else (a * b * d, batch)


def problem(key: Key, rng: np.random.Generator) -> Problem:
    """Values uniform in ±1/√c and normal vectors, as in the paper."""
    (a, b, c, d), batch, dtype, _ = key
    values = rng.uniform(-1, 1, (a, b, c, d)).astype(np.float32) / np.sqrt(c)
    values = values.astype(dtype)
    few = rng.standard_normal((min(batch, DISTINCT), a * c * d), np.float32).astype(dtype)
    sampled = np.linspace(0, batch - 1, min(batch, SAMPLES)).astype(int)
    blocks = few[sampled % len(few)].astype(np.float64).reshape(-1, a, c, d)
    wide = values.astype(np.float64)
    sums = [
        np.einsum("nacd,abcd->nabd", left, right, optimize=True).reshape(len(sampled), -1)
        for left, right in ((blocks, wide), (np.abs(blocks), np.abs(wide)))
    ]
    # sums in half precision are taken in single precision; their parts may be rounded in between
    terms = 8 if dtype == "float16" else c + 4
    bound = 2 * EPS[dtype] * (terms * sums[1] + (dtype == "float16"))
    return Problem(key, values, few, sampled, sums[0], bound)


def keys_of(
    patterns: Sequence[Pattern], batch: int, dtypes: Sequence[str], layouts: Sequence[str] = LAYOUTS
) -> list[Key]:
    """The cells of a table, in the order in which they are measured."""
    return [(p, batch, dtype, layout) for p in patterns for dtype in dtypes for layout in layouts]


def measure_cell(
    bench: Bench, cell: Cell, names: Sequence[str], energy: bool, rng: np.random.Generator
) -> None:
    """Check and time contenders; ours comes first, and slow ones run once only."""
    given = problem(cell.key, rng)
    makers = bench.prepare(given)
    for name in sorted(names, key=lambda name: name != OURS):
        try:
            call = makers[name]()
            first = bench.run(call)
            if name != ALONE:
                check(bench.vectors(first, given), given)
            del first
            taken = bench.once(call)
            fastest = min([taken, *cell.seconds.values()])
            if SLOWER * fastest < taken < MAX_REPEATED:
                taken = min(taken, bench.once(call))
            if taken > max(SLOWER * fastest, ALWAYS_REPEATED) and name != ALONE:
                cell.seconds[name] = taken
                cell.single.append(name)
            else:
                cell.seconds[name] = bench.repeated(call)
        except Exception as error:
            cell.failed[name] = f"{type(error).__name__}: {error}"[:160]
            bench.release()
            continue
        if energy and name != ALONE and name not in cell.single:
            try:
                seconds = cell.seconds[name]
                cell.joules[name] = bench.watts(call, seconds) * seconds
            except Exception as error:
                cell.failed[f"{name} energy"] = f"{type(error).__name__}: {error}"[:160]
        elif energy:
            cell.failed[f"{name} energy"] = "not measured: too slow"
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
    """Measure what cells lack, one after another, until the time is over; yield each when done."""
    begun = clock()
    for key in keys:
        cell = results.cell(key)
        missing = cell.lacks(names, energy)
        if not missing:
            continue
        if clock() - begun > seconds:
            return
        rng = np.random.default_rng([*key[0], key[1]])
        measure_cell(bench, cell, missing, energy, rng)
        results.add(cell)
        yield cell


def line(cell: Cell) -> str:
    """A cell in one line."""
    texts = [f"{name} {1e6 * value:.1f}" for name, value in cell.seconds.items()]
    texts += [f"{name}: {why}" for name, why in cell.failed.items()]
    what = f"{cell.pattern} {cell.dtype} {cell.layout} (b+c)/(bc) {ratio(cell.pattern):.4f}"
    return f"{what}: µs: {', '.join(texts)}"
