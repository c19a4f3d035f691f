"""The combination technique as a preconditioner: a signed sum of solves on nested full grids."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Any, Literal, TypeAlias, cast
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.attributes import attribute
from batchkron.backends import backend_on
from batchkron.functions.vector_sum import linear_combination
from batchkron.operators import KroneckerTerms, Operator, on_device
from batchkron.operators.kronecker_terms import terms_of

from ..products import as_product, refuse_complex
from .base import Preconditioner, check_scale, dtype_with_scale
from .bases import ModeBases
from .dealt_grids import DealtGrids, deal_grids
from .factorised import Cost, FactorisedGrids, check_cost, least_cost
from .grid_inverses import GridInverses, Local
from .subgrids import Subgrid, coloured_levels, subgrids

__all__ = ["CombinationPreconditioner", "Composition", "Local"]

Composition: TypeAlias = Literal["additive", "multiplicative", "symmetric"]
_LOCALS = ("exact", "factorised", "sum", "product", "unmixed", "scaled")
_COMPOSITIONS = ("additive", "multiplicative", "symmetric")
_MAX_ROWS = 4096  # largest size of 1-D matrices, which are factorised as dense; chosen by hand


class CombinationPreconditioner(Preconditioner):
    """M = Σ_l c_l P_l (P_l* B P_l)⁻¹ P_l* over the full grids l of the combination technique.

    B is I - scale · A, or A itself. P_l embeds the functions up to the levels l, so that P_l* B P_l
    is a sum of Kronecker products on a full grid. On a tensor product there is only one l, and
    M = B⁻¹ if the solve there is exact.

    Parameters
    ----------
    operator : Operator or KroneckerTerms
        The operator A, which must know its Kronecker terms.
    scale : scalar, optional
        The number in I - scale · A; None stands for B = A.
    local : {"exact", "factorised", "sum", "product", "unmixed", "scaled"}
        The solver on full grids. "exact": diagonalisation of the terms' matrices, see Notes;
        "factorised": sparse LU factors, which are exact for all coefficients, on those unknowns
        that the grid has; "sum": fast diagonalisation of the nearest Kronecker sum; "product": the
        inverse of the nearest Kronecker product; "unmixed": fast diagonalisation of the sum of the
        terms that act on one mode each; "scaled": the same, scaled to the diagonal of B in the
        functions of the finest cells.
    composition : {"additive", "multiplicative", "symmetric"}
        "additive": M as above. For the others, the finest full grids are divided into two classes
        by the parity of their largest level; M_1 and M_2 are the sums above for the part of the
        sparse grid below each class. "multiplicative": M_2 is applied to the residual after M_1,
        I - M B = (I - M_2 B) (I - M_1 B). "symmetric": then M_1 again,
        I - M B = (I - M_1 B) (I - M_2 B) (I - M_1 B).
    dtype : dtype, optional
        Dtype of the vectors; float64 by default, complex128 for complex terms or a
        complex scale.
    device : {"cpu", "cuda"}, optional
        Device of the vectors; by default the operator's.
    bases : ModeBases, optional
        Of terms that the full grids' solves are to have in the place of A's.
    factorised_at : scalar, optional
        For "factorised": the scale c₀ of the factors, by default ``scale``. They serve for all
        scales between c₀ / 2 and 2 c₀; for others new ones are computed.
    max_numbers : int, optional
        For "factorised": the most numbers that factors may have, see Notes.

    Attributes
    ----------
    num_grids : int
        Number of full grids with c_l ≠ 0.
    operator : Operator or KroneckerTerms
        The operator A.
    order : list of int
        The sums of which M is composed, one after another: 0 and, with two classes, 1.
    cost : Cost
        For "factorised": ``numbers`` of factors and ``multiply_adds`` of computing them, estimated
        before; otherwise zeros.
    remarks : tuple of str
        What `describe` says besides.

    Raises
    ------
    TypeError
        If the operator does not know its Kronecker terms, or the scale is not a number that the
        dtype holds.
    ValueError
        If the scale is infinite or NaN, ``local`` or ``composition`` is unknown, the composition
        needs residuals and the operator has no products, a 1-D matrix has more than 4096 rows, too
        many to factorise, or the factors would have more than ``max_numbers`` numbers.

    Notes
    -----
    "exact" diagonalises the 1-D matrices of each mode jointly. If those of one mode do not commute,
    or are far from normal, that mode is solved by a dense inverse for each eigenvalue of the
    others. A Kronecker sum with several such modes is solved by Schur forms (on the CPU). Otherwise
    all such modes but the worst are replaced by their diagonals.

    "factorised" returns to the functions of the finest cells, of which B couples neighbours only,
    where the two-scale filters of the basis are known (`KroneckerTerms.transforms`). The numbers of
    the factors are estimated from the pattern before they are computed; there may be three times as
    many as the assembled operator has, and 8 million in any case. Dense inverses take the place of
    factors that would be as large, and of all on a device.

    M is computed from the present values of A. After an ``update`` of A, make a new one: the
    compositions other than "additive" also multiply by A, whose new values do not fit the old
    solves.

    If A is symmetric and negative semidefinite, M with "additive" or "symmetric" is symmetric and,
    in all cases seen, positive definite, so that it can be used with ``cg``.

    Storage: two dense matrices per mode and level, and one number and one index per unknown of the
    full grids, which have about d times the sparse grid's unknowns in two dimensions; with a mode
    solved by dense inverses, n numbers per unknown, where n is the mode's number of 1-D functions.
    On a device all full grids are solved together by 2 d launches and a scaling, unless they are
    large (see `SweptGrids`) or some have dense inverses; this takes 2 indices of 4 bytes for each
    pair of 1-D cells of each fibre, twice, and two vectors of the full grids. M becomes a CUDA
    graph after a few products, with two vectors of its own. With "factorised" it is one batch list,
    of the sum of all inverses.
    Cost: two products with these matrices for each full grid; elsewhere those along a grid's
    longest mode are shared with other grids. "multiplicative" costs one product with A more,
    "symmetric" half as much again and two products with A.

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

    remarks: tuple[str, ...]

    @staticmethod
    def fits(terms: KroneckerTerms) -> bool:
        """Return whether the 1-D matrices are small enough to be factorised."""
        return _longest(terms)[1] <= _MAX_ROWS

    def __init__(
        self,
        operator: Any,
        scale: Any = None,
        *,
        local: Local = "exact",
        composition: Composition = "additive",
        dtype: Any = None,
        device: str | None = None,
        bases: ModeBases | None = None,
        factorised_at: Any = None,
        max_numbers: int | None = None,
    ) -> None:
        _check("local", local, _LOCALS)
        _check("composition", composition, _COMPOSITIONS)
        terms = terms_of(operator)
        mode, rows = _longest(terms)
        if rows > _MAX_ROWS:
            raise ValueError(
                f"mode {mode} has 1-D matrices of {rows} rows, more than {_MAX_ROWS}; take block "
                "Jacobi, which factorises nothing dense"
            )
        self.dtype = dtype_with_scale(scale, terms.dtype, dtype)
        self.device = str(device or attribute(operator, "device", "cpu"))
        self.shape = (terms.unknowns, terms.unknowns)
        bases = ModeBases(terms) if bases is None else bases
        groups = _groups(terms, composition)
        self.num_grids = sum(len(group) for group in groups)
        self._whole = terms.cells is None
        self.operator = operator
        if len(groups) > 1:
            if isinstance(operator, KroneckerTerms):
                raise ValueError(
                    f"composition is {composition!r}, which needs products with A; expected an "
                    "operator instead of its terms"
                )
            if isinstance(operator, Operator):
                self.operator = operator.to(self.device)
        self._options = local, composition
        self.remarks = ()
        kind = self.dtype, self.device
        self._groups: list[GridInverses | FactorisedGrids] = []
        self.cost = Cost()
        if local == "factorised":
            at = scale if factorised_at is None else factorised_at
            check_scale(at, self.dtype)
            block = 1 if terms.cells is None else math.prod(terms.sizes)
            least = least_cost([grid for group in groups for grid in group], self.shape[0], block)
            check_cost(least, terms, self.device, max_numbers)
            factorised = [FactorisedGrids(bases, group, *kind, at) for group in groups]
            self.cost = sum((group.cost for group in factorised), Cost())
            check_cost(self.cost, terms, self.device, max_numbers)
            self._groups += factorised
        else:
            self._groups += [GridInverses(bases, group, local, *kind) for group in groups]
        self.order = [*range(len(groups))]
        if composition == "symmetric":
            self.order += self.order[-2::-1]
        self._workspace = backend_on(self.device).workspace()
        self._solve_with(scale)

    def shifted(self, scale: Any) -> CombinationPreconditioner:
        """Return the preconditioner for another scale; bases, and factors near it, are reused."""
        check_scale(scale, self.dtype)
        other = copy(self)
        other._solve_with(scale)
        return other

    def rescale(self, scale: Any) -> None:
        """Become the preconditioner for another scale, in place; the bases are reused."""
        check_scale(scale, self.dtype)
        if not self.capturable or self.scale is None:
            self._solve_with(scale)
            return
        for group in self._groups:
            group.rescale(scale)
        self.scale = scale
        self._factor[...] = attribute(self._groups[0], "factorised_at", scale)

    @property
    def capturable(self) -> bool:
        """Whether products on a device may be captured in CUDA graphs."""
        A = self.operator
        multiplies = len(self.order) > 1
        if multiplies and not (isinstance(A, Operator) and A.dtype == self.dtype and A.capturable):
            return False
        return self.device != "cpu" and all(group.capturable for group in self._groups)

    @property
    def numbers(self) -> int:
        """Numbers that "factorised" stores: of factors and inverses."""
        return sum(g.numbers for g in self._groups if isinstance(g, FactorisedGrids))

    @property
    def keeps_factors(self) -> bool:
        """Whether M for one scale is computed from factors for another one near it."""
        return self._options[0] == "factorised"

    def describe(self) -> str:
        """Return a text with the full grids, their solves, and the products with A."""
        local, composition = self._options
        grids = [grid for group in self._groups for grid in group.grids]
        unknowns = sum(self.shape[0] if g.places is None else len(g.places) for g in grids)
        lines = [
            super().describe(),
            f"  {composition} combination of {self.num_grids} full grids with {unknowns} unknowns "
            f"together, local solves {local!r}",
            f"  {len(self.order) - 1} products with A in one with M",
            *(group.describe() for group in self._groups if isinstance(group, FactorisedGrids)),
            *(f"  {remark}" for remark in self.remarks),
        ]
        return "\n".join(lines)

    def _solve_with(self, scale: Any) -> None:
        self.scale: Any = scale
        self._groups = [group.shifted(scale) for group in self._groups]
        # factors for another scale need residuals for that one, too: M is then of that scale
        self._factor: Any = attribute(self._groups[0], "factorised_at", scale)
        if self.device != "cpu" and scale is not None:  # read by graphs
            self._factor = on_device(np.array([self._factor], self.dtype), self.device)
        self._repeated: Callable[..., None] | None = None
        self._repeats: ref[CombinationPreconditioner] | None = None
        if self.device != "cpu":
            known = self._repeats = ref(self)  # repeated work must not keep the preconditioner
            self._repeated = backend_on(self.device).repetition.repeated(
                lambda x, out: cast(CombinationPreconditioner, known())._multiply(x, out),
                (self.shape[1], self.shape[0]),
                self.dtype,
            )

    def dealt_out(self, parts: int) -> list[list[DealtGrids]]:
        """Return the full grids of each sum, dealt out to ranks by their costs.

        `batchkron.distributed.distribute` asks for them.

        Parameters
        ----------
        parts : int
            The number of ranks.

        Returns
        -------
        list of list of DealtGrids
            For each sum of `order` the grids of each rank.

        Raises
        ------
        ValueError
            If there is only one full grid, the whole tensor product.
        """
        if self._whole:
            raise ValueError(
                "the operator is one on a whole tensor product, on which the preconditioner is one "
                "solve; only the full grids of a sparse grid can be dealt out to ranks"
            )
        return [deal_grids(group, parts, self.shape[0]) for group in self._groups]

    def matvec(self, x: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return M x; see `Preconditioner.matvec`. TypeError if x is complex and M is real."""
        x = array_module(x).asarray(x)
        refuse_complex("x", x.dtype, self.dtype)
        shapes: list[tuple[int, ...]] = [self.shape[1:], (*self.shape[1:], 1)]
        if x.shape not in shapes:
            raise ValueError(f"x has shape {x.shape}; expected {shapes[0]} or {shapes[1]}")
        if out is None:
            out = array_module(x).empty(x.shape, self.dtype)
        elif out.shape != x.shape:
            raise ValueError(f"out has shape {out.shape}; expected {x.shape}, as x")
        x = x.astype(self.dtype, copy=False)
        if x.ndim == 2 and x.shape[1] == 1:
            self.matvec(x[:, 0], out[:, 0])
        elif self._repeated is None or self._repeats is None or self._repeats() is not self:
            self._multiply(x, out)
        else:
            self._repeated(x, out)
        return out

    def _multiply(self, x: NDArray[Any], out: NDArray[Any]) -> None:
        """Overwrite ``out`` with M x."""
        module = array_module(x)
        if self._whole and not isinstance(self._groups[0], FactorisedGrids):
            out[...] = self._groups[0].solve(x)
            return
        extra = 0 if all(group.complete for group in self._groups) else 1
        padded, target = x, out
        if extra:
            padded = module.zeros(x.size + 1, x.dtype)
            padded[:-1] = x
            target = module.empty(x.size + 1, out.dtype)
        target[...] = 0
        for turn, number in enumerate(self.order):
            if turn:
                padded = self._workspace.array(target.size, target.dtype)
                self._residual(x, target[: x.size], padded)
                padded[x.size :] = 0
            self._groups[number].add(padded, target)
        if target is not out:
            out[...] = target[:-1]

    def _residual(self, b: NDArray[Any], x: NDArray[Any], out: NDArray[Any]) -> None:
        """Write b - B x into the first N elements of ``out``."""
        r = out[: x.size]
        as_product(self.operator, "operator", r)(x, r)
        if self.scale is None:
            linear_combination([-1.0, 1.0], [r, b], r)
        else:
            np.multiply(r, self._factor, out=r)
            linear_combination([1.0, -1.0, 1.0], [r, x, b], r)


def _groups(terms: KroneckerTerms, composition: Composition) -> list[list[Subgrid]]:
    """Return the full grids of M, or of M_1 and of M_2, those with the longest modes last."""
    if terms.cells is None or composition == "additive":
        return [subgrids(terms)]
    groups = [subgrids(terms, tops) for tops in coloured_levels(terms.levels)]
    return sorted(groups, key=lambda group: max(max(grid.levels) for grid in group))


def _check(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(known)}")


def _longest(terms: KroneckerTerms) -> tuple[int, int]:
    """Return the mode with the largest 1-D matrices, and their rows."""
    finest = terms.levels.max(axis=0)
    rows = [terms.rows(mode, int(level)) for mode, level in enumerate(finest)]
    return int(np.argmax(rows)), max(rows)
