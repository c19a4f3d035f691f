"""Separable functions of space and time, and sums of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .axis import Axis
from .coefficients import Function
from .frozen import Frozen
from .function_checks import check_function
from .number_checks import is_number
from .time import TimeFunction, constant

__all__ = [
    "Separable",
    "SeparableAt",
    "SeparableFunction",
    "SeparableOnAxes",
    "SeparableSum",
    "separable_parts",
]


class _Summand:
    """A separable function or a sum of them, which are added to others and to numbers."""

    parts: tuple[Separable, ...]

    @abstractmethod
    def __mul__(self, other: TimeFunction | float) -> Any:
        """Product with a number or a function of time."""

    def __add__(self, other: SeparableFunction) -> SeparableSum:
        """Sum with another separable function, a sum of them or a number."""
        if isinstance(other, _Summand):
            return SeparableSum(self.parts + other.parts)
        if is_number(other):
            return SeparableSum((*self.parts, Separable(coefficient=other)))
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: SeparableFunction) -> SeparableSum:
        """Difference with another separable function, a sum of them or a number."""
        if isinstance(other, _Summand) or is_number(other):
            return self + (-other)
        return NotImplemented

    def __rsub__(self, other: float) -> SeparableSum:
        """Difference of a number and the function."""
        return (-self).__add__(other)  # type: ignore[no-any-return]

    def __neg__(self) -> Any:
        """Negative of the function."""
        return self * -1.0


@dataclass(frozen=True, init=False, eq=False)
class Separable(_Summand):
    """The function coefficient · t(time) · Π_k factor_k(x_k), a product of 1-D functions.

    Parameters
    ----------
    t : TimeFunction or float, optional
        Dependence on time; by default the constant 1.
    coefficient : float
        A constant that multiplies the product.
    **factors : callable or float
        The keyword is the name of an axis; the value is a function that takes and returns an
        array, or a number. An axis that is not named has the factor 1.

    Raises
    ------
    TypeError
        If `t` is neither a TimeFunction nor a number, or a factor neither a function of one array
        nor a number.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.problems import time
    >>> f = Separable(x=np.cos, y=lambda s: s**2, t=time.exp(-1.0))
    >>> g = 2 * f + Separable(x=np.sin)
    >>> len(g.parts)
    2
    """

    factors: Mapping[str, Function]
    time: TimeFunction
    coefficient: float = field(default=1.0)

    def __init__(
        self, *, t: TimeFunction | float = 1.0, coefficient: float = 1.0, **factors: Function
    ) -> None:
        if not isinstance(t, TimeFunction):
            if not is_number(t):
                raise TypeError(
                    f"t must be a TimeFunction of batchkron.problems.time (such as time.sin(2)) "
                    f"or a number, got {type(t).__name__}"
                )
            t = constant(t)
        if not is_number(coefficient):
            raise TypeError(f"coefficient must be a number, got {type(coefficient).__name__}")
        for name, factor in factors.items():
            if not (callable(factor) or is_number(factor)) or isinstance(factor, TimeFunction):
                raise TypeError(
                    f"{name}={factor!r} must be a function of one array or a number; "
                    "a function of time is given as t="
                )
            check_function(
                f"Separable: {name}",
                factor,
                "For f(x) g(y) + h(x) use Separable(x=f, y=g) + Separable(x=h)",
            )
        object.__setattr__(self, "factors", Frozen(factors))
        object.__setattr__(self, "time", t)
        object.__setattr__(self, "coefficient", float(coefficient))

    @property
    def parts(self) -> tuple[Separable, ...]:  # type: ignore[override]
        """The function itself, as a sum of one part."""
        return (self,)

    def factor(self, axis: Axis) -> Function:
        """Return the function or number along an axis."""
        return self.factors.get(axis.name, 1.0)

    def __mul__(self, other: TimeFunction | float) -> Separable:
        """Product with a number or a function of time."""
        if isinstance(other, TimeFunction):
            return Separable(
                t=self.time * other, coefficient=self.coefficient, **dict(self.factors)
            )
        if is_number(other):
            number = self.coefficient * float(other)
            return Separable(t=self.time, coefficient=number, **dict(self.factors))
        return NotImplemented

    __rmul__ = __mul__


@dataclass(frozen=True, eq=False)
class SeparableSum(_Summand):
    """A sum of separable functions; adding them with + makes one.

    Attributes
    ----------
    parts : tuple of Separable
        The functions that are summed.
    """

    parts: tuple[Separable, ...]

    def __mul__(self, other: TimeFunction | float) -> SeparableSum:
        """Product with a number or a function of time."""
        if isinstance(other, TimeFunction) or is_number(other):
            return SeparableSum(tuple(part * other for part in self.parts))
        return NotImplemented

    __rmul__ = __mul__


@dataclass(frozen=True, eq=False)
class SeparableAt:
    """A function that is a sum of separable functions at each time, with factors that change.

    As ``exact=`` of a `PDE` it takes the place of a function of all coordinates: errors are then
    computed from integrals along single axes, for any number of axes.

    Parameters
    ----------
    function : callable
        ``function(t)`` returns the function at the time t, a float, as a Separable, a sum of them
        or a number.

    Raises
    ------
    TypeError
        If it is not callable.

    Examples
    --------
    A Maxwellian whose temperature rises:

    >>> import numpy as np
    >>> from batchkron.problems import Separable, SeparableAt
    >>> heated = SeparableAt(lambda t: Separable(v=lambda s: np.exp(-(s**2) / (2 + 2 * t))))
    """

    function: Callable[[float], SeparableFunction]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                f"SeparableAt takes a function of the time, got {type(self.function).__name__}"
            )

    def on(self, axes: Sequence[Axis]) -> SeparableOnAxes:
        """Return the function for coordinates along these axes."""
        return SeparableOnAxes(self.function, tuple(axes))


@dataclass(frozen=True, eq=False)
class SeparableOnAxes:
    """The function of a `SeparableAt` with its axes; it takes an array for each, and the time."""

    function: Callable[[float], SeparableFunction]
    axes: tuple[Axis, ...] = field(repr=False)

    def parts(self, t: float) -> tuple[Separable, ...]:
        """Return the separable functions whose sum is the function at a time.

        Raises `TypeError`, `ValueError` if the function returns something else, or names an axis
        that does not exist.
        """
        return separable_parts(f"exact at t = {t:.6g}", self.function(t), self.axes)

    def __call__(self, *points_and_time: Any) -> NDArray[np.float64]:
        """Return the values at points."""
        *points, t = points_and_time
        total = np.zeros(np.broadcast_shapes(*(np.shape(own) for own in points)))
        for part in self.parts(float(t)):
            product: Any = part.coefficient * float(part.time(t))
            for axis, own in zip(self.axes, points, strict=True):
                factor = part.factor(axis)
                product = product * (factor(own) if callable(factor) else factor)
            total = total + product
        return total


SeparableFunction: TypeAlias = Separable | SeparableSum | float
"""A function of space and time as a user may give it."""


def separable_parts(
    name: str, value: SeparableFunction, axes: Sequence[Axis]
) -> tuple[Separable, ...]:
    """Return the separable functions whose sum is a number, a separable function or a sum of them.

    The number zero has none. They may name no other axes than ``axes``; ``name`` says in error
    texts what the value is.
    """
    if isinstance(value, (Separable, SeparableSum)):
        parts = value.parts
    elif is_number(value):
        parts = (Separable(coefficient=value),) if value != 0.0 else ()
    elif isinstance(value, (list, tuple)):
        raise TypeError(
            f"{name} is a {type(value).__name__} of {len(value)} entries, {value!r}; expected one "
            "function, a number, a Separable, or parts that are added with +"
        )
    else:
        raise TypeError(
            f"{name} must be a number, a Separable or a sum of them, got {type(value).__name__}; "
            "a function of one coordinate goes in as Separable(x=function)"
        )
    known = [axis.name for axis in axes]
    for part in parts:
        for unknown in part.factors.keys() - set(known):
            raise ValueError(
                f"{name} names the axis {unknown!r}, which the PDE does not have; "
                f"its axes are {', '.join(known)}"
            )
    return parts
