"""A sequence of sweeps along fibres, compiled."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from batchkron.backends import backend
from batchkron.operators.sweep_spec import Ids, SweepSpec
from batchkron.operators.sweep_tree import Pattern, Stage
from batchkron.segmented_spec import segmented_spec
from batchkron.spec import Array

__all__ = ["Sweep", "SweepProgram"]


class _Share(NamedTuple):
    """What one matrix adds to the blocks of a sweep: ``blocks[target] += c_term A[source]``."""

    matrix: int  # -1 for the identity
    term: int  # -1 for no coefficient
    source: Ids
    target: Ids


class Sweep:
    """One mode's multiply along fibres by a sum of 1-D operators, from some cells to others.

    Parameters
    ----------
    spec : SweepSpec
        The operator.
    pattern : Pattern
        Which cells it joins, and by what.
    inputs, outputs : ndarray of int64
        The cells of the vector that is read, and of the one that is written, ascending.
    """

    def __init__(self, spec: SweepSpec, pattern: Pattern, inputs: Ids, outputs: Ids) -> None:
        mode, edges = pattern.mode, pattern.edges
        used, ids = np.unique(edges.blocks, return_inverse=True)
        self._count, self._size = len(used), spec.sizes[mode]
        self._shares = [
            _share(matrix, term, place, used)
            for (matrix, term), place in zip(pattern.pairs, pattern.places, strict=True)
        ]
        self.num_edges = len(ids)
        self.multiply_adds = self.num_edges * spec.block_size * self._size
        self._plan = backend().segmented_plan(
            segmented_spec(
                self._blocks(spec),
                np.searchsorted(edges.outputs, np.append(outputs, outputs[-1] + 1)),
                ids,
                np.searchsorted(inputs, edges.inputs),
                before=math.prod(spec.sizes[:mode]),
                behind=math.prod(spec.sizes[mode + 1 :]),
                num_inputs=len(inputs),
            )
        )

    def _blocks(self, spec: SweepSpec) -> Array:
        """Return Σ c_t A_t, block by block."""
        result = np.zeros((self._count, self._size, self._size), spec.dtype)
        for share in self._shares:
            scale = 1 if share.term < 0 else spec.coefficients[share.term]
            if share.matrix < 0:
                result[share.target] += scale * np.eye(self._size, dtype=spec.dtype)
            else:
                result[share.target] += scale * spec.matrices[share.matrix].blocks[share.source]
        return result

    def set_values(self, spec: SweepSpec) -> None:
        """Take the matrices and coefficients of an operator of the same structure."""
        self._plan.set_values(self._blocks(spec))

    def run(self, x: Array, y: Array, alpha: complex, accumulate: bool) -> None:
        """Map x (inputs, elements) to alpha A x, added to y or overwriting it."""
        self._plan.run(x, y, alpha, accumulate)


def _share(matrix: int, term: int, places: Ids, used: Ids) -> _Share:
    """Keep those of a matrix's blocks that are used, by their place among these."""
    found = np.minimum(np.searchsorted(used, places), len(used) - 1)
    source = np.flatnonzero(used[found] == places)
    return _Share(matrix, term, source, found[source])


class _Vector(NamedTuple):
    """A vector between sweeps: its cells, and its place in the scratch memory, in cells."""

    kind: Literal["x", "y", "scratch"]
    cells: Ids
    start: int = 0

    @property
    def stop(self) -> int:
        return self.start + len(self.cells) * (self.kind == "scratch")


class _Step(NamedTuple):
    """One sweep: y = A x, or y += A x."""

    sweep: Sweep
    source: _Vector
    target: _Vector
    adds: bool
    scales: bool  # of all sweeps on a path from x to y exactly one does


class SweepProgram:
    """The sum of an operator's terms as a sequence of sweeps.

    Parameters
    ----------
    spec : SweepSpec
        The operator.
    stage : Stage
        Its sweeps.

    Attributes
    ----------
    scratch : int
        Blocks of memory that a run needs.
    """

    def __init__(self, spec: SweepSpec, stage: Stage) -> None:
        self._steps: list[_Step] = []
        self.scratch = 0
        self._block_size = spec.block_size
        every = np.arange(len(spec.cells))
        self._emit(spec, stage, _Vector("x", every), _Vector("y", every), 0, False)

    @property
    def num_sweeps(self) -> int:
        """How many sweeps a run takes."""
        return len(self._steps)

    @property
    def multiply_adds(self) -> int:
        """How many multiply-adds a run takes."""
        return sum(step.sweep.multiply_adds for step in self._steps)

    @property
    def num_edges(self) -> int:
        """How many pairs of cells the sweeps hold."""
        return sum(step.sweep.num_edges for step in self._steps)

    def set_values(self, spec: SweepSpec) -> None:
        """Take the matrices and coefficients of an operator of the same structure."""
        for step in self._steps:
            step.sweep.set_values(spec)

    def run(self, x: Array, y: Array, alpha: complex, accumulate: bool, memory: Array) -> None:
        """Map x (cells, elements) to alpha A x, added to y or overwriting it.

        ``memory`` has room for `scratch` blocks; nothing is allocated.
        """
        if not self._steps and not accumulate:
            y[...] = 0
        for sweep, source, target, adds, scales in self._steps:
            given = self._array(source, x, memory)
            made = self._array(target, y, memory)
            added = adds or (accumulate and target.kind == "y")
            sweep.run(given, made, alpha if scales else 1, added)

    def _array(self, vector: _Vector, outside: Array, memory: Array) -> Array:
        """Return where a vector is: x or y, or in the scratch memory."""
        if vector.kind != "scratch":
            return outside
        elements = memory[vector.start * self._block_size : vector.stop * self._block_size]
        return elements.reshape(len(vector.cells), self._block_size)

    def _emit(
        self, spec: SweepSpec, stage: Stage, x: _Vector, y: _Vector, free: int, adds: bool
    ) -> None:
        """Append a stage's steps from x to y; memory is free from `free` on."""
        for pattern in stage.sweeps:
            self._append(spec, pattern, x, y, adds, True)
            adds = True
        for part, pattern, rest in stage.branches:
            between = _Vector(
                "scratch", np.flatnonzero(rest.needed if part == "upper" else rest.made), free
            )
            self.scratch = max(self.scratch, between.stop)
            if part == "upper":
                self._append(spec, pattern, x, between, False, False)
                self._emit(spec, rest, between, y, between.stop, adds)
            else:
                self._emit(spec, rest, x, between, between.stop, False)
                self._append(spec, pattern, between, y, adds, False)
            adds = True

    def _append(
        self, spec: SweepSpec, pattern: Pattern, x: _Vector, y: _Vector, adds: bool, scales: bool
    ) -> None:
        self._steps.append(_Step(Sweep(spec, pattern, x.cells, y.cells), x, y, adds, scales))
