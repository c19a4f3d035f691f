"""What terms of functions of the state become with the axes of a PDE, and which are possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .axis import Axis
from .boundary import FROM_EXACT, Condition, Dirichlet
from .field_axes import check_field
from .formula import Formula
from .functions import FunctionOfAxes, function_of_axes, names_of
from .number_checks import is_number
from .pointwise import PointwiseTerm
from .separable import SeparableOnAxes
from .terms import Term, TermFactor

__all__ = [
    "FLUX_AT_END",
    "central",
    "damping_of",
    "flux_at_ends",
    "functions_of",
    "with_axes",
]

FLUX_AT_END = "the flux of pointwise at an end"
"""A name of F of boundary data for texts of errors."""


def with_axes(term: PointwiseTerm, axes: tuple[Axis, ...]) -> FunctionOfAxes:
    """Return F of a term as a function of the state and of all axes of a PDE.

    Raises
    ------
    TypeError, ValueError
        If F takes other arguments, or what acts on it is not possible.
    """
    function, *others = functions_of(term, axes)
    used = {name for own in (function, *others) if own is not None for name in names_of(own)}
    for name, field in term.function.fields:
        check_field(field, axes, None, f"the field {name} of {term.text()}")
        if name not in used:
            raise TypeError(
                f"{term.text()} has the field {name}, which its function does not take; expected "
                f"an argument of that name, lambda f, {name}: ..."
            )
    for factor in term.term.factors:
        if factor.axis not in axes:
            raise ValueError(
                f"{term.text()} acts along {factor.axis}, which is not among the PDE's axes; these "
                f"are {', '.join(map(str, axes))}"
            )
    derivatives = [factor for factor in term.term.factors if factor.kind != "mass"]
    if term.inner is not None:
        _check_diffusion(term, derivatives)
        return function
    if term.is_second_derivative:
        _check_second_derivative(term, derivatives)
        return function
    if len(derivatives) > 1 or any(factor.kind != "div" for factor in derivatives):
        raise ValueError(
            f"{term.text()} is not possible yet; a pointwise function takes masses, and one div, "
            "or div @ grad along one axis, or it stands between them"
        )
    if term.term.fields:
        raise ValueError(f"{term.text()} has a field as coefficient, which is not possible yet")
    if any(factor.flux is not None for factor in derivatives):
        raise ValueError(
            f"{term.text()}: the flux of a pointwise function is that of Lax and Friedrichs, by "
            "speed=; leave out flux="
        )
    own = term.function
    if derivatives and own.speed is None and own.speed_of is None:
        raise ValueError(
            f"{term.text()}: give pointwise(..., speed=), a bound of |dF/df|, or speed_of=, a "
            "function whose largest magnitude is one; a central flux alone damps nothing"
        )
    return function


def functions_of(
    term: PointwiseTerm, axes: tuple[Axis, ...]
) -> tuple[FunctionOfAxes, FunctionOfAxes | None, FunctionOfAxes | None]:
    """Return F, the function of the speed and the derivative as functions of all axes."""
    own, fields = term.function, [name for name, _ in term.function.fields]

    def found(name: str, given: Any) -> FunctionOfAxes | None:
        if given is None:
            return None
        where = f"{name} of {term.text()}"
        return function_of_axes(where, given, axes, in_time=True, state=True, fields=fields)

    function = found("the function", own.function)
    assert function is not None
    return function, found("speed_of", own.speed_of), found("the derivative", own.derivative)


def flux_at_ends(
    function: FunctionOfAxes, ends: tuple[Condition, Condition], exact: Callable[..., Any] | None
) -> tuple[Condition, Condition]:
    """Return the conditions at two ends with F of the data of Dirichlet in place of the data.

    ``exact`` is the exact solution as a function of all axes and the time, for "from exact".
    """

    def flux(end: Condition) -> Condition:
        if not isinstance(end, Dirichlet):
            return end
        data = end.data
        given = exact if data == FROM_EXACT else data
        if not callable(given):
            given = SeparableOnAxes(lambda _: data, function.axes)  # type: ignore[arg-type, return-value]
        value: Callable[..., Any] = given
        if not isinstance(given, SeparableOnAxes):
            value = function_of_axes("boundary data", given, function.axes, in_time=True)
        formula = _composed(function.function, data, value)
        if formula is not None:
            return Dirichlet(
                FunctionOfAxes(FLUX_AT_END, formula, function.axes, None, "t" in formula.names)
            )

        def at_points(*points_and_time: Any) -> Any:
            *points, t = points_and_time
            return function.of_state(value(*points, t), points, t)

        named = data if isinstance(function.function, Formula) else function.function
        kind = repr(data) if isinstance(named, str) else type(named).__name__
        at_points.__qualname__ = getattr(named, "__qualname__", kind)  # for refusals to save it
        return Dirichlet(FunctionOfAxes(FLUX_AT_END, at_points, function.axes, None, in_time=True))

    return flux(ends[0]), flux(ends[1])


def _composed(function: object, data: object, value: object) -> Formula | None:
    """Return F of data as a formula, None where F or the data are none."""
    own = value.function if isinstance(value, FunctionOfAxes) else None
    if is_number(data):
        own = Formula(repr(float(data)), ())
    if not (isinstance(function, Formula) and isinstance(own, Formula)):
        return None
    try:
        return function.having("f", own)
    except ValueError:  # longer or deeper than a formula may be
        return None


def _check_diffusion(term: PointwiseTerm, derivatives: Sequence[TermFactor]) -> None:
    """Refuse terms that act on F of a derivative but div @ pointwise(k f, linear=True) @ grad."""
    kinds = [factor.kind for factor in derivatives]
    outer = [] if term.outer is None else [factor.kind for factor in term.outer.factors]
    if kinds != ["div", "grad"] or "div" not in outer or "grad" in outer:
        raise ValueError(
            f"{term.text()} is not possible yet; between derivatives a pointwise function has one "
            "div on its left and one grad on its right"
        )
    if derivatives[0].axis != derivatives[1].axis:
        raise ValueError(f"{term.text()} is a mixed derivative, which is not possible yet")
    if not term.function.linear or term.term.fields:
        raise ValueError(
            f"{term.text()}: between derivatives a pointwise function is a coefficient; write "
            "pointwise(lambda f, x, y: k(x, y) * f, linear=True), without fields"
        )


def _check_second_derivative(term: PointwiseTerm, derivatives: Sequence[TermFactor]) -> None:
    """Refuse second derivatives of F with a bound of the speed, a field or a flux."""
    own = term.function
    if own.linear or own.speed is not None or own.speed_of is not None:
        raise ValueError(
            f"{term.text()} is a second derivative of a function, which takes no linear=, speed= "
            "and speed_of="
        )
    if term.term.fields or any(factor.flux is not None for factor in derivatives):
        raise ValueError(
            f"{term.text()} is a second derivative of a function, which takes no field as "
            "coefficient and no flux="
        )


def central(term: Term) -> Term:
    """Return a term with central fluxes."""
    factors = tuple(
        replace(factor, flux="central") if factor.kind == "div" else factor
        for factor in term.factors
    )
    return replace(term, factors=factors)


def damping_of(term: PointwiseTerm, speed: float | None) -> Term | None:
    """Return the penalty of the jumps of f that belongs to a div of F for a bound of the speed.

    Its coefficients are the absolute values of those of the term, times the bound; None without a
    div or a bound.
    """
    is_flux = term.inner is None and not term.is_second_derivative
    is_flux &= any(factor.kind != "mass" for factor in term.term.factors)
    if not is_flux or speed is None:
        return None
    factors = tuple(
        TermFactor(
            "penalty" if factor.kind == "div" else "mass",
            factor.axis,
            _Absolute(factor.coefficient) if callable(factor.coefficient)
            else abs(factor.coefficient),
            "upwind" if factor.kind == "div" else None,
        )
        for factor in term.term.factors
    )  # fmt: skip
    scale = abs(term.term.scale) * speed
    return Term(factors, scale, term.term.time)


@dataclass(frozen=True)
class _Absolute:
    """The absolute value of a function of one coordinate."""

    function: Callable[[Any], Any]

    def __call__(self, points: Any) -> Any:
        return abs(self.function(points))
