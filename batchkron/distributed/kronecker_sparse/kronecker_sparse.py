"""A product of Kronecker-sparse matrices of which each rank has a block of every vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from batchkron.array_kinds import native, native_entries
from batchkron.arrays import array_module, to_host
from batchkron.distributed.exchanges.rearrangement import ElementMove
from batchkron.distributed.kronecker_sparse.sparse_plan import SparsePlan
from batchkron.distributed.operator import DistributedOperator, Ranks
from batchkron.distributed.vectors.layout import Layout
from batchkron.operators import KroneckerSparse, KroneckerSparseChain
from batchkron.operators.kronecker_sparse.laid_out import LaidOutOperator
from batchkron.spec.kron import Array, check_replacement, read_only_copies
from batchkron.spec.kron_sparse import Layout as ArrayLayout
from batchkron.spec.kron_sparse import is_half

__all__ = ["DistributedSparse", "SparseChain"]


class SparseChain:
    """K_1 ⋯ K_L, as much as all ranks know of it.

    ``values`` (sequence of ndarray, (a, b, c, d), of one dtype): those of K_1 to K_L; they are
      copied.
    ``options``: ``precision`` and ``tune`` of each factor.
    ``array_layout`` ({"batch-first", "batch-last"}): of the arrays of `apply`, `accumulate`,
      `scatter` and `gather`: (..., n) or (n, ...).
    ``single``: whether the operator is a matrix, and not a chain.

    Raises `TypeError` if the values have 16 bits.
    """

    def __init__(
        self,
        values: Sequence[Array],
        options: Sequence[dict[str, Any]],
        array_layout: ArrayLayout,
        *,
        single: bool,
    ) -> None:
        self.dtype = values[0].dtype
        if is_half(self.dtype):
            raise TypeError(
                f"values have dtype {self.dtype}, which ranks do not exchange; expected one of 32 "
                "bits or more, such as astype(np.float32)"
            )
        self.values = read_only_copies(values, self.dtype)
        self.options, self.array_layout, self.single = options, array_layout, single

    @classmethod
    def of(cls, whole: KroneckerSparse | KroneckerSparseChain) -> SparseChain:
        """Return what all ranks know of an operator."""
        single = isinstance(whole, KroneckerSparse)
        factors = (whole,) if isinstance(whole, KroneckerSparse) else whole.factors
        values = [each.values for each in factors]
        options = [{"precision": each.precision, "tune": each._tune} for each in factors]
        return cls(values, options, whole.layout, single=single)

    def like(self, values: Sequence[Array], step: int = 1) -> SparseChain:
        """Return a chain of other values, with ``step`` -1 in the reversed order of factors."""
        options = self.options[::step]
        return SparseChain(values, options, self.array_layout, single=self.single)


class DistributedSparse(LaidOutOperator, DistributedOperator):
    """The operator K_1 ⋯ K_L on blocks of vectors; `distribute` makes it.

    ``chain``: the whole operator, on every rank.
    ``plan``: of its patterns.
    ``rows``: the number of vectors.
    ``flipped``: whether `update` lists the factors from the right, as for a transpose.
    ``array_layout`` ({"batch-first", "batch-last"}): that of the whole operator, and of the arrays
      of `apply`, `accumulate`, `scatter` and `gather`: a block is (..., n) or (n, ...).
    """

    def __init__(
        self, chain: SparseChain, plan: SparsePlan, ranks: Ranks, rows: int, flipped: bool = False
    ) -> None:
        self._chain, self.plan, self._flipped = chain, plan, flipped
        self.array_layout = self._array_layout = chain.array_layout
        layout, output = (
            replace(each, grid=ranks.grid, rows=rows) for each in (plan.source, plan.target)
        )
        DistributedOperator.__init__(self, ranks, layout, output, chain.dtype, plan)
        self._pieces = [
            KroneckerSparseChain(
                [
                    KroneckerSparse(values, **wanted)
                    for values, wanted in zip(own, options, strict=True)
                ]
            )
            for own, options in zip(
                self._own(chain.values), self._by_segment(chain.options), strict=True
            )
        ]
        rank = self.communicator.rank
        self._moves = [
            ElementMove(move, rank, self._backend) if move.is_needed else None
            for move in plan.moves
        ]
        self._workspace = self._backend.workspace()

    def _by_segment(self, entries: Sequence[Any]) -> list[Sequence[Any]]:
        """Return entries of K_1 to K_L by segments, in the order in which these are applied."""
        ends = np.cumsum([0, *(len(each.patterns) for each in self.plan.segments)])
        count = len(entries)
        return [entries[count - end : count - begin] for begin, end in pairwise(ends.tolist())]

    def _own(self, values: Sequence[Array]) -> list[list[Array]]:
        """Return this rank's values of each segment's factors."""
        rank = self.communicator.rank
        pairs = zip(self.plan.segments, self._by_segment(values), strict=True)
        return [segment.local_values(those, rank) for segment, those in pairs]

    def update(self, values: Any) -> None:
        """Replace the values by others of the same shapes, in place, here and in .T, .H, ….

        Every rank does this, with the whole values.

        ``values`` (array_like, (a, b, c, d), or a sequence of such for a chain).

        Raises `ValueError`, `TypeError` as for `KroneckerSparse.update` and
        `KroneckerSparseChain.update`.
        """
        known = self._chain.values
        if self._chain.single:
            names, given = ["values"], [to_host(native(values, "values"), "values")]
        else:
            entries = native_entries(values, "values")
            names = [f"values[{k}]" for k in range(len(entries))]
            given = [to_host(each, name) for each, name in zip(entries, names, strict=True)]
        if len(given) != len(known):
            raise ValueError(f"values has {len(given)} entries; expected {len(known)}")
        for name, each, old in zip(names, given, known, strict=True):
            check_replacement(each, old.shape, self.dtype, name)
        # as matrices (a, d, b, c), which a relative may have to transpose
        blocks = [each.astype(self.dtype).transpose(0, 3, 1, 2) for each in given]
        self._update(blocks[:: -1 if self._flipped else 1], None)

    def _assign(self, matrices: Sequence[Array], weights: Array | None) -> None:
        values = [m.transpose(0, 2, 3, 1) for m in matrices[:: -1 if self._flipped else 1]]
        self._chain = self._chain.like(values)
        for piece, own in zip(self._pieces, self._own(self._chain.values), strict=True):
            piece.update(own)

    def _run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        scratch, buffers = self._buffers(outer * inner)
        rows, columns = self.shape
        source = x.reshape(outer, columns, inner)
        target = y.reshape(outer, rows, inner)
        last, turn = len(self._pieces) - 1, 0

        def room(size: int) -> Array:
            nonlocal turn
            turn = 1 - turn
            return buffers[turn][: outer * size * inner].reshape(outer, size, inner)

        for number, (piece, move) in enumerate(zip(self._pieces, self._moves, strict=False)):
            if move is not None:
                needed = room(piece.shape[1])
                move.make(self.communicator, source, scratch, needed)
                source = needed
            if number == last and self._moves[-1] is None:
                piece._run(source, target, outer, inner, alpha, accumulate)
                return
            result = room(piece.shape[0])
            piece._run(source, result, outer, inner, alpha if number == last else 1, False)
            source = result
        back = self._moves[-1]
        assert back is not None
        if not accumulate:
            back.make(self.communicator, source, scratch, target)
            return
        added = room(rows)
        back.make(self.communicator, source, scratch, added)
        target += added

    def _buffers(self, vectors: int) -> tuple[Array, list[Array]]:
        """Return memory for the exchanges, and two buffers for what is between them."""
        moves = [move.scratch(vectors) for move in self._moves if move is not None]
        sizes = [max(piece.shape) for piece in self._pieces]
        size = vectors * max(*sizes, self.shape[0])
        ends = np.cumsum([max(moves, default=0), size, size]).tolist()
        memory = self._workspace.array(ends[-1], self.dtype)
        scratch, *buffers = (memory[begin:end] for begin, end in pairwise([0, *ends]))
        return scratch, buffers

    def scatter(self, x: ArrayLike | None = None, root: int | None = None) -> Array:
        """Return this rank's block of x, (..., n) or (n, ...); see `DistributedOperator.scatter`.

        With "batch-last" x is (N,), (N, rows), or (N, ...) if the grid has one row.
        """
        if self.array_layout == "batch-first" or x is None:
            return self._turned(super().scatter(x, root), 1)
        given: Any = x
        if not hasattr(x, "ndim"):
            try:
                given = np.asarray(x)
            except Exception:  # no array: refused by all ranks, which hear of it
                return super().scatter(x, root)
        return self._turned(super().scatter(self._turned(given, -1), root), 1)

    def gather(  # type: ignore[override]
        self, y: ArrayLike, root: int | None = None, *, layout: Layout | None = None
    ) -> Array | None:
        """Return the whole of vectors, (..., M) or (M, ...); see `DistributedOperator.gather`."""
        given: Any = y if hasattr(y, "ndim") else np.asarray(y)
        whole: Array | None = super().gather(self._turned(given, -1), root, layout=layout)
        return None if whole is None else self._turned(whole, 1)

    def _turned(self, vectors: Array, step: int) -> Array:
        """Return vectors with their elements along the first axis (1) or the last one (-1).

        Nothing is done for "batch-first".
        """
        if self.array_layout == "batch-first" or vectors.ndim < 2:
            return vectors
        module: Any = array_module(vectors)
        first, last = (-1, 0) if step == 1 else (0, -1)
        turned: Array = module.ascontiguousarray(module.moveaxis(vectors, first, last))
        return turned

    def _build_transpose(self) -> DistributedSparse:
        chain = self._chain.like([v.swapaxes(1, 2) for v in self._chain.values[::-1]], -1)
        plan, rows = self.plan.transposed(), self.layout.rows
        return DistributedSparse(chain, plan, self.ranks, rows, not self._flipped)

    def _build_conjugate(self) -> DistributedSparse:
        return self._like([values.conj() for values in self._chain.values])

    def _build_as(self, dtype: np.dtype[Any]) -> DistributedSparse:
        return self._like([values.astype(dtype) for values in self._chain.values])

    def _like(self, values: Sequence[Array]) -> DistributedSparse:
        chain, rows = self._chain.like(values), self.layout.rows
        return DistributedSparse(chain, self.plan, self.ranks, rows, self._flipped)

    def describe(self) -> str:
        """Return a text with the grid, what is sent, and what ranks divide of each factor."""
        lines = [super().describe()]
        for segment in reversed(self.plan.segments):
            patterns = " ".join(str(tuple(each)) for each in reversed(segment.patterns))
            lines.append(f"  {patterns}: {segment.units} {segment.split} dealt out")
        return "\n".join(lines)
