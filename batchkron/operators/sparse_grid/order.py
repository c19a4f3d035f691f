"""The order in which sweeps apply the modes of each term, and which mode is not split."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from batchkron.operators.couplings import Ids, Part
from batchkron.operators.sparse_grid.fibres import Fibres, Profiles, is_closed_by_level
from batchkron.operators.sparse_grid.spec import SweepSpec

__all__ = ["HALVES", "Cells", "SweepOrder", "sweep_orders"]

HALVES: tuple[Part, Part] = ("upper", "lower")  # the parts of a split 1-D operator


class SweepOrder(NamedTuple):
    """The order in which the modes of one term are swept, as pairs (mode, matrix).

    ``term``: index of the term.
    ``split`` (tuple of (mode, matrix)): the split modes, in the order of their upper sweeps; lower
      sweeps have the reverse order.
    ``full`` ((mode, matrix)): the mode that is not split; matrix is -1 if the term is the identity.
    ``missing``: whether sweeps along the split modes may need cells outside the grid.
    """

    term: int
    split: tuple[tuple[int, int], ...]
    full: tuple[int, int]
    missing: bool


class Cells:
    """A set of cells with its fibres, which are built on the first request.

    ``cells`` (ndarray of int64, (num_cells, modes)): multi-indices of the cells; rows are distinct.
    ``known`` (mapping of int to Profiles): for each mode the profiles of another set's fibres,
      whose couplings are reused.
    """

    def __init__(self, cells: Ids, known: Mapping[int, Profiles]) -> None:
        self.cells = cells
        self._known = known
        self._fibres: dict[int, Fibres] = {}

    def __len__(self) -> int:
        return len(self.cells)

    def fibres(self, mode: int) -> Fibres:
        """Return the fibres along a mode."""
        if mode not in self._fibres:
            self._fibres[mode] = Fibres(self.cells, mode, self._known.get(mode))
        return self._fibres[mode]

    @property
    def profiles(self) -> dict[int, Profiles]:
        """The profiles of the fibres that were built so far, for each mode."""
        return {mode: fibres.profiles for mode, fibres in self._fibres.items()}

    @cached_property
    def is_closed_by_level(self) -> bool:
        """Whether split sweeps of any operator need no cells outside the set."""
        return is_closed_by_level(self.cells)


def sweep_orders(spec: SweepSpec, grid: Cells) -> list[SweepOrder]:
    """Return the order of every term's sweeps.

    The mode that is not split is the one that would need most cells outside the grid if it were
    split; among equal ones, the one with most blocks.
    """
    lacking: dict[tuple[int, int], int] = {}

    def lack(pair: tuple[int, int]) -> int:
        if grid.is_closed_by_level:
            return 0
        if pair not in lacking:
            mode, number = pair
            matrix = spec.matrices[number]
            lacking[pair] = sum(
                grid.fibres(mode).num_missing(matrix.connections, half) for half in HALVES
            )
        return lacking[pair]

    found, plain = [], []
    for term, modes in enumerate(spec.terms):
        acting = [(mode, number) for mode, number in enumerate(modes) if number >= 0]
        if not acting:
            plain.append(term)
            continue
        if len(acting) == 1:  # a single mode is never split
            found.append(SweepOrder(term, (), acting[0], False))
            continue
        full = max(acting, key=lambda x: (lack(x), len(spec.matrices[x[1]].rows), x[0]))
        split = tuple(pair for pair in acting if pair != full)
        found.append(SweepOrder(term, split, full, any(lack(pair) > 0 for pair in split)))
    mode = next((order.full[0] for order in found if not order.split), 0)
    return found + [SweepOrder(term, (), (mode, -1), False) for term in plain]
