"""In what order sweeps apply a term's modes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from batchkron.operators.couplings import Ids, Part
from batchkron.operators.sparse_grid.fibre_profiles import Profiles
from batchkron.operators.sparse_grid.fibres import Fibres, is_closed_by_level
from batchkron.operators.sparse_grid.spec import SweepSpec

__all__ = ["HALVES", "Cells", "Word", "words"]

HALVES: tuple[Part, Part] = ("upper", "lower")


class Word(NamedTuple):
    """The order of one term's sweeps.

    Attributes
    ----------
    term : int
        Number of the term.
    split : tuple of (mode, matrix)
        The modes that are split, in the order of the upper sweeps.
    full : (mode, matrix)
        The mode that is not; of an identity, matrix -1.
    missing : bool
        Whether sweeps of the split modes may leave the grid.
    """

    term: int
    split: tuple[tuple[int, int], ...]
    full: tuple[int, int]
    missing: bool


class Cells:
    """A set of cells with its fibres, made when first asked for.

    Parameters
    ----------
    cells : ndarray of int64, (num_cells, modes)
        Distinct rows.
    known : mapping of int to Profiles
        By mode the profiles of another set's fibres; what was found for them is taken over.
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
        """By mode the profiles of the fibres that were made."""
        return {mode: fibres.profiles for mode, fibres in self._fibres.items()}

    @cached_property
    def is_closed_by_level(self) -> bool:
        """Whether split sweeps of any operator stay in the set."""
        return is_closed_by_level(self.cells)


def words(spec: SweepSpec, grid: Cells) -> list[Word]:
    """Return the order of every term's sweeps.

    A mode that may leave the grid if it is split is not; of several the one that lacks most cells;
    if none may, the one of most blocks.

    Parameters
    ----------
    spec : SweepSpec
    grid : Cells
        The operator's cells.

    Returns
    -------
    list of Word
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
        if len(letters) == 1:  # nothing to split
            found.append(Word(term, (), letters[0], False))
            continue
        full = max(letters, key=lambda x: (lack(x), len(spec.matrices[x[1]].rows), x[0]))
        split = tuple(letter for letter in letters if letter != full)
        found.append(Word(term, split, full, any(lack(letter) > 0 for letter in split)))
    mode = next((word.full[0] for word in found if not word.split), 0)
    return found + [Word(term, (), (mode, -1), False) for term in plain]
