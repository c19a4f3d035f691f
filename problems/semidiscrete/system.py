"""A problem's operators and right-hand side: the system u' = A(t, u) u + s(t)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.attributes import attribute
from batchkron.operators import Operator, ValidationReport
from batchkron.operators.linear_system import SplitRightSide, TimeParts

from ..discretization.interpolation.transform import PointTransform
from ..discretization.parts import EdgeFunction, OperatorTerm, SeparableVector
from ..statement.functions import FunctionOfAxes, function_of_axes, is_function_of_axes
from ..statement.separable import (
    SeparableFunction,
    SeparableOnAxes,
    SeparableSum,
    separable_parts,
)
from ..statement.time import constant
from ..statement.time_functions import TimeFunction
from .checks import check_vector
from .fields.electric import ElectricOfState
from .fields.following import Following
from .fields.gains import GainsOfState
from .fields.implicit import ImplicitFields
from .fields.newton import Derivative, Linearisation
from .fields.pointwise import PointwiseOfState
from .fields.terms import FieldTerms
from .limiter import PositiveLimiter
from .operators import (
    TermGroup,
    group_terms,
    operator_sum,
    validate_groups,
)
from .sources import EdgeOnGrid, MovingSources, Sources, TimeCombination
from .value import ProblemValue

__all__ = ["System"]


class System:
    """A problem's operators and right-hand side: u' = A(t, u) u + s(t), and its implicit part.

    Each part is assembled when it is first needed. Threads that need one at the same time may
    assemble it twice; each of them is whole, and the last one is kept.

    Parameters
    ----------
    problem : ProblemValue
        The problem's parts.

    Attributes
    ----------
    problem : ProblemValue
    """

    def __init__(self, problem: ProblemValue) -> None:
        self.problem = problem

    def moved(self, problem: ProblemValue) -> System:
        """Return the system of the same problem on another grid or device.

        Operators that are assembled are converted: to another device those without fields, to
        another grid those that are sweeps. Others are assembled anew when they are needed.
        """
        moved, known = System(problem), vars(self)
        if problem._form != self.problem._form:
            return moved
        if problem.device != self.problem.device:
            if "_groups" in known:
                moved._groups = tuple(group.to(problem.device) for group in self._groups)
        elif problem._form == "sweep":
            if "_groups" in known:
                moved._groups = tuple(group.on_grid(problem.grid) for group in self._groups)
            if "_implicit_groups" in known:
                groups = self._implicit_groups
                moved._implicit_groups = tuple(group.on_grid(problem.grid) for group in groups)
            if (following := known.get("_following")) is not None:
                terms = following.terms.on_grid(problem.grid)
                moved._following = Following(terms, problem, moved._steady)
        return moved

    @property
    def operator(self) -> Operator:
        """The operator A of shape (N, N) of a problem in which it does not depend on time.

        Raises
        ------
        ValueError
            If a term depends on time, or on the state by a field.
        """
        self._refuse_pointwise()
        self._refuse_fields(self.problem.terms)
        if not self.problem.is_constant:
            raise ValueError(
                "the operator depends on time; use operator_at(t) for the operator at one time"
            )
        if self.problem.pointwise:
            return self._steady_operator
        return self._groups[0].operator

    @cached_property
    def _steady_operator(self) -> Operator:
        return self._groups[0].operator + self._pointwise.operator(self.problem.t0)

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
        self._refuse_pointwise()
        self._refuse_fields(self.problem.terms)
        if self.problem.pointwise:
            if self.problem.is_constant:
                return self.operator
            return operator_sum(self._groups, t) + self._pointwise.operator(t)
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
        self._refuse_fields([term for term in self.problem.terms if not term.one_sided])
        apart = self.problem.pointwise or self.problem.electric
        if not (apart or any(term.one_sided for term in self.problem.terms)):
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
        problem = self.problem
        own = [term for term in problem.terms if not term.one_sided]
        if not (problem.gains or any(term.has_fields for term in own)):
            return None
        explicit = [s.explicit for s in problem.sources]
        explicit += [s.explicit for s in problem.edge_functions]
        at_points = problem.pointwise or problem.electric
        is_whole = len(own) == len(problem.terms) and not (any(explicit) or at_points)
        return ImplicitFields(
            FieldTerms(problem, own),
            self._implicit_sources,
            self._gains,
            problem.initial,
            is_whole=is_whole,
        )

    def whole_part(self) -> ImplicitFields | Linearisation | None:
        """Return all of A(t, u) u + s(t) with an operator that follows given states.

        Returns
        -------
        ImplicitFields, Linearisation or None
            A new object, linearised where there are pointwise terms; None for a linear problem.
        """
        problem, fields = self.problem, None
        if problem.electric:
            self._refuse_pointwise()
        if problem.has_fields_of_axes:
            terms = FieldTerms(problem, problem.terms)
            given = terms, self._sources, self._gains, problem.initial
            fields = ImplicitFields(*given, is_whole=True)
        if not problem.is_nonlinear_at_points and not (fields and problem.pointwise):
            return fields
        return Linearisation(
            partial(operator_sum, self._groups),
            fields,
            self._pointwise,
            self._sources,
            problem.initial,
            problem.t0,
        )

    @property
    def jacobian(self) -> Callable[[float, NDArray[np.float64]], Derivative] | None:
        """The function of (t, u) that returns ∂f/∂u of a problem with pointwise terms.

        None if it is linear, or something in it follows the state as a whole, as fields and speeds
        do, for which Newton's method takes differences of f.
        """
        problem = self.problem
        follows = any(own.speed is not None or own.fields for own in problem.pointwise)
        if problem.has_fields or follows or not problem.is_nonlinear_at_points:
            return None
        return lambda t, u: Derivative(
            operator_sum(self._groups, t), self._pointwise.derivative(t, u)
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
            If a term has a field as coefficient, so that its operator depends on the state, or a
            source is a function of all axes and the time.
        """
        if self.problem.pointwise:
            raise TypeError(
                "the problem has pointwise terms, which cannot be spread over ranks yet; run it on "
                "one rank"
            )
        if self.problem.limiter is not None:
            raise TypeError(
                "the problem has a limiter, which cannot be spread over ranks yet; run it on one "
                "rank, or leave out limiter="
            )
        if self.problem.electric:
            raise TypeError(
                "the problem has an electric field of several positions, which cannot be spread "
                "over ranks yet; run it on one rank"
            )
        if self.problem.has_fields:
            raise TypeError(
                "the problem has fields, so that its operators depend on the state, and cannot be "
                "spread over ranks yet; problem.frozen(u) is the linear problem with the fields of "
                "one state"
            )
        edges = (edge.function for edge in self.problem.edge_functions)
        if any(function.in_time for function in (*self.problem.source_functions, *edges)):
            raise TypeError(
                "the problem has sources that are functions of all axes and the time, which cannot "
                "be spread over ranks yet; functions of the axes alone can, and so can Separable"
            )
        groups, sources = self._groups, self._sources
        if implicit:
            sources = self._implicit_sources
            if any(term.one_sided for term in self.problem.terms):
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
        return max((attribute(operator, "num_added_cells", 0) for operator in operators), default=0)

    def validate(self, samples: int | None = None, seed: int = 0) -> ValidationReport:
        """Compare the operator's blocks with dense Kronecker products.

        As in `batchkron.BatchedKron.validate`, products with one vector and with several,
        `accumulate`, and the transpose are checked. Terms with fields are checked with the fields
        of the last state that they were computed for. Functions of `pointwise`, electric fields of
        several positions, and the Maxwellian of `bgk` are no such products, and are not checked.

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

    def rhs(
        self, t: float, u: NDArray[np.float64], out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Overwrite `out` with A(t, u) u + s(t), and return it.

        Without fields it allocates nothing after a thread's first call. With fields, on a device,
        it is a CUDA graph after a few calls, but for what depends on time.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, shape (N,), float64
            State.
        out : ndarray, shape (N,), float64, C-contiguous, optional
            Overwritten; it must not overlap u. By default a new array, so that
            ``scipy.integrate.solve_ivp(problem.rhs, ...)`` takes the method as it is.

        Returns
        -------
        ndarray, shape (N,), float64
            ``out``, or the new array.

        Raises
        ------
        TypeError, ValueError
            If a vector has another dtype, shape or layout, or the two overlap.
        NotPhysicalError
            If a field divides by something that is not positive.
        """
        if out is None:
            u = array_module(u).ascontiguousarray(u)  # solve_ivp passes columns of matrices
            out = np.empty_like(u)
        self._check_pair(u, out)
        if self._repeated is not None and not self._sources.parts:
            self._repeated(u, out)
            self._accumulate_rest(t, u, out)
            self._sources.moving.accumulate(t, out)
            return out
        self._sources.evaluate(t, out)
        self._accumulate(t, u, out)
        return out

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
        check_vector("out", out, self.problem.initial, is_output=True)
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
        check_vector("out", out, self.problem.initial, is_output=True)
        self._implicit_sources.evaluate(t, out)

    def split_rhs(self) -> SplitRightSide:
        """Return A(t, u) u + s(t) in the parts by which explicit methods take their steps.

        Returns
        -------
        SplitRightSide
            On a device there is a product for each function of time, so that the same kernels
            serve all times.
        """
        sources, moving = self._sources.parts, self._sources.moving
        if self.problem.device == "cpu":
            known = self.problem.has_fields or self._gains or self._pointwise
            if known or moving or len(self._groups) > 1:
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
        if self._pointwise:
            products.append((None, self._pointwise.write))
        if self._electric:
            products.append((None, self._electric.write))
        if moving:
            products.append((None, moving.write))
        terms = self._field_terms
        repeats = not (moving or self._pointwise) and (terms is None or terms.is_repeatable)
        repeats = repeats and self._electric.is_repeatable
        turn = nullcontext if self._following is None else self._following.turn
        return SplitRightSide(tuple(products), sources, repeats, turn)

    def _write_product(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with A(t, u) u and the sources that `split_rhs` does not list."""
        self._write_constant_terms(t, u, out)
        self._sources.moving.accumulate(t, out)
        for group in self._groups:
            if not group.time.is_constant:
                group.accumulate(t, u, out)
        if self._gains:
            self._gains.accumulate(t, u, out)
        if self._pointwise:
            self._pointwise.accumulate(t, u, out)
        if self._electric:
            self._electric.accumulate(t, u, out)

    def _write_constant_terms(
        self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """Overwrite ``out`` with the terms that do not depend on time, or if so by a field's."""
        steady = self._steady()
        if steady:
            steady[0].write(t, u, out)
        else:
            out[...] = 0.0
        if self._field_terms is not None:
            self._field_terms.accumulate(t, u, out)

    @cached_property
    def transform(self) -> PointTransform:
        """The maps between states and values at points of the grid.

        Raises ValueError if the grid is not closed downward, or the degree has no points.
        """
        problem = self.problem
        return PointTransform(problem.axes, problem.grid, problem.degree, device=problem.device)

    def project(
        self,
        function: Callable[..., Any] | str | SeparableFunction,
        t: float | None = None,
    ) -> NDArray[np.float64]:
        """Return the coefficients of a function of all axes, nearly its L² projection.

        Parameters
        ----------
        function : callable, str, float, Separable or SeparableSum
            As ``initial`` of a `PDE`: a callable of one array for each axis, by the axes' names or
            in their order, the text of a formula, a number, or separable functions. It may depend
            on the time, "t".
        t : float, optional
            The time, by default `t0`.

        Returns
        -------
        ndarray, shape (N,), float64
            A state.

        Raises
        ------
        TypeError, ValueError
            If it takes other arguments, or its values are not finite real numbers.
        ValueError
            If the grid is not closed downward, or the degree is above 5.

        Notes
        -----
        The function is interpolated by functions of one degree more (at degree 5 by those of the
        same degree) at points of which each cell of the grid has some, and is called once with all
        of them. Points at edges of cells are moved into their cell by 1e-11 of the axis. What
        interpolates it is projected; along axes with a volume element, too, without the element as
        a weight.
        """
        problem = self.problem
        if is_function_of_axes(function):
            given = function_of_axes("f", function, problem.axes, in_time=True)  # type: ignore[arg-type]
        else:
            parts = SeparableSum(separable_parts("f", function, problem.axes))  # type: ignore[arg-type]
            known = SeparableOnAxes(lambda _: parts, problem.axes)
            given = FunctionOfAxes("f", known, problem.axes, None, in_time=True)
        return self.transform.project(given, problem.t0 if t is None else t)

    @cached_property
    def limit(self) -> PositiveLimiter | None:
        """The function of (t, u) that limits states in place; None without a limiter."""
        return None if self.problem.limiter is None else PositiveLimiter(self.problem)

    # The parts that the methods above use; each is assembled when it is first needed.

    @cached_property
    def _groups(self) -> tuple[TermGroup, ...]:
        """The operators of terms that do not depend on the state."""
        if not self.problem.has_fields_of_axes:
            return self._assembled(self.problem.terms)
        own = [term for term in self.problem.terms if term not in self._terms_with_fields]
        return self._assembled(own) if own else ()

    @cached_property
    def _terms_with_fields(self) -> tuple[OperatorTerm, ...]:
        """The terms of `_field_terms`: as sweeps also those that do not depend on time.

        Without those that a sweep would add to a field's 1-D operator, which are multiples of the
        identity or act along the same axis alone: for such a sum all values of the operator go
        through the host.
        """
        alone = {term.acts_along for term in self.problem.terms if term.has_fields}
        alone = {axes for axes in alone if len(axes) == 1}
        apart = alone | {()} if alone else alone
        joins = self.problem._form == "sweep"
        return tuple(
            term
            for term in self.problem.terms
            if term.has_fields or (joins and term.time.is_constant and term.acts_along not in apart)
        )

    @cached_property
    def _following(self) -> Following | None:
        problem = self.problem
        if not problem.has_fields_of_axes:
            return None
        terms = FieldTerms(problem, self._terms_with_fields)
        # threads that assemble it at the same time keep the first one, whose turns they share
        made = Following(terms, problem, self._steady)
        return self.__dict__.setdefault("_following", made)  # type: ignore[no-any-return]

    def _steady(self) -> list[TermGroup]:
        """Return the groups that do not depend on time: one, or none."""
        return [group for group in self._groups if group.time.is_constant]

    @property
    def _field_terms(self) -> FieldTerms | None:
        return None if self._following is None else self._following.terms

    @property
    def _repeated(self) -> Any:
        return None if self._following is None else self._following.repeated

    @cached_property
    def _gains(self) -> GainsOfState:
        return GainsOfState(self.problem)

    @cached_property
    def _pointwise(self) -> PointwiseOfState:
        return PointwiseOfState(self.problem)

    @cached_property
    def _electric(self) -> ElectricOfState:
        return ElectricOfState(self.problem)

    @cached_property
    def _implicit_groups(self) -> tuple[TermGroup, ...]:
        return self._assembled([term for term in self.problem.terms if not term.one_sided])

    def _assembled(self, terms: Sequence[OperatorTerm]) -> tuple[TermGroup, ...]:
        problem = self.problem
        groups = group_terms(terms, problem.grid, problem.degree, problem._form)
        return tuple(group.to(problem.device) for group in groups)

    @cached_property
    def _sources(self) -> Sources:
        return self._all_of(self.problem.sources, self.problem.edge_functions)

    @cached_property
    def _implicit_sources(self) -> Sources:
        problem = self.problem
        sources = [source for source in problem.sources if not source.explicit]
        edges = [edge for edge in problem.edge_functions if not edge.explicit]
        if len(sources) == len(problem.sources) and len(edges) == len(problem.edge_functions):
            return self._sources
        return self._all_of(sources, edges)

    def _all_of(
        self, separable: Sequence[SeparableVector], edges: Sequence[EdgeFunction]
    ) -> Sources:
        """Return the sum of separable sources, of those from boundary data, and of all functions.

        Functions that do not depend on time are vectors.
        """
        problem, t0 = self.problem, self.problem.t0
        steady = [
            (constant(1.0), self.transform.project(function, t0))
            for function in problem.source_functions
            if not function.in_time
        ]
        moving = [function for function in problem.source_functions if function.in_time]
        on_grid = [
            EdgeOnGrid(edge, problem.axes, problem.grid, problem.degree, problem.device)
            for edge in edges
        ]
        steady += [(own.edge.time, own(t0)) for own in on_grid if not own.edge.function.in_time]
        later = [own for own in on_grid if own.edge.function.in_time]
        place = problem.grid, problem.sizes, problem.device
        combined = TimeCombination(separable, *place, steady)
        return Sources(combined, MovingSources(moving, later, lambda: self.transform))

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
        if self._pointwise:
            self._pointwise.accumulate(t, u, out)
        if self._electric:
            self._electric.accumulate(t, u, out)

    def _refuse_pointwise(self) -> None:
        """Raise ValueError if a term is a function of the state at points that is not linear.

        Or if one has an electric field of several positions.
        """
        if self.problem.electric:
            raise ValueError(
                f"the operator of {self.problem.name!r} depends on the state: a term has an "
                "electric field of several positions. Explicit methods (ssp-rk3, rk4, …) need no "
                "operator, and IMEX methods (ark2, ark3) take that of the other terms"
            )
        if self.problem.is_nonlinear_at_points:
            raise ValueError(
                f"the operator of {self.problem.name!r} depends on the state: a term has a "
                "pointwise function. Explicit methods (ssp-rk3, rk4, …) need no operator, IMEX "
                "methods (ark2, ark3) take that of the other terms, implicit ones (bdf, esdirk3, "
                "…) and steady_state iterate; cg, gmres and exponential methods need an operator, "
                "which pointwise(..., linear=True) is where F is g f"
            )

    def _refuse_fields(self, terms: Sequence[OperatorTerm]) -> None:
        """Raise ValueError if one of these terms depends on the state."""
        if self.problem.gains or any(term.has_fields for term in terms):
            name = self.problem.name
            raise ValueError(
                f"the operator of {name!r} depends on the state: a term has a field as "
                "coefficient, or f relaxes to a Maxwellian. Explicit methods (ssp-rk3, rk4, …) "
                "need no operator, IMEX methods (ark2, ark3) take that of each stage, and implicit "
                "ones (backward-euler, esdirk3, …) iterate; frozen(u) is the linear problem with "
                "the fields of the state u, for exponential methods and eigenvalues"
            )

    def _check_pair(self, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        check_vector("u", u, self.problem.initial)
        check_vector("out", out, self.problem.initial, is_output=True)
        if array_module(u).may_share_memory(u, out):
            raise ValueError("out overlaps u; pass another array")
