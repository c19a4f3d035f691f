"""A PDE f_t = Σ terms(f) + sources on a box, and its discretization."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import names_meant
from batchkron.callers import users_level
from batchkron.names import StepperName

from .discretization.checks.cell_widths import check_cell_widths
from .discretization.checks.coefficients import check_coefficients
from .discretization.checks.contradictions import (
    check_periodic_coefficients,
    contradictions_of_exact,
    times_until,
)
from .discretization.checks.jumps import JumpWarning, jumps_inside_cells
from .discretization.checks.outflow import (
    OutflowWarning,
    values_given_at_outflow,
    values_given_at_outflow_of_functions,
)
from .discretization.checks.shocks import ShockWarning, densities_that_carry_themselves
from .discretization.checks.size_check import check_size
from .discretization.checks.well_posed import (
    only_diffusion,
    refuse_backward_diffusion,
    refuse_backward_diffusion_at_points,
    well_posed_until,
)
from .discretization.degrees import DegreeChoice, degrees_of_axes
from .discretization.fields.modes import FieldPart
from .discretization.fields.signs import SignedField, split_electric, split_fields
from .discretization.interpolation.transform import PointTransform
from .discretization.matrices.volume_element import VolumeElement
from .discretization.parts import (
    EdgeFunction,
    ElectricOperator,
    ExactSolution,
    OperatorTerm,
    SeparableVector,
    StepperSettings,
)
from .discretization.pointwise import pointwise_operators
from .discretization.space import DGSpace
from .discretization.terms.assemble_fields import SampledFields
from .discretization.terms.assemble_term import assemble_term, boundary_sources, edge_functions
from .discretization.terms.manufactured_sources import (
    exact_solution,
    project_separable,
    sources_from_exact,
)
from .discretization.terms.resolve_term import ResolvedTerm, resolve
from .discretization.terms.traces import Traces, chain_traces
from .grids.choice import GridChoice, choose_grid
from .grids.degrees import common_or_each, sizes_of_degrees
from .grids.sparse_grid import SparseGrid
from .semidiscrete.checks import check_limiter
from .semidiscrete.default_stepper import default_stepper
from .semidiscrete.exact.function import ExactFunction
from .semidiscrete.fields.bounds import (
    bounded_terms,
    bounds_at_points,
    electric_bounds,
    field_range,
)
from .semidiscrete.levels import LevelParts
from .semidiscrete.problem import Problem
from .semidiscrete.sources import TimeCombination
from .statement.arguments import (
    AnyTerm,
    axes_of,
    exact_of,
    initial_of,
    sources_of,
    terms_of,
    volumes_of,
)
from .statement.axis import Axis
from .statement.boundary import Boundary, BoundaryOfAxis, parse_boundary
from .statement.coefficients import Function
from .statement.electric import ElectricComponent
from .statement.field_axes import check_electric_of, check_fields_at_points, check_fields_of
from .statement.frozen import Frozen
from .statement.function_checks import arising_in
from .statement.functions import FunctionOfAxes
from .statement.separable import SeparableAt, SeparableFunction, SeparableOnAxes
from .statement.statement import Statement, check_statement
from .statement.terms import Term, term_text

__all__ = ["PDE"]

# Parts of each term, each with its fields by axis.
_Resolved: TypeAlias = Sequence[Sequence[tuple[ResolvedTerm, Mapping[Axis, SignedField]]]]

_FIELD_WITH_DATA = (
    "terms[{}], {}, has a field as coefficient and meets data at an end of an axis that are not "
    "zero; its source would depend on the state, which is not possible yet. Give zero data there, "
    "such as Inflow()"
)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class PDE(Statement):
    """The initial value problem f_t = Σ terms(f) + Σ sources on a box; it cannot be changed.

    Parameters
    ----------
    axes : sequence of Axis
        The coordinates; points, levels and modes are given in their order.
    terms : Term or (nested) sequence of them
        The right-hand side: `div`, `grad`, `penalty`, `mass`, `laplacian` and chains of them with
        ``@``, `pointwise`, `lenard_bernstein`, `bgk`; at least one term, unless there are sources
        (give sources=0.0 for f_t = 0).
    boundary : str, condition, pair (left, right), or mapping axis -> one of these
        "periodic", "dirichlet", "neumann", "inflow", "no-flux", Dirichlet(data), Neumann(data),
        Inflow(data), Robin(r, data).
    initial : float, Separable, SeparableSum, callable, str or "from exact", optional
        f at t0; by default the exact solution. It is required if that is not known: 0.0 begins at
        zero. A PDE has one unknown function, and the parts of a sum are added with +, not listed.
        A callable takes an array for each axis, by the axes' names or in their order, and is called
        once with all points of a grid; a text is a formula of the axes' names. Both are
        interpolated, see Notes.
    sources : Separable, SeparableSum, callable, str, sequence of them, or "from exact"
        The right-hand side's functions of space and time; callables and formulas may depend on the
        time, "t", too. "from exact" derives them from the exact solution, s = f_t - Σ terms(f).
        Problem files hold formulas, and no callables.
    exact : Separable, SeparableSum, callable or str, optional
        The known solution. A callable f(x_1, …, x_d, t) takes one array per axis and the time; a
        text is a formula. Errors against it are computed by quadrature, or for many axes by
        interpolation, unless it is a `SeparableAt`; the only "from exact" that it can give is the
        initial state; and problem files do not save it.
    name : str
        The problem's name.
    units : mapping of str to str
        The unit of each quantity, by the quantity's name ("x", "t", …).
    t0 : float
        Initial time.
    volume : mapping of Axis to callable or float, optional
        Volume elements dV of curvilinear coordinates: functions of the axis that are positive, or
        zero at its ends, such as r² for a radius r. Then ``div(r, g)`` is (1/dV) ∂(dV g f)/∂r,
        ``grad(r, g)`` is g ∂f/∂r, and norms and projections use the integral ∫ … dV. A
        coefficient may be infinite at an end of the axis if its product with dV has a limit there.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, an axis is unknown, "from exact" is given or the initial
        state left out without an exact solution, there are no terms, or a coefficient differs at
        the two ends of a periodic axis.

    Notes
    -----
    Functions of all axes are interpolated by functions of one degree more, and projected: their
    error is that of the L² projection but for some percent. That needs a grid that is closed
    downward, and a degree of at most 5. Products, and sums of them, are projected exactly.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.problems import Axis, Separable, div
    >>> x = Axis("x", 0, 1)
    >>> pde = PDE([x], div(x, -1.0), boundary="periodic", initial=Separable(x=np.cos))
    >>> pde.discretize(level=3, degree=2).unknowns
    24
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        terms: AnyTerm | Iterable[Any],
        *,
        boundary: Boundary | Mapping[Any, BoundaryOfAxis],
        initial: SeparableFunction | Callable[..., Any] | str | None = None,
        sources: SeparableFunction
        | Callable[..., Any]
        | str
        | Sequence[SeparableFunction | Callable[..., Any] | str] = (),
        exact: SeparableFunction | SeparableAt | Callable[..., Any] | str | None = None,
        name: str = "pde",
        units: Mapping[str, str] | None = None,
        t0: float = 0.0,
        volume: Mapping[Axis, Function] | Mapping[str, Function] | None = None,
    ) -> None:
        box = axes_of(axes)
        known, function = exact_of(exact, box)
        own, gains, at_points, electric = terms_of(terms, box, sources)
        separable, functions = sources_of(sources, box, known)
        values: dict[str, Any] = {
            "axes": box,
            "terms": own,
            "gains": gains,
            "pointwise": at_points,
            "electric": electric,
            "boundary": Frozen(parse_boundary(boundary, box)),
            "initial": initial_of(initial, box, known, function),
            "sources": separable,
            "source_functions": functions,
            "exact": known,
            "exact_function": function,
            "name": name,
            "units": Frozen(units or {}),
            "t0": t0,
            "volume": Frozen(volumes_of(volume or {}, box)),
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        check_statement(self)
        check_fields_of(self)
        check_electric_of(self)
        check_fields_at_points(self)
        check_periodic_coefficients(self)
        if isinstance(function, SeparableOnAxes):
            function.parts(t0)  # raises for what would only be found at the end of a run

    @names_meant({"levels": "level", "order": "degree", "p": "degree", "stepper": "method"})
    def discretize(
        self,
        level: int | Sequence[int] | None = None,
        degree: DegreeChoice = 2,
        grid: GridChoice = "sparse",
        *,
        until: float | None = None,
        method: StepperName | None = None,
        dt: float | None = None,
        boundary_penalty: float = 1.0,
        limiter: Literal["positive"] | None = None,
        allow_ill_posed: bool = False,
    ) -> Problem:
        """Return the discretized problem.

        Parameters
        ----------
        level : int or sequence of int
            Finest level, one for all axes or one per axis; an axis has 2^level finest cells.
        degree : int, sequence of int, or mapping
            Polynomial degree, one for all axes, one for each in their order, or a mapping from all
            axes or their names, such as ``{x: 2, v: 3}``.
        grid : {"sparse", "full"}, Mixed or SparseGrid
            Which blocks the grid has; ``Mixed([x], [v1, v2])`` is the tensor product of the sparse
            grids of these groups of axes. A SparseGrid has its own levels, so leave out `level`.
        until : float, optional
            Final time of the default stepper settings; by default t0 + 1.
        method, dt : optional
            Default stepper and step; see `batchkron.problems.semidiscrete.default_stepper`.
        boundary_penalty : float
            τ ≥ 0 in the penalty -(τ/h) k (f - data) that ties f to the Dirichlet data of a second
            derivative ∂(k ∂f/∂x)/∂x, where h is the width of a finest cell; with τ = 0 its
            operator is singular.
        limiter : {"positive"}, optional
            Scale f in each finest cell about its mean, after each stage of "ssp-rk3" (then the
            default) or "forward-euler", until it is nowhere negative at the points. ∫ f stays the
            same. On a mixed grid the cells are those of its full axes, such as x of
            ``Mixed([x], [v, w])``, at each point of the others; f is the mean where that is
            negative. Refused are sparse grids, volume elements and degrees that differ.
        allow_ill_posed : bool
            Allow diffusion that is backward somewhere, as ``div(x, -1.0) @ grad(x)`` is: its short
            waves grow at rates without a bound. By default such a PDE is refused, here and for the
            times of a run.

        Returns
        -------
        Problem

        Raises
        ------
        TypeError, ValueError
            If levels, degree or grid do not fit, floating-point numbers do not resolve the cells, a
            term cannot take its boundary condition, a coefficient is not finite, or the diffusion
            is backward at some place and time until ``until``. Also if the exact solution jumps
            between the ends of a periodic axis, or differs from the data of Dirichlet or Inflow by
            more than a tenth of its largest value.
        MemoryError
            If the unknowns cannot fit in memory; the text says how many there would be.

        Warns
        -----
        JumpWarning
            If a coefficient or volume element jumps inside a finest cell.
        ShockWarning
            If a moment multiplies its own density in an upwind div.
        OutflowWarning
            If a first derivative has the condition Dirichlet at an end where f flows out; of a
            function of the state, where the initial f does.
        UserWarning
            If the exact solution differs from the conditions at the ends by less than that, or in
            its slope, or only at later times until `until`; or if the initial state is far from
            the exact solution.
        """
        degrees = degrees_of_axes(degree, self.axes)
        check_size(grid, level, degrees, self.axes, self.terms)
        if method is None:
            method = self._method_at_points() if limiter is None else "ssp-rk3"
        chosen = choose_grid(grid, level, self.axes)
        space = self._space(chosen.levels, degrees, boundary_penalty)
        check_limiter(limiter, chosen, space.degrees, space.masses, method or "ssp-rk3")
        check_coefficients(self.terms, space)
        initial = self._initial_vector(space, chosen)
        fields, bounded = SampledFields(space), self.terms
        if any(term.fields for term in self.terms):
            start = initial if dt is None else None
            bounded = bounded_terms(self.terms, fields, space, chosen, start, self.t0)
        if self.electric:
            check_coefficients(self.electric, space)
            start = initial if dt is None else None
            bounded += electric_bounds(self.electric, space, chosen, start)
        if dt is None:
            known = self.pointwise, self.axes, fields, space, chosen, initial, self.t0
            bounded = (*bounded, *bounds_at_points(*known))
        end = self.t0 + 1.0 if until is None else until
        stepper = default_stepper(bounded, space, self.t0, end, method=method, dt=dt)
        if not allow_ill_posed:
            in_range = partial(
                field_range,
                fields=fields,
                space=space,
                grid=chosen,
                initial=initial,
                t0=self.t0,
            )
            refuse_backward_diffusion(self.terms, space, (self.t0, end), in_range)
            second = [term.term for term in self.pointwise if term.is_second_derivative]
            refuse_backward_diffusion(second, space, (self.t0, end))
        later = () if until is None else times_until(self.t0, end)
        for text in contradictions_of_exact(self, (self.t0, self.t0 + stepper.dt), later):
            warnings.warn(text, UserWarning, stacklevel=users_level())
        traces = chain_traces(self.terms, space)
        resolved = self._resolved(space, traces)
        parts = [part for own in resolved for part, _ in own]
        of_functions = values_given_at_outflow_of_functions(self, parts, space, (self.t0, end))
        for text in (*values_given_at_outflow(parts, space, (self.t0, end)), *of_functions):
            warnings.warn(text, OutflowWarning, stacklevel=users_level())
        for text in jumps_inside_cells(self, space):
            warnings.warn(text, JumpWarning, stacklevel=users_level())
        for text in densities_that_carry_themselves(self.terms):
            warnings.warn(text, ShockWarning, stacklevel=users_level())
        made = self._parts(resolved, space, fields, stepper, allow_ill_posed)
        others = _OtherLevels(
            self,
            tuple(bounded),
            degrees,
            end,
            method,
            dt,
            boundary_penalty,
            allow_ill_posed,
            {chosen.levels: made},
        )
        problem = Problem(
            self.name,
            self.axes,
            space.degrees,
            chosen,
            initial=initial,
            t0=self.t0,
            units=self.units,
            gains=self.gains,
            source_functions=self.source_functions,
            limiter=limiter,
            provenance=self._provenance(space, chosen),
            other_levels=others,
            **made,
        )
        problem.check_interval(self.t0, problem.stepper.until)
        return problem

    def _space(
        self, levels: tuple[int, ...], degrees: tuple[int, ...], boundary_penalty: float
    ) -> DGSpace:
        if not (math.isfinite(boundary_penalty) and boundary_penalty >= 0.0):
            raise ValueError(f"boundary_penalty must be at least 0, got {boundary_penalty!r}")
        check_cell_widths(self.axes, levels)
        volume = {
            axis: VolumeElement(axis, level, degree, self.volume[axis])
            for axis, level, degree in zip(self.axes, levels, degrees, strict=True)
            if axis in self.volume
        }
        return DGSpace(
            self.axes, levels, degrees, self.boundary, self.exact, float(boundary_penalty), volume
        )

    def _resolved(self, space: DGSpace, traces: Traces) -> _Resolved:
        """Return the resolved parts of each term, each with its fields."""
        split = [split_fields(term) for term in self.terms]
        return [
            [
                (part, signed)
                for plain, signed in own
                for part in resolve(plain, space, traces, signed)
            ]
            for own in split
        ]

    def _parts(
        self,
        resolved: _Resolved,
        space: DGSpace,
        fields: SampledFields,
        stepper: StepperSettings,
        allow_ill_posed: bool,
    ) -> LevelParts:
        """Return all parts of the problem that depend on the finest levels."""
        terms, sources, edges = self._assemble(resolved, space, fields, allow_ill_posed)
        at_points, fluxes = pointwise_operators(self, space, fields)
        exact = self._exact(space)
        return {
            "terms": tuple(terms),
            "sources": tuple(sources),
            "edge_functions": (*edges, *fluxes),
            "pointwise": at_points,
            "electric": tuple(self._electric_operators(space)),
            "exact": exact,
            "masses": space.masses,
            "stepper": stepper,
        }

    def _electric_operators(self, space: DGSpace) -> Iterator[ElectricOperator]:
        """Yield the terms that electric fields multiply, one sum for each part of a component."""
        members: dict[tuple[ElectricComponent, FieldPart], list[OperatorTerm]] = {}
        for number, term in enumerate(self.electric):
            assert term.electric is not None
            for plain, part in split_electric(term):
                for own in resolve(plain, space, {}):
                    if boundary_sources(own, space) or edge_functions(own, space):
                        raise ValueError(_FIELD_WITH_DATA.format(number, term_text(term)))
                    operators = members.setdefault((term.electric, part), [])
                    operators.append(assemble_term(own, space))
        for (component, part), operators in members.items():
            electric = component.electric
            periodic = [self.boundary[axis][0].kind == "periodic" for axis in electric.positions]
            yield ElectricOperator(
                electric, component.number, part, tuple(periodic), tuple(operators)
            )

    def _method_at_points(self) -> StepperName | None:
        """Return the default method of a PDE with functions of f that are not linear.

        Or with electric fields of several positions. It is IMEX if there is other diffusion, or
        collisions. None without such functions and fields.
        """
        if not self.electric and all(term.function.linear for term in self.pointwise):
            return None
        chains = any(
            term.stiff or sum(factor.kind in ("div", "grad") for factor in term.factors) > 1
            for term in self.terms
        )
        explicit = any(
            term.inner is not None or term.is_second_derivative for term in self.pointwise
        )
        return "ark3" if chains and not explicit else "ssp-rk3"

    def _exact(self, space: DGSpace) -> ExactSolution | ExactFunction | None:
        if self.exact_function is not None:
            return ExactFunction(self.exact_function, space)
        return exact_solution(self.exact, space) if self.exact else None

    def _provenance(self, space: DGSpace, grid: SparseGrid) -> dict[str, Any]:
        degree = common_or_each(space.degrees)
        result: dict[str, Any] = {
            "made by": "PDE.discretize",
            "levels": list(grid.levels),
            "degree": degree if isinstance(degree, int) else list(degree),
            "grid": grid.kind,
            "boundary penalty": space.boundary_penalty,
        }
        if self.exact_function is not None:
            result["exact solution"] = "a function, which files do not hold"
        return result

    def _assemble(
        self,
        resolved: _Resolved,
        space: DGSpace,
        fields: SampledFields,
        allow_ill_posed: bool,
    ) -> tuple[list[OperatorTerm], list[SeparableVector], list[EdgeFunction]]:
        """Return the operator's terms and all sources, those from boundary data included."""
        edges: list[EdgeFunction] = []
        terms: list[OperatorTerm] = []
        sources: list[SeparableVector] = []
        one_sided: list[bool] = []
        alone = [False] * len(self.terms) if allow_ill_posed else only_diffusion(self.terms, space)
        for number, (term, parts) in enumerate(zip(self.terms, resolved, strict=True)):
            assembled = [fields.into(assemble_term(part, space), part, own) for part, own in parts]
            if not term.time.is_constant:
                assembled = [
                    replace(entry, keeps_sign=alone[number] or entry.one_sided)
                    for entry in assembled
                ]
            if term.stiff:
                assembled = [replace(operator, one_sided=False) for operator in assembled]
            for (part, own), operator in zip(parts, assembled, strict=True):
                with arising_in("the data of boundary"):
                    data = boundary_sources(part, space, explicit=operator.one_sided)
                    functions = edge_functions(part, space, explicit=operator.one_sided)
                if (data or functions) and own:
                    raise ValueError(_FIELD_WITH_DATA.format(number, term_text(term)))
                sources.extend(data)
                edges.extend(functions)
            terms.extend(assembled)
            one_sided.append(any(operator.one_sided for operator in assembled))
        if isinstance(self.sources, str):
            sources.extend(sources_from_exact(self.terms, self.exact, space, explicit=one_sided))
        else:
            with arising_in("sources"):
                sources.extend(project_separable(part, space) for part in self.sources)
        return terms, sources, edges

    def _initial_vector(self, space: DGSpace, grid: SparseGrid) -> NDArray[np.float64]:
        if self.initial is None:
            exact = self._exact(space)
            assert isinstance(exact, ExactFunction)
            return exact.on(grid).coefficients(self.t0)
        if isinstance(self.initial, FunctionOfAxes):
            return PointTransform(self.axes, grid, space.degrees).project(self.initial, self.t0)
        with arising_in("exact" if self.initial is self.exact else "initial"):
            parts = [project_separable(part, space) for part in self.initial]
        combined = TimeCombination(parts, grid, sizes_of_degrees(space.degrees, len(self.axes)))
        return combined.evaluate(self.t0, np.empty(combined.size))


@dataclass(frozen=True, eq=False)
class _OtherLevels:
    """A PDE's parts and initial state at other levels, discretized with the same settings.

    Attributes
    ----------
    pde : PDE
    bounded : tuple of Term
        The terms with bounds of their fields, from which the default step follows.
    degrees : tuple of int
        Along each axis.
    until, method, dt, boundary_penalty, allow_ill_posed
        The arguments of `PDE.discretize`.
    _known : dict of levels to LevelParts
        The parts that have been made.
    """

    pde: PDE
    bounded: tuple[Term, ...]
    degrees: tuple[int, ...]
    until: float
    method: str | None
    dt: float | None
    boundary_penalty: float
    allow_ill_posed: bool
    _known: dict[tuple[int, ...], LevelParts] = field(default_factory=dict, repr=False)

    def parts(self, levels: Sequence[int]) -> LevelParts:
        """Return the parts for finest levels; they are made once and kept."""
        key = tuple(levels)
        if key not in self._known:
            self._known.setdefault(key, self._made(key))
        return self._known[key]

    def stepper(self, levels: Sequence[int]) -> StepperSettings:
        """Return the default stepper for finest levels."""
        space = self._space(tuple(levels))
        return default_stepper(
            self.bounded, space, self.pde.t0, self.until, method=self.method, dt=self.dt
        )

    def initial(self, grid: SparseGrid) -> NDArray[np.float64]:
        """Return the initial state's projection on a grid."""
        return self.pde._initial_vector(self._space(grid.levels), grid)

    @cached_property
    def well_posed_until(self) -> float | None:
        """Until when the PDE is known to be well-posed; None if it is, or that is not asked for."""
        if self.allow_ill_posed:
            return None
        space = self._space(next(iter(self._known)))
        run = self.pde.t0, self.until
        return well_posed_until(self.pde.terms, space, run, self.pde.pointwise)

    def check_interval(self, t0: float, until: float) -> None:
        """Refuse diffusion that becomes backward from t0 to ``until``."""
        if self.allow_ill_posed:
            return
        refuse_backward_diffusion_at_points(self.pde.pointwise, self.pde.axes, (t0, until))
        if not all(term.time.is_constant for term in self.pde.terms):
            space = self._space(next(iter(self._known)))
            refuse_backward_diffusion(self.pde.terms, space, (t0, until))

    def _space(self, levels: tuple[int, ...]) -> DGSpace:
        return self.pde._space(levels, self.degrees, self.boundary_penalty)

    def _made(self, levels: tuple[int, ...]) -> LevelParts:
        pde, space = self.pde, self._space(levels)
        check_coefficients(pde.terms, space)
        stepper = self.stepper(levels)
        resolved = pde._resolved(space, chain_traces(pde.terms, space))
        return pde._parts(resolved, space, SampledFields(space), stepper, self.allow_ill_posed)
