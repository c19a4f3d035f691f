"""The parts of a discretized problem as one checked value, and their hash."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: F401
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.operators import on_device

from ..discretization.basis.multiwavelets import check_degree
from ..discretization.parts import (
    AdaptSettings,  # noqa: F401
    EdgeFunction,  # noqa: F401
    ElectricOperator,  # noqa: F401
    ExactSolution,
    Masses,  # noqa: F401
    OperatorTerm,  # noqa: F401
    PointwiseOperator,  # noqa: F401
    SeparableVector,  # noqa: F401
    StepperSettings,
    check_adapt,
    read_only,
)
from ..files.content import ProblemContent
from ..files.encode import problem_hash
from ..grids.degrees import Degree, common_or_each, of_each_axis, sizes_of_degrees  # noqa: F401
from ..grids.sparse_grid import SparseGrid  # noqa: F401
from ..statement.axis import Axis  # noqa: F401
from ..statement.functions import FunctionOfAxes  # noqa: F401
from ..statement.gains import MaxwellianGain  # noqa: F401
from .checks import (
    check_axes,
    check_content,
    check_edges,
    check_electric,
    check_functions,
    check_gains,
    check_limiter,
    check_masses,
    check_terms,
    check_times,
    check_vectors,
    check_well_posed_until,
)
from .exact.function import ExactFunction
from .levels import OtherLevels
from .operators import OperatorForm, choose_form

__all__ = ["ProblemValue", "content_of"]


# The constructor is made here, of fields that `files.content` declares: typing.get_type_hints, and
# with it the reference, looks for the names in their types in this module.
@dataclass(frozen=True, eq=False, repr=False)
class ProblemValue(ProblemContent):
    """The parts of a discretized problem, which `batchkron.problems.Problem` documents."""

    _: KW_ONLY
    exact: ExactSolution | ExactFunction | None = None
    device: str = "cpu"
    form: str = "auto"
    other_levels: OtherLevels | None = None

    def __post_init__(self) -> None:
        functions = "source_functions", "edge_functions", "pointwise", "electric"
        for name in ("axes", "terms", "sources", "masses", "gains", *functions):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        given = of_each_axis(self.degree, len(self.axes))
        degrees = [check_degree(degree) for degree in given]
        object.__setattr__(self, "degree", common_or_each(degrees))
        initial = read_only("initial", to_host(self.initial, "initial"), dimensions=1)
        object.__setattr__(self, "initial", on_device(initial, self.device))
        for name in ("units", "provenance"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        self._check()
        choose_form(self.form, self.device, self.unknowns)
        object.__setattr__(self, "t0", float(self.t0))
        if self.well_posed_until is not None:
            object.__setattr__(self, "well_posed_until", float(self.well_posed_until))

    def _check(self) -> None:
        """Check that axes, grid, terms, sources, initial and exact fit together."""
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name must be a string that is not empty, got {self.name!r}")
        if not isinstance(self.stepper, StepperSettings):
            raise TypeError(f"stepper must be StepperSettings, got {type(self.stepper).__name__}")
        if not math.isfinite(self.t0):
            raise ValueError(f"t0 must be finite, got {self.t0!r}")
        if self.well_posed_until is not None and not math.isfinite(self.well_posed_until):
            raise ValueError(f"well_posed_until must be finite, got {self.well_posed_until!r}")
        sizes, grid = self.sizes, self.grid
        check_axes(self.axes, grid)
        if self.adapt is not None:
            check_adapt(self.adapt, [axis.name for axis in self.axes])
        expected = (grid.num_cells * self.block_size,)
        if self.initial.shape != expected:
            raise ValueError(
                f"initial has shape {self.initial.shape}; expected {expected} for "
                f"{grid.num_cells} blocks of {' * '.join(map(str, sizes))} coefficients"
            )
        masses = check_masses(self.masses, grid, sizes)
        object.__setattr__(self, "masses", masses)
        check_terms(self.terms, grid, sizes)
        for operator in self.pointwise:
            check_terms((*operator.terms, *operator.inner, *operator.damping), grid, sizes)
        for force in self.electric:
            check_terms(force.terms, grid, sizes)
        check_electric(self.electric, self.axes, masses, grid, sizes)
        check_limiter(self.limiter, grid, self.degrees, masses, self.stepper.method)
        check_edges(self.edge_functions, grid, sizes)
        check_gains(self.gains, self.axes, masses)
        edges = (edge.function for edge in self.edge_functions)
        at_points = (operator.function for operator in self.pointwise)
        check_functions([*self.source_functions, *edges, *at_points], self.axes, grid, sizes)
        check_vectors("sources", self.sources, grid, sizes)
        if isinstance(self.exact, ExactSolution):
            check_vectors("exact.parts", self.exact.parts, grid, sizes)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields; an unpickled problem assembles its operators again.

        It does not have ``other_levels``, whose functions need not be picklable, but what these
        know of the PDE.
        """
        kept = [entry.name for entry in fields(self) if entry.name != "other_levels"]
        state = {name: getattr(self, name) for name in kept}
        return state | {"well_posed_until": self._known_well_posed_until()}

    def parts(self) -> ProblemValue:
        """Return the same parts, already checked, without a problem's system and output.

        Those keep it and not the problem, which would else stay in memory until the garbage
        collector finds the circle.
        """
        parts = object.__new__(ProblemValue)
        for entry in fields(ProblemValue):
            object.__setattr__(parts, entry.name, getattr(self, entry.name))
        return parts

    @property
    def knows_other_levels(self) -> bool:
        """Whether it can be moved to other finest levels than its own."""
        if self.other_levels is None:
            return False
        own = self.other_levels.parts(self.grid.levels)
        return self.terms is own["terms"] and self.sources is own["sources"]

    def _known_well_posed_until(self) -> float | None:
        """Return until when the PDE is known to be well-posed, None if that is not known."""
        if self.other_levels is not None and self.knows_other_levels:
            return self.other_levels.well_posed_until
        return self.well_posed_until

    def check_interval(self, t0: float, until: float) -> None:
        """Check that the problem can be solved from t0 to ``until``.

        Parameters
        ----------
        t0, until : float
            The run's beginning and end.

        Raises
        ------
        ValueError
            If a tabulated function does not cover the interval; if a term with one-sided traces, or
            the only diffusion along an axis, has a negative coefficient at some time, for which it
            is unstable; or if the sum of the diffusion is backward at some time. A problem from a
            file or pickle does not know that sum, but until when it has been found forward.
        """
        check_times(
            self.terms, self.sources, t0, until, at_points=self.pointwise, electric=self.electric
        )
        check_well_posed_until(self.well_posed_until, t0, until)
        if self.other_levels is not None and self.knows_other_levels:
            self.other_levels.check_interval(t0, until)

    @property
    def degrees(self) -> tuple[int, ...]:
        """Polynomial degree along each axis."""
        return of_each_axis(self.degree, len(self.axes))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions per cell along each axis, n_k, its degree plus one."""
        return sizes_of_degrees(self.degree, len(self.axes))

    @property
    def unknowns(self) -> int:
        """Number N of coefficients."""
        return self.initial.size

    @property
    def block_size(self) -> int:
        """Number Π n_k of coefficients of one block."""
        return math.prod(self.sizes)

    @property
    def is_constant(self) -> bool:
        """Whether the operator A does not depend on time."""
        steady = all(operator.is_steady for operator in self.pointwise)
        steady = steady and all(operator.is_steady for operator in self.electric)
        return steady and all(term.time.is_constant for term in self.terms)

    @property
    def is_nonlinear_at_points(self) -> bool:
        """Whether a pointwise term is not declared linear."""
        return not all(operator.linear for operator in self.pointwise)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hexadecimal) of the content; saving and loading do not change it."""
        return problem_hash(content_of(self))

    @property
    def _form(self) -> OperatorForm:
        """How its operators are applied: "sweep", "batch" or "dense"."""
        return choose_form(self.form, self.device, self.unknowns)

    @property
    def has_fields(self) -> bool:
        """Whether a term has a field as coefficient, or there are gains: f depends on moments."""
        return bool(self.electric) or self.has_fields_of_axes

    @property
    def has_fields_of_axes(self) -> bool:
        """Whether it has gains, or fields of single axes."""
        return bool(self.gains) or any(term.has_fields for term in self.terms)

    def _on_host(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a state as a NumPy array."""
        check_content("u", u, self.initial.shape)
        return to_host(u, "u")


def content_of(problem: ProblemValue) -> ProblemContent:
    """Return the part of a problem that files store: all but device, form and an exact function."""
    stored = {entry.name: getattr(problem, entry.name) for entry in fields(ProblemContent)}
    if not isinstance(problem.exact, ExactSolution):
        stored["exact"] = None
    stored["initial"] = to_host(problem.initial, "initial")
    stored["well_posed_until"] = problem._known_well_posed_until()
    return ProblemContent(**stored)
