"""The combination preconditioner, whose full grids are dealt out to ranks."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Protocol

import numpy as np

from batchkron.attributes import attribute
from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.exchanges.rearrangement import ElementMove, ElementSum, Rearrangement
from batchkron.distributed.operator import Volume, distributed_parts
from batchkron.spec.kron import Array

__all__ = ["DistributedCombination", "SumOfGrids"]


class SumOfGrids(Protocol):
    """What is needed of a `batchkron.solvers.preconditioners.CombinationPreconditioner`."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the vectors."""
        ...

    @property
    def operator(self) -> Any:
        """The operator A."""
        ...

    @property
    def scale(self) -> Any:
        """The number in I - scale · A; None stands for A."""
        ...

    @property
    def order(self) -> Sequence[int]:
        """The sums that are applied one after another, each to the residual of those before it."""
        ...

    def dealt_out(self, parts: int) -> Sequence[Sequence[Any]]:
        """Return for each sum the grids of each rank.

        They have ``elements``, those of a vector that they read and add to, ascending; a number
        ``padding`` of elements after these, which are 0 in what is read, and which are not looked
        at in what is written; ``cost``; and ``inverses(scale)`` with a method ``add(x, target)``.
        """
        ...


class DistributedCombination:
    """The combination preconditioner M on blocks of vectors; `distribute` makes it.

    Each rank solves on some of the full grids. It gets the elements that these need, each once, and
    sends its part of the result to their owners, who add up the parts in the order of ranks.

    Parameters
    ----------
    whole : CombinationPreconditioner
        The whole preconditioner, on every rank.
    operator : Operator
        The operator A on blocks: a distributed operator, or a sum or multiple of such.

    Attributes
    ----------
    shape : tuple of int, (n, n)
        That of this rank's block.
    dtype : numpy.dtype
    communicator : Communicator
        The ranks that share a vector.
    work : list of list of float
        For each sum over full grids the estimated multiply-adds of each rank.
    """

    def __init__(self, whole: SumOfGrids, operator: Any) -> None:
        parts = distributed_parts(operator)
        first = parts[0]
        self.shape, self.dtype = first.shape, np.dtype(whole.dtype)
        self.device = first.device
        self.communicator: Communicator = first.communicator
        self._order, self._scale = list(whole.order), whole.scale
        self._operator = _in_kind(operator, self.dtype)
        self._arrays = first._arrays
        self._operator_plans = [part._traffic_plan for part in parts]
        ranks = first.ranks.grid[1]
        dealt = whole.dealt_out(ranks)
        self.work = [[float(own.cost) for own in each] for each in dealt]
        layout, rank = first.layout, self.communicator.rank
        has = [layout.columns(part) for part in range(ranks)]
        self._plans = [Rearrangement(has, [own.elements for own in each]) for each in dealt]
        self._there = [ElementMove(plan, rank, first._backend) for plan in self._plans]
        self._back = [ElementSum(plan, rank, first._backend) for plan in self._plans]
        self._grids = [each[rank] for each in dealt]
        self._workspace = first._backend.workspace()
        self.keeps_factors = bool(attribute(whole, "keeps_factors", False))
        self._inverses: list[Any] = []
        self._solve_with(whole.scale)

    def _solve_with(self, scale: Any) -> None:
        if self._inverses and self.keeps_factors:
            self._inverses = [own.shifted(scale) for own in self._inverses]
        else:
            self._inverses = [own.inverses(scale) for own in self._grids]
        self._scale = attribute(self._inverses[0], "factorised_at", scale)

    def shifted(self, scale: Any) -> DistributedCombination:
        """Return the preconditioner for another scale; see `CombinationPreconditioner.shifted`."""
        other = copy(self)
        other._solve_with(scale)
        return other

    def volume(self) -> Volume:
        """Return what is sent in a product with one vector, by plan.

        Returns
        -------
        Volume
            ``own_elements`` is what ``communicator.traffic`` counts.
        """
        rank, size = self.communicator.rank, self.dtype.itemsize
        plans = [self._plans[number] for number in self._order]
        products = len(plans) - 1  # with A, between the sums
        sent = [
            sum(each.sent(r) + each.received(r) for each in plans)
            + products * sum(part.sent(r) for part in self._operator_plans)
            for r in range(self.communicator.size)
        ]
        exchanges = 2 * len(plans)
        exchanges += products * sum(part.num_exchanges for part in self._operator_plans)
        total, own = sum(sent), sent[rank]
        return Volume(exchanges, total, total * size, own, own * size)

    def matvec(self, x: Array, out: Array | None = None) -> Array:
        """Return M x. All ranks call it at the same time.

        Parameters
        ----------
        x : ndarray, (n,)
            This rank's block.
        out : ndarray, (n,), optional
            Where the result is written; it must not overlap x.

        Returns
        -------
        ndarray, (n,)

        Raises
        ------
        TypeError
            If x is complex and the preconditioner is real.
        ValueError
            If x has another shape.
        """
        if x.dtype.kind == "c" and self.dtype.kind != "c":
            raise TypeError(f"x is complex, and the preconditioner has dtype {self.dtype}")
        if x.shape != self.shape[:1]:
            raise ValueError(f"x has shape {x.shape}; expected {self.shape[:1]}, a block")
        if out is None:
            out = self._arrays.empty(self.shape[0], self.dtype)
        given = x.astype(self.dtype, copy=False)
        right, target = given, out if out.dtype == self.dtype else out.astype(self.dtype)
        target[...] = 0
        for turn, number in enumerate(self._order):
            if turn:
                right = self._residual(given, target)
            self._add(number, right, target)
        if target is not out:
            out[...] = target
        return out

    def _add(self, number: int, x: Array, target: Array) -> None:
        """Add the product of a sum over full grids with blocks x to blocks ``target``."""
        own, move = self._grids[number], self._there[number]
        count, length = len(own.elements), len(own.elements) + own.padding
        scratch = max(move.scratch(1), self._back[number].scratch)
        memory = self._workspace.array(scratch + 2 * length, self.dtype)
        read, written = memory[scratch : scratch + length], memory[scratch + length :][:length]
        read[count:] = 0
        written[...] = 0
        move.make(
            self.communicator, x.reshape(1, -1, 1), memory[:scratch], read[:count].reshape(1, -1, 1)
        )
        self._inverses[number].add(read, written)
        self._back[number].make(self.communicator, written[:count], memory[:scratch], target)

    def _residual(self, b: Array, x: Array) -> Array:
        """Return b - B x on blocks."""
        r: Array = self._arrays.empty(self.shape[0], self.dtype)
        self._operator.matvec(x, r)
        if self._scale is None:
            r *= -1
        else:
            r *= self._scale
            r -= x
        r += b
        return r


def _in_kind(operator: Any, dtype: np.dtype[Any]) -> Any:
    """Return an operator whose products with vectors of a dtype have this dtype."""
    if np.result_type(operator.dtype, dtype) == dtype:
        return operator
    return operator.astype(dtype)
