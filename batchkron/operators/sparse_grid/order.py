"""The order in which sweeps apply the modes of each term, and which mode is not split."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from batchkron.operators.couplings import Ids, Part
from batchkron.operators.sparse_grid.fibre_profiles import Profiles
from batchkron.operators.sparse_grid.fibres import Fibres, is_closed_by_level
from batchkron.operators.sparse_grid.spec import SweepSpec

__all__ = ["HALVES", "Cells", "Word", "words"]

HALVES: tuple[Part, Part] = ("upper", "lower")  # the parts of a split 1-D operator


class Word(NamedTuple):
    """The order of one term's sweeps: a word whose letters are pairs (mode, matrix).

    Attributes
    ----------
    term : int
        Index of the term.
    split : tuple of (mode, matrix)
        The split modes, in the order of their upper sweeps; lower sweeps have the reverse order.
    full : (mode, matrix)
        The mode that is not split; matrix is -1 if the term is the identity.
    missing : bool
        Whether sweeps along the split modes may need cells outside the grid.
    """

    term: int
    split: tuple[tuple[int, int], ...]
    full: tuple[int, int]
    missing: bool


class Cells:
    """A set of cells with its fibres, which are built on the first request.

    Parameters
    ----------
    cells : ndarray of int64, (num_cells, modes)
        Multi-indices of the cells; rows are distinct.
    known : mapping of int to Profiles
        For each mode the profiles of another set's fibres, whose couplings are reused.
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


def words(spec: SweepSpec, grid: Cells) -> list[Word]:
    """Return the order of every term's sweeps.

    The mode that is not split is the one that would need most cells outside the grid if it were
    split; among equal ones, the one with most blocks.
    """
    lacking: dict[tuple[int, int], int] = {}

    def lack(letter: tuple[int, int]) -> int:
        if grid.is_closed_by_level:
            return 0
        if letter not in lacking:
            mode, number = letter
            matrix = spec.matrices[number]
            lacking[letter] = sum(
                grid.fibres(mode).num_missing(matrix.connections, half) for half in HALVES
            )
        return lacking[letter]

    found, plain = [], []
    for term, modes in enumerate(spec.terms):
        letters = [(mode, number) for mode, number in enumerate(modes) if number >= 0]
        if not letters:
            plain.append(term)
            continue
        if len(letters) == 1:  # a single mode is never split
            found.append(Word(term, (), letters[0], False))
            continue
        full = max(letters, key=lambda x: (lack(x), len(spec.matrices[x[1]].rows), x[0]))
        split = tuple(letter for letter in letters if letter != full)
        found.append(Word(term, split, full, any(lack(letter) > 0 for letter in split)))
    mode = next((word.full[0] for word in found if not word.split), 0)
    return found + [Word(term, (), (mode, -1), False) for term in plain]
