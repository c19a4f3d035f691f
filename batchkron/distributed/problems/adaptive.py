"""A problem on ranks whose grid follows its solution."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from batchkron.distributed.communication.communicator import Communicator
from batchkron.spec.kron import Array

__all__ = ["DistributedAdaptive"]

Problem = TypeVar("Problem", bound="_OnGrid")


class _OnGrid(Protocol):
    """What is needed of a `DistributedProblem`."""

    @property
    def whole(self) -> Any: ...

    @property
    def communicator(self) -> Communicator: ...

    def gather(self, u: Any, root: None = None) -> Array: ...

    def on_another_grid(self: Problem, whole: Any) -> Problem: ...


@dataclass(frozen=True, eq=False)
class DistributedAdaptive(Generic[Problem]):
    """A problem on the present grid with a rule, for `evolve` with ``adapt``; it does not change.

    Every rank gathers the whole state and decides by it about the whole grid. So all ranks take the
    decisions of one process; where processors of different kinds round differently and they do
    not, all ranks raise RuntimeError. Then each rank keeps its cells, and takes new ones that lie
    between them, unless the work is too uneven: then cells are dealt out anew.

    ``grid``: what ``whole.adaptive(...)`` of the whole problem returned, or a method of that.
    ``before``: the problem on this grid, or on the one before it.
    """

    grid: Any
    before: Problem

    @cached_property
    def problem(self) -> Problem:
        """The problem on the present grid; its ``initial`` is this rank's block of the state."""
        whole = self.grid.problem
        return self.before if whole is self.before.whole else self.before.on_another_grid(whole)

    @property
    def missed(self) -> bool:
        """Whether cells added last would have exceeded the tolerance in the interval before."""
        return bool(self.grid.missed)

    @property
    def is_finer(self) -> bool:
        """Whether the last change may have made stable steps shorter."""
        return bool(self.grid.is_finer)

    @property
    def added(self) -> int:
        """Number of cells that the last change added."""
        return int(self.grid.added)

    @property
    def removed(self) -> int:
        """Number of cells that the last change removed."""
        return int(self.grid.removed)

    @property
    def limited(self) -> int:
        """Number of cells that the largest level keeps from being refined."""
        return int(self.grid.limited)

    @property
    def excess(self) -> float:
        """The largest indicator of these cells, relative to the tolerance."""
        return float(self.grid.excess)

    def started(self, horizon: float) -> Self:
        """Return the problem on the grid that its initial state needs."""
        return self._with(self.grid.started(horizon))

    def changed(self, u: Array, t: float, horizon: float, interval: float) -> Self:
        """Return the problem on the grid that a state needs, of which u is this rank's block."""
        return self._with(self.grid.changed(self.problem.gather(u), t, horizon, interval))

    def extended(self, u: Array, t: float, other: DistributedAdaptive[Problem]) -> Self:
        """Return the problem with the cells of another grid as well; u is this rank's block."""
        return self._with(self.grid.extended(self.problem.gather(u), t, other.grid))

    def saved(self) -> Any:
        """Return the whole grid for a checkpoint."""
        return self.grid.saved()

    def restored(self, grid: Any, u: Array, t: float) -> Self:
        """Return the problem on a grid that `saved` has returned, with the whole state u."""
        return self._with(self.grid.restored(grid, u, t))

    def _with(self, grid: Any) -> Self:
        self._refuse_disagreement(grid)
        return self if grid is self.grid else type(self)(grid, self.problem)

    def _refuse_disagreement(self, grid: Any) -> None:
        """Raise RuntimeError on all ranks if they have decided for different grids."""
        cells = np.ascontiguousarray(grid.problem.grid.cells, dtype=np.int64)
        decision = [cells.tobytes(), bool(grid.missed), bool(grid.is_finer), grid is self.grid]
        digest = hashlib.blake2b(repr(decision).encode(), digest_size=8).digest()
        found = self.before.communicator.allgather(np.frombuffer(digest, np.int64))
        if (found != found[0]).any():
            raise RuntimeError(
                "the ranks have decided for different grids, because their processors round "
                "differently; run on processors of one kind"
            )
