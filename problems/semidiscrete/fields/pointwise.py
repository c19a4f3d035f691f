"""Functions of the state at points of a problem's grid, and the operators that act on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from operator import add
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import Diagonal, Operator, on_device

from ...discretization.interpolation.transform import PointTransform
from ...discretization.parts import OperatorTerm
from ...statement.functions import FunctionOfAxes
from ..operators import TermGroup, group_terms, operator_sum
from ..value import ProblemValue

__all__ = ["PointwiseOfState"]

Values = NDArray[np.float64]


_OfPoints: TypeAlias = tuple[
    PointTransform,
    list[Values],
    list[tuple[FunctionOfAxes, Sequence[TermGroup], Sequence[TermGroup]]],
]
"""Points with their coordinates, and the functions there, each with what acts on it, and inside."""


class PointwiseOfState:
    """The sum of all pointwise terms of a problem, which may have none, for a state.

    The state's values at the points are computed once for all functions on the same points.
    """

    def __init__(self, problem: ProblemValue) -> None:
        self._problem = problem

    def __bool__(self) -> bool:
        return bool(self._problem.pointwise)

    def write(self, t: float, u: Values, out: Values) -> None:
        """Overwrite ``out`` with the sum; parameters and errors as of `accumulate`."""
        out[...] = 0.0
        self.accumulate(t, u, out)

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add the sum for the state u to ``out``.

        Raises PointValueError, a `NotPhysicalError`, if a function has a value that is not finite.
        """
        for transform, points, members in self._by_points:
            plain = None
            for function, groups, inner in members:
                if inner:
                    values = transform.values(_sum_of(inner, t, u))
                elif plain is None:
                    values = plain = transform.values(u)
                else:
                    values = plain
                product = transform.coefficients(function.of_state(values, points, t))
                for group in groups:
                    group.accumulate(t, product, out)

    def operator(self, t: float) -> Operator:
        """Return the sum as an operator, if all functions are linear.

        Raises ValueError if one is not, at a point.
        """
        found: list[Operator] = []
        for transform, points, members in self._by_points:
            to_values, to_coefficients = transform.operators
            for function, groups, inner in members:
                factor = Diagonal(function.factor(points, t)).to(self._problem.device)
                whole = operator_sum(groups, t) @ to_coefficients @ factor @ to_values
                found.append(whole @ operator_sum(inner, t) if inner else whole)
        return reduce(add, found)

    @cached_property
    def _by_points(self) -> list[_OfPoints]:
        found = []
        for extra in sorted({own.extra for own in self._problem.pointwise}):
            problem = self._problem
            transform = PointTransform(
                problem.axes, problem.grid, problem.degree, extra=extra, device=problem.device
            )
            points = [on_device(own, problem.device) for own in transform.points()]
            own = [operator for operator in problem.pointwise if operator.extra == extra]
            members = [(o.function, self._groups(o.terms), self._groups(o.inner)) for o in own]
            found.append((transform, points, members))
        return found

    def _groups(self, terms: Sequence[OperatorTerm]) -> Sequence[TermGroup]:
        problem = self._problem
        if not terms:
            return ()
        groups = group_terms(terms, problem.grid, problem.degree, problem._form)
        return [group.to(problem.device) for group in groups]


def _sum_of(groups: Sequence[TermGroup], t: float, u: Values) -> Values:
    """Return the product of a sum of operators with a state."""
    found = array_module(u).zeros_like(u)
    for group in groups:
        group.accumulate(t, u, found)
    return found  # type: ignore[no-any-return]
