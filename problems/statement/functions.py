"""Functions of all axes, and of time, as a user gives them: callables and formulas."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, to_host
from batchkron.errors import PointValueError

from .axis import Axis
from .formula import Formula, FormulaText
from .separable import SeparableAt

__all__ = [
    "FunctionOfAxes",
    "checked_values",
    "function_of_axes",
    "is_function_of_axes",
    "names_of",
    "sample_places",
]

Values = NDArray[np.float64]

_DIFFERENCE = 6e-6  # relative step of a difference quotient, the cube root of the rounding error
_SAMPLES = 4096  # random points at which functions are looked at


@dataclass(frozen=True, eq=False)
class FunctionOfAxes:
    """A function f(x_1, …, x_d, t) that need not be a sum of products.

    Attributes
    ----------
    name : str
        The argument that it was given as, for texts of errors.
    function : callable or Formula
        What it is computed by.
    axes : tuple of Axis
        The d axes.
    names : tuple of str or None
        The arguments that the callable takes, each the name of an axis or "t"; None if it takes one
        array for each axis, in their order.
    in_time : bool
        Whether it depends on the time, which the callable then takes last, or by the name "t".
    state : bool
        Whether it is a function of the state "f", too; then the callable takes only that, if its
        arguments are not named so.
    fields : tuple of str
        The names of further arguments, whose values at the points are given for each state.
    """

    name: str
    function: Callable[..., Any] | Formula
    axes: tuple[Axis, ...] = field(repr=False)
    names: tuple[str, ...] | None
    in_time: bool
    state: bool = False
    fields: tuple[str, ...] = ()

    @property
    def text(self) -> str | None:
        """The text of a formula; None of a callable, which files do not hold."""
        return self.function.text if isinstance(self.function, Formula) else None

    def __call__(self, *points_and_time: Any) -> Values:
        """Return the values (points,) for an array (points,) of each axis, and the time.

        Raises
        ------
        TypeError, ValueError
            If the values are of another shape or kind, or not finite; the text names the place. An
            exception of the callable has a note that says how it was called.
        """
        *points, t = points_and_time
        return checked_values(self.name, lambda: self._call(points, t), self.axes, points, t)

    def of_state(
        self,
        f: Values,
        points: Sequence[Values],
        t: float,
        fields: Mapping[str, Values] | None = None,
    ) -> Values:
        """Return the values (points,) of a function of the state, whose values f are given.

        ``fields`` has the values of further arguments at the points, by their names.

        Raises
        ------
        TypeError, ValueError
            As above.
        PointValueError
            If a value is not finite; it is a `NotPhysicalError`.
        """
        return checked_values(
            self.name, lambda: self._call(points, t, f, fields), self.axes, points, t,
            PointValueError,
        )  # fmt: skip

    def slope(
        self,
        f: Values,
        points: Sequence[Values],
        t: float,
        fields: Mapping[str, Values] | None = None,
    ) -> Values:
        """Return the derivative with respect to f (points,), of a formula exactly.

        Of a callable it is a central difference, with an error of about 1e-10. Errors are those of
        `of_state`.
        """
        if isinstance(self.function, Formula):
            formula, known = self.function, self._known(points, t, f, fields)

            def exact() -> Any:
                return array_module(f).full(f.shape, 1.0) * formula.derivative("f", known)

            name = f"the derivative of {self.name}"
            return checked_values(name, exact, self.axes, points, t, PointValueError)
        move = _DIFFERENCE * (float(abs(f).max()) or 1.0)
        above = self.of_state(f + move, points, t, fields).copy()  # it may be kept by the function
        return (above - self.of_state(f - move, points, t, fields)) / (2.0 * move)

    def on_device(self, f: Values, points: Sequence[Values], t: Any) -> Values:
        """Return the same of arrays on a device, where t may be one, too.

        Whether values are finite is not looked at, which would take a copy to the host.
        """
        return _called(self.name, lambda: self._call(points, t, f), points)

    def factor(self, points: Sequence[Values], t: float) -> Values:
        """Return g (points,) of a function g f of the state.

        Raises
        ------
        ValueError
            If it is no such function.
        """
        ones = array_module(points[0]).full(points[0].shape, 1.0)
        g = self.of_state(ones, points, t).copy()  # it may be kept by the function
        for number in (-3.7, 0.31):  # of both signs, and none that powers keep
            found = self.of_state(number * ones, points, t)
            wrong = abs(found - number * g) > 1e-10 * abs(g).max()  # g may vanish at a point
            if bool(wrong.any()):
                first = int(to_host(wrong, self.name).argmax())
                raise ValueError(
                    f"{self.name} is not linear: {float(g[first])!r} for f = 1, and "
                    f"{float(found[first])!r} for f = {number!r} at the same place; leave out "
                    "linear="
                )
        return g

    def _known(
        self,
        points: Sequence[Values],
        t: float,
        f: Values | None,
        fields: Mapping[str, Values] | None,
    ) -> dict[str, Any]:
        """Return the values of all names."""
        known: dict[str, Any] = {"t": t, **(fields or {})}
        known |= {axis.name: own for axis, own in zip(self.axes, points, strict=True)}
        return {**known, "f": f} if self.state else known

    def _call(
        self,
        points: Sequence[Values],
        t: float,
        f: Values | None = None,
        fields: Mapping[str, Values] | None = None,
    ) -> Any:
        known = self._known(points, t, f, fields)
        if isinstance(self.function, Formula):
            return self.function(known)
        if self.names is not None:
            return self.function(**{name: known[name] for name in self.names})
        if self.state:
            return self.function(f)
        return self.function(*points, t) if self.in_time else self.function(*points)


def names_of(function: FunctionOfAxes) -> frozenset[str]:
    """Return the names that a formula has, or a callable whose arguments are named."""
    if isinstance(function.function, Formula):
        return function.function.names
    return frozenset(function.names or ())


def is_function_of_axes(value: object) -> bool:
    """Whether a value is a callable or a text, and no `SeparableAt`."""
    return isinstance(value, str) or (callable(value) and not isinstance(value, SeparableAt))


def function_of_axes(
    name: str,
    value: Callable[..., Any] | str,
    axes: Sequence[Axis],
    *,
    in_time: bool,
    state: bool = False,
    fields: Sequence[str] = (),
    always_in_time: bool = False,
) -> FunctionOfAxes:
    """Return a callable or the text of a formula as a function of all axes.

    Parameters
    ----------
    name : str
        The argument, for texts of errors.
    value : callable or str
        A callable whose arguments have the names of axes, or "t", gets these by name, in whatever
        order, also where they have defaults; another one gets one array for each axis, and the
        time if it takes one more.
    axes : sequence of Axis
    in_time : bool
        Whether it may depend on time.
    state : bool
        Whether it is a function of the state, "f"; a callable that takes no other names takes that
        alone.
    fields : sequence of str
        The names of further arguments of a function of the state.
    always_in_time : bool
        Whether a callable of any number of arguments, or one that does not say how many, takes the
        time.

    Raises
    ------
    TypeError, ValueError
        If a callable takes other arguments, or a formula is none.
    """
    box = tuple(axes)
    if isinstance(value, FunctionOfAxes):
        return value
    if isinstance(value, FormulaText):
        value = value.text
    known = (*(axis.name for axis in box), *(("t",) if in_time else ()))
    if state:
        if "f" in known:
            raise ValueError(f"{name}: an axis is named 'f', as the state; give it another name")
        for field in fields:
            if field in ("f", "t", *known):
                raise ValueError(
                    f"{name} has a field named {field!r}, as a coordinate, the time or the state; "
                    "give it another name"
                )
        known = ("f", *known, *fields)
    if isinstance(value, str):
        try:
            formula = Formula(value, known)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return FunctionOfAxes(name, formula, box, None, "t" in formula.names, state, tuple(fields))
    if not callable(value):
        raise TypeError(
            f"{name} is {type(value).__name__}; expected a function of the coordinates "
            f"({', '.join(known)}), or the text of a formula of them"
        )
    if isinstance(value, types.BuiltinFunctionType) and value.__module__ in ("math", "cmath"):
        raise TypeError(
            f"{name} is {value.__module__}.{value.__name__}, which takes single numbers; expected "
            "a function of arrays, written with NumPy"
        )
    counts = (1,) if state else (len(box), len(box) + 1) if in_time else (len(box),)
    if isinstance(value, np.ufunc):  # further arrays would be overwritten
        if value.nin not in counts:
            raise TypeError(
                f"{name} is np.{value.__name__}, a function of {value.nin} arrays; expected one of "
                f"the coordinates ({', '.join(known)})"
            )
        return FunctionOfAxes(name, value, box, None, value.nin > len(box), state)
    try:
        signature = inspect.signature(value, follow_wrapped=False)
    except (TypeError, ValueError):  # as of some functions that are no Python: one array per axis
        return FunctionOfAxes(name, value, box, None, always_in_time, state)
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    fixed = value.keywords if isinstance(value, functools.partial) else {}
    parameters = [each for each in signature.parameters.values() if each.name not in fixed]
    needed = [each.name for each in parameters if each.default is each.empty]
    named = [each.name for each in parameters if each.kind in kinds and each.name in known]
    if named and set(needed) <= set(named):
        if state and "f" not in named:
            raise TypeError(
                f"{name} is a function of ({', '.join(named)}) and not of the state, which has "
                "the name f; what does not depend on it is a source"
            )
        return FunctionOfAxes(name, value, box, tuple(named), "t" in named, state, tuple(fields))
    _check_places(name, parameters, known, counts[-1])
    always_in_time &= any(each.kind is each.VAR_POSITIONAL for each in parameters)
    for count in reversed(counts) if always_in_time or "t" in named else counts:
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return FunctionOfAxes(name, value, box, None, count > len(box), state)
    raise TypeError(
        f"{name} is a function of ({', '.join(needed)}); expected one of the coordinates "
        f"({', '.join(known)}), each an array: by these names, or "
        + ("the state alone" if state else "as many in this order")
    )


def _check_places(
    name: str, parameters: Sequence[inspect.Parameter], known: Sequence[str], count: int
) -> None:
    """Refuse arguments that are named as another coordinate than the one they would get.

    They would get the first ``count`` of the known ones, in their order.
    """
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    moved = [
        each.name
        for k, each in enumerate(parameters)
        if each.name in known
        and each.kind not in variadic
        and (each.kind is each.KEYWORD_ONLY or known[:count][k : k + 1] != (each.name,))
    ]
    if moved:
        raise TypeError(
            f"{name} is a function of ({', '.join(each.name for each in parameters)}), in which "
            f"{', '.join(moved)} would not get what the name says; name all arguments without a "
            f"default as coordinates ({', '.join(known)}), in any order, or none of them"
        )


def sample_places(axes: Sequence[Axis]) -> list[Values]:
    """Return the coordinates along each axis of some random points inside the box, the same always.

    They are enough to see signs and sizes of functions that vary over a part of the box.
    """
    shares = np.random.default_rng(7).uniform(size=(len(axes), _SAMPLES))
    return [axis.lower + axis.length * own for axis, own in zip(axes, shares, strict=True)]


def checked_values(
    name: str,
    call: Callable[[], Any],
    axes: Sequence[Axis],
    points: Sequence[Values],
    t: float,
    error: type[Exception] = ValueError,
) -> Values:
    """Return what a call gives for points, (points,), after checks; see `FunctionOfAxes`.

    ``error`` is raised for values that are not finite.
    """
    values = _called(name, call, points)
    module = array_module(values)
    with np.errstate(all="ignore"):  # the sum is finite only if all values are
        if bool(module.isfinite(values.sum())):
            return values
    finite = module.isfinite(values)
    if not bool(finite.all()):
        first = int(to_host(finite, name).argmin())
        place = ", ".join(
            f"{axis.name} = {float(own[first])!r}" for axis, own in zip(axes, points, strict=True)
        )
        raise error(
            f"{name} is {float(values[first])} at {place}, t = {t!r}; expected finite values"
        )
    return values


def _called(name: str, call: Callable[[], Any], points: Sequence[Values]) -> Values:
    """Return what a call gives for points, perhaps an array that it has been given."""
    shape, module = points[0].shape, array_module(points[0])
    try:
        with np.errstate(all="ignore"):
            given = call()
            values = module.asarray(given)
    except Exception as raised:
        note = (
            f"This came from {name}: it is called with an array of {points[0].size} numbers, one "
            "for each point, for each argument but the time; write it with NumPy functions "
            "(np.exp, np.where), not with math or if, and without changing the arrays it is given "
            "(x * t in place of x *= t)."
        )
        if note not in getattr(raised, "__notes__", ()):
            raised.add_note(note)
        raise
    if given is None:
        raise TypeError(f"{name} gave None; expected an array of {shape[0]} numbers, by return")
    if values.dtype.kind not in "iufb":
        advice = "A complex function is two real components, and a PDE has one unknown function"
        raise TypeError(
            f"{name} gave dtype {values.dtype}; expected real numbers"
            + (f". {advice}" if values.dtype.kind == "c" else ", one for each point")
        )
    if values.shape not in ((), shape):
        raise ValueError(
            f"{name} gave shape {values.shape} for {shape[0]} points; expected {shape} or a single "
            "number, from operations on whole arrays, such as f * (1 - f)"
        )
    values = module.broadcast_to(values, shape).astype(np.float64, copy=False)
    return values  # type: ignore[no-any-return]
