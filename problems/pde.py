"""A PDE f_t = Σ terms(f) + sources on a box, and its discretization."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.problems.axis import Axis
from batchkron.problems.basis import check_degree
from batchkron.problems.boundary import (
    FROM_EXACT,
    Boundary,
    Condition,
    Neumann,
    parse_boundary,
)
from batchkron.problems.default_stepper import check_upwind_times, default_stepper
from batchkron.problems.grid import SparseGrid
from batchkron.problems.manufactured import (
    exact_solution,
    project_separable,
    sources_from_exact,
)
from batchkron.problems.problem import Problem
from batchkron.problems.problem_parts import OperatorTerm, SeparableVector
from batchkron.problems.separable import Field, Separable, separable_parts
from batchkron.problems.space import Space
from batchkron.problems.term_assembly import assemble_term, boundary_sources
from batchkron.problems.term_resolution import resolve
from batchkron.problems.terms import Term, flatten_terms
from batchkron.problems.time_combination import TimeCombination

__all__ = ["PDE"]


@dataclass(frozen=True, init=False, eq=False)
class PDE:
    """The initial value problem f_t = Σ terms(f) + Σ sources on a box, as a value.

    Parameters
    ----------
    axes : sequence of Axis
        The coordinates; their order is the order of everything else.
    terms : Term or (nested) sequence of them
        The right-hand side: `div`, `grad`, `penalty`, `mass`, `laplacian` and chains with ``@``.
    boundary : str, condition, pair (left, right), or mapping axis -> one of these
        "periodic", "dirichlet", "neumann", Dirichlet(data), Neumann(data).
    initial : float, Separable, SeparableSum or "from exact", optional
        f at t0; by default the exact solution if there is one, else zero.
    sources : Separable, SeparableSum, sequence of them, or "from exact"
        "from exact" derives them from the exact solution, s = f_t - Σ terms(f).
    exact : Separable or SeparableSum, optional
        The known solution.
    name : str
        What the problem is called.
    units : mapping of str to str
        Units by name of a quantity ("x", "t", …).
    t0 : float
        Initial time.

    Raises
    ------
    TypeError, ValueError
        For arguments of other kinds, unknown axes, or "from exact" without an exact solution.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.problems.terms import div
    >>> x = Axis("x", 0, 1)
    >>> pde = PDE([x], div(x, -1.0), boundary="periodic", initial=Separable(x=np.cos))
    >>> pde.discretize(level=3, degree=2).unknowns
    24
    """

    axes: tuple[Axis, ...]
    terms: tuple[Term, ...]
    boundary: Mapping[Axis, tuple[Condition, Condition]]
    initial: tuple[Separable, ...]
    sources: tuple[Separable, ...] | str
    exact: tuple[Separable, ...]
    name: str
    units: Mapping[str, str]
    t0: float

    def __init__(
        self,
        axes: Sequence[Axis],
        terms: Term | Iterable[Any],
        *,
        boundary: Boundary | Mapping[Axis, Boundary] | Mapping[str, Boundary],
        initial: Field | str | None = None,
        sources: Field | Sequence[Field] | str = (),
        exact: Field | None = None,
        name: str = "pde",
        units: Mapping[str, str] | None = None,
        t0: float = 0.0,
    ) -> None:
        box = _check_axes(axes)
        known = () if exact is None else separable_parts("exact", exact, box)
        values: dict[str, Any] = {
            "axes": box,
            "terms": _check_terms(terms, box),
            "boundary": MappingProxyType(parse_boundary(boundary, box)),
            "initial": _fields("initial", initial, box, known),
            "sources": sources
            if isinstance(sources, str)
            else separable_parts("sources", sources, box),
            "exact": known,
            "name": name,
            "units": MappingProxyType(dict(units or {})),
            "t0": t0,
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        _check_pde(self)

    def discretize(
        self,
        level: int | Sequence[int] | None = None,
        degree: int = 2,
        grid: str | SparseGrid = "sparse",
        *,
        until: float | None = None,
        method: str | None = None,
        dt: float | None = None,
        boundary_penalty: float = 1.0,
    ) -> Problem:
        """Return the discretized problem.

        Parameters
        ----------
        level : int or sequence of int
            Finest level, of all axes or one per axis; 2^level cells.
        degree : int
            Polynomial degree, the same for all axes.
        grid : {"sparse", "full"} or SparseGrid
            Which blocks are kept. A SparseGrid brings its own levels; `level` is left out then.
        until : float, optional
            Final time of the default stepper settings; by default t0 + 1.
        method, dt : optional
            Default stepper and step; see `batchkron.problems.default_stepper`.
        boundary_penalty : float
            τ ≥ 0 of the terms -(τ/h) that tie second derivatives to their Dirichlet data; with 0
            their operator is singular.

        Returns
        -------
        Problem

        Raises
        ------
        TypeError, ValueError
            For levels, degrees or grids that do not fit, or a boundary that a term cannot take.
        """
        chosen = _make_grid(grid, level, len(self.axes))
        if not (math.isfinite(boundary_penalty) and boundary_penalty >= 0.0):
            raise ValueError(f"boundary_penalty must be at least 0, got {boundary_penalty!r}")
        space = Space(
            self.axes,
            chosen.levels,
            check_degree(degree),
            self.boundary,
            self.exact,
            float(boundary_penalty),
        )
        end = self.t0 + 1.0 if until is None else until
        stepper = default_stepper(self.terms, space, self.t0, end, method=method, dt=dt)
        terms, sources = self._assemble(space, end)
        return Problem(
            self.name,
            self.axes,
            space.degree,
            chosen,
            tuple(terms),
            tuple(sources),
            self._initial_vector(space, chosen),
            exact=exact_solution(self.exact, space) if self.exact else None,
            t0=self.t0,
            stepper=stepper,
            units=self.units,
            provenance={
                "made by": "PDE.discretize",
                "levels": list(chosen.levels),
                "degree": space.degree,
                "grid": chosen.kind,
                "boundary penalty": space.boundary_penalty,
            },
        )

    def _assemble(
        self, space: Space, until: float
    ) -> tuple[list[OperatorTerm], list[SeparableVector]]:
        """Return the operator's terms, and all sources including boundary data."""
        terms: list[OperatorTerm] = []
        sources: list[SeparableVector] = []
        for term in self.terms:
            resolved = resolve(term, space)
            fluxes = [factor.flux for factor in resolved[0].factors if factor.kind != "mass"]
            check_upwind_times(term, fluxes, self.t0, until)
            for part in resolved:
                terms.append(assemble_term(part, space))
                sources.extend(boundary_sources(part, space))
        if isinstance(self.sources, str):
            sources.extend(sources_from_exact(self.terms, self.exact, space))
        else:
            sources.extend(project_separable(part, space) for part in self.sources)
        return terms, sources

    def _initial_vector(self, space: Space, grid: SparseGrid) -> NDArray[np.float64]:
        parts = [project_separable(part, space) for part in self.initial]
        n = space.degree + 1
        vector = np.empty(grid.num_cells * n ** len(self.axes))
        return TimeCombination(parts, grid, n).evaluate(self.t0, vector)


def _check_axes(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    box = tuple(axes) if not isinstance(axes, Axis) else (axes,)
    if not box:
        raise ValueError("axes is empty; give at least one Axis")
    for k, axis in enumerate(box):
        if not isinstance(axis, Axis):
            raise TypeError(f"axes[{k}] must be an Axis, got {type(axis).__name__}")
    names = [axis.name for axis in box]
    if len(set(names)) < len(names):
        raise ValueError(f"axes are named {', '.join(names)}; every name may occur once only")
    return box


def _check_terms(terms: Term | Iterable[Any], axes: tuple[Axis, ...]) -> tuple[Term, ...]:
    """Flatten the terms and check that their axes are the PDE's."""
    flat = flatten_terms(terms)
    for k, term in enumerate(flat):
        for factor in term.factors:
            if factor.axis not in axes:
                raise ValueError(
                    f"terms[{k}] acts along {factor.axis}, which is not among the PDE's axes; "
                    f"these are {', '.join(map(str, axes))}"
                )
    return flat


def _fields(
    name: str, value: Field | str | None, axes: tuple[Axis, ...], exact: tuple[Separable, ...]
) -> tuple[Separable, ...]:
    """Return the parts of a function that may come from the exact solution."""
    if value is None:
        return exact
    if isinstance(value, str):
        if value != FROM_EXACT or not exact:
            raise ValueError(
                f"{name} is {value!r}; the only word for it is {FROM_EXACT!r}, and that needs "
                "exact=..."
            )
        return exact
    return separable_parts(name, value, axes)


def _sources(
    sources: Field | Sequence[Field] | str, axes: tuple[Axis, ...]
) -> tuple[Separable, ...] | str:
    return sources if isinstance(sources, str) else separable_parts("sources", sources, axes)


def _check_pde(pde: PDE) -> None:
    """Check what the parts of a PDE ask of each other."""
    if not isinstance(pde.name, str) or not pde.name:
        raise TypeError(f"name must be a string that is not empty, got {pde.name!r}")
    if not isinstance(pde.t0, Real) or not math.isfinite(pde.t0):
        raise ValueError(f"t0 must be a finite number, got {pde.t0!r}")
    object.__setattr__(pde, "t0", float(pde.t0))
    if isinstance(pde.sources, str) and (pde.sources != FROM_EXACT or not pde.exact):
        raise ValueError(
            f"sources is {pde.sources!r}; the only word for it is {FROM_EXACT!r}, and that needs "
            "exact=..."
        )
    own = [factor for term in pde.terms for factor in term.factors if factor.boundary is not None]
    ends = [*pde.boundary.items(), *((factor.axis, factor.boundary) for factor in own)]
    for axis, conditions in ends:
        for side, condition in zip(("left", "right"), conditions or (), strict=True):
            data = getattr(condition, "data", 0.0)
            where = f"the data at the {side} end of axis {axis.name!r}"
            if isinstance(data, str) and not pde.exact:
                raise ValueError(f"{where} is {data!r}, which needs exact=...")
            if not isinstance(data, str):
                separable_parts(where, data, pde.axes)
    _check_slopes(pde)


def _check_slopes(pde: PDE) -> None:
    """Refuse Neumann data along axes without a second derivative, where nothing would use it."""
    for axis, conditions in pde.boundary.items():
        kinds = [
            [factor.kind for factor in term.factors if factor.axis == axis] for term in pde.terms
        ]
        if any("div" in kind and "grad" in kind for kind in kinds):
            continue
        for condition in conditions:
            if isinstance(condition, Neumann) and condition.data != 0.0:
                raise ValueError(
                    f"axis {axis.name!r} has Neumann data but no second derivative div @ grad that "
                    "could take it; an outflow end is Neumann() without data"
                )


def _make_grid(
    grid: str | SparseGrid, level: int | Sequence[int] | None, dimensions: int
) -> SparseGrid:
    """Return the grid of a kind and levels, or the given one."""
    if isinstance(grid, SparseGrid):
        if level is not None:
            raise ValueError("level must be left out where grid is a SparseGrid, which has its own")
        if grid.dimensions != dimensions:
            raise ValueError(f"grid has {grid.dimensions} axes; the PDE has {dimensions}")
        return grid
    if level is None:
        raise TypeError("level is missing; give an integer, or one per axis")
    levels = (level,) * dimensions if isinstance(level, (int, np.integer)) else tuple(level)
    if len(levels) != dimensions:
        raise ValueError(f"level has {len(levels)} entries; the PDE has {dimensions} axes")
    if grid == "sparse":
        return SparseGrid.sparse(levels)
    if grid == "full":
        return SparseGrid.full(levels)
    raise ValueError(f"grid is {grid!r}; expected 'sparse', 'full' or a SparseGrid")
