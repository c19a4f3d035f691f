"""Functions of the state at points of a problem's grid on a device, repeated by CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.backends import backend_on
from batchkron.operators import on_device

from ...discretization.interpolation.transform import PointTransform
from ...statement.formula import Formula
from ...statement.functions import FunctionOfAxes
from ..operators import TermGroup, sum_of_groups

__all__ = ["PointsOnDevice"]

Values = NDArray[np.float64]


class PointsOnDevice:
    """Σ groups P F(groups_inner u) for some functions F on the same points, on a device.

    Where no term depends on time but by F, all of it becomes one graph after some calls, in which a
    formula is one kernel. If a function cannot be captured, as one that copies to the host, the
    sweeps to the points and those from them become graphs, and the function is called between.

    Parameters
    ----------
    transform : PointTransform
    points : sequence of ndarray
        The points, on the device.
    members : sequence of (FunctionOfAxes, groups, inner groups)
        Each function, what acts on it, and what acts on the state before it.
    """

    def __init__(
        self,
        transform: PointTransform,
        points: Sequence[Values],
        members: Sequence[tuple[FunctionOfAxes, Sequence[TermGroup], Sequence[TermGroup]]],
    ) -> None:
        unknowns, count = transform.num_unknowns, transform.num_points
        repeated = backend_on(transform.device).repetition.repeated
        dtype = np.dtype(np.float64)
        time = on_device(np.zeros(1), transform.device)
        parts = []
        back = repeated(_in_place(transform.coefficients), (count, unknowns), dtype)
        for function, groups, inner in members:
            of_points = _function_of_points(function, points, time, transform.device)
            product = repeated(_product(of_points, back), (count, unknowns), dtype)
            parts.append((product, groups, inner))
        to_points = repeated(_in_place(transform.values), (unknowns, count), dtype)
        work = _Sum(to_points, parts, count)
        all_groups = [group for _, outer, inner in parts for group in (*outer, *inner)]
        self._work: Callable[..., None] = work
        self._is_steady = all(group.time.is_constant for group in all_groups)
        if self._is_steady:
            self._work = repeated(work, (unknowns, unknowns), dtype)
        self._time = time if any(own.in_time for own, *_ in members) else None

    def accumulate(self, t: float, u: Values, out: Values) -> None:
        """Add the sum for the state u to ``out``; values that are not finite spread."""
        if self._time is not None:
            self._time.fill(t)
        found = array_module(u).empty_like(u)
        if self._is_steady:
            self._work(u, found)
        else:
            self._work(u, found, t)
        out += found


def _in_place(function: Callable[[Values, Values], Values]) -> Callable[[Any, Any], None]:
    """Return a function that writes its result, without what it returns."""

    def work(x: Values, out: Values) -> None:
        function(x, out)

    return work


def _product(
    function: Callable[[Values], Values], back: Callable[[Values, Values], object]
) -> Callable[[Any, Any], None]:
    """Return a function that writes coefficients of F from values of the state."""

    def work(values: Values, out: Values) -> None:
        back(array_module(values).ascontiguousarray(function(values)), out)

    return work


class _Sum:
    """All of it, for the time at which groups are evaluated.

    ``parts``: for each function what maps values of the state to coefficients of F, and the groups
      that act on these, and on the state before.
    """

    def __init__(
        self,
        to_points: Callable[..., Any],
        parts: Sequence[tuple[Callable[..., None], Sequence[TermGroup], Sequence[TermGroup]]],
        count: int,
    ) -> None:
        self._to_points, self._parts, self._count = to_points, parts, count

    def __call__(self, u: Values, out: Values, t: float = 0.0) -> None:
        module, plain = array_module(u), None
        out[...] = 0.0
        product = module.empty_like(u)
        for multiply, groups, inner in self._parts:
            if inner or plain is None:
                values = module.empty(self._count)
                self._to_points(sum_of_groups(inner, t, u) if inner else u, values)
                plain = plain if inner else values
            else:
                values = plain
            multiply(values, product)
            for group in groups:
                group.accumulate(t, product, out)


def _function_of_points(
    function: FunctionOfAxes, points: Sequence[Values], time: Values, device: str
) -> Callable[[Values], Values]:
    """Return F as a function of the state's values; the time is an array of one number."""
    formula = function.function
    if not isinstance(formula, Formula):
        return lambda values: function.on_device(values, points, time[0])
    names = [axis.name for axis in function.axes]
    used = [k for k, name in enumerate(names) if name in formula.names]
    spec, numbers = formula.compiled(["f", *(names[k] for k in used)], ["t"])
    compute = backend_on(device).fast_path("formula_values")(spec)
    own = on_device(np.array([0.0, *numbers]), device)
    return _Compiled(compute, [points[k] for k in used], own, time if function.in_time else None)


class _Compiled:
    """A formula as one kernel; its first number is the time, if that is not None."""

    def __init__(
        self,
        compute: Callable[..., None],
        points: list[Values],
        numbers: Values,
        time: Values | None,
    ) -> None:
        self._compute, self._points = compute, points
        self._numbers, self._time = numbers, time

    def __call__(self, values: Values) -> Values:
        found = array_module(values).empty_like(values)
        if self._time is not None:
            self._numbers[:1] = self._time
        self._compute([values, *self._points], self._numbers, found)
        return found  # type: ignore[no-any-return]
