"""What is solved on one full grid, and how."""

from __future__ import annotations

from dataclasses import dataclass

from batchkron.operators.couplings import Ids

from .elimination import Cost

__all__ = ["Piece"]


@dataclass(frozen=True, eq=False)
class Piece:
    """What is solved on one full grid.

    ``levels``: of the full grid.
    ``coefficient``: the factor of its solution.
    ``cells`` (ndarray of int64, (count, modes)): those of its cells that the sparse grid has.
    ``blocks`` (ndarray of int64, (count,)): where these are in the sparse grid's vector.
    ``way`` ({"nodal", "hierarchical", "dense"}): sparse factors in one of the bases, or the dense
      inverse in the hierarchical one.
    ``cost``: estimated from the pattern.
    """

    levels: tuple[int, ...]
    coefficient: int
    cells: Ids
    blocks: Ids
    way: str
    cost: Cost
