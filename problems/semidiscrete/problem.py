"""A discretized problem: everything that a run needs, as one immutable value.

`Problem` inherits most of its parts. The modules of this package that define them are

- `value`: the fields and their checks, `unknowns`, `block_size`, `is_constant`,
  `check_interval`, `content_hash`
- `system`: `operator`, `operator_at`, `implicit_operator_at`, `is_linear`, `num_added_cells`,
  `validate`; `rhs`, `accumulate`, `source`, `implicit_source`
- `fields`: `moment`, `marginal`, `slice`, `integral`, `moment_weights`, `field`; the terms whose
  coefficients are fields
- `exact_comparison`: `exact_coefficients`, `l2_error`, `l2_norm_exact`, `relative_error`
- `output`: `plot`, `to_xarray`, `quantities`
- `adaptation.transfer`: `on_grid`, the same problem on another grid
- this one: `to` and `with_form`, which return the same problem on another device or with another
  form of its operators; `frozen`, `beginning_at`, `adaptive`, `with_adapt`, `evaluate`,
  `describe`
- `problem_file`: `save_problem`, `load_problem`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence  # noqa: F401
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import array_module

from ..discretization.basis.mesh_evaluation import evaluate_at
from ..discretization.parts import (
    AdaptSettings,  # noqa: F401
    ExactSolution,
    Masses,  # noqa: F401
    OperatorTerm,
    SeparableVector,
    StepperSettings,
)
from ..grids.sparse_grid import SparseGrid  # noqa: F401
from ..statement.axis import Axis
from ..statement.fields import FieldExpression
from ..statement.gains import MaxwellianGain  # noqa: F401
from ..statement.text import rows_text
from .adaptation.changing_cells import AdaptiveProblem, adaptation_rule
from .adaptation.own_rule import with_rule
from .adaptation.transfer import GridTransfer
from .description import problem_rows, problem_text
from .exact.function import ExactFunction  # noqa: F401
from .fields.terms import frozen_terms
from .levels import OtherLevels  # noqa: F401
from .output.presentation import Presentation
from .vector_checks import check_vector

__all__ = ["ExactSolution", "OperatorTerm", "Problem", "SeparableVector", "StepperSettings"]


# The constructor is made here, of fields that `value` declares: typing.get_type_hints, and with it
# the reference, looks for the names in their types in this module.
@dataclass(frozen=True, eq=False, repr=False)
class Problem(GridTransfer, Presentation):
    """The system u' = A(t, u) u + s(t) of hierarchical coefficients u on a grid, from t0 on.

    A = Σ terms and s = Σ sources, restricted to the grid. A depends on u only if a term has a field
    as coefficient. Vectors have N = num_cells · n^d
    entries, with n = degree + 1: the index of the block is the slowest, and within a block that of
    the last axis is the fastest.

    Parameters
    ----------
    name : str
        The problem's name.
    axes : sequence of Axis
        The d coordinates.
    degree : int
        Polynomial degree of the basis.
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
    adapt : AdaptSettings, optional
        The rule by which `batchkron.solvers.evolve` lets the grid follow the solution by default;
        `with_adapt` sets it.
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
        moved = self if device == self.device else replace(self, device=device)
        if moved is not self and "_groups" in self.__dict__ and self._form == moved._form:
            groups = tuple(group.to(device) for group in self._groups)
            moved.__dict__["_groups"] = groups
        return moved

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

    def outflow_rate(self, t: float, u: NDArray[np.float64]) -> float:
        """Return -d/dt ∫ f dV by A alone: what flows out at the ends of the axes.

        Parameters
        ----------
        t : float
            Time.
        u : ndarray, shape (N,), float64
            State.

        Returns
        -------
        float
            Negative where more flows in. Terms without a derivative, such as reactions, count too;
            sources and the data of inflow ends do not.

        Raises
        ------
        TypeError, ValueError
            If the state has another shape.
        NotPhysicalError
            If a field divides by something that is not positive.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> problem = make("advection-1d", 4, 2)
        >>> round(problem.outflow_rate(0.0, problem.initial), 3)  # 2 f at x = π, where f = cos x
        -2.0
        """
        check_vector("u", u, self.initial)
        change = array_module(u).zeros_like(u)
        self._accumulate(t, u, change)
        return -self.integral(change)

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
        rule = adaptation_rule(self, tol, relative, max_level, keep, weight, fields)
        return AdaptiveProblem(self, rule, np.zeros(self.grid.num_cells, dtype=np.int8))

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

    def evaluate(
        self, u: NDArray[np.float64], points: ArrayLike, *others: ArrayLike
    ) -> NDArray[np.float64]:
        """Return the values of a state at points.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        points : array_like, shape (..., d), float64
            Points, with the coordinates in the order of the axes. A point on an edge between cells
            takes the value from the cell above it. With one axis also an array (m,).
        *others : array_like
            If given, ``points`` and these are the coordinates along each of the d axes, arrays that
            are broadcast together, such as those of `numpy.meshgrid`.

        Returns
        -------
        ndarray, float64
            Of the shape (...), or that of the broadcast coordinates; on the CPU.

        Raises
        ------
        ValueError
            For another number of arrays, other shapes, or points outside the domain.

        Examples
        --------
        >>> import numpy as np
        >>> from batchkron.problems import make
        >>> problem = make("continuity-2d", 4, 1)
        >>> mesh = np.meshgrid([-0.5, 0.0, 0.5], [0.1, 0.2], indexing="ij", sparse=True)
        >>> problem.evaluate(problem.initial, *mesh).shape
        (3, 2)
        """
        places = (points, *others)
        return evaluate_at(self._on_host(u), places, self.axes, self.grid, self.degree)

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
