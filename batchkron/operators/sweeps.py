"""Sums of Kronecker products on a set of cells as sweeps along fibres, common prefixes once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from batchkron.backends import backend
from batchkron.operators.fibres import Edges, Part
from batchkron.operators.sweep_order import Cells, Word
from batchkron.operators.sweep_spec import Ids, SweepSpec
from batchkron.segmented_spec import segmented_spec
from batchkron.spec import Array

__all__ = ["Sweep", "SweepProgram"]

Letter: TypeAlias = tuple[int, int]  # mode, matrix


class _Share(NamedTuple):
    """What one matrix adds to the blocks of a sweep: ``blocks[target] += c_term A[source]``."""

    matrix: int  # -1 for the identity
    term: int  # -1 for no coefficient
    source: Ids
    target: Ids


class Sweep:
    """One mode's multiply along all fibres of a set of cells by a sum of 1-D operators.

    Parameters
    ----------
    spec : SweepSpec
        The operator.
    mode : int
        The mode along which it sweeps.
    edges : Edges
        Pairs of cells; their blocks are numbers of the sweep's own blocks.
    shares : sequence of _Share
        How these blocks are made.
    num_cells : int
        Size of the set of cells.
    """

    def __init__(
        self, spec: SweepSpec, mode: int, edges: Edges, shares: Sequence[_Share], num_cells: int
    ) -> None:
        self.mode = mode
        self.num_edges = len(edges.outputs)
        size = spec.sizes[mode]
        used, ids = np.unique(edges.blocks, return_inverse=True)
        self._count = len(used)
        self._size = size
        self._shares = [_renumbered(share, used) for share in shares]
        self.multiply_adds = self.num_edges * spec.block_size * size
        self._plan = backend().segmented_plan(
            segmented_spec(
                self._blocks(spec),
                np.searchsorted(edges.outputs, np.arange(num_cells + 1)),
                ids,
                edges.inputs,
                before=math.prod(spec.sizes[:mode]),
                behind=math.prod(spec.sizes[mode + 1 :]),
                num_inputs=num_cells,
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
        """Map x (cells, elements) to alpha A x, added to y or overwriting it."""
        self._plan.run(x, y, alpha, accumulate)


def _renumbered(share: _Share, used: Ids) -> _Share:
    """Keep the blocks that edges have, by their place among them."""
    place = np.searchsorted(used, share.target)
    kept = used[np.minimum(place, len(used) - 1)] == share.target
    return share._replace(source=share.source[kept], target=place[kept])


@dataclass
class _Node:
    """What is done with a vector: unsplit sweeps, and split modes with what follows them."""

    sweeps: list[Sweep] = field(default_factory=list)
    branches: list[tuple[Sweep | None, Sweep | None, _Node]] = field(default_factory=list)


class SweepProgram:
    """The sum of some of an operator's terms on a set of cells.

    Parameters
    ----------
    spec : SweepSpec
        The operator.
    words : sequence of Word
        The terms and the order of their sweeps.
    grid : Cells
        The set of cells, in which all sweeps stay.

    Notes
    -----
    With U the upper and L the lower part of the split mode in front, f(x) = g(U x) + L g(x), where
    g does the same with the modes behind, and the last one is not split. Terms that begin alike
    have one f: the recursion goes down a tree whose edges are split modes.
    """

    def __init__(self, spec: SweepSpec, words: Sequence[Word], grid: Cells) -> None:
        self._spec = spec
        self._grid = grid
        self._splits: dict[tuple[Letter, Part], Sweep | None] = {}
        self._patterns: dict[tuple[int, Part, tuple[int, ...]], tuple[Edges, list[Ids]]] = {}
        self._root = self._build([(word.split, word) for word in words])
        self._patterns.clear()
        self.num_cells = len(grid)
        self.depth = _depth(self._root)
        del self._spec, self._grid

    @property
    def num_sweeps(self) -> int:
        """How many sweeps one apply takes."""
        return sum(times for _, times in self._each(self._root, 1))

    @property
    def multiply_adds(self) -> int:
        """How many multiply-adds one apply takes."""
        return sum(times * sweep.multiply_adds for sweep, times in self._each(self._root, 1))

    @property
    def num_edges(self) -> int:
        """How many pairs of cells are stored."""
        return sum(sweep.num_edges for sweep in self._distinct())

    def set_values(self, spec: SweepSpec) -> None:
        """Take the matrices and coefficients of an operator of the same structure."""
        for sweep in self._distinct():
            sweep.set_values(spec)

    def run(
        self, x: Array, y: Array, alpha: complex, accumulate: bool, spare: Sequence[Array]
    ) -> None:
        """Map x (cells, elements) to alpha A x, added to y or overwriting it.

        ``spare`` are `depth` arrays like x; nothing is allocated.
        """
        _run(self._root, x, y, alpha, accumulate, spare)

    def _distinct(self) -> list[Sweep]:
        return list({id(sweep): sweep for sweep, _ in self._each(self._root, 1)}.values())

    def _each(self, node: _Node, times: int) -> Iterator[tuple[Sweep, int]]:
        for sweep in node.sweeps:
            yield sweep, times
        for upper, lower, child in node.branches:
            halves = [half for half in (upper, lower) if half is not None]
            for half in halves:
                yield half, times
            yield from self._each(child, times * len(halves))

    def _build(self, items: Sequence[tuple[tuple[Letter, ...], Word]]) -> _Node:
        """Build the tree of the words' rests; without sweeps that join nothing."""
        node = _Node()
        last: dict[int, list[Word]] = {}
        first: dict[Letter, list[tuple[tuple[Letter, ...], Word]]] = {}
        for rest, word in items:
            if rest:
                first.setdefault(rest[0], []).append((rest[1:], word))
            else:
                last.setdefault(word.full[0], []).append(word)
        for mode, ending in last.items():
            sweep = self._sweep(mode, "full", [(word.full[1], word.term) for word in ending])
            if sweep is not None:
                node.sweeps.append(sweep)
        for letter, following in first.items():
            upper, lower = self._split(letter, "upper"), self._split(letter, "lower")
            child = self._build(following)
            if (upper or lower) and (child.sweeps or child.branches):
                node.branches.append((upper, lower, child))
        return node

    def _split(self, letter: Letter, part: Part) -> Sweep | None:
        if (letter, part) not in self._splits:
            mode, matrix = letter
            self._splits[letter, part] = self._sweep(mode, part, [(matrix, -1)])
        return self._splits[letter, part]

    def _sweep(self, mode: int, part: Part, pairs: Sequence[tuple[int, int]]) -> Sweep | None:
        """Build the sweep by the sum of c_term A_matrix over pairs; None if it joins nothing."""
        matrices = tuple(matrix for matrix, _ in pairs)
        if (mode, part, matrices) not in self._patterns:
            self._patterns[mode, part, matrices] = self._pattern(mode, part, matrices)
        edges, targets = self._patterns[mode, part, matrices]
        if not len(edges.outputs):
            return None
        shares = [
            _Share(matrix, term, np.arange(len(target)), target)
            for (matrix, term), target in zip(pairs, targets, strict=True)
        ]
        return Sweep(self._spec, mode, edges, shares, len(self._grid))

    def _pattern(self, mode: int, part: Part, matrices: Sequence[int]) -> tuple[Edges, list[Ids]]:
        """Return the edges of a sum of matrices, and the place of each one's blocks in the sum."""
        pairs = []
        for matrix in matrices:
            if matrix < 0:
                diagonal = np.unique(self._grid.cells[:, mode])
                pairs.append(np.column_stack((diagonal, diagonal)))
            else:
                blocks = self._spec.matrices[matrix]
                pairs.append(np.column_stack((blocks.rows, blocks.columns)))
        union, places = np.unique(np.concatenate(pairs), axis=0, return_inverse=True)
        stops = np.cumsum([len(pair) for pair in pairs])
        edges = self._grid.fibres(mode).edges(union[:, 0], union[:, 1], part)
        return edges, np.split(places.reshape(-1), stops[:-1])


def _depth(node: _Node) -> int:
    """Return how many vectors the recursion keeps."""
    return max((1 + _depth(child) for _, _, child in node.branches), default=0)


def _run(
    node: _Node, x: Array, y: Array, alpha: complex, accumulate: bool, spare: Sequence[Array]
) -> None:
    """Add a node's result for x to y, or overwrite y with it."""
    for sweep in node.sweeps:
        sweep.run(x, y, alpha, accumulate)
        accumulate = True
    for upper, lower, child in node.branches:
        between = spare[0]
        if upper is not None:
            upper.run(x, between, 1, False)
            _run(child, between, y, alpha, accumulate, spare[1:])
            accumulate = True
        if lower is not None:
            _run(child, x, between, alpha, False, spare[1:])
            lower.run(between, y, 1, accumulate)
            accumulate = True
    if not accumulate:
        y[...] = 0
