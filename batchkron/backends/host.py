"""What backends on the CPU share: NumPy's arrays, in memory that belongs to the calling thread."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.arrays import is_plain
from batchkron.backends.kron_sum import ListedSum, SumOfModes
from batchkron.backends.protocol import Backend, SumPlan
from batchkron.backends.protocol import StepTable as StepTables
from batchkron.backends.workspace import Workspace
from batchkron.spec.explicit import explicit_product
from batchkron.spec.kron import Array, ready


class DiagonalProduct:
    """y = alpha d x for entries d (systems…, N), element by element."""

    def __init__(self, entries: Array) -> None:
        self._entries = entries[..., None]
        self._workspace = Workspace()

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha d x, added to y or overwriting it."""
        if x.size == 0:
            return
        entries = self._entries
        shape = (-1, *entries.shape[:-1], inner)
        source, target = x.reshape(shape), y.reshape(shape)
        result = target
        if accumulate:
            result = self._workspace.array(x.size, entries.dtype).reshape(shape)
        np.multiply(source, entries, out=result)
        if alpha != 1:
            result *= alpha
        if accumulate:
            target += result


class StepTable:
    """Numbers of steps and what these find, as `batchkron.backends.protocol.StepTable`."""

    max_vectors = sys.maxsize

    def __init__(self, backend: HostBackend, steps: int, width: int, columns: int) -> None:
        self._backend, self._step = backend, 0
        self._rows, self._results = np.zeros((steps, width)), np.zeros((steps, columns))

    def begin(self, rows: Array | None = None) -> None:
        """Go back to the first row, and write rows from there on."""
        self._step = 0
        if rows is not None:
            self.write(0, rows)

    def write(self, first: int, rows: Array) -> None:
        """Copy numbers (k, n <= width) to rows from ``first`` on."""
        self._rows[first : first + len(rows), : rows.shape[1]] = rows

    def sum_pass(
        self,
        first: int,
        vectors: Sequence[Array],
        out: Array | None,
        result: int = -1,
        *,
        ends: bool = False,
    ) -> Callable[[], None]:
        """Return what writes a sum to ``out``, or if that is None to a vector of its own."""
        numbers, backend = slice(first, first + len(vectors)), self._backend
        target = np.empty_like(vectors[0]) if out is None else out

        def work() -> None:
            step = self._step
            backend.sum_vectors(self._rows[step, numbers].tolist(), vectors, target)
            if result >= 0:
                square = backend.inner_product(target, target)
                self._results[step, result] = square.real
            if ends:
                self._step = step + 1

        return work

    def program(self, work: Sequence[Callable[[], object]]) -> None:
        """Return None: passes are called one by one."""

    def read(self, count: int) -> Array:
        """Return the results (count, columns)."""
        return self._results[:count]


class HostBackend(Backend):
    """A backend on the CPU."""

    array_module = np
    workspace = Workspace

    def current_device(self) -> str:
        """Return the device of operators."""
        return "cpu"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array."""
        return np.empty(shape, dtype)

    def place(self, arrays: Sequence[Array], known: Sequence[Array] = ()) -> tuple[Array, ...]:
        """Return the arrays themselves."""
        return tuple(arrays)

    def sum_plan(self, factors: Sequence[Array]) -> SumPlan:
        """Return the product with a Kronecker sum, or with those of many systems."""
        if any(factor.ndim > 2 for factor in factors):
            return ListedSum(self.batch_plan, factors)
        return SumOfModes(self, factors)

    def diagonal_product(self, entries: Array) -> DiagonalProduct:
        """Return the product with diagonal matrices."""
        return DiagonalProduct(entries)

    def kron(self, factors: Sequence[ArrayLike], out: Array | None) -> Array:
        """Return the explicit Kronecker product, ``out`` if given."""
        matrices, shape, dtype = explicit_product(factors, out, np)
        target = np.empty(shape, dtype) if out is None or not is_plain(out) else out
        self.write_kron([ready(matrix, dtype) for matrix in matrices], target)
        if out is None or target is out:
            return target
        out[...] = target
        return out

    def step_table(self, steps: int, width: int, columns: int) -> StepTables:
        """Return a table of numbers (steps, width) for sums of vectors, and of their results."""
        return StepTable(self, steps, width, columns)

    @abstractmethod
    def write_kron(self, factors: Sequence[Array], out: Array) -> None:
        """Write the explicit product of matrices of one dtype to the C-contiguous ``out``."""

    @abstractmethod
    def inner_product(self, x: Array, y: Array) -> complex:
        """Return Σ conj(x_i) y_i of contiguous vectors (n,) of one dtype."""
