"""What is read off a state: moments, slices, fields of terms, errors against the exact solution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import array_module, to_host
from batchkron.operators import BatchedKron, on_device

from ...discretization.basis.mesh_evaluation import evaluate_at
from ...discretization.basis.multiwavelets import MAX_DEGREE, legendre_values, to_hierarchical
from ...discretization.basis.quadrature import gauss_rule
from ...discretization.fields.sampling import sampled
from ...grids.degrees import common_or_each
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from ...statement.electric import Electric, ElectricComponent
from ...statement.field_axes import check_field
from ...statement.fields import FieldExpression, checked_powers
from ...statement.number_checks import finite_number
from ..checks import check_vector
from ..exact.function import ExactFunction, OnGrid
from ..exact.separable import SeparableSolution
from ..fields.contraction import contraction, point_weights, power_weights
from ..fields.electric import ElectricValues
from ..fields.evaluation import FieldEvaluation
from ..fields.field import Field
from ..sources import kron_on_grid
from ..system import System

__all__ = ["Observables"]

_MAX_EVALUATIONS = 16  # fields whose evaluation a problem keeps

_Powers = Axis | Sequence[Axis] | Mapping[Axis, int]


class Observables:
    """What is read off the states of a problem.

    Parameters
    ----------
    system : System
        Its operators.

    Attributes
    ----------
    problem : ProblemValue
        The problem's parts.
    """

    def __init__(self, system: System) -> None:
        self.problem, self._system = system.problem, system

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
        problem, places = self.problem, (points, *others)
        state = problem._on_host(u)
        return evaluate_at(state, places, problem.axes, problem.grid, problem.degree)

    def moment(self, u: NDArray[np.float64], powers: _Powers) -> Field:
        """Return the moment ∫ v_1^k_1 v_2^k_2 … f dV over the axes that are named.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        powers : Axis, sequence of Axis, or mapping of Axis to int
            The axes with the powers k_i, 0 for an axis without one: ``{v: 2}``.

        Returns
        -------
        Field
            A function of the other axes, of which there must be one at least.

        Raises
        ------
        TypeError, ValueError
            If the state has another shape, an axis is not the problem's or none is left, or a
            power is larger than the degree along an axis with a volume element.

        Examples
        --------
        >>> from batchkron.problems import make
        >>> problem = make("landau-1x1v", 4, 2)
        >>> x, v = problem.axes
        >>> problem.moment(problem.initial, {v: 2}).evaluate([0.0]).round(4)
        array([1.0001])
        """
        pairs = checked_powers("the moment", powers)
        weights = {self.place(axis): self.power(axis, power) for axis, power in pairs}
        return self.contracted(u, weights, ("powers", frozenset(pairs)))

    def marginal(self, u: NDArray[np.float64], axes: Axis | Sequence[Axis]) -> Field:
        """Return ∫ f dV over all axes but these, as a function of them.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        axes : Axis or sequence of Axis
            The axes that are kept, one at least and not all.

        Returns
        -------
        Field

        Raises
        ------
        TypeError, ValueError
            As for `moment`.
        """
        kept = [axes] if isinstance(axes, Axis) else list(axes)
        places = {self.place(axis) for axis in kept}
        others = [axis for k, axis in enumerate(self.problem.axes) if k not in places]
        if not others:
            raise ValueError("marginal keeps all axes; leave out those to integrate over")
        return self.moment(u, others)

    def slice(self, u: NDArray[np.float64], places: Mapping[Axis, float]) -> Field:
        """Return f at given places of some axes, as a function of the others.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        places : mapping of Axis to float
            The coordinate of each axis that is fixed, as in ``{v: 0.0}``. On an edge between cells
            the value is that of the cell above it.

        Returns
        -------
        Field

        Raises
        ------
        TypeError, ValueError
            If a place is outside its axis; otherwise as for `moment`.
        """
        if not isinstance(places, Mapping):
            raise TypeError(
                f"places is {type(places).__name__}; expected a mapping of axes to coordinates, "
                "such as {v: 0.0}"
            )
        points = {axis: finite_number(f"places[{axis}]", at) for axis, at in places.items()}
        weights = {}
        for axis, at in points.items():
            k, problem = self.place(axis), self.problem
            weights[k] = point_weights(axis, problem.grid.levels[k], problem.degrees[k], at)
        return self.contracted(u, weights, ("places", frozenset(points.items())))

    def integral(self, u: NDArray[np.float64]) -> float:
        """Return ∫ f dV over all axes, volume elements included.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.

        Returns
        -------
        float

        Raises
        ------
        TypeError, ValueError
            If the state has another shape.
        """
        check_vector("u", u, self.problem.initial)
        return float(self._whole @ u)

    def moment_weights(self, powers: _Powers) -> NDArray[np.float64]:
        """Return the vector w with w · u = ∫ v_1^k_1 … f dV over all axes, for every state u.

        Parameters
        ----------
        powers : Axis, sequence of Axis, or mapping of Axis to int
            The powers k_i, 0 for an axis that is not named.

        Returns
        -------
        ndarray, shape (N,), float64
            Where the problem's states are.

        Raises
        ------
        TypeError, ValueError
            As for `moment`.
        """
        given = dict(checked_powers("the moment", powers))
        for axis in given:
            self.place(axis)
        problem = self.problem
        weights = [self.power(axis, given.get(axis, 0)).ravel() for axis in problem.axes]
        return on_device(kron_on_grid(weights, problem.grid, problem.sizes), problem.device)

    def field(
        self,
        u: NDArray[np.float64],
        expression: FieldExpression | ElectricComponent,
        t: float | None = None,
    ) -> Field:
        """Return the values of a field, such as ``Poisson(x, Moment(v))``, for a state.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        expression : FieldExpression or ElectricComponent
            The field, a function of one axis; or a component of an `Electric` of the problem's
            terms, a function of all its positions, of degree p + 1.
        t : float, optional
            The time, for error texts; by default `t0`.

        Returns
        -------
        Field
            In each finest cell the polynomial through the field's values at the Gauss points, or
            its projection on degree 32. It is the field itself where that is a polynomial, as for
            moments, their products, and the field of Poisson's equation. Along an axis with a
            volume element its `integral` and `norm` are refused: a problem knows the element's
            integrals for its own degree only.

        Raises
        ------
        TypeError, ValueError
            If the expression is not a function of one of the problem's axes, or the electric field
            is in no term.
        NotPhysicalError
            If a divisor or the base of a root is not positive.
        """
        problem = self.problem
        check_vector("u", u, problem.initial)
        if isinstance(expression, ElectricComponent):
            return self._electric_field(u, expression)
        axis = check_field(expression, problem.axes)
        k, levels = self.place(axis), problem.grid.levels
        evaluate = self._evaluation(expression, axis)
        values = to_host(evaluate(problem.t0 if t is None else t, u)[0], "values")
        degree, width = min(values.shape[1] - 1, MAX_DEGREE), axis.cell_width(levels[k])
        nodes, weights = gauss_rule(values.shape[1])
        shapes = legendre_values(nodes, degree, width) * (weights * (width / 2))[:, None]
        coefficients = to_hierarchical((values @ shapes).ravel(), levels[k], degree)
        placed = on_device(coefficients, problem.device)
        grid, curved = SparseGrid.full([levels[k]]), problem.masses[k] is not None
        return Field((axis,), grid, degree, placed, (None,), has_integral=not curved)

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
        check_vector("u", u, self.problem.initial)
        change = array_module(u).zeros_like(u)
        self._system.accumulate(t, u, change)
        return -self.integral(change)

    def exact_coefficients(self, t: float) -> NDArray[np.float64] | None:
        """Return the exact solution's projection on the grid, or None if it is not known.

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        ndarray, shape (N,), float64, or None
        """
        if self.problem.exact is None:
            return None
        return on_device(self._known.coefficients(t), self.problem.device)

    def l2_error(self, u: NDArray[np.float64], t: float) -> float:
        """Return the L2 error ‖u - f(t)‖ against the exact solution f, where ‖f‖² = ∫ f² dV.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        t : float
            Time.

        Returns
        -------
        float
            In the unit of f times the square root of the domain's volume.

        Raises
        ------
        ValueError
            If the exact solution is not known.

        Notes
        -----
        With the projection P onto the grid, ‖u - f‖² = ‖u - Pf‖² + ‖f - Pf‖², where the second
        part, what the grid leaves out, is summed directly (`exact.error`). With volume elements
        both are computed in orthonormal coordinates (`weighted_norm`), and against an
        `ExactFunction` that is not separable the error is computed by quadrature. All of it runs on
        the CPU, wherever the state is.
        """
        return self._known.error(self.problem._on_host(u), t)

    def l2_norm_exact(self, t: float) -> float:
        """Return the L2 norm ‖f(t)‖ of the exact solution.

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the exact solution is not known.
        """
        return self._known.norm(t)

    def relative_error(self, u: NDArray[np.float64], t: float) -> float:
        """Return ‖u - f(t)‖ / ‖f(t)‖; inf if f(t) is zero and u is not, 0 if both are zero.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        t : float
            Time.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the exact solution is not known.
        """
        error, norm = self.l2_error(u, t), self.l2_norm_exact(t)
        if norm == 0.0:
            return math.inf if error > 0.0 else 0.0
        return error / norm

    def _electric_field(self, u: NDArray[np.float64], component: ElectricComponent) -> Field:
        problem, electric = self.problem, component.electric
        own = next((own for own in problem.electric if own.electric == electric), None)
        if own is None:
            raise ValueError(
                f"{electric.text()} is in no term of the problem, which does not know which of its "
                "axes are periodic; expected the field of a term"
            )
        if electric not in self._electric:
            self._electric[electric] = ElectricValues.of(own, problem)
        values = self._electric[electric]
        axes = tuple(problem.axes[k] for k in values.positions)
        coefficients = values.coefficients(u, component.number)
        masses = (None,) * len(axes)
        return Field(axes, values.grid, values.degree + 1, coefficients, masses)

    @cached_property
    def _electric(self) -> dict[Electric, ElectricValues]:
        return {}

    def _evaluation(self, expression: FieldExpression, axis: Axis) -> FieldEvaluation:
        """Return the evaluation of a field; the last ones are kept, for runs that watch a field."""
        known = self._evaluations
        if expression not in known:
            if len(known) == _MAX_EVALUATIONS:
                known.clear()
            problem = self.problem
            k = self.place(axis)
            level, degree = problem.grid.levels[k], problem.degrees[k]
            known[expression] = FieldEvaluation(
                [sampled(expression, axis, level, degree)],
                axis, problem.axes, problem.grid, problem.degree, problem.masses, problem.device,
            )  # fmt: skip
        return known[expression]

    @cached_property
    def _evaluations(self) -> dict[FieldExpression, FieldEvaluation]:
        return {}

    def place(self, axis: object) -> int:
        """Return the number of an axis."""
        if not isinstance(axis, Axis):
            raise TypeError(f"{axis!r} is no axis; expected one of problem.axes")
        if axis not in self.problem.axes:
            names = ", ".join(map(str, self.problem.axes))
            raise ValueError(f"{axis} is not an axis of the problem; its axes are {names}")
        return self.problem.axes.index(axis)

    def power(self, axis: Axis, power: int) -> NDArray[np.float64]:
        """Return the weights of ∫ v^power … dV along an axis, for `contracted`."""
        k, problem = self.place(axis), self.problem
        level, mass = problem.grid.levels[k], problem.masses[k]
        return power_weights(axis, level, problem.degrees[k], power, mass)

    @cached_property
    def _whole(self) -> NDArray[np.float64]:
        return self.moment_weights(list(self.problem.axes))

    @cached_property
    def _contractions(self) -> dict[object, tuple[SparseGrid, BatchedKron]]:
        return {}

    def contracted(
        self, u: NDArray[np.float64], weights: dict[int, NDArray[np.float64]], key: object
    ) -> Field:
        """Return a state multiplied by weights along some axes; ``key`` identifies these."""
        problem, grid = self.problem, self.problem.grid
        check_vector("u", u, problem.initial)
        kept = [k for k in range(len(problem.axes)) if k not in weights]
        if not kept:
            raise ValueError(
                "no axis is left for the result; problem.integral(u) and "
                "problem.moment_weights(powers) are for integrals over all axes, "
                "problem.evaluate(u, points) for values at points"
            )
        if not weights:
            raise ValueError("no axis is named")
        if key not in self._contractions:
            cells, outputs = np.unique(grid.cells[:, kept], axis=0, return_inverse=True)
            left = SparseGrid.custom(cells, [grid.levels[k] for k in kept])
            place = outputs.ravel(), left.num_cells, problem.device
            batch = contraction(grid, problem.sizes, kept, [weights], *place)
            self._contractions[key] = left, batch
        left, batch = self._contractions[key]
        blocks = batch.apply(u.reshape(grid.num_cells, -1))
        axes = tuple(problem.axes[k] for k in kept)
        masses = tuple(problem.masses[k] for k in kept)
        degree = common_or_each([problem.degrees[k] for k in kept])
        return Field(axes, left, degree, blocks.reshape(-1), masses)

    @cached_property
    def _known(self) -> OnGrid:
        """The exact solution with its projections on the grid."""
        problem, exact = self.problem, self.problem.exact
        if exact is None:
            raise ValueError(
                f"the exact solution of {problem.name!r} is not known; give PDE(..., exact=...) one"
            )
        if isinstance(exact, ExactFunction):
            return exact.on(problem.grid)
        return SeparableSolution(exact, problem.masses, problem.grid, problem.degree)
