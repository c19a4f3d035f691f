"""In what order sweeps apply a term's modes, and on which cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from batchkron.operators.connections import Ids, Part
from batchkron.operators.fibres import Fibres, is_closed_by_level
from batchkron.operators.profiles import Profiles
from batchkron.operators.sweep_spec import BlockMatrix, SweepSpec

__all__ = ["Cells", "Word", "extended", "words"]

_HALVES: tuple[Part, Part] = ("upper", "lower")


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
        Whether sweeps of the split modes would leave the grid.
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

    A mode that would leave the grid if it were split is not; of several the one that lacks most
    cells; if none would, the one of most blocks.

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
                len(grid.fibres(mode).missing(matrix.connections, half)) for half in _HALVES
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


def extended(
    grid: Cells,
    words: Sequence[Word],
    matrices: Sequence[BlockMatrix],
    known: Mapping[int, Profiles],
) -> Cells:
    """Return the grid's cells followed by those that the sweeps of terms pass through beside.

    Uppers come first: from an input they lead to the cells in which some of its indices are
    replaced by coarser ones. Lowers come last: they lead to an output from such cells.

    Parameters
    ----------
    grid : Cells
        The operator's cells.
    words : sequence of Word
        Order of the terms' sweeps.
    matrices : sequence of BlockMatrix
        The 1-D operators.
    known : mapping of int to Profiles
        As of `Cells`, for the result.

    Returns
    -------
    Cells
        The grid itself if nothing is missing.
    """
    added = [
        passed
        for word in words
        for half in _HALVES
        for passed in _passed(grid, word, matrices, half)
    ]
    if not added:
        return grid
    return Cells(_union(grid.cells, np.concatenate(added)), known)


def _passed(grid: Cells, word: Word, matrices: Sequence[BlockMatrix], half: Part) -> Iterator[Ids]:
    """Yield the cells outside the grid that one kind of sweeps leads to."""
    current = grid
    for mode, number in word.split:
        matrix = matrices[number]
        cells = current.fibres(mode).missing(matrix.connections, half)
        if len(cells):
            yield cells
            current = Cells(_union(current.cells, cells), {})


def _union(cells: Ids, others: Ids) -> Ids:
    """Append the rows of `others` that are not among the cells, each once."""
    both = np.concatenate((cells, others))
    order = np.lexsort(both.T[::-1])  # stable: of equal rows the first comes first
    opens = np.ones(len(order), dtype=np.bool_)
    opens[1:] = (both[order[1:]] != both[order[:-1]]).any(axis=1)
    new = order[opens]
    return np.concatenate((cells, both[new[new >= len(cells)]]))
