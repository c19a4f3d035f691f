"""A problem's operators and right-hand side: the system u' = A(t, u) u + s(t)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends import backend_on
from batchkron.operators import Operator, SparseGridOperator, ValidationReport
from batchkron.operators.linear_system import SplitRightSide, TimeParts

from ..discretization.parts import OperatorTerm
from ..statement.time import constant
from ..statement.time_functions import TimeFunction
from .fields.gains import GainsOfState
from .fields.terms import FieldTerms
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

__all__ = ["SemidiscreteSystem", "TimeParts"]

_building = threading.Lock()  # of what threads that share a problem must have in common


class _StateProduct:
    """Overwrites a vector with A(u) u, of the terms that do not depend on time.

    It is what a device repeats by a graph, and so does not know the problem, which keeps that.
    """

    def __init__(
        self,
        groups: Sequence[TermGroup],
        terms: FieldTerms,
        t0: float,
    ) -> None:
        self._groups, self._terms, self._t0 = groups, terms, t0

    def __call__(self, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        t = self._t0  # on a device it is in no error text
        out[...] = 0.0
        for group in self._groups:
            group.accumulate(t, u, out)
        self._terms.accumulate(t, u, out)


class ImplicitFields:
    """The terms that a method treats implicitly, with the fields of a state that is given.

    Parameters
    ----------
    terms : FieldTerms
        The terms, those without fields included.
    sources : TimeCombination
        Their sources.
    gains : GainsOfState
        What is added to the sources, for the state.
    like : ndarray, shape (N,), float64
        A state.
    is_whole : bool
        Whether these are all of a problem's terms and sources.

    Attributes
    ----------
    is_whole : bool

    Notes
    -----
    On a device the fields of a state are a CUDA graph after a few states, unless something in
    them needs the host.
    """

    def __init__(
        self,
        terms: FieldTerms,
        sources: TimeCombination,
        gains: GainsOfState,
        like: NDArray[np.float64],
        *,
        is_whole: bool,
    ) -> None:
        self._terms, self._sources, self.is_whole = terms, sources, is_whole
        self._gains = gains
        if self._gains:
            self._gain = array_module(like).zeros_like(like)
        self._repeated: Callable[..., None] | None = None
        if terms.is_repeatable and array_module(like) is not np:
            self._repeated = backend_on("cuda").repetition.repeated(
                lambda u, _: terms.follow(0.0, u), (like.size, 0), like.dtype
            )

    @property
    def operator(self) -> SparseGridOperator:
        """The operator for the state that was last given."""
        return self._terms.operator

    def follow(self, t: float, u: NDArray[np.float64]) -> None:
        """Compute the fields of a state, and with them the operator.

        Raises
        ------
        NotPhysicalError
            If a field is not defined for the state.
        """
        if self._repeated is None or not self._terms.is_repeatable:
            self._terms.follow(t, u)
        else:  # on a device the time is in no error text
            self._repeated(u)
            self._terms.note_replay()
        if self._gains:
            self._gains.write(t, u, self._gain)

    def source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with the sources at a time, and the gains of the state."""
        self._sources.evaluate(t, out)
        if self._gains:
            out += self._gain


class SemidiscreteSystem(ProblemValue):
    """The part of a problem that time steppers use: A(t), its implicit part, A(t) u + s(t)."""

    @property
    def operator(self) -> Operator:
        """The operator A of shape (N, N) of a problem in which it does not depend on time.

        Raises
        ------
        ValueError
            If a term depends on time, or on the state by a field.
        """
        self._refuse_fields(self.terms)
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
            If no term depends on time, this is `operator` itself, not a copy.

        Raises
        ------
        ValueError
            If a term depends on the state by a field.
        """
        self._refuse_fields(self.terms)
        return operator_sum(self._groups, t)

    def implicit_operator_at(self, t: float) -> Operator:
        """Return the part of A(t) that IMEX methods treat implicitly.

        These are the terms without one-sided traces, such as diffusion and reactions; the other
        terms are transport with upwind fluxes.

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        Operator, shape (N, N)
            If this is all of A, the object that `operator_at` returns; if none of these terms
            depends on time, the same object at all times.

        Raises
        ------
        ValueError
            If one of these terms depends on the state by a field.
        """
        self._refuse_fields([term for term in self.terms if not term.one_sided])
        if not any(term.one_sided for term in self.terms):
            return self.operator_at(t)
        return operator_sum(self._implicit_groups, t)

    def implicit_part(self) -> ImplicitFields | None:
        """Return the part of A(t, u) u + s(t) that IMEX methods treat implicitly, if it has fields.

        Returns
        -------
        ImplicitFields or None
            A new object with an operator of its own, which follows the states that it is given.
            None if no term of that part has a field: then it is `implicit_operator_at`.
        """
        own = [term for term in self.terms if not term.one_sided]
        if not (self.gains or any(term.has_fields for term in own)):
            return None
        sources = self._implicit_sources
        return ImplicitFields(
            FieldTerms(self, own),
            sources,
            self._gains,
            self.initial,
            is_whole=len(own) == len(self.terms) and sources is self._sources,
        )

    def whole_part(self) -> ImplicitFields | None:
        """Return all of A(t, u) u + s(t) with an operator that follows given states.

        Returns
        -------
        ImplicitFields or None
            A new object; None for a problem without fields.
        """
        if not self.has_fields:
            return None
        return ImplicitFields(
            FieldTerms(self, self.terms), self._sources, self._gains, self.initial, is_whole=True
        )

    def time_parts(self, *, implicit: bool = False) -> TimeParts:
        """Return the operators and vectors of which A(t) and s(t) are made.

        Parameters
        ----------
        implicit : bool
            Those of the part that IMEX methods treat implicitly.

        Returns
        -------
        TimeParts
            If that part is everything, the same objects.

        Raises
        ------
        TypeError
            If a term has a field as coefficient, so that its operator depends on the state.
        """
        if self.has_fields:
            raise TypeError(
                "the problem has fields, so that its operators depend on the state, and cannot be "
                "spread over ranks yet; problem.frozen(u) is the linear problem with the fields of "
                "one state"
            )
        groups, sources = self._groups, self._sources
        if implicit:
            sources = self._implicit_sources
            if any(term.one_sided for term in self.terms):
                groups = self._implicit_groups
        return TimeParts(tuple((group.time, group.operator) for group in groups), sources.parts)

    @property
    def num_added_cells(self) -> int:
        """Number of cells outside the grid that sweeps need, see `batchkron.SparseGridOperator`.

        There is one operator for each function of time, and the number is the largest of theirs. It
        is 0 for other forms than sweeps.

        Raises
        ------
        ValueError
            If sweeps would need too many.
        """
        operators = [group.operator for group in self._groups]
        if self._field_terms is not None:
            operators.append(self._field_terms.operator)
        return max((getattr(operator, "num_added_cells", 0) for operator in operators), default=0)

    def validate(self, samples: int | None = None, seed: int = 0) -> ValidationReport:
        """Compare the operator's blocks with dense Kronecker products.

        As in `batchkron.BatchedKron.validate`, products with one vector and with several,
        `accumulate`, and the transpose are checked. Terms with fields are checked with the fields
        of the last state that they were computed for.

        Parameters
        ----------
        samples : int, optional
            Number of output blocks to check, for the operator of each function of time; by default
            all.
        seed : int
            Seed of the random vectors and of the choice of blocks.

        Returns
        -------
        ValidationReport
            The largest errors of all operators.

        Raises
        ------
        ValueError
            If ``samples`` is less than 1.
        """
        groups = self._groups
        if self._field_terms is not None:
            self._field_terms.take_replays()
            groups = (*groups, TermGroup(constant(), self._field_terms.operator))
        return validate_groups(groups, samples, seed)

    def rhs(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Overwrite `out` with A(t, u) u + s(t).

        Without fields it allocates nothing after a thread's first call. With fields, on a device,
        it is a CUDA graph after a few calls, but for what depends on time.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, shape (N,), float64
            State.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten; it must not overlap u.

        Raises
        ------
        TypeError, ValueError
            If a vector has another dtype, shape or layout, or the two overlap.
        NotPhysicalError
            If a field divides by something that is not positive.
        """
        self._check_pair(u, out)
        if self._repeated is not None and not self._sources.parts:
            self._repeated(u, out)
            self._accumulate_rest(t, u, out)
            return
        self._sources.evaluate(t, out)
        self._accumulate(t, u, out)

    def accumulate(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Add A(t, u) u to `out`: what `rhs` does after `source`.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, shape (N,), float64
            State.
        out : ndarray, shape (N,), float64, C-contiguous
            The product is added to it; it must not overlap u.

        Raises
        ------
        TypeError, ValueError
            If a vector has another dtype, shape or layout, or the two overlap.
        """
        self._check_pair(u, out)
        self._accumulate(t, u, out)

    def source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite `out` with s(t), the sum of sources and boundary data.

        Parameters
        ----------
        t : float
            Time.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten.

        Raises
        ------
        TypeError, ValueError
            If it has another dtype, shape or layout.
        """
        check_vector("out", out, self.initial, is_output=True)
        self._sources.evaluate(t, out)

    def implicit_source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite `out` with the sources that IMEX methods treat implicitly.

        That is s(t) without the sources that are marked as ``explicit``. These belong to terms with
        one-sided traces, as their boundary data or their parts of manufactured sources.

        Parameters
        ----------
        t : float
            Time.
        out : ndarray, shape (N,), float64, C-contiguous
            Overwritten.

        Raises
        ------
        TypeError, ValueError
            If it has another dtype, shape or layout.
        """
        check_vector("out", out, self.initial, is_output=True)
        self._implicit_sources.evaluate(t, out)

    def split_rhs(self) -> SplitRightSide:
        """Return A(t, u) u + s(t) in the parts by which explicit methods take their steps.

        Returns
        -------
        SplitRightSide
            On a device there is a product for each function of time, so that the same kernels
            serve all times.
        """
        sources = self._sources.parts
        if self.device == "cpu":
            if self.has_fields or self._gains or len(self._groups) > 1:
                return SplitRightSide(((None, self._write_product),), sources)
            (group,) = self._groups
            factor = None if group.time.is_constant else group.time
            return SplitRightSide(((factor, group.write),), sources, bind=group.operator.bound)
        products: list[tuple[TimeFunction | None, Any]] = []
        if self._field_terms is not None or self._groups[0].time.is_constant:
            products.append((None, self._write_constant_terms))
        products += [
            (group.time, group.write) for group in self._groups if not group.time.is_constant
        ]
        if self._gains:
            products.append((None, self._gains.write))
        terms = self._field_terms
        repeats = terms is None or terms.is_repeatable
        return SplitRightSide(tuple(products), sources, repeats, self._turn)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Have the operators of the terms with fields alone, and know that they have changed."""
        repeated: Any = self._repeated
        with nullcontext() if repeated is None else repeated.turn():
            yield
        if self._field_terms is not None:
            self._field_terms.note_replay()

    def _write_product(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with A(t, u) u."""
        self._write_constant_terms(t, u, out)
        for group in self._groups:
            if not group.time.is_constant:
                group.accumulate(t, u, out)
        if self._gains:
            self._gains.accumulate(t, u, out)

    def _write_constant_terms(
        self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """Overwrite ``out`` with the terms that do not depend on time, or if so by a field's."""
        constant = [group for group in self._groups if group.time.is_constant]
        if constant:
            constant[0].write(t, u, out)
        else:
            out[...] = 0.0
        if self._field_terms is not None:
            self._field_terms.accumulate(t, u, out)

    @property
    def is_linear(self) -> bool:
        """Whether `rhs` is A(t) u + s(t): without fields, and if no subclass overrides `rhs`."""
        return type(self).rhs is SemidiscreteSystem.rhs and not self.has_fields

    # The parts that the methods above use; each is assembled when it is first needed.

    @property
    def _form(self) -> OperatorForm:
        return choose_form(self.form, self.device, self.unknowns)

    @cached_property
    def _groups(self) -> tuple[TermGroup, ...]:
        """The operators of terms that do not depend on the state."""
        if not self.has_fields:
            return self._assembled(self.terms)
        own = [term for term in self.terms if term not in self._terms_with_fields]
        return self._assembled(own) if own else ()

    @cached_property
    def _terms_with_fields(self) -> tuple[OperatorTerm, ...]:
        """The terms of `_field_terms`: as sweeps also those that do not depend on time.

        Without those that a sweep would add to a field's 1-D operator, which are multiples of the
        identity or act along the same axis alone: for such a sum all values of the operator go
        through the host.
        """
        alone = {term.acts_along for term in self.terms if term.has_fields}
        alone = {axes for axes in alone if len(axes) == 1}
        apart = alone | {()} if alone else alone
        joins = self._form == "sweep"
        return tuple(
            term
            for term in self.terms
            if term.has_fields or (joins and term.time.is_constant and term.acts_along not in apart)
        )

    @cached_property
    def _field_terms(self) -> FieldTerms | None:
        return FieldTerms(self, self._terms_with_fields) if self.has_fields else None

    @cached_property
    def _gains(self) -> GainsOfState:
        return GainsOfState(self)

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

    @property
    def _repeated(self) -> Callable[..., None] | None:
        """A(u) u of the terms that do not depend on time, as a device repeats it; or None.

        There is one, also if several threads ask for it at the same time: its calls take turns.
        """
        if self.device == "cpu" or not self.has_fields:
            return None
        if "_repeated_product" not in self.__dict__:
            with _building:
                if "_repeated_product" not in self.__dict__:
                    self.__dict__["_repeated_product"] = self._repeatable_product()
        return self.__dict__["_repeated_product"]  # type: ignore[no-any-return]

    def _repeatable_product(self) -> Callable[..., None] | None:
        terms = self._field_terms
        if terms is None or not terms.is_repeatable:
            return None
        groups = [group for group in self._groups if group.time.is_constant]
        sizes = self.unknowns, self.unknowns
        return backend_on(self.device).repetition.repeated(
            _StateProduct(groups, terms, self.t0), sizes, self.initial.dtype
        )

    def _accumulate(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        if self._repeated is not None:
            product = array_module(u).empty_like(u)
            self._repeated(u, product)
            out += product
        self._accumulate_rest(t, u, out)

    def _accumulate_rest(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Add what `_repeated` does not have; without it, that is all."""
        is_repeated = self._repeated is not None
        for group in self._groups:
            if not (is_repeated and group.time.is_constant):
                group.accumulate(t, u, out)
        if self._field_terms is not None and not is_repeated:
            self._field_terms.accumulate(t, u, out)
        if self._gains:
            self._gains.accumulate(t, u, out)

    def _refuse_fields(self, terms: Sequence[OperatorTerm]) -> None:
        """Raise ValueError if one of these terms depends on the state."""
        if self.gains or any(term.has_fields for term in terms):
            raise ValueError(
                f"the operator of {self.name!r} depends on the state: a term has a field as "
                "coefficient, or f relaxes to a Maxwellian. Explicit methods (ssp-rk3, rk4, …) "
                "need no operator, IMEX methods (ark2, ark3) take that of each stage, and implicit "
                "ones (backward-euler, esdirk3, …) iterate; frozen(u) is the linear problem with "
                "the fields of the state u, for exponential methods and eigenvalues"
            )

    def _check_pair(self, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        check_vector("u", u, self.initial)
        check_vector("out", out, self.initial, is_output=True)
        if array_module(u).may_share_memory(u, out):
            raise ValueError("out overlaps u; pass another array")
