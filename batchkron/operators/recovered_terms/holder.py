"""What operators of a batch list have in common: terms that were declared, or are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from batchkron.operators.couplings import Ids
from batchkron.operators.kronecker_terms import KroneckerTerms
from batchkron.operators.recovered_terms.grids import grid_cells
from batchkron.operators.recovered_terms.recovery import TermsNotFoundError, recovered_terms
from batchkron.spec.kron import BatchSpec

__all__ = ["KnownTerms", "TermsOfList"]


@dataclass(eq=False)
class KnownTerms:
    """What is known of a list's terms; the list with other plans and on other devices shares it."""

    terms: KroneckerTerms | None = None
    cells: Ids | None = None  # named by the user, or of terms that the values had before an update
    remark: str = ""  # a line of `describe`, such as what came of a search for terms
    fault: str = ""  # why it failed


class TermsOfList:
    """A batch list whose Kronecker terms are declared, or found from its numbers."""

    _spec: BatchSpec
    _known: KnownTerms

    def recover_terms(
        self, *, levels: int | Sequence[int] | None = None, cells: ArrayLike | None = None
    ) -> KroneckerTerms:
        """Find the Kronecker terms of the list from its numbers, check them, and keep them.

        Preconditioners ask for them, so that this needs a call only where the grid has to be named.
        `kronecker_terms` returns them from then on, here and on other devices, until `update`.

        Parameters
        ----------
        levels : int or sequence of int, one per mode, optional
            The blocks are the cells of the sparse grid of these levels, or of the full one, in
            lexicographic order of their 1-D cells, the first mode slowest.
        cells : array_like of int, (num_blocks, modes), optional
            The 1-D cells of each block, for other grids and other orders. A 1-D cell is numbered 0
            on level 0, and 2^(l-1) + position on level l. Without levels and cells, the grid of an
            earlier call is taken. If there was none, the sparse and the full grid of equal levels
            with as many cells as there are blocks are tried, and cells that follow from which
            products have multiples of the identity in a mode.

        Returns
        -------
        KroneckerTerms
            Terms whose sum is the list, which has been compared with it: equal pairs of cells, and
            blocks that are equal, or equal up to rounding where products of the list were added up.

        Raises
        ------
        TypeError
            If the list is not the sum of up to 256 Kronecker terms on that grid, or up to 32 on a
            guessed one; the text says why. Or if levels or cells are not integers.
        ValueError
            If levels or cells do not fit the list.

        Notes
        -----
        Products are grouped by the modes where they have multiples of the identity, and by the
        matrices that they have in common; see `batchkron.operators.recovered_terms`. The work is
        that of sorting the list some times, 2 to 10 µs a product, and the memory three to ten times
        that of the list.

        Examples
        --------
        >>> import numpy as np, batchkron as bk
        >>> A, one = np.array([[2.0, 1.0], [1.0, 3.0]]), np.eye(2)
        >>> ids = [[1, 0], [0, 1]]  # A ⊗ I + I ⊗ A, on one block
        >>> op = bk.BatchedKron(np.array([one, A]), ids, inputs=[0, 0], outputs=[0, 0])
        >>> op.recover_terms().is_sum
        True
        """
        known = self._known
        if levels is not None or cells is not None:
            known.cells = grid_cells(self._spec, levels, cells)
        elif known.terms is not None:
            return known.terms
        elif known.fault:
            raise TypeError(known.fault)
        try:
            known.terms = recovered_terms(self._spec, known.cells)
        except TermsNotFoundError as fault:
            known.terms = None
            known.remark = (
                f"no Kronecker terms were found ({fault}); the preconditioner 'auto' is "
                "block-jacobi instead"
            )
            known.fault = f"the batch list has no Kronecker terms that can be found: {fault}"
            raise TypeError(known.fault) from None
        known.fault = ""
        grid = known.terms.cells
        where = "one block" if grid is None else f"{len(grid)} cells of a grid"
        known.remark = f"{len(known.terms.terms)} Kronecker terms were found, on {where}"
        return known.terms

    def _forget_terms(self) -> None:
        """Forget terms of values that have been replaced, but not the grid's cells."""
        known = self._known
        if known.terms is not None and known.terms.cells is not None:
            known.cells = known.terms.cells
        known.terms, known.remark, known.fault = None, "", ""
