"""A problem's operators and right-hand side: the system u' = A(t) u + s(t)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import Operator, ValidationReport

from ..discretization.parts import OperatorTerm
from .operators import (
    OperatorForm,
    TermGroup,
    choose_form,
    group_terms,
    operator_sum,
    validate_groups,
)
from .time_combination import TimeCombination
from .value import ProblemValue
from .vector_checks import check_vector

__all__ = ["SemidiscreteSystem"]


class SemidiscreteSystem(ProblemValue):
    """What time steppers use of a problem: A(t), its implicit part, and A(t) u + s(t)."""

    @property
    def operator(self) -> Operator:
        """The operator A of shape (N, N), where it does not depend on time.

        Raises
        ------
        ValueError
            If a term depends on time.
        """
        if not self.is_constant:
            raise ValueError(
                "the operator depends on time; use operator_at(t) for the operator at one time"
            )
        return self._groups[0].operator

    def operator_at(self, t: float) -> Operator:
        """Return the operator A(t).

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        Operator, shape (N, N)
            The very object `operator` if no term depends on time.
        """
        return operator_sum(self._groups, t)

    def implicit_operator_at(self, t: float) -> Operator:
        """Return what IMEX methods treat implicitly: the terms of A(t) without one-sided traces.

        Those are diffusion and reactions; what is left is transport with upwind fluxes.

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        Operator, shape (N, N)
            The very object that `operator_at` returns where that is all of A, and the same object
            at all times where no such term depends on time.
        """
        if not any(term.one_sided for term in self.terms):
            return self.operator_at(t)
        return operator_sum(self._implicit_groups, t)

    @property
    def num_added_cells(self) -> int:
        """Cells beside the grid that sweeps pass through, see `batchkron.SparseGridOperator`.

        Of several operators, one for each function of time, that of the one that has most; 0 for
        other forms.

        Raises
        ------
        ValueError
            If there are too many for sweeps.
        """
        counts = (getattr(group.operator, "num_added_cells", 0) for group in self._groups)
        return max(counts, default=0)

    def validate(self, samples: int | None = None, seed: int = 0) -> ValidationReport:
        """Compare the operator's blocks with dense Kronecker products.

        As `batchkron.BatchedKron.validate`: one vector and several, `accumulate`, the transpose.

        Parameters
        ----------
        samples : int, optional
            How many output blocks of every group of terms to check; all by default.
        seed : int
            Of the random vectors and of the choice of blocks.

        Returns
        -------
        ValidationReport
            The worst over all groups of terms.

        Raises
        ------
        ValueError
            If ``samples`` is less than 1.
        """
        return validate_groups(self._groups, samples, seed)

    def rhs(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Overwrite `out` with A(t) u + s(t); allocates nothing after a thread's first call.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, shape (N,), float64
            State.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten; it may not overlap u.

        Raises
        ------
        TypeError, ValueError
            For another dtype, shape or layout, or an overlap.
        """
        self._check_pair(u, out)
        self._sources.evaluate(t, out)
        self._accumulate(t, u, out)

    def accumulate(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Add A(t) u to `out`: what `rhs` does after `source`.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, shape (N,), float64
            State.
        out : ndarray, shape (N,), float64, C-contiguous
            Added to; it may not overlap u.

        Raises
        ------
        TypeError, ValueError
            For another dtype, shape or layout, or an overlap.
        """
        self._check_pair(u, out)
        self._accumulate(t, u, out)

    def source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite `out` with s(t), sources and boundary data together.

        Parameters
        ----------
        t : float
            Time.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten.

        Raises
        ------
        TypeError, ValueError
            For another dtype, shape or layout.
        """
        check_vector("out", out, self.initial, is_output=True)
        self._sources.evaluate(t, out)

    def implicit_source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite `out` with what IMEX methods add to the implicit operator's product.

        That is s(t) without the sources that are marked as ``explicit``, which are the boundary
        data, and the parts of manufactured sources, of terms with one-sided traces.

        Parameters
        ----------
        t : float
            Time.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten.

        Raises
        ------
        TypeError, ValueError
            For another dtype, shape or layout.
        """
        check_vector("out", out, self.initial, is_output=True)
        self._implicit_sources.evaluate(t, out)

    @property
    def is_linear(self) -> bool:
        """Whether `rhs` is A(t) u + s(t) by construction: not where a subclass writes its own."""
        return type(self).rhs is SemidiscreteSystem.rhs

    # What the methods above are made of, assembled when it is first needed.

    @property
    def _form(self) -> OperatorForm:
        return choose_form(self.form, self.device, self.unknowns)

    @cached_property
    def _groups(self) -> tuple[TermGroup, ...]:
        return self._assembled(self.terms)

    @cached_property
    def _implicit_groups(self) -> tuple[TermGroup, ...]:
        return self._assembled([term for term in self.terms if not term.one_sided])

    def _assembled(self, terms: Sequence[OperatorTerm]) -> tuple[TermGroup, ...]:
        groups = group_terms(terms, self.grid, self.degree, self._form)
        return tuple(group.to(self.device) for group in groups)

    @cached_property
    def _sources(self) -> TimeCombination:
        return TimeCombination(self.sources, self.grid, self.degree + 1, self.device)

    @cached_property
    def _implicit_sources(self) -> TimeCombination:
        kept = [source for source in self.sources if not source.explicit]
        if len(kept) == len(self.sources):
            return self._sources
        return TimeCombination(kept, self.grid, self.degree + 1, self.device)

    def _accumulate(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        for group in self._groups:
            group.accumulate(t, u, out)

    def _check_pair(self, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        check_vector("u", u, self.initial)
        check_vector("out", out, self.initial, is_output=True)
        if array_module(u).may_share_memory(u, out):
            raise ValueError("out overlaps u; pass another array")
