"""The combination technique: exact solves on nested full grids, signed and summed."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import KroneckerTerms, on_device
from batchkron.operators.kronecker_terms import sum_terms
from batchkron.solvers.preconditioners.bases import ModeBases
from batchkron.solvers.preconditioners.nearest import nearest_product, nearest_sum
from batchkron.solvers.preconditioners.shared_modes import SharedModes
from batchkron.solvers.preconditioners.subgrids import Subgrid, subgrids
from batchkron.solvers.preconditioners.tensor_inverse import (
    ProductInverse,
    joint_bases,
    joint_diagonal,
    tensor_inverse,
)

__all__ = ["CombinationPreconditioner", "Local"]

Local: TypeAlias = Literal["exact", "sum", "product"]
_LOCALS = ("exact", "sum", "product")
_MOST_ROWS = 4096


class CombinationPreconditioner:
    """M = Σ_l c_l P_l (P_l* B P_l)⁻¹ P_l* over the full grids l that a sparse grid consists of.

    B is I - scale · A, or A itself. P_l embeds the functions up to the levels l, so that P_l* B P_l
    is a sum of Kronecker products; on a tensor product there is one l, and M = B⁻¹ where the solve
    there is exact.

    Parameters
    ----------
    operator : Operator or KroneckerTerms
        A, of an operator that knows its Kronecker terms.
    scale : scalar, optional
        The number in I - scale · A; None is for A itself.
    local : {"exact", "sum", "product"}
        How the full grids are solved. "exact": by diagonalising the terms' matrices, see Notes;
        "sum": fast diagonalisation of the nearest Kronecker sum; "product": the inverse of the
        nearest Kronecker product.
    dtype : dtype, optional
        Of the vectors, float64 (complex128 for complex terms) by default.
    device : {"cpu", "cuda"}, optional
        Where the vectors are; by default the operator's.

    Attributes
    ----------
    shape : tuple of int, (N, N)
    dtype : numpy.dtype
    num_grids : int
        Full grids with c_l ≠ 0.

    Raises
    ------
    TypeError
        If the operator does not know its terms.
    ValueError
        If ``local`` is unknown, or a 1-D matrix has more than 4096 rows, too many to factorise.

    Notes
    -----
    "exact" diagonalises the 1-D matrices of each mode jointly. If they do not commute, or are far
    from normal, in one mode, that mode is solved by a dense inverse for each eigenvalue of the
    others; a Kronecker sum of several such modes is solved by Schur forms (on the CPU). With yet
    more such modes all but the worst are replaced by their diagonals.

    For A symmetric and negative semidefinite M is symmetric and, in all cases seen, positive
    definite, so that ``cg`` takes it as well.

    Storage: two dense matrices per mode and level, and one number and one index per unknown of the
    full grids, which have about d times the sparse grid's unknowns in two dimensions; with a solved
    mode n numbers per unknown, n its 1-D functions. One product costs two Kronecker products on
    each full grid.

    Source: M. Griebel, M. Schneider, C. Zenger, A combination technique for the solution of sparse
    grid problems (1992), here as a preconditioner; the solves on full grids are those of R. E.
    Lynch, J. R. Rice, D. H. Thomas, Numer. Math. 6 (1964).

    Examples
    --------
    >>> from batchkron.problems import gallery
    >>> from batchkron.solvers import gmres
    >>> from batchkron.solvers.preconditioners import CombinationPreconditioner
    >>> heat = gallery.make("diffusion-2d", level=4)
    >>> M = CombinationPreconditioner(heat.operator)
    >>> print(gmres(heat.operator, heat.initial, M=M, rtol=1e-6).iterations < 16)
    True
    """

    def __init__(
        self,
        operator: Any,
        scale: Any = None,
        *,
        local: Local = "exact",
        dtype: Any = None,
        device: str | None = None,
    ) -> None:
        if local not in _LOCALS:
            raise ValueError(f"local is {local!r}; expected one of {', '.join(_LOCALS)}")
        terms = operator if isinstance(operator, KroneckerTerms) else operator.kronecker_terms()
        _check_rows(terms)
        self.dtype = np.dtype(terms.dtype if dtype is None else dtype)
        self.device = str(device or getattr(operator, "device", "cpu"))
        self.shape = (terms.unknowns, terms.unknowns)
        self._local: Local = local
        self._bases = ModeBases(terms)
        self._grids = subgrids(terms)
        self._shared, self._together = self._share()
        self._alone = [grid for grid in self._grids if grid not in self._together]
        self._places = [
            None if grid.places is None else on_device(grid.places, self.device)
            for grid in self._alone
        ]
        self._solve_with(scale)

    @property
    def num_grids(self) -> int:
        """Full grids with a coefficient."""
        return len(self._grids)

    def shifted(self, scale: Any) -> CombinationPreconditioner:
        """Return the preconditioner of I - scale · A for another scale, from the same bases.

        Parameters
        ----------
        scale : scalar
            The number.

        Returns
        -------
        CombinationPreconditioner
        """
        other = CombinationPreconditioner.__new__(CombinationPreconditioner)
        other.__dict__.update(self.__dict__)
        other._solve_with(scale)
        return other

    def _share(self) -> tuple[SharedModes | None, list[Subgrid]]:
        """Return the inverse on the full grids whose modes can all be diagonalised, and these."""
        if self._local != "exact" or self._grids[0].places is None:
            return None, []
        found = [(grid, joint_bases(self._bases, grid.levels)) for grid in self._grids]
        kept = [(grid, joint) for grid, joint in found if joint is not None]
        if not kept:
            return None, []
        grids = [grid for grid, _ in kept]
        joints = [joint for _, joint in kept]
        return SharedModes(grids, joints, self.dtype, self.device), grids

    def _solve_with(self, scale: Any) -> None:
        shift, factor = (0.0, 1.0) if scale is None else (1.0, -scale)
        self._inverses = [self._inverse(grid, shift, factor) for grid in self._alone]
        if self._shared is not None:
            self._shared = self._shared.with_diagonals(
                [
                    joint_diagonal(self._bases, grid.levels, joint, shift, factor)
                    for grid, joint in zip(self._together, self._shared.bases, strict=True)
                ]
            )

    def _inverse(self, grid: Subgrid, shift: Any, factor: Any) -> Any:
        bases = self._bases
        if self._local != "exact":
            matrices = _stacked(bases.terms, grid.levels, shift, factor)
            if self._local == "product":
                return ProductInverse(nearest_product(matrices), self.dtype, self.device)
            bases = ModeBases(sum_terms(nearest_sum(matrices)))
            levels = (0,) * len(grid.levels)
            return tensor_inverse(bases, levels, 0.0, 1.0, self.dtype, self.device)
        return tensor_inverse(bases, grid.levels, shift, factor, self.dtype, self.device)

    def matvec(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return M x.

        Parameters
        ----------
        x : ndarray, (N,)
            On the preconditioner's device.
        out : ndarray, (N,), optional
            Where the result is written; it may not overlap x.

        Returns
        -------
        ndarray, (N,)
        """
        module = array_module(x)
        if out is None:
            out = module.empty(self.shape[0], self.dtype)
        if self._grids[0].places is None:
            out[...] = self._inverses[0].apply(x)
            return out
        padded = x
        if not all(grid.complete for grid in self._grids):
            padded = module.zeros(x.size + 1, x.dtype)
            padded[:-1] = x
        target = out if padded is x else module.empty(x.size + 1, out.dtype)
        target[...] = 0
        if self._shared is not None:
            self._shared.add(padded, target)
        for grid, places, inverse in zip(self._alone, self._places, self._inverses, strict=True):
            assert places is not None
            part = inverse.apply(padded.take(places))
            if grid.coefficient != 1:
                part = part * grid.coefficient
            target[places] += part  # on one full grid no place comes twice, but the one left out
        if target is not out:
            out[...] = target[:-1]
        return out


def _check_rows(terms: KroneckerTerms) -> None:
    """Refuse 1-D matrices that are too large to factorise."""
    for mode, level in enumerate(terms.levels.max(axis=0)):
        rows = terms.rows(mode, int(level))
        if rows > _MOST_ROWS:
            raise ValueError(
                f"mode {mode} has 1-D matrices of {rows} rows, more than {_MOST_ROWS}; take block "
                "Jacobi, which factorises nothing dense"
            )


def _stacked(
    terms: KroneckerTerms, levels: tuple[int, ...], shift: Any, scale: Any
) -> list[NDArray[Any]]:
    """Return the factors of shift · I + scale · A on one full grid, (terms, n_k, n_k) per mode."""
    stacks = []
    for mode, level in enumerate(levels):
        rows = terms.rows(mode, level)
        matrices = [np.eye(rows)] * bool(shift)
        matrices += [terms.factor(t, mode, level) for t in range(len(terms.terms))]
        stacks.append(np.stack(matrices))
    weights = [shift] * bool(shift) + [scale * term.coefficient for term in terms.terms]
    stacks[0] = stacks[0] * np.asarray(weights)[:, None, None]
    return stacks
