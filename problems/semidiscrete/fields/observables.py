"""What is read off a state: moments, integrals, marginals, slices, and the fields of terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.operators import BatchedKron, on_device

from ...discretization.basis.multiwavelets import MAX_DEGREE, legendre_values, to_hierarchical
from ...discretization.basis.quadrature import gauss_rule
from ...discretization.fields.sampling import sampled
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis
from ...statement.field_axes import check_field
from ...statement.fields import FieldExpression, checked_powers
from ...statement.number_checks import finite_number
from ..time_combination import kron_on_grid
from ..value import ProblemValue
from ..vector_checks import check_vector
from .contraction import contraction, point_weights, power_weights
from .evaluation import FieldEvaluation
from .field import Field

__all__ = ["Observables"]

_MAX_EVALUATIONS = 16  # fields whose evaluation a problem keeps

_Powers = Axis | Sequence[Axis] | Mapping[Axis, int]


class Observables(ProblemValue):
    """The part of a problem that reads moments and other functions off its states."""

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
        weights = {self._place(axis): self._power(axis, power) for axis, power in pairs}
        return self._contracted(u, weights, ("powers", frozenset(pairs)))

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
        places = {self._place(axis) for axis in kept}
        others = [axis for k, axis in enumerate(self.axes) if k not in places]
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
            k = self._place(axis)
            weights[k] = point_weights(axis, self.grid.levels[k], self.degree, at)
        return self._contracted(u, weights, ("places", frozenset(points.items())))

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
        check_vector("u", u, self.initial)
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
            self._place(axis)
        weights = [self._power(axis, given.get(axis, 0)).ravel() for axis in self.axes]
        return on_device(kron_on_grid(weights, self.grid, self.degree + 1), self.device)

    def field(
        self, u: NDArray[np.float64], expression: FieldExpression, t: float | None = None
    ) -> Field:
        """Return the values of a field, such as ``Poisson(x, Moment(v))``, for a state.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        expression : FieldExpression
            The field, a function of one axis.
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
            If the expression is not a function of one of the problem's axes.
        NotPhysicalError
            If a divisor or the base of a root is not positive.
        """
        check_vector("u", u, self.initial)
        axis = check_field(expression, self.axes)
        k, levels = self._place(axis), self.grid.levels
        evaluate = self._evaluation(expression, axis)
        values = to_host(evaluate(self.t0 if t is None else t, u)[0], "values")
        degree, width = min(values.shape[1] - 1, MAX_DEGREE), axis.cell_width(levels[k])
        nodes, weights = gauss_rule(values.shape[1])
        shapes = legendre_values(nodes, degree, width) * (weights * (width / 2))[:, None]
        coefficients = to_hierarchical((values @ shapes).ravel(), levels[k], degree)
        placed = on_device(coefficients, self.device)
        grid, curved = SparseGrid.full([levels[k]]), self.masses[k] is not None
        return Field((axis,), grid, degree, placed, (None,), has_integral=not curved)

    def _evaluation(self, expression: FieldExpression, axis: Axis) -> FieldEvaluation:
        """Return the evaluation of a field; the last ones are kept, for runs that watch a field."""
        known = self._evaluations
        if expression not in known:
            if len(known) == _MAX_EVALUATIONS:
                known.clear()
            fixed = sampled(expression, axis, self.grid.levels[self._place(axis)], self.degree)
            known[expression] = FieldEvaluation(
                [fixed], axis, self.axes, self.grid, self.degree, self.masses, self.device
            )
        return known[expression]

    @cached_property
    def _evaluations(self) -> dict[FieldExpression, FieldEvaluation]:
        return {}

    def _place(self, axis: object) -> int:
        """Return the number of an axis."""
        if not isinstance(axis, Axis):
            raise TypeError(f"{axis!r} is no axis; expected one of problem.axes")
        if axis not in self.axes:
            names = ", ".join(map(str, self.axes))
            raise ValueError(f"{axis} is not an axis of the problem; its axes are {names}")
        return self.axes.index(axis)

    def _power(self, axis: Axis, power: int) -> NDArray[np.float64]:
        k = self._place(axis)
        return power_weights(axis, self.grid.levels[k], self.degree, power, self.masses[k])

    @cached_property
    def _whole(self) -> NDArray[np.float64]:
        return self.moment_weights(list(self.axes))

    @cached_property
    def _contractions(self) -> dict[object, tuple[SparseGrid, BatchedKron]]:
        return {}

    def _contracted(
        self, u: NDArray[np.float64], weights: dict[int, NDArray[np.float64]], key: object
    ) -> Field:
        """Return a state multiplied by weights along some axes; ``key`` identifies these."""
        check_vector("u", u, self.initial)
        kept = [k for k in range(len(self.axes)) if k not in weights]
        if not kept:
            raise ValueError(
                "no axis is left for the result; problem.integral(u) and "
                "problem.moment_weights(powers) are for integrals over all axes, "
                "problem.evaluate(u, points) for values at points"
            )
        if not weights:
            raise ValueError("no axis is named")
        if key not in self._contractions:
            cells, outputs = np.unique(self.grid.cells[:, kept], axis=0, return_inverse=True)
            levels = [self.grid.levels[k] for k in kept]
            left = SparseGrid.custom(cells, levels)
            places = outputs.ravel()
            self._contractions[key] = (
                left,
                contraction(
                    self.grid, self.degree + 1, kept, [weights], places, left.num_cells, self.device
                ),
            )
        left, batch = self._contractions[key]
        blocks = batch.apply(u.reshape(self.grid.num_cells, -1))
        return Field(
            tuple(self.axes[k] for k in kept),
            left,
            self.degree,
            blocks.reshape(-1),
            tuple(self.masses[k] for k in kept),
        )
