"""Tables of numbers of steps, sums of vectors with them, and programs of the compiled core."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from batchkron.backends.cpu import native
from batchkron.backends.cpu.environment import check_environment
from batchkron.spec.kron import Array

__all__ = ["StepTable"]


class StepTable:
    """Numbers of steps and what these find, as `batchkron.backends.protocol.StepTable`.

    Sums of squares have the same bits for any number of threads.
    """

    max_vectors = sys.maxsize

    def __init__(self, steps: int, width: int, columns: int) -> None:
        check_environment()
        self._native = native.StepTable(steps, width, columns)

    def begin(self, rows: Array | None = None) -> None:
        """Go back to the first row, and write rows from there on."""
        self._native.begin()
        if rows is not None:
            self.write(0, rows)

    def write(self, first: int, rows: Array) -> None:
        """Copy numbers (k, n <= width) to rows from ``first`` on."""
        self._native.write(first, np.ascontiguousarray(rows))

    def sum_pass(
        self,
        first: int,
        vectors: Sequence[Array],
        out: Array | None,
        result: int = -1,
        *,
        ends: bool = False,
    ) -> native.Pass:
        """Return what writes a sum to ``out``, or finds its sum of squares alone."""
        return self._native.sum_pass(first, vectors, out, result, ends)

    def program(self, work: Sequence[Callable[[], object]]) -> Callable[[int], None] | None:
        """Return what does all passes of so many steps, if all of them are the core's."""
        passes = [each for each in work if isinstance(each, native.Pass)]
        if len(passes) < len(work):
            return None
        return native.StepProgram(self._native, passes).run

    def read(self, count: int) -> Array:
        """Return the results (count, columns)."""
        return self._native.read(count)
