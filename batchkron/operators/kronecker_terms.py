"""Kronecker terms: an operator as a sum of Kronecker products of 1-D matrices.

Preconditioners are built from them alone, without the operator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute
from batchkron.operators.couplings import Ids, levels_of
from batchkron.operators.scaling import exponent_of, times_power_of_two, unit_exponent
from batchkron.spec.identities import is_identity
from batchkron.spec.kron import Array

_MAX_ORDINARY_EXPONENT = 256  # of sums of two factors that are not scaled: far from any overflow

__all__ = ["Blocks", "Factor", "KroneckerTerm", "KroneckerTerms", "leading_part"]


class Blocks(Protocol):
    """A 1-D operator given by blocks that couple cells, as in `batchkron.problems.ModeOperator`."""

    @property
    def rows(self) -> Ids:
        """1-D index of the output cell of each block, (count,)."""

    @property
    def columns(self) -> Ids:
        """1-D index of the input cell of each block, (count,)."""

    @property
    def blocks(self) -> Array:
        """The blocks, (count, n, n)."""


Factor: TypeAlias = Any
"""A 1-D matrix: an ndarray (n, n) or `Blocks`; None is the identity."""


@dataclass(frozen=True, eq=False)
class KroneckerTerm:
    """One term c · A_1 ⊗ … ⊗ A_d.

    Attributes
    ----------
    coefficient : scalar
        The scalar factor c.
    factors : tuple of (ndarray (n_k, n_k), Blocks or None)
        One per mode; None is the identity.
    """

    coefficient: Any
    factors: tuple[Factor, ...]

    @property
    def modes(self) -> tuple[int, ...]:
        """The modes whose factor is not the identity."""
        return tuple(k for k, factor in enumerate(self.factors) if factor is not None)


@dataclass(frozen=True, eq=False)
class KroneckerTerms:
    """The operator Σ_t c_t A_t1 ⊗ … ⊗ A_td, on a tensor product or on the cells of a sparse grid.

    `Operator.kronecker_terms` returns it. It is the only information about grids and operators
    that preconditioners have.

    Attributes
    ----------
    sizes : tuple of int
        Without ``cells`` the size n_k of each mode, otherwise the basis functions per 1-D cell.
    terms : tuple of KroneckerTerm
        The terms. Their factors are square matrices of those sizes or, with ``cells``, matrices
        of all 1-D cells and their functions, given by blocks.
    cells : ndarray of int64, (num_cells, d), or None
        The multi-indices of a grid's cells. A 1-D index is 0 for level 0 and 2^(l-1) + position for
        level l. None stands for a whole tensor product.
    transforms : tuple of (ndarray (4, n_k, n_k) or None), optional
        For each mode the two-scale filters H0, H1, G0, G1 of the hierarchical basis, [[H0, H1],
        [G0, G1]] orthogonal: with the functions φ and ψ of its two halves a cell's own functions
        are H0 φ + H1 ψ, and its wavelets G0 φ + G1 ψ. By them preconditioners return to the
        functions of the finest cells, of which only neighbours are coupled. None if unknown.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> terms = (bk.KroneckerSum([np.eye(2), np.ones((3, 3))]) * 2.0).kronecker_terms()
    >>> terms.sizes, [term.coefficient for term in terms.terms], terms.is_sum
    ((2, 3), [2.0, 2.0], True)
    """

    sizes: tuple[int, ...]
    terms: tuple[KroneckerTerm, ...]
    cells: NDArray[np.int64] | None = None
    transforms: tuple[Array | None, ...] | None = None

    @property
    def unknowns(self) -> int:
        """The length of a vector."""
        blocks = 1 if self.cells is None else len(self.cells)
        return blocks * math.prod(self.sizes)

    @property
    def is_sum(self) -> bool:
        """Whether every term acts on at most one mode: then the operator is a Kronecker sum."""
        return all(len(term.modes) <= 1 for term in self.terms)

    @cached_property
    def levels(self) -> NDArray[np.int64]:
        """The level of each cell in each mode, (num_cells, d); a row of zeros without cells."""
        if self.cells is None:
            return np.zeros((1, len(self.sizes)), np.int64)
        return levels_of(self.cells)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The common dtype of all coefficients and factors, at least float64."""
        kinds = [np.float64]
        for term in self.terms:
            kinds.append(np.asarray(term.coefficient).dtype.type)
            kinds.extend(_entries(f).dtype.type for f in term.factors if f is not None)
        return np.result_type(*kinds)

    def rows(self, mode: int, level: int = 0) -> int:
        """Return the number of rows of a mode's matrices that belong to levels up to ``level``."""
        return self.sizes[mode] << level if self.cells is not None else self.sizes[mode]

    def factor(self, term: int, mode: int, level: int = 0) -> Array:
        """Return the leading part of one factor, up to ``level``, as a dense matrix."""
        rows = self.rows(mode, level)
        given = self.terms[term].factors[mode]
        return np.eye(rows) if given is None else leading_part(given, rows)

    def sum_factors(self) -> list[Array]:
        """Return the A_k of a Kronecker sum A_1 ⊕ … ⊕ A_d on a whole tensor product.

        Multiples of the identity are added to A_1.

        Raises
        ------
        ValueError
            If a term acts on several modes, or the terms are on the cells of a grid.
        """
        if self.cells is not None or not self.is_sum:
            raise ValueError("the terms are no Kronecker sum on a whole tensor product")
        sums = [np.zeros((n, n), self.dtype) for n in self.sizes]
        for number, term in enumerate(self.terms):
            mode = term.modes[0] if term.modes else 0
            sums[mode] = sums[mode] + term.coefficient * self.factor(number, mode)
        return sums

    def identity(self) -> KroneckerTerms:
        """Return the identity on the same tensor product or grid."""
        return replace(self, terms=(KroneckerTerm(1.0, (None,) * len(self.sizes)),))

    def scaled(self, scalar: Any) -> KroneckerTerms:
        """Return the terms of scalar · A."""
        return replace(
            self, terms=tuple(replace(t, coefficient=scalar * t.coefficient) for t in self.terms)
        )

    def plus(self, other: KroneckerTerms) -> KroneckerTerms:
        """Return the terms of the sum of two operators.

        Raises
        ------
        TypeError
            If the two have different sizes or cells.
        """
        if self.cells is None or other.cells is None:
            same = self.cells is other.cells
        else:
            same = np.array_equal(self.cells, other.cells)
        if self.sizes != other.sizes or not same:
            raise TypeError(
                f"terms of sizes {self.sizes} and {other.sizes} are of different tensor products "
                "or grids, so their sum has no common Kronecker terms"
            )
        known = self.transforms or other.transforms
        return replace(self, terms=self.terms + other.terms, transforms=known)

    def balanced(self) -> KroneckerTerms:
        """Return the same operator; scales of factors that are far from 1 become coefficients'.

        Then no norm of a factor overflows or vanishes when it is squared. A term whose coefficient
        would be out of range stays as it is.
        """
        known: dict[int, tuple[Factor, int]] = {}  # a factor of several terms stays one object
        terms = []
        for term in self.terms:
            for factor in term.factors:
                if factor is not None and id(factor) not in known:
                    known[id(factor)] = _unit(factor)
            pairs = [known.get(id(factor), (None, 0)) for factor in term.factors]
            scale = sum(exponent for _, exponent in pairs)
            coefficient = times_power_of_two(term.coefficient, scale)
            if exponent_of(coefficient) == exponent_of(term.coefficient) + scale:
                term = KroneckerTerm(coefficient, tuple(factor for factor, _ in pairs))
            terms.append(term)
        return replace(self, terms=tuple(terms)) if any(e for _, e in known.values()) else self

    def collected(self) -> KroneckerTerms:
        """Return the same operator with terms added up that differ in one mode at most.

        So several Kronecker products may become one. Factors that are the identity become None.
        """
        if self.cells is not None:
            return self
        found: list[KroneckerTerm] = []
        for given in self.terms:
            term = replace(given, factors=tuple(map(_none_if_identity, given.factors)))
            while (
                alike := next((t for t in found if _difference(t, term) <= 1), None)
            ) is not None:
                found.remove(alike)
                term = _added(alike, term)
            found.append(term)
        return replace(self, terms=tuple(found))

    def shifted(self, scale: Any) -> KroneckerTerms:
        """Return the terms of I - scale · A."""
        return self.identity().plus(self.scaled(-scale))


def _entries(factor: Factor) -> Array:
    return factor if isinstance(factor, np.ndarray) else np.asarray(factor.blocks)


def _unit(factor: Factor) -> tuple[Factor, int]:
    """Return F and e of a factor 2^e F; the factor itself and 0 if it is of ordinary size."""
    exponent = unit_exponent(_entries(factor))
    if not exponent:
        return factor, 0
    entries = times_power_of_two(_entries(factor), -exponent)
    if isinstance(factor, np.ndarray):
        return entries, exponent
    blocks = SimpleNamespace(rows=factor.rows, columns=factor.columns, blocks=entries)
    return blocks, exponent


def _none_if_identity(factor: Factor) -> Factor:
    is_one = isinstance(factor, np.ndarray) and np.array_equal(factor, np.eye(len(factor)))
    return None if is_one else factor


def _are_equal(first: Factor, second: Factor) -> bool:
    if first is None or second is None:
        return first is second
    return bool(np.array_equal(first, second))


def _difference(first: KroneckerTerm, second: KroneckerTerm) -> int:
    """Return the number of modes in which the factors of two terms differ."""
    pairs = zip(first.factors, second.factors, strict=True)
    return sum(not _are_equal(a, b) for a, b in pairs)


def _added(first: KroneckerTerm, second: KroneckerTerm) -> KroneckerTerm:
    """Return the sum of two terms that differ in one mode at most."""
    pairs = list(zip(first.factors, second.factors, strict=True))
    modes = [mode for mode, (a, b) in enumerate(pairs) if not _are_equal(a, b)]
    if not modes:
        return replace(first, coefficient=first.coefficient + second.coefficient)
    size = next(len(factor) for factor in pairs[modes[0]] if factor is not None)
    one, other = (np.eye(size) if factor is None else factor for factor in pairs[modes[0]])
    factors = list(first.factors)
    scaled = (first.coefficient, one), (second.coefficient, other)
    exponents = [exponent_of(coefficient) + exponent_of(factor) for coefficient, factor in scaled]
    common = max(exponents)
    if abs(common) <= _MAX_ORDINARY_EXPONENT:
        common = 0
    factors[modes[0]] = sum(
        times_power_of_two(coefficient, -(own := exponent_of(coefficient)))
        * times_power_of_two(factor, own - common)
        for coefficient, factor in scaled
    )
    return KroneckerTerm(math.ldexp(1.0, common), tuple(factors))


def leading_part(factor: Array | Blocks, rows: int) -> Array:
    """Return the first rows and columns, ``rows`` of them, of a 1-D matrix, dense and new."""
    if isinstance(factor, np.ndarray):
        return np.array(factor[:rows, :rows])
    n = factor.blocks.shape[-1]
    cells = rows // n
    kept = (factor.rows < cells) & (factor.columns < cells)
    dense = np.zeros((cells, n, cells, n), factor.blocks.dtype)
    dense[factor.rows[kept], :, factor.columns[kept], :] = factor.blocks[kept]
    return dense.reshape(rows, rows)


def terms_of(operator: Any) -> KroneckerTerms:
    """Return the argument if it is `KroneckerTerms`, else the operator's ``recover_terms()``.

    They are balanced, see `KroneckerTerms.balanced`.

    Raises `TypeError` if it has neither that method nor ``kronecker_terms``, or no terms.
    """
    if isinstance(operator, KroneckerTerms):
        return operator.balanced()
    known = attribute(operator, "recover_terms", attribute(operator, "kronecker_terms"))
    if known is None:
        raise TypeError(
            f"the operator is a {type(operator).__name__}; expected one that knows its Kronecker "
            "terms, such as KroneckerSum or SparseGridOperator."
        )
    return known().balanced()  # type: ignore[no-any-return]


def product_terms(factors: Sequence[Array]) -> KroneckerTerms:
    """Return a Kronecker product of square matrices as one term."""
    sizes = tuple(len(factor) for factor in factors)
    known = tuple(None if is_identity(factor) else factor for factor in factors)
    return KroneckerTerms(sizes, (KroneckerTerm(1.0, known),))


def sum_terms(factors: Sequence[Array]) -> KroneckerTerms:
    """Return a Kronecker sum as terms, one per factor."""
    sizes = tuple(len(factor) for factor in factors)
    terms = []
    for mode, factor in enumerate(factors):
        modes: list[Factor] = [None] * len(factors)
        modes[mode] = factor
        terms.append(KroneckerTerm(1.0, tuple(modes)))
    return KroneckerTerms(sizes, tuple(terms))
