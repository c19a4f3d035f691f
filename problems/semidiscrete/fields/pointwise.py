"""Functions of the state at points of a problem's grid, and the operators that act on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from operator import add
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.backends.workspace import Workspace
from batchkron.errors import PointValueError
from batchkron.operators import Diagonal, Operator, on_device

from ...discretization.interpolation.transform import PointTransform
from ...discretization.parts import OperatorTerm, PointwiseOperator
from ..operators import TermGroup, group_terms, operator_sum, sum_of_groups
from ..value import ProblemValue
from .at_points import FieldsAtPoints
from .device_points import PointsOnDevice

__all__ = ["PointwiseOfState"]

Values = NDArray[np.float64]
_Groups: TypeAlias = Sequence[TermGroup]

# Least derivative of a function that has to grow, relative to its largest: undershoots of a front
# have small negative ones, which change little. Chosen by hand.
_BACKWARD = 0.05


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

        Raises PointValueError, a `NotPhysicalError`, if a function has a value that is not finite,
        or one whose second derivatives are taken falls with f. On a device values that are not
        finite spread instead, where no function has fields, a speed or second derivatives.
        """
        for own in self._by_points:
            own.accumulate(t, u, out)

    def operator(self, t: float) -> Operator:
        """Return the sum as an operator, if all functions are linear.

        Raises ValueError if one is not, at a point.
        """
        return reduce(add, [part for own in self._by_points for part in own.factors(t)])

    def derivative(self, t: float, u: Values) -> Operator:
        """Return the derivative of the sum with respect to the state, at u.

        It is without that of fields and of speeds. Raises as `accumulate`.
        """
        return reduce(add, [part for own in self._by_points for part in own.derivatives(t, u)])

    @cached_property
    def _by_points(self) -> list[_AtPoints]:
        operators = self._problem.pointwise
        return [
            _AtPoints(self._problem, [own for own in operators if own.extra == extra])
            for extra in sorted({own.extra for own in operators})
        ]


class _AtPoints:
    """The pointwise operators of a problem on the same points."""

    def __init__(self, problem: ProblemValue, operators: Sequence[PointwiseOperator]) -> None:
        device = problem.device
        self._transform = PointTransform(
            problem.axes, problem.grid, problem.degree, extra=operators[0].extra, device=device
        )
        self._device = device
        self._points = [on_device(own, device) for own in self._transform.points()]
        if device == "cpu":  # a user's function gets the same arrays in each call
            for own in self._points:
                own.setflags(write=False)
        fields = [field for own in operators for field in own.fields]
        self._fields = FieldsAtPoints(fields, self._transform, problem.masses)
        # of each operator what acts on F, on the state before it, and damps jumps
        self._members: list[tuple[PointwiseOperator, _Groups, _Groups, _Groups]] = []
        for one in operators:
            outer, inner = _groups(problem, one.terms), _groups(problem, one.inner)
            self._members.append((one, outer, inner, _groups(problem, one.damping)))
        # memory of the calling thread: values at points, the same of a derivative, coefficients
        self._memory = Workspace(), Workspace(), Workspace()

    @cached_property
    def _on_device(self) -> PointsOnDevice | None:
        """The sum for states on a device; None on the CPU, and where it is more than functions."""
        more = any(o.fields or o.speed is not None or o.grows for o, *_ in self._members)
        if self._device == "cpu" or more:
            return None
        members = [(own.function, outer, inner) for own, outer, inner, _ in self._members]
        return PointsOnDevice(self._transform, self._points, members)

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add the sum for the state u to ``out``."""
        if self._on_device is not None:
            self._on_device.accumulate(t, u, out)
            return
        at, fields_of = _ValuesOfState(self._transform, u, self._memory), self._fields(t, u)
        for own, outer, inner, damping in self._members:
            values, fields = at(inner, t), fields_of(own.fields)
            if own.grows:
                self._check_growth(own, values, t, fields)
            found = own.function.of_state(values, self._points, t, fields)
            product = self._transform.coefficients(found, at.memory(2, u.size))
            for group in outer:
                group.accumulate(t, product, out)
            if own.speed is not None:
                out += self._speed(own, values, t, fields) * sum_of_groups(damping, t, u)

    def factors(self, t: float) -> list[Operator]:
        """Return the terms of linear functions as operators."""
        return [
            self._around(outer, inner, t, own.function.factor(self._points, t))
            for own, outer, inner, _ in self._members
        ]

    def derivatives(self, t: float, u: Values) -> list[Operator]:
        """Return the derivatives of the terms with respect to the state."""
        at = _ValuesOfState(self._transform, u, self._memory)
        fields_of, found = self._fields(t, u), []
        for own, outer, inner, damping in self._members:
            values, fields = at(inner, t), fields_of(own.fields)
            found.append(self._around(outer, inner, t, self._slope(own, values, t, fields)))
            if own.speed is not None:
                speed = float(self._speed(own, values, t, fields))
                found.append(speed * operator_sum(damping, t))
        return found

    def _around(self, outer: _Groups, inner: _Groups, t: float, factor: Values) -> Operator:
        """Return what acts on the product of a function and what is inside, as an operator."""
        to_values, to_coefficients = self._transform.operators
        diagonal = Diagonal(factor).to(self._device)
        whole = operator_sum(outer, t) @ to_coefficients @ diagonal @ to_values
        return whole @ operator_sum(inner, t) if inner else whole

    def _slope(
        self, own: PointwiseOperator, values: Values, t: float, fields: Mapping[str, Values]
    ) -> Values:
        """Return ∂F/∂f at the points."""
        if own.linear:
            return own.function.factor(self._points, t)
        slope: Callable[..., Values] = own.function.slope
        if own.derivative is not None:
            slope = own.derivative.of_state
        return slope(values, self._points, t, fields)

    def _speed(
        self, own: PointwiseOperator, values: Values, t: float, fields: Mapping[str, Values]
    ) -> Values:
        """Return the largest magnitude of the speed at the points, an array of shape ()."""
        assert own.speed is not None
        return abs(own.speed.of_state(values, self._points, t, fields)).max()  # type: ignore[no-any-return]

    def _check_growth(
        self, own: PointwiseOperator, values: Values, t: float, fields: Mapping[str, Values]
    ) -> None:
        """Raise PointValueError where a function falls with f."""
        slope = self._slope(own, values, t, fields)
        least = slope.min()
        if bool(least < -_BACKWARD * abs(slope).max()):
            first = int(to_host(slope, "slope").argmin())
            axes = zip(self._transform.axes, self._points, strict=True)
            place = ", ".join(f"{axis.name} = {float(points[first])!r}" for axis, points in axes)
            raise PointValueError(
                f"{own.function.name} falls with f at {place}, t = {t!r}: its derivative is "
                f"{float(least):.6g} at f = {float(values[first]):.6g}, and its second derivatives "
                "are backward diffusion there; expected a function that grows, such as "
                "np.maximum(f, 0)**2 for f**2"
            )


class _ValuesOfState:
    """The values of one state at points, and of what acts on it before a function."""

    def __init__(self, transform: PointTransform, u: Values, memory: Sequence[Workspace]) -> None:
        self._transform, self._u, self._memory = transform, u, memory
        self._plain: Values | None = None

    def __call__(self, inner: _Groups, t: float) -> Values:
        """Return the values (points,) for a function of an operator; read-only on the CPU."""
        if inner:
            return self._values(sum_of_groups(inner, t, self._u), 1)
        if self._plain is None:
            self._plain = self._values(self._u, 0)
        return self._plain

    def memory(self, number: int, size: int) -> Values | None:
        """Return memory of this thread on the CPU, None on a device."""
        return self._memory[number].array(size, self._u.dtype) if self._on_cpu else None

    @property
    def _on_cpu(self) -> bool:
        return self._transform.device == "cpu"

    def _values(self, state: Values, number: int) -> Values:
        values = self._transform.values(state, self.memory(number, self._transform.num_points))
        if self._on_cpu:  # of several functions each gets the same values
            values = values.view()
            values.setflags(write=False)
        return values


def _groups(problem: ProblemValue, terms: Sequence[OperatorTerm]) -> _Groups:
    if not terms:
        return ()
    groups = group_terms(terms, problem.grid, problem.degree, problem._form)
    return [group.to(problem.device) for group in groups]
