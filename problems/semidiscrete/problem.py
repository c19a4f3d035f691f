"""A discretized problem: everything that a run needs, as one immutable value.

A `Problem` is its parts (`value`), from which two other objects are made when they are needed: its
`system`, the operators and the right-hand side, and its `output`, what is read off states. The
methods of both that users need are methods of the problem, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.operators import Operator, ValidationReport
from batchkron.operators.linear_system import SplitRightSide, TimeParts
from batchkron.storage import StoredGrid

from ..grids.refinement import finest_levels
from ..grids.sparse_grid import SparseGrid
from ..output_methods import OutputMethods
from ..statement.axis import Axis
from ..statement.electric import ElectricComponent
from ..statement.fields import FieldExpression
from ..statement.separable import SeparableFunction
from ..statement.text import rows_text
from .adaptation.changing_cells import AdaptiveProblem, adaptive_problem
from .adaptation.own_rule import with_rule
from .adaptation.transfer import carried_over, parts_at_levels
from .checks import check_vector
from .description import problem_rows, problem_text
from .fields.field import Field
from .fields.implicit import ImplicitFields
from .fields.newton import Derivative, Linearisation
from .fields.terms import frozen_terms
from .output.cut import AxisOrName, Counts, Places
from .output.output import Output
from .system import System
from .value import ProblemValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Problem"]


class Problem(ProblemValue, OutputMethods):
    """The system u' = A(t, u) u + s(t) of hierarchical coefficients u on a grid, from t0 on.

    A = Σ terms and s = Σ sources, restricted to the grid. A depends on u only if a term has a field
    as coefficient. Vectors have N = num_cells · Π n_k entries, with n_k = degrees[k] + 1: the
    index of the block is the slowest, and within a block that of the last axis is the fastest.

    Parameters
    ----------
    name : str
        The problem's name.
    axes : sequence of Axis
        The d coordinates.
    degree : int or sequence of int
        Polynomial degree of the basis along all axes, or along each. The attribute is an int where
        they are equal, else the tuple of them, as `degrees` always is.
    grid : SparseGrid
        The grid, of d axes; each cell is a block of coefficients.
    terms : sequence of OperatorTerm
        The terms of A.
    sources : sequence of SeparableVector
        The terms of s: sources and boundary data.
    initial : ndarray, shape (N,), float64
        u at t0. It is copied, and the copy is read-only.
    exact : ExactSolution or ExactFunction, optional
        The exact solution, if it is known. Files save an ExactSolution but not an ExactFunction.
    t0 : float
        Initial time.
    stepper : StepperSettings
        The default time stepper, step and final time.
    units : mapping of str to str
        The unit of each quantity, by the quantity's name ("x", "t", …).
    masses : sequence of (ndarray, shape (cells_k, n, n), float64, or None), optional
        For each axis with a volume element dV_k the mass blocks ∫ φ_i φ_j dV_k of the nodal
        functions of its finest cells, and None if dV_k = 1. They define the norm; the terms and
        sources already contain the inverse masses. By default no axis has a volume element.
    gains : sequence of MaxwellianGain, optional
        What collisions of `bgk` add to A(t, u) u + s(t).
    source_functions : sequence of FunctionOfAxes, optional
        Sources that are functions of all axes and of time, as a PDE makes them of callables and
        formulas. They are interpolated at points of the grid; files hold formulas only.
    edge_functions : sequence of EdgeFunction, optional
        Sources that come from boundary data which are callables; files do not hold them.
    pointwise : sequence of PointwiseOperator, optional
        Terms of functions of the state, as `pointwise` makes them; files hold those of formulas.
    electric : sequence of ElectricOperator, optional
        Terms that an electric field of several positions multiplies, as `Electric` makes them.
    adapt : AdaptSettings, optional
        The rule by which `batchkron.solvers.evolve` lets the grid follow the solution by default;
        `with_adapt` sets it.
    limiter : {"positive"}, optional
        What keeps states from being negative, as of `PDE.discretize`.
    well_posed_until : float, optional
        For a problem from a file or pickle, whose PDE has diffusion that depends on time: until
        when it was found well-posed. Longer runs are refused. None stands for any time.
    provenance : mapping of str to JSON data
        Where the problem comes from; not part of the content, which `content_hash` identifies.
    device : {"cpu", "cuda"}
        Where its operators and vectors are; not part of the content. "cuda" is CuPy's current
        device: `initial` is a CuPy array there, and so are all states.
    form : {"auto", "sweep", "batch", "dense"}
        How its operators are applied; not part of the content. "sweep": mode by mode along the
        grid's fibres, a `batchkron.SparseGridOperator`. "batch": as a list of all coupled pairs of
        cells, a `batchkron.BatchedKron`. "dense": as a matrix, for at most 8192 unknowns and on the
        CPU only. "auto" means "sweep".
    other_levels : OtherLevels, optional
        Makes the terms, sources and so on at other finest levels, for `on_grid`; not part of the
        content. Problems of `PDE.discretize` have it; those from files and pickles do not.

    Raises
    ------
    TypeError, ValueError
        If the parts do not fit together; the text names the part.
    BackendUnavailableError
        If CuPy is not installed, or there is no usable device.

    Notes
    -----
    The module `exact.error` has the formula of the error against the exact solution. A problem may
    be used by several threads at once.
    """

    __array_ufunc__ = None  # so that NumPy's arrays leave sums to __radd__

    def __add__(self, other: object) -> NoReturn:
        """Raise TypeError: matrices are added to the operator, in a problem of the user's own."""
        raise TypeError(
            f"a Problem and a {type(other).__name__} do not add. Take an object with `initial`, "
            "a `rhs(t, u, out)` that calls problem.rhs(t, u, out) and then does out += matrix @ u, "
            "and for implicit methods `operator` = problem.operator + matrix, a sparse array or an "
            "operator; evolve takes it as it takes a Problem"
        )

    __radd__ = __sub__ = __rsub__ = __add__

    @cached_property
    def system(self) -> System:
        """The operators A(t, u), the right-hand side, and the part that IMEX methods split off."""
        return System(self.parts())

    @cached_property
    def output(self) -> Output:
        """What is read off states: moments, fields, errors, pictures, datasets, quantities."""
        return Output(self.system)

    def _taking(self, system: System) -> Problem:
        """Return this new problem with the operators of the same one on another grid or device."""
        object.__setattr__(self, "system", system.moved(self.parts()))
        return self

    def to(self, device: str) -> Problem:
        """Return the problem on a device; all vectors of its runs are there.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            "cuda" is CuPy's current device.

        Returns
        -------
        Problem
            The same content; ``self`` if the problem is on this device already.

        Raises
        ------
        ValueError
            For any other device.
        BackendUnavailableError
            If CuPy is not installed, or there is no usable device; the text says what to do.
        """
        return self if device == self.device else replace(self, device=device)._taking(self.system)

    def with_form(self, form: str) -> Problem:
        """Return the problem with operators that are applied in another way.

        Parameters
        ----------
        form : {"auto", "sweep", "batch", "dense"}
            As of the class.

        Returns
        -------
        Problem
            The same content; ``self`` if the problem has this form already.

        Raises
        ------
        ValueError
            If the form is unknown or not available on the problem's device, or the problem is too
            large for a dense matrix.
        """
        return self if form == self.form else replace(self, form=form)

    def frozen(self, u: NDArray[np.float64], t: float | None = None) -> Problem:
        """Return the linear problem in which all fields keep the values that they have for a state.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            The state.
        t : float, optional
            The time, for error texts; by default `t0`.

        Returns
        -------
        Problem
            It has an `operator`, and begins at the same initial state; ``self`` without fields.

        Raises
        ------
        TypeError, ValueError
            If the state has another shape.
        ValueError
            If collisions of `bgk` add a Maxwellian, which is no operator.
        NotPhysicalError
            If a field divides by something that is not positive.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> problem = make("landau-1x1v", 3, 1)
        >>> problem.frozen(problem.initial).operator.shape == (problem.unknowns,) * 2
        True
        """
        check_vector("u", u, self.initial)
        if self.electric:
            raise ValueError(
                "the problem has an electric field of several positions, and cannot be frozen yet; "
                "explicit and IMEX methods take it"
            )
        if self.is_nonlinear_at_points:
            raise ValueError(
                "the problem has pointwise terms that are not linear, which are no operators, so "
                "that it cannot be frozen; explicit, IMEX and implicit methods take it"
            )
        if not self.has_fields:
            return self
        if self.gains:
            raise ValueError(
                f"{self.gains[0].text()} is no operator, so that it cannot be frozen; explicit "
                "and IMEX methods take it"
            )
        begin = self.t0 if t is None else t
        return replace(self, terms=frozen_terms(self, begin, u))

    def beginning_at(self, u: NDArray[np.float64], t: float | None = None) -> Problem:
        """Return the problem with another initial state, as ``evolve(problem, u0=u)`` takes it.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            The state.
        t : float, optional
            Its time, by default `t0`.

        Returns
        -------
        Problem

        Raises
        ------
        TypeError, ValueError
            If the state has another shape or is not finite.
        """
        return self.on_grid(self.grid, u, t)

    def on_grid(
        self, grid: SparseGrid, u: NDArray[np.float64] | None = None, t: float | None = None
    ) -> Problem:
        """Return the problem on another grid, such as a refined or coarsened one.

        With the same finest levels, the 1-D operators, the sources and the exact solution stay the
        same, and operators that have been assembled are converted by
        `batchkron.SparseGridOperator.on_grid`. With other levels they are those that
        `PDE.discretize` makes on this grid, and so is the default step. With the same ones, and a
        rule of its own (`with_adapt`), the default step is that for the grid's finest cells.

        Parameters
        ----------
        grid : SparseGrid
            The new grid. Its finest levels may be others if the problem has ``other_levels``, as
            those of `PDE.discretize`.
        u : ndarray, shape (N,), float64, optional
            The state on the present grid with which the new problem begins; by default `initial`.
            The coefficients of cells that both grids have are kept; those of new cells are zero.
        t : float, optional
            The new problem's initial time, by default `t0`.

        Returns
        -------
        Problem

        Raises
        ------
        TypeError
            If ``grid`` is not a SparseGrid.
        ValueError
            If the grid has other levels and the problem no ``other_levels``, the state has another
            shape, or the new problem is too large for its form.

        Examples
        --------
        >>> from batchkron.problems import SparseGrid, make
        >>> problem = make("continuity-2d", 4, 1)
        >>> cells = problem.grid.cells
        >>> coarser = SparseGrid.custom(cells[cells.max(axis=1) < 8], problem.grid.levels)
        >>> problem.unknowns, problem.on_grid(coarser).unknowns
        (192, 128)
        """
        parts = parts_at_levels(self, grid)
        state = self._on_host(self.initial if u is None else u)
        begin = self.t0 if t is None else t
        initial = carried_over(state, self.grid, grid)
        step = None if self.adapt is None or parts else self.adapt.step(finest_levels(grid.cells))
        changes = parts if step is None else {"stepper": replace(self.stepper, dt=step)}
        moved = replace(self, grid=grid, initial=initial, t0=begin, **changes)
        return moved if parts else moved._taking(self.system)

    def stored_grid(self) -> StoredGrid:
        """Return the grid as result files and checkpoints hold it."""
        grid = self.grid
        levels = np.array(grid.levels, dtype=np.int64)
        return StoredGrid(grid.cells, levels, np.zeros(grid.num_cells, dtype=np.int64))

    def on_stored_grid(self, stored: StoredGrid) -> Problem:
        """Return the problem on the grid of a result file or checkpoint.

        Parameters
        ----------
        stored : StoredGrid
            As in `batchkron.storage.ResultFile`.

        Returns
        -------
        Problem
            Cells that the present grid lacks begin at 0.

        Raises
        ------
        ValueError
            If the grid has another number of axes or cells in another order, or as for `on_grid`.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> problem = make("continuity-2d", 4, 1)
        >>> coarser = make("continuity-2d", 3, 1)
        >>> problem.on_stored_grid(coarser.stored_grid()).unknowns == coarser.unknowns
        True
        """
        if stored.cells.shape[1] != len(self.axes):
            raise ValueError(
                f"the stored grid has {stored.cells.shape[1]} axes; the problem has "
                f"{len(self.axes)}"
            )
        grid = SparseGrid.custom(stored.cells, stored.levels.tolist())
        if not np.array_equal(grid.cells, stored.cells):
            raise ValueError("the stored grid is not sorted, or has a cell twice")
        return self.on_grid(grid)

    def adaptive(
        self,
        *,
        tol: float,
        relative: bool = False,
        max_level: int | Sequence[int] | None = None,
        keep: Iterable[Axis | str] | Axis | str = (),
        weight: Callable[..., Any] | FieldExpression | str | None = None,
        fields: Iterable[FieldExpression] = (),
    ) -> AdaptiveProblem:
        """Return the problem with a rule by which its grid follows the solution.

        `batchkron.solvers.evolve` calls it if ``adapt=`` is given; `batchkron.solvers.Adapt`
        describes the rule.

        Parameters
        ----------
        tol, relative, max_level, keep, weight, fields
            As of `batchkron.solvers.Adapt`.

        Returns
        -------
        AdaptiveProblem
            Its methods ``started``, ``changed`` and ``extended`` choose grids.

        Raises
        ------
        TypeError, ValueError
            If ``max_level`` is below the grid's finest level, or the problem has no 1-D operators
            of these levels; if an axis is unknown; if a weight is a function of other arguments, or
            of fields that the problem cannot have; if operators are dense.
        """
        return adaptive_problem(self, tol, relative, max_level, keep, weight, fields)

    def with_adapt(self, rule: Any) -> Problem:
        """Return the problem with a rule by which its grid follows the solution, also in files.

        `batchkron.solvers.evolve` then adapts the grid without ``adapt=``, and so does
        ``batchkron run`` with the problem's file. The file has the 1-D operators up to the rule's
        ``max_level``.

        Parameters
        ----------
        rule : batchkron.solvers.Adapt, AdaptSettings or None
            The rule, or that of another problem. Its ``weight`` may be a text such as "v^2"; files
            hold no functions. None returns the problem without a rule.

        Returns
        -------
        Problem
            On the grid that the initial state needs by the rule: a problem from a file cannot
            refine it, since it does not know the function. Its 1-D operators are those of the
            finest levels that the grid may reach; its default step follows the present cells.

        Raises
        ------
        TypeError
            If the rule is not an `Adapt`, or as for `adaptive`.
        ValueError
            If the weight is a function or field, or as for `adaptive`.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> from batchkron.solvers import Adapt, evolve
        >>> problem = make("continuity-2d", 3, 2).with_adapt(Adapt(1e-3, every=5, max_level=6))
        >>> result = evolve(problem, until=0.02, dt=1e-3)
        >>> problem.unknowns, result.problem.unknowns
        (180, 288)
        """
        if rule is None:
            return replace(self, adapt=None)
        moved: Problem = with_rule(self, rule)
        return moved

    # Of the system.

    @property
    def is_linear(self) -> bool:
        """Whether `rhs` is A(t) u + s(t).

        Without fields and pointwise terms that are not linear, and if no subclass overrides `rhs`.
        """
        is_own = type(self).rhs is Problem.rhs
        return is_own and not (self.has_fields or self.is_nonlinear_at_points)

    @property
    def operator(self) -> Operator:
        """The operator A, where it does not depend on time or the state; see `System.operator`."""
        return self.system.operator

    @property
    def num_added_cells(self) -> int:
        """Number of cells outside the grid that sweeps need; see `System.num_added_cells`."""
        return self.system.num_added_cells

    def operator_at(self, t: float) -> Operator:
        """Return the operator A(t); see `System.operator_at`."""
        return self.system.operator_at(t)

    def implicit_operator_at(self, t: float) -> Operator:
        """Return the part of A(t) that IMEX methods treat implicitly; see the `System`'s method."""
        return self.system.implicit_operator_at(t)

    def implicit_part(self) -> ImplicitFields | None:
        """Return the implicit part, if it has fields; see `System.implicit_part`."""
        return self.system.implicit_part()

    def whole_part(self) -> ImplicitFields | Linearisation | None:
        """Return all of A(t, u) u + s(t), if it is not linear; see `System.whole_part`."""
        return self.system.whole_part()

    @property
    def jacobian(self) -> Callable[[float, NDArray[np.float64]], Derivative] | None:
        """The function of (t, u) that returns ∂f/∂u, or None; see `System.jacobian`."""
        return self.system.jacobian

    @property
    def limit_state(self) -> Callable[[float, NDArray[np.float64]], None] | None:
        """What methods do with each state and stage (t, u), in place; None without a limiter."""
        return self.system.limit

    def time_parts(self, *, implicit: bool = False) -> TimeParts:
        """Return the operators and vectors of which A(t) and s(t) are made; see the `System`'s."""
        return self.system.time_parts(implicit=implicit)

    def split_rhs(self) -> SplitRightSide:
        """Return A(t, u) u + s(t) in the parts of explicit methods; see `System.split_rhs`."""
        return self.system.split_rhs()

    def validate(self, samples: int | None = None, seed: int = 0) -> ValidationReport:
        """Compare the operator's blocks with dense Kronecker products; see `System.validate`."""
        return self.system.validate(samples, seed)

    def rhs(
        self, t: float, u: NDArray[np.float64], out: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return A(t, u) u + s(t), in `out` if that is given; see `System.rhs`."""
        return self.system.rhs(t, u, out)

    def accumulate(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Add A(t, u) u to `out`: what `rhs` does after `source`."""
        self.system.accumulate(t, u, out)

    def source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite `out` with s(t), the sum of sources and boundary data."""
        self.system.source(t, out)

    def implicit_source(self, t: float, out: NDArray[np.float64]) -> None:
        """Overwrite `out` with the sources that IMEX methods treat implicitly."""
        self.system.implicit_source(t, out)

    def project(
        self, function: Callable[..., Any] | str | SeparableFunction, t: float | None = None
    ) -> NDArray[np.float64]:
        """Return the coefficients of a function of all axes; see `System.project`.

        Examples
        --------
        >>> import numpy as np
        >>> from batchkron.problems import make
        >>> problem = make("continuity-2d", 4, 2)
        >>> u = problem.project(lambda x, y: np.exp(np.cos(x + y)))
        >>> abs(problem.evaluate(u, [[0.3, 0.4]])[0] - np.exp(np.cos(0.7))) < 1e-3
        np.True_
        """
        return self.system.project(function, t)

    # Of the output.

    @property
    def recurrence_time(self) -> float | None:
        """The time at which the damping of a plasma's longest wave ends, at latest, if it has one.

        See `Output.recurrence_time`.
        """
        return self.output.recurrence_time

    def evaluate(
        self, u: NDArray[np.float64], points: ArrayLike, *others: ArrayLike
    ) -> NDArray[np.float64]:
        """Return the values of a state at points; see `Output.evaluate`."""
        return self.output.evaluate(u, points, *others)

    def moment(
        self, u: NDArray[np.float64], powers: Axis | Sequence[Axis] | Mapping[Axis, int]
    ) -> Field:
        """Return ∫ v_1^k_1 v_2^k_2 … f dV over the axes that are named; see `Output.moment`."""
        return self.output.moment(u, powers)

    def marginal(self, u: NDArray[np.float64], axes: Axis | Sequence[Axis]) -> Field:
        """Return ∫ f dV over all axes but these, as a function of them; see `Output.marginal`."""
        return self.output.marginal(u, axes)

    def slice(self, u: NDArray[np.float64], places: Mapping[Axis, float]) -> Field:
        """Return f at given places of some axes, as a function of the others; `Output.slice`."""
        return self.output.slice(u, places)

    def integral(self, u: NDArray[np.float64]) -> float:
        """Return ∫ f dV over all axes, volume elements included."""
        return self.output.integral(u)

    def moment_weights(
        self, powers: Axis | Sequence[Axis] | Mapping[Axis, int]
    ) -> NDArray[np.float64]:
        """Return the vector w with w · u = ∫ v_1^k_1 … f dV; see `Output.moment_weights`."""
        return self.output.moment_weights(powers)

    def field(
        self,
        u: NDArray[np.float64],
        expression: FieldExpression | ElectricComponent,
        t: float | None = None,
    ) -> Field:
        """Return the values of a field, such as ``Poisson(x, Moment(v))``; see `Output.field`."""
        return self.output.field(u, expression, t)

    def outflow_rate(self, t: float, u: NDArray[np.float64]) -> float:
        """Return -d/dt ∫ f dV without sources and data: outflow and reactions; see `Output`."""
        return self.output.outflow_rate(t, u)

    def exact_coefficients(self, t: float) -> NDArray[np.float64] | None:
        """Return the exact solution's projection on the grid, or None if it is not known."""
        return self.output.exact_coefficients(t)

    def plot(
        self,
        u: NDArray[np.float64],
        t: float | None = None,
        *,
        slice: Places | None = None,  # noqa: A002
        marginal: AxisOrName | Sequence[AxisOrName] | None = None,
        show: str | None = None,
        limits: tuple[float, float] | None = None,
        ax: Axes | None = None,
    ) -> Any:
        """Draw a state; see `Output.plot`."""
        shown: dict[str, Any] = {"show": show, "limits": limits, "ax": ax}
        return self.output.plot(u, t, slice=slice, marginal=marginal, **shown)

    def to_xarray(
        self,
        u: NDArray[np.float64],
        t: float | None = None,
        *,
        points: int | Counts | None = None,
        slice: Places | None = None,  # noqa: A002
        marginal: AxisOrName | Sequence[AxisOrName] | None = None,
    ) -> Any:
        """Return a state's values as an xarray.Dataset; see `Output.to_xarray`."""
        return self.output.to_xarray(u, t, points=points, slice=slice, marginal=marginal)

    def describe(self) -> str:
        """Return a table of the problem's axes, grid, terms, sources, time stepper and form.

        Its sources include the boundary data: a discretized problem does not distinguish them.

        Returns
        -------
        str
            About fifteen lines, whatever the number of unknowns.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> lines = make("diffusion-1d", level=3, degree=1).describe().splitlines()
        >>> print(lines[2])
        grid            sparse, finest levels 3, 8 cells
        """
        form = "sweep" if self.form == "auto" else self.form
        return rows_text([*problem_rows(self), ("operators", f"{form}, on the {self.device}")])

    def __repr__(self) -> str:
        return f"<{problem_text(self)}>"
