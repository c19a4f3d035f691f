"""Checks that the parts of a problem fit its grid and degree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.names import StepperName

from ..discretization.interpolation.transform import check_grid
from ..discretization.parts import (
    EdgeFunction,
    ElectricOperator,
    Masses,
    OperatorTerm,
    PointwiseOperator,
    SeparableVector,
    check_mass,
)
from ..grids.degrees import common_degree
from ..grids.sparse_grid import SparseGrid, full_axes
from ..statement.axis import Axis
from ..statement.field_axes import check_electric_axes
from ..statement.functions import FunctionOfAxes
from ..statement.gains import MaxwellianGain
from ..statement.time import TimeFunction
from .default_stepper import LIMITED_METHODS

__all__ = [
    "check_axes",
    "check_content",
    "check_edges",
    "check_electric",
    "check_functions",
    "check_gains",
    "check_limiter",
    "check_masses",
    "check_terms",
    "check_times",
    "check_vector",
    "check_vectors",
    "check_well_posed_until",
]

_SAMPLES_IN_TIME = 257  # number of times in a run at which functions of time are checked
# A function of time counts as negative below minus this, relative to its largest value in the run:
# 0.7 - 7 t leaves -1e-16 at t = 0.1. The check of diffusion in discretize allows as much.
_ROUNDING = 1e-8
_EARLIER = "an earlier until (--until of a command)"


def check_axes(axes: Sequence[Axis], grid: SparseGrid) -> None:
    """Check that there is one axis per dimension of the grid, with different names."""
    if not isinstance(grid, SparseGrid):
        raise TypeError(
            f"grid must be a SparseGrid, such as SparseGrid.sparse(levels) makes, got "
            f"{type(grid).__name__}"
        )
    for k, axis in enumerate(axes):
        if not isinstance(axis, Axis):
            raise TypeError(f"axes[{k}] must be an Axis, got {type(axis).__name__}")
    if len({axis.name for axis in axes}) != len(axes) or len(axes) != grid.dimensions:
        raise ValueError(
            f"axes are {', '.join(axis.name for axis in axes)}; expected {grid.dimensions} axes "
            "of different names, one per dimension of the grid"
        )


def check_gains(gains: Sequence[MaxwellianGain], axes: Sequence[Axis], masses: Masses) -> None:
    """Check that each gain is a MaxwellianGain of the two axes, without volume elements."""
    for number, gain in enumerate(gains):
        if not isinstance(gain, MaxwellianGain):
            raise TypeError(
                f"gains[{number}] must be a MaxwellianGain, as bgk makes, got {type(gain).__name__}"
            )
        if len(axes) != 2 or {gain.position, gain.velocity} != set(axes):
            raise ValueError(
                f"gains[{number}] is {gain.text()}; expected a position and a velocity that are "
                f"all axes, {', '.join(axis.name for axis in axes)}"
            )
        if any(mass is not None for mass in masses):
            raise ValueError(
                f"gains[{number}] is a Maxwellian in Cartesian coordinates, and an axis has a "
                "volume element"
            )


def check_electric(
    operators: Sequence[ElectricOperator],
    axes: Sequence[Axis],
    masses: Masses,
    grid: SparseGrid,
    sizes: Sequence[int],
) -> None:
    """Check that electric fields are of the axes, and that there are points of the grid."""
    for number, own in enumerate(operators):
        if not isinstance(own, ElectricOperator):
            raise TypeError(
                f"electric[{number}] must be an ElectricOperator, got {type(own).__name__}"
            )
        curved = [axis for axis, mass in zip(axes, masses, strict=True) if mass is not None]
        check_electric_axes(own.electric, axes, own.periodic, curved)
        if own.part not in (-1, 0, 1) or not 0 <= own.number < len(own.electric.positions):
            raise ValueError(f"electric[{number}] has an unknown part or component")
        if any(term.has_fields for term in own.terms):
            raise ValueError(f"electric[{number}] has a term with another field")
    if operators:
        check_grid(grid, common_degree([n - 1 for n in sizes], "electric fields of positions"))


def check_functions(
    functions: Sequence[FunctionOfAxes],
    axes: Sequence[Axis],
    grid: SparseGrid,
    sizes: Sequence[int],
) -> None:
    """Check that each is a function of the axes, and that there are points of the grid for it."""
    for number, function in enumerate(functions):
        if not isinstance(function, FunctionOfAxes):
            raise TypeError(
                f"functions[{number}] must be a FunctionOfAxes, as a PDE makes of its sources, "
                f"got {type(function).__name__}"
            )
        if function.axes != tuple(axes):
            raise ValueError(
                f"{function.name} is a function of {', '.join(map(str, function.axes))};"
                f" expected {', '.join(map(str, axes))}"
            )
    if functions:
        check_grid(grid, tuple(n - 1 for n in sizes))


def check_edges(edges: Sequence[EdgeFunction], grid: SparseGrid, sizes: Sequence[int]) -> None:
    """Check the vectors of boundary data along their axes, and what acts along the others."""
    check_terms([OperatorTerm(edge.modes, edge.time) for edge in edges], grid, sizes)
    for number, edge in enumerate(edges):
        expected = (sizes[edge.axis] << grid.levels[edge.axis],)
        if edge.along.shape != expected:
            raise ValueError(
                f"edge_functions[{number}].along has shape {edge.along.shape}; expected {expected}"
            )


def check_masses(
    masses: Sequence[NDArray[np.float64] | None], grid: SparseGrid, sizes: Sequence[int]
) -> Masses:
    """Return the mass blocks of each axis, None for an axis that has none; see `check_mass`."""
    if not masses:
        return (None,) * grid.dimensions
    if len(masses) != grid.dimensions:
        raise ValueError(f"masses has {len(masses)} entries; expected one for each axis, or none")
    return tuple(
        None if mass is None else check_mass(f"masses[{k}]", mass, grid.levels[k], sizes[k])
        for k, mass in enumerate(masses)
    )


def check_terms(terms: Sequence[OperatorTerm], grid: SparseGrid, sizes: Sequence[int]) -> None:
    """Check that each term has a mode per axis, with the axis's cells and functions per cell."""
    for number, term in enumerate(terms):
        name = f"terms[{number}]"
        if not isinstance(term, OperatorTerm):
            raise TypeError(
                f"{name} must be an OperatorTerm, such as OperatorTerm((mode, None)), got "
                f"{type(term).__name__}"
            )
        if len(term.modes) != grid.dimensions:
            raise ValueError(
                f"{name} has {len(term.modes)} modes; expected {grid.dimensions}, one per axis "
                "(None for the identity)"
            )
        for k, mode in enumerate(term.modes):
            expected = (1 << grid.levels[k], sizes[k])
            if mode is not None and (mode.cells, mode.n) != expected:
                raise ValueError(
                    f"{name}.modes[{k}] has {mode.cells} cells of {mode.n} functions; expected "
                    f"{expected[0]} cells of {expected[1]} for level {grid.levels[k]}"
                )


def check_vectors(
    name: str, vectors: Sequence[SeparableVector], grid: SparseGrid, sizes: Sequence[int]
) -> None:
    """Check that each separable vector has one factor per axis, of cells * n_k entries."""
    shapes = [((1 << level) * n,) for level, n in zip(grid.levels, sizes, strict=True)]
    for r, vector in enumerate(vectors):
        if not isinstance(vector, SeparableVector):
            raise TypeError(f"{name}[{r}] must be a SeparableVector, got {type(vector).__name__}")
        found = [factor.shape for factor in vector.factors]
        if found != shapes:
            raise ValueError(f"{name}[{r}] has factors of shapes {found}; expected {shapes}")


def check_times(
    terms: Sequence[OperatorTerm],
    sources: Sequence[SeparableVector],
    t0: float,
    until: float,
    *,
    at_points: Sequence[PointwiseOperator] = (),
    electric: Sequence[ElectricOperator] = (),
) -> None:
    """Check that functions of time are defined from t0 to ``until``, and not negative if need be.

    That is, for terms with one-sided traces or ``keeps_sign``, and for the damping of functions at
    points; the text names the term or source.
    """
    times = np.linspace(t0, until, _SAMPLES_IN_TIME)
    named = [(f"terms[{k}]", term, term.one_sided) for k, term in enumerate(terms)]
    for k, own in enumerate(at_points):
        named += [(f"pointwise[{k}]", term, False) for term in (*own.terms, *own.inner)]
        named += [(f"the damping of pointwise[{k}]", term, True) for term in own.damping]
    for k, force in enumerate(electric):
        named += [(f"electric[{k}]", term, term.one_sided) for term in force.terms]
    for k, source in enumerate(sources):
        _times(f"sources[{k}]", source.time, times)
    for name, term, is_one_sided in named:
        values = _times(name, term.time, times)
        negative = np.min(values) < -_ROUNDING * np.max(np.abs(values))
        if is_one_sided and negative:
            raise ValueError(
                f"the coefficient in time of {name} becomes negative between t0 = {t0!r} and "
                f"until = {until!r}, where an upwind or downwind flux, and ends with Inflow or "
                f"NoFlux, would change sides; give the term flux='central' and other conditions "
                f"than Inflow and NoFlux, write it into the function of pointwise as 'cos(t) * f', "
                f"or give a function of time that keeps its sign"
            )
        if term.keeps_sign and negative:
            raise ValueError(
                f"the coefficient in time of {name} becomes negative between t0 = {t0!r} and "
                f"until = {until!r}, and the term is the only diffusion along an axis, which is "
                "ill-posed then: waves grow the faster the shorter they are. Give a function of "
                f"time that keeps its sign or {_EARLIER}, or go on, in Python, with "
                "discretize(..., allow_ill_posed=True)"
            )


def check_limiter(
    limiter: object, grid: SparseGrid, degrees: Sequence[int], masses: Masses, method: str
) -> None:
    """Refuse limiters that are unknown, or that a grid, a volume element or a method has not."""
    if limiter is None:
        return
    if limiter != "positive":
        raise ValueError(f"limiter is {limiter!r}; expected None or 'positive'")
    if method in get_args(StepperName) and method not in LIMITED_METHODS:
        raise ValueError(
            f"limiter='positive' is for combinations of Euler steps, and the method is {method!r}; "
            f"take one of {', '.join(map(repr, LIMITED_METHODS))}, or leave out limiter="
        )
    full = full_axes(grid)
    if not full:
        raise ValueError(
            "limiter='positive' scales f about its mean in each finest cell, and a sparse grid has "
            "no cell means; use grid='full', Mixed([x], [v, w]), which has those along x, or "
            "viscosity: a term nu * div(x) @ grad(x)"
        )
    degree = common_degree(degrees, "limiter='positive'")
    if any(mass is not None for mass in masses):
        raise ValueError("limiter='positive' is for axes without a volume element")
    if len(full) < grid.dimensions:  # the other axes have points
        check_grid(grid, degree)


def check_well_posed_until(known: float | None, t0: float, until: float) -> None:
    """Refuse a run beyond the time until which the PDE of a file or pickle is known well-posed."""
    if known is not None and until - known > _ROUNDING * abs(until - t0):
        raise ValueError(
            f"the run ends at until = {until!r}, and the problem is known to be well-posed until "
            f"t = {known!r}: its diffusion depends on time, and is backward later or was not "
            "looked at. Its file or pickle does not have the PDE, so that this cannot be checked "
            f"now. Give {_EARLIER}, or make the problem again, in Python, with "
            f"PDE.discretize(..., until={until!r}), which looks until then, or with "
            "allow_ill_posed=True"
        )


def _times(name: str, function: TimeFunction, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a function's values at times; if it is not defined there, name its term or source."""
    try:
        return np.broadcast_to(function(times), times.shape)
    except ValueError as error:
        raise ValueError(f"the function of time of {name}: {error}") from None


def check_vector(
    name: str, vector: NDArray[np.float64], like: NDArray[np.float64], *, is_output: bool = False
) -> None:
    """Refuse an array that is not a float64 vector like another one, of NumPy or CuPy.

    An output has to be C-contiguous and writeable, too. ``name`` is for the texts.
    """
    module, came = array_module(like), type(vector)
    if not isinstance(vector, module.ndarray):
        raise TypeError(
            f"{name} is {came.__module__}.{came.__name__}; expected a {module.__name__} array of "
            f"shape {like.shape}, because that is where the problem is"
        )
    check_content(name, vector, like.shape)
    fresh = f"pass a fresh array, such as {module.__name__}.empty_like(u)"
    if is_output and not vector.flags.c_contiguous:
        raise ValueError(f"{name} is not C-contiguous; {fresh}")
    if is_output and not getattr(vector.flags, "writeable", True):
        raise ValueError(f"{name} is read-only; {fresh}")


def check_content(name: str, vector: NDArray[np.float64], shape: tuple[int, ...]) -> None:
    """Refuse an array, on the CPU or a device, of another dtype than float64 or another shape."""
    if getattr(vector, "dtype", None) != np.float64:
        kind = getattr(vector, "dtype", type(vector).__name__)
        raise TypeError(f"{name} is {kind}; expected a float64 array of shape {shape}")
    if vector.shape != shape:
        raise ValueError(
            f"{name} has shape {vector.shape}; expected {shape}, the problem's unknowns"
        )
