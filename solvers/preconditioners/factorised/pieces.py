"""What is solved on one full grid, and how."""

from __future__ import annotations

from dataclasses import dataclass

from batchkron.operators.couplings import Ids

from .elimination import Cost

__all__ = ["Piece"]


@dataclass(frozen=True, eq=False)
class Piece:
    """What is solved on one full grid.

    Attributes
    ----------
    levels : tuple of int
        Of the full grid.
    coefficient : int
        The factor of its solution.
    cells : ndarray of int64, (count, modes)
        Those of its cells that the sparse grid has.
    blocks : ndarray of int64, (count,)
        Where these are in the sparse grid's vector.
    way : {"nodal", "hierarchical", "dense"}
        Sparse factors in one of the bases, or the dense inverse in the hierarchical one.
    cost : Cost
        Estimated from the pattern.
    """

    levels: tuple[int, ...]
    coefficient: int
    cells: Ids
    blocks: Ids
    way: str
    cost: Cost
