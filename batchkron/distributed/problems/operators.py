"""The operators of one problem on ranks, which share the layout of its states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from batchkron.backends import backend_on, building_on
from batchkron.distributed.lists.batched_kron import DistributedBatch
from batchkron.distributed.operator import DistributedOperator, Ranks
from batchkron.distributed.sweeps.sparse_grid import DistributedSweeps
from batchkron.distributed.sweeps.sweeps_plan import cell_bounds, moved_bounds, work_of_cells
from batchkron.operators import BatchedKron, Operator, SparseGridOperator
from batchkron.operators.couplings import Ids
from batchkron.operators.sparse_grid.listing import list_sweeps
from batchkron.spec.kron import Array

__all__ = ["ProblemOperators", "on_device_of"]


class ProblemOperators:
    """Distributes the operators of one problem.

    ``device`` ({"cpu", "cuda"}).
    ``max_imbalance``: the work of the busiest rank in that of the mean, above which cells are dealt
      out anew when the grid changes.
    ``make_other``: ``make_other(operator, ranks)`` distributes an operator that is no batch list
      and on no sparse grid; None if it cannot be.
    ``before``: those of the grid that the problem was on before. By default, or beyond the
      imbalance, cells are dealt out so that all ranks have nearly the same work.
    ``imbalance``: the work of the busiest rank in that of the mean, of operators on a sparse grid.
    ``is_rebalanced``: whether cells have changed their owners.
    """

    def __init__(
        self,
        ranks: Ranks,
        device: str,
        max_imbalance: float,
        make_other: Callable[[Operator, Ranks], DistributedOperator | None],
        before: tuple[Ids, tuple[int, ...]] | None = None,
    ) -> None:
        self._ranks, self._device, self._before = ranks, device, before
        self._make_other = make_other
        self.max_imbalance = max_imbalance
        self.owned: tuple[Ids, tuple[int, ...]] | None = None
        self.imbalance, self.is_rebalanced = 1.0, False

    def on_another_grid(self) -> ProblemOperators:
        """Return what distributes the operators of the problem on another grid."""
        return ProblemOperators(
            self._ranks, self._device, self.max_imbalance, self._make_other, self.owned
        )

    def __call__(self, operators: Sequence[Operator]) -> Sequence[DistributedOperator]:
        """Return operators on blocks; those of a later call share the layout of the first.

        Raises `TypeError` if an operator is a dense matrix.
        """
        with on_device_of(self._device):
            return self._distributed(operators)

    def _distributed(self, operators: Sequence[Operator]) -> Sequence[DistributedOperator]:
        sweeps = [op for op in operators if isinstance(op, SparseGridOperator)]
        batches = [op for op in operators if isinstance(op, BatchedKron)]
        if len(batches) == len(operators):
            return [DistributedBatch.of(op, self._ranks, 1) for op in batches]
        if len(sweeps) < len(operators):
            others = [self._make_other(op, self._ranks) for op in operators]
            made = [op for op in others if op is not None]
            if len(made) == len(operators) == 1:
                return made
            kind = type(operators[0]).__name__
            raise TypeError(
                f"the problem's operator is a {kind}, which cannot be distributed, or is a dense "
                "matrix; distribute a Problem's with_form('sweep') or with_form('batch')"
            )
        listed = [list_sweeps(op._spec) for op in sweeps]
        if self.owned is None:
            work = np.sum([work_of_cells(*each) for each in listed], axis=0)
            cells = listed[0][1][: len(work)]
            self.owned = cells, self._bounds(work, cells)
        bounds = self.owned[1]
        return [
            DistributedSweeps(op._spec, each, self._ranks, 1, bounds)
            for op, each in zip(sweeps, listed, strict=True)
        ]

    def _bounds(self, work: Array, cells: Ids) -> tuple[int, ...]:
        """Return where the ranks' cells begin and end."""
        parts = self._ranks.grid[1]
        if self._before is not None:
            kept = moved_bounds(*self._before, cells)
            self.imbalance = _imbalance(work, kept)
            if self.imbalance <= self.max_imbalance:
                return kept
            self.is_rebalanced = True
        even = cell_bounds(work, cells, parts)
        self.imbalance = _imbalance(work, even)
        return even


def _imbalance(work: Array, bounds: Sequence[int]) -> float:
    """Return the largest share of work in that of the mean."""
    done = np.concatenate(([0.0], np.cumsum(work)))
    shares = np.diff(done[list(bounds)])
    return float(shares.max() / shares.mean()) if done[-1] else 1.0


def on_device_of(device: str) -> AbstractContextManager[None]:
    """Build operators of a ``with`` block on a device; those on the CPU as `using` says."""
    return nullcontext() if device == "cpu" else building_on(backend_on(device))
