"""Fields: functions of one coordinate that are computed from the state, as coefficients of terms.

An expression says how: moments of f, arithmetic, Poisson's equation. It has no values; the
discretized problem evaluates it for each state at the Gauss points of the finest cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .axis import Axis
from .coefficients import Function
from .function_checks import check_function
from .number_checks import check_integer, finite_number, is_number
from .time_functions import TimeFunction

__all__ = [
    "Arithmetic",
    "EndMoment",
    "FieldExpression",
    "FunctionOf",
    "Moment",
    "Poisson",
    "Power",
    "Resolved",
    "Samples",
    "Uniform",
    "checked_powers",
    "nodes_of",
]

Operation: TypeAlias = Literal["+", "-", "*", "/"]
MAX_POWER = 64
"""Largest power of a coordinate in a moment."""

_MAX_TEXT = 60  # characters of an expression in an error text


class FieldExpression(ABC):
    """A function of one coordinate that depends on the state; the base class of all of them.

    Expressions are combined by ``+``, ``-``, ``*``, ``/`` and ``**`` with each other, with numbers,
    and with functions of the coordinate that take and return an array; ``**`` takes a number.
    Where a divisor that depends on the state is not positive, or the base of a power other than a
    whole number ≥ 0, the evaluation raises `batchkron.NotPhysicalError`.

    Examples
    --------
    >>> from batchkron.problems import Axis, Moment
    >>> v = Axis("v", -6, 6)
    >>> velocity = Moment({v: 1}) / Moment(v)
    >>> Moment({v: 2}) / Moment(v) - velocity**2
    <((Moment({v: 2}) / Moment({v: 0})) - (Moment({v: 1}) / Moment({v: 0}))**2)>
    """

    __array_ufunc__ = None  # so that NumPy scalars leave `scalar * field` to __rmul__

    @property
    @abstractmethod
    def operands(self) -> tuple[FieldExpression, ...]:
        """The expressions that this one is computed from."""

    @property
    @abstractmethod
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The expression as texts and operands that follow each other, as in code that makes it."""

    def __repr__(self) -> str:
        return f"<{self.text(2 * _MAX_TEXT)}>"

    def text(self, length: int = _MAX_TEXT) -> str:
        """Return the expression as one line, cut off after ``length`` characters."""
        found, stack = "", list(self.words[::-1])
        while stack:
            word = stack.pop()
            if isinstance(word, str):
                found += word
            else:
                stack.extend(word.words[::-1])
            if len(found) > length:
                return f"{found[:length]}…"
        return found

    def __add__(self, other: FieldExpression | Function) -> FieldExpression:
        """Sum with another field, a number or a function of the coordinate."""
        return _combined("+", self, other)

    def __radd__(self, other: Function) -> FieldExpression:
        """Sum of a number or function and the field."""
        return _combined("+", other, self)

    def __sub__(self, other: FieldExpression | Function) -> FieldExpression:
        """Difference with another field, a number or a function of the coordinate."""
        return _combined("-", self, other)

    def __rsub__(self, other: Function) -> FieldExpression:
        """Difference of a number or function and the field."""
        return _combined("-", other, self)

    def __mul__(self, other: FieldExpression | Function) -> FieldExpression:
        """Product with another field, a number or a function of the coordinate."""
        return _combined("*", self, other)

    def __rmul__(self, other: Function) -> FieldExpression:
        """Product of a number or function and the field."""
        return _combined("*", other, self)

    def __truediv__(self, other: FieldExpression | Function) -> FieldExpression:
        """Quotient by another field, which must be positive, a number or a function."""
        return _combined("/", self, other)

    def __rtruediv__(self, other: Function) -> FieldExpression:
        """Quotient of a number or function by the field, which must be positive."""
        return _combined("/", other, self)

    def __neg__(self) -> FieldExpression:
        """Negative of the field."""
        return _combined("*", -1.0, self)

    def __pow__(self, exponent: float) -> FieldExpression:
        """Power with a number as exponent."""
        if not is_number(exponent):
            return NotImplemented
        return Power(self, finite_number("the exponent", exponent))


@dataclass(frozen=True, eq=False, repr=False)
class Uniform(FieldExpression):
    """A number."""

    value: float

    @property
    def operands(self) -> tuple[FieldExpression, ...]:
        """Nothing."""
        return ()

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The number."""
        return (f"{self.value:.6g}",)


@dataclass(frozen=True, eq=False, repr=False)
class FunctionOf(FieldExpression):
    """A given function of the coordinate."""

    function: Callable[[NDArray[np.float64]], Any]

    @property
    def operands(self) -> tuple[FieldExpression, ...]:
        """Nothing."""
        return ()

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The function's name."""
        return (self.name,)


@dataclass(frozen=True, eq=False, repr=False)
class Samples(FieldExpression):
    """The values of a given function at the Gauss points of the finest cells.

    ``values`` (ndarray, shape (cells, q), float64).
    ``name``: the function's name, for texts.
    """

    values: NDArray[np.float64]
    name: str

    @property
    def operands(self) -> tuple[FieldExpression, ...]:
        """Nothing."""
        return ()

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The function's name."""
        return (self.name,)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Moment(FieldExpression):
    """The moment ∫ v_1^k_1 v_2^k_2 … f dv_1 dv_2 … over the axes that are named, and no others.

    Parameters
    ----------
    powers : Axis, sequence of Axis, or mapping of Axis to int
        The axes of the integral with the powers k_i; an axis without a power has 0, so that
        ``Moment(v)`` is the density ∫ f dv. Volume elements are part of the integral.

    Attributes
    ----------
    powers : tuple of (Axis, int)
        In the order given.

    Raises
    ------
    TypeError, ValueError
        If a key is not an Axis, an axis is named twice or none is, or a power is not an integer
        from 0 to 64.

    Examples
    --------
    >>> from batchkron.problems import Axis, Moment
    >>> v, w = Axis("v", -6, 6), Axis("w", -6, 6)
    >>> Moment({v: 2, w: 0}), Moment([v, w])
    (<Moment({v: 2, w: 0})>, <Moment({v: 0, w: 0})>)
    """

    powers: tuple[tuple[Axis, int], ...]

    def __init__(self, powers: Axis | Sequence[Axis] | Mapping[Axis, int]) -> None:
        object.__setattr__(self, "powers", checked_powers("Moment", powers))

    @property
    def operands(self) -> tuple[FieldExpression, ...]:
        """Nothing."""
        return ()

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The moment as the code that makes it."""
        return (f"Moment({_powers_text(self.powers)})",)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class EndMoment(Moment):
    """What a moment's integrand has gained between the ends of one axis: ∫ [v^k f] dv_2 ….

    It is v^k f at the upper end of the axis minus v^k f at the lower end, with the traces from
    inside, integrated over the other axes that are named. So it is the moment of ∂(v^k f)/∂v.

    ``axis``: v, one of the axes of ``powers``.
    ``powers`` (Axis, sequence of Axis, or mapping of Axis to int): as of `Moment`.
    ``end``: the axis.

    Raises `TypeError`, `ValueError` as of `Moment`, or if ``powers`` does not name the axis.
    """

    end: Axis

    def __init__(self, axis: Axis, powers: Axis | Sequence[Axis] | Mapping[Axis, int]) -> None:
        super().__init__(powers)
        if axis not in dict(self.powers):
            raise ValueError(f"EndMoment: {axis} is not among the axes of the moment")
        object.__setattr__(self, "end", axis)

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The moment as the code that makes it."""
        return (f"EndMoment({self.end.name}, {_powers_text(self.powers)})",)


@dataclass(frozen=True, eq=False, repr=False)
class Arithmetic(FieldExpression):
    """The sum, difference, product or quotient of two expressions, point by point."""

    operation: Operation
    left: FieldExpression
    right: FieldExpression

    @property
    def operands(self) -> tuple[FieldExpression, ...]:
        """Both sides."""
        return self.left, self.right

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The formula in brackets."""
        return "(", self.left, f" {self.operation} ", self.right, ")"


@dataclass(frozen=True, eq=False, repr=False)
class Power(FieldExpression):
    """A power of an expression, point by point."""

    base: FieldExpression
    exponent: float

    @property
    def operands(self) -> tuple[FieldExpression, ...]:
        """The base."""
        return (self.base,)

    @property
    def is_polynomial(self) -> bool:
        """Whether the exponent is a whole number ≥ 0, so that the base may have any sign."""
        return self.exponent >= 0.0 and self.exponent == int(self.exponent)

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The formula."""
        return self.base, f"**{self.exponent:.6g}"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Poisson(FieldExpression):
    """The field E of Poisson's equation in one coordinate, E_x = density - background.

    Parameters
    ----------
    axis : Axis
        The axis of x.
    density : FieldExpression
        The density n(x), such as ``Moment(v)``.
    background : "mean", float, callable or FieldExpression
        n_0; "mean" is the mean of n over the axis, so that the whole is neutral. A periodic axis
        needs "mean".
    potential : (float, float), optional
        The potentials (φ_left, φ_right) at the ends of an axis that is not periodic, with E = -φ_x:
        ∫ E dx = φ_left - φ_right. By default ∫ E dx = 0.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind.

    Notes
    -----
    E is the exact integral of the density's polynomial in every cell: it is continuous, and of
    degree p + 1 for a moment of a state of degree p. The electron equation with a fixed ion
    background is f_t + v f_x + E f_v = 0 with this E, which is minus the electric field in units
    where the electron's charge is -1.

    Examples
    --------
    >>> from batchkron.problems import Axis, Moment, Poisson, div
    >>> x, v = Axis("x", 0, 1), Axis("v", -6, 6)
    >>> E = Poisson(x, Moment(v))
    >>> terms = [div(x, -1.0, others={v: lambda s: s}), div(v, -1.0, others={x: E})]
    """

    axis: Axis
    density: FieldExpression
    background: FieldExpression | None
    potential: tuple[float, float] | None

    def __init__(
        self,
        axis: Axis,
        density: FieldExpression,
        background: Literal["mean"] | FieldExpression | Function = "mean",
        *,
        potential: tuple[float, float] | None = None,
    ) -> None:
        if not isinstance(axis, Axis):
            raise TypeError(f"Poisson: axis must be an Axis, got {type(axis).__name__}")
        if not isinstance(density, FieldExpression):
            raise TypeError(
                f"Poisson: density is {type(density).__name__}; expected a field such as Moment(v)"
            )
        if isinstance(background, str) and background != "mean":
            raise ValueError(
                f"Poisson: background is {background!r}; the only word for it is 'mean'"
            )
        base = None if isinstance(background, str) else _operand("the background", background)
        if base is NotImplemented:
            raise TypeError(
                f"Poisson: background is {type(background).__name__}; expected 'mean', a number, a "
                "function of one array or a field"
            )
        if potential is not None:
            if not isinstance(potential, (tuple, list)) or len(potential) != 2:
                raise TypeError(
                    f"Poisson: potential is {potential!r}; expected the pair (left, right)"
                )
            left, right = (finite_number("the potential", value) for value in potential)
            potential = (left, right)
        for name, value in (
            ("axis", axis),
            ("density", density),
            ("background", base),
            ("potential", potential),
        ):
            object.__setattr__(self, name, value)

    @property
    def operands(self) -> tuple[FieldExpression, ...]:
        """The density, and the background unless it is the mean."""
        return (self.density,) if self.background is None else (self.density, self.background)

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The field as the code that makes it."""
        base = () if self.background is None else (", ", self.background)
        ends = "" if self.potential is None else f", potential={self.potential}"
        return f"Poisson({self.axis.name}, ", self.density, *base, f"{ends})"


@dataclass(frozen=True, eq=False, repr=False)
class Resolved(FieldExpression):
    """The part of a field on the levels of x for which the grid has velocities of some levels.

    It is the L2 projection on the cells of level c, where c is the largest level of x such that
    the grid has, with this and all lower levels of x, cells of level 2 along every velocity (or of
    their finest level, if that is lower). On full and mixed grids it is the field itself.
    """

    field: FieldExpression
    velocities: tuple[Axis, ...]

    @property
    def operands(self) -> tuple[FieldExpression, ...]:
        """The field."""
        return (self.field,)

    @property
    def words(self) -> tuple[str | FieldExpression, ...]:
        """The field; users do not write that a part of it is taken."""
        return (self.field,)


def checked_powers(
    what: str, powers: Axis | Sequence[Axis] | Mapping[Axis, int]
) -> tuple[tuple[Axis, int], ...]:
    """Return pairs (axis, power) from the argument of `Moment`; ``what`` is for error texts."""
    if isinstance(powers, Axis):
        powers = {powers: 0}
    if not isinstance(powers, (Mapping, list, tuple)):
        raise TypeError(
            f"{what} is given {type(powers).__name__}; expected an axis, a list of axes, or a "
            "mapping of axes to powers such as {v: 2}"
        )
    pairs = list(powers.items()) if isinstance(powers, Mapping) else [(a, 0) for a in powers]
    if not pairs:
        raise ValueError(f"{what} names no axis; give those to integrate over, as in {{v: 1}}")
    for axis, _ in pairs:
        if not isinstance(axis, Axis):
            raise TypeError(f"{what} names {axis!r}; expected axes, as Axis('v', -6, 6) makes them")
    if len({axis for axis, _ in pairs}) < len(pairs):
        raise ValueError(f"{what} names an axis twice: {', '.join(a.name for a, _ in pairs)}")
    return tuple(
        (axis, check_integer(f"the power of {axis.name!r}", k, MAX_POWER)) for axis, k in pairs
    )


def nodes_of(expression: FieldExpression) -> Iterator[FieldExpression]:
    """Yield all expressions that an expression consists of, operands first, each of them once."""
    seen: set[int] = set()
    stack = [(expression, False)]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(node.operands))


def _powers_text(powers: Sequence[tuple[Axis, int]]) -> str:
    return f"{{{', '.join(f'{axis.name}: {k}' for axis, k in powers)}}}"


def _operand(what: str, value: object) -> Any:
    """Return a value as an expression; NotImplemented if it cannot be one."""
    if isinstance(value, FieldExpression):
        return value
    if is_number(value):
        return Uniform(finite_number(what, value))
    if callable(value) and not isinstance(value, TimeFunction):
        check_function(what, value, "A field depends on one coordinate")
        return FunctionOf(value)
    return NotImplemented


def _combined(operation: Operation, left: object, right: object) -> FieldExpression:
    sides = [_operand("an operand of a field", value) for value in (left, right)]
    if any(side is NotImplemented for side in sides):
        return NotImplemented  # type: ignore[no-any-return]
    if operation == "/" and isinstance(sides[1], Uniform) and sides[1].value == 0.0:
        raise ZeroDivisionError("a field is divided by the number 0")
    return Arithmetic(operation, *sides)
