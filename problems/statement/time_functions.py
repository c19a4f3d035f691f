"""The classes of functions of time and their algebra; `batchkron.problems.time` makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
import scipy  # which loads scipy.interpolate on first use
from numpy.typing import ArrayLike, NDArray

from .number_checks import finite_number, is_number

MAXIMUM_DEPTH = 24
"""Largest depth of nested sums and products of one function."""

MAXIMUM_SIZE = 1_000_000
"""Largest number of parameters (coefficients, rates, table entries) of one function."""


class TimeFunction(ABC):
    """A real function f(t), immutable, hashable and compared by value.

    Functions of time are made by `constant`, `polynomial`, `sin`, `cos`, `exp` and `spline`, and
    by ``f * g``, ``f + g``, ``f - g``, ``-f`` and products with numbers; their derivatives are
    again such functions. Sums and products are stored in a normal form, so that equal combinations
    compare equal whatever their order.

    Examples
    --------
    >>> from batchkron.problems import time
    >>> f = 3 * time.sin(2.0) * time.exp(-1.0)
    >>> f(0.0), f.derivative()(0.0)
    (0.0, 6.0)
    >>> f - f == time.constant(0.0)
    True
    """

    __array_ufunc__ = None  # so that NumPy scalars leave `scalar * f` to __rmul__

    @abstractmethod
    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values at the times t, in the shape of t."""

    @abstractmethod
    def _derivative(self) -> TimeFunction: ...

    @abstractmethod
    def _json(self) -> dict[str, Any]: ...

    @property
    @abstractmethod
    def _key(self) -> tuple[Any, ...]:
        """The kind and then the parameters: the key by which factors and terms are sorted."""

    @property
    def _depth(self) -> int:
        return 1

    @property
    def _size(self) -> int:
        return 1

    @property
    def is_constant(self) -> bool:
        """Whether the function is a constant of time."""
        return isinstance(self, Constant)

    def derivative(self) -> TimeFunction:
        """Return df/dt, again a TimeFunction."""
        return self._derivative()

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of strings, numbers and lists, which `from_json` reads back."""
        return self._json()

    @overload
    def __call__(self, t: float) -> float: ...
    @overload
    def __call__(self, t: NDArray[Any] | Sequence[float]) -> NDArray[np.float64]: ...
    def __call__(self, t: ArrayLike) -> float | NDArray[np.float64]:
        """Value f(t): a float for a scalar t, an array of t's shape otherwise."""
        times = np.asarray(t, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            values = self._values(times)
        return float(values) if times.ndim == 0 else np.asarray(values, dtype=np.float64)

    def __mul__(self, other: TimeFunction | float) -> TimeFunction:
        """Product with another function of time or a number."""
        if isinstance(other, TimeFunction):
            return product_of(1.0, (self, other))
        if is_number(other):
            return product_of(finite_number("factor", other), (self,))
        return NotImplemented

    __rmul__ = __mul__

    def __add__(self, other: TimeFunction | float) -> TimeFunction:
        """Sum with another function of time or a number."""
        if isinstance(other, TimeFunction):
            return sum_of((self, other))
        if is_number(other):
            return sum_of((self, Constant(finite_number("summand", other))))
        return NotImplemented

    __radd__ = __add__

    def __neg__(self) -> TimeFunction:
        """Negative of the function."""
        return self * -1.0

    def __sub__(self, other: TimeFunction | float) -> TimeFunction:
        """Difference with another function of time or a number."""
        if isinstance(other, TimeFunction) or is_number(other):
            return self + other * -1.0
        return NotImplemented

    def __rsub__(self, other: float) -> TimeFunction:
        """Difference of a number and the function."""
        return -self + other


@dataclass(frozen=True)
class Constant(TimeFunction):
    """The constant c."""

    value: float

    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.full(t.shape, self.value)

    def _derivative(self) -> TimeFunction:
        return Constant(0.0)

    def _json(self) -> dict[str, Any]:
        return {"kind": "constant", "value": self.value}

    @property
    def _key(self) -> tuple[Any, ...]:
        return ("constant", self.value)


@dataclass(frozen=True)
class Polynomial(TimeFunction):
    """The polynomial Σ_k c_k t^k, of degree at least one, last coefficient not zero."""

    coefficients: tuple[float, ...]

    @property
    def _size(self) -> int:
        return len(self.coefficients)

    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.polynomial.polynomial.polyval(t, np.array(self.coefficients)))

    def _derivative(self) -> TimeFunction:
        slopes = tuple(k * c for k, c in enumerate(self.coefficients))[1:]
        return Polynomial(slopes) if len(slopes) > 1 else Constant(slopes[0])

    def _json(self) -> dict[str, Any]:
        return {"kind": "polynomial", "coefficients": list(self.coefficients)}

    @property
    def _key(self) -> tuple[Any, ...]:
        return ("polynomial", *self.coefficients)


@dataclass(frozen=True)
class Sine(TimeFunction):
    """The sine sin(omega t + phase)."""

    omega: float
    phase: float

    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.sin(self.omega * t + self.phase)

    def _derivative(self) -> TimeFunction:
        return self.omega * Cosine(self.omega, self.phase)

    def _json(self) -> dict[str, Any]:
        return {"kind": "sin", "omega": self.omega, "phase": self.phase}

    @property
    def _key(self) -> tuple[Any, ...]:
        return ("sin", self.omega, self.phase)


@dataclass(frozen=True)
class Cosine(TimeFunction):
    """The cosine cos(omega t + phase)."""

    omega: float
    phase: float

    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.cos(self.omega * t + self.phase)

    def _derivative(self) -> TimeFunction:
        return -self.omega * Sine(self.omega, self.phase)

    def _json(self) -> dict[str, Any]:
        return {"kind": "cos", "omega": self.omega, "phase": self.phase}

    @property
    def _key(self) -> tuple[Any, ...]:
        return ("cos", self.omega, self.phase)


@dataclass(frozen=True)
class Exponential(TimeFunction):
    """The exponential exp(rate t)."""

    rate: float

    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(self.rate * t)

    def _derivative(self) -> TimeFunction:
        return self.rate * self

    def _json(self) -> dict[str, Any]:
        return {"kind": "exp", "rate": self.rate}

    @property
    def _key(self) -> tuple[Any, ...]:
        return ("exp", self.rate)


@dataclass(frozen=True)
class Spline(TimeFunction):
    """The derivative of order 0 to 3 of the not-a-knot cubic spline through (times, values)."""

    times: tuple[float, ...]
    values: tuple[float, ...]
    order: int = 0

    @cached_property
    def _spline(self) -> Callable[..., Any]:
        table: Callable[..., Any] = scipy.interpolate.CubicSpline(
            np.array(self.times), np.array(self.values), bc_type="not-a-knot"
        ).derivative(self.order)
        return table

    @property
    def _size(self) -> int:
        return 2 * len(self.times)

    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        first, last = self.times[0], self.times[-1]
        slack = 1e-12 * max(last - first, abs(first), abs(last))
        outside = ~((t >= first - slack) & (t <= last + slack))
        if np.any(outside):
            worst = np.atleast_1d(t)[np.atleast_1d(outside)][0]
            raise ValueError(
                f"t = {worst!s} lies outside the spline's table, which covers "
                f"[{first!s}, {last!s}]; tabulate the function over the whole run"
            )
        return np.asarray(self._spline(t), dtype=np.float64)

    def _derivative(self) -> TimeFunction:
        if self.order == 3:
            return Constant(0.0)
        return Spline(self.times, self.values, self.order + 1)

    def _json(self) -> dict[str, Any]:
        return {
            "kind": "spline",
            "times": list(self.times),
            "values": list(self.values),
            "order": self.order,
        }

    @property
    def _key(self) -> tuple[Any, ...]:
        return ("spline", self.order, len(self.times), *self.times, *self.values)


@dataclass(frozen=True)
class Product(TimeFunction):
    """The product of a number and of functions that are neither constants nor products."""

    coefficient: float
    factors: tuple[TimeFunction, ...]

    def __post_init__(self) -> None:
        _check_bounds(self)

    @cached_property
    def _depth(self) -> int:
        return 1 + max(factor._depth for factor in self.factors)

    @cached_property
    def _size(self) -> int:
        return 1 + sum(factor._size for factor in self.factors)

    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        result = np.full(t.shape, self.coefficient)
        for factor in self.factors:
            result = result * factor._values(t)
        return result

    def _derivative(self) -> TimeFunction:
        terms = []
        for k, factor in enumerate(self.factors):
            others = self.factors[:k] + self.factors[k + 1 :]
            terms.append(product_of(self.coefficient, (factor.derivative(), *others)))
        return sum_of(terms)

    def _json(self) -> dict[str, Any]:
        return {
            "kind": "product",
            "coefficient": self.coefficient,
            "factors": [factor.to_json() for factor in self.factors],
        }

    @property
    def _key(self) -> tuple[Any, ...]:
        return ("product", *(factor._key for factor in self.factors), self.coefficient)


@dataclass(frozen=True)
class Sum(TimeFunction):
    """The sum of functions that are not sums, no two of them proportional."""

    terms: tuple[TimeFunction, ...]

    def __post_init__(self) -> None:
        _check_bounds(self)

    @cached_property
    def _depth(self) -> int:
        return 1 + max(term._depth for term in self.terms)

    @cached_property
    def _size(self) -> int:
        return sum(term._size for term in self.terms)

    def _values(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        result = np.zeros(t.shape)
        for term in self.terms:
            result = result + term._values(t)
        return result

    def _derivative(self) -> TimeFunction:
        return sum_of([term.derivative() for term in self.terms])

    def _json(self) -> dict[str, Any]:
        return {"kind": "sum", "terms": [term.to_json() for term in self.terms]}

    @property
    def _key(self) -> tuple[Any, ...]:
        return ("sum", *(term._key for term in self.terms))


def split_number(function: TimeFunction) -> tuple[float, TimeFunction]:
    """Write a function as a number times a function that has no constant factor.

    Functions that differ by a constant factor have the same second part; that of a constant is the
    constant function 1.

    Examples
    --------
    >>> from batchkron.problems import time
    >>> from batchkron.problems.statement.time_functions import split_number
    >>> split_number(3 * time.sin(2.0)) == (3.0, time.sin(2.0))
    True
    """
    number, factors = _split(function)
    return number, product_of(1.0, factors)


def check_size(size: int) -> None:
    """Refuse more parameters than `from_json` would read back."""
    if size > MAXIMUM_SIZE:
        raise ValueError(
            f"a function of time holds at most {MAXIMUM_SIZE} numbers, got {size}; tabulate it at "
            "fewer times"
        )


def _check_bounds(function: TimeFunction) -> None:
    """Refuse a size or depth that `from_json` would not read back."""
    check_size(function._size)
    if function._depth > MAXIMUM_DEPTH:
        raise ValueError(
            f"sums and products of functions of time nest at most {MAXIMUM_DEPTH} deep; "
            "expand the expression"
        )


def _split(function: TimeFunction) -> tuple[float, tuple[TimeFunction, ...]]:
    """Write a function as a number times factors that are neither constants nor products."""
    if isinstance(function, Constant):
        return function.value, ()
    if isinstance(function, Product):
        return function.coefficient, function.factors
    return 1.0, (function,)


def product_of(coefficient: float, functions: Sequence[TimeFunction]) -> TimeFunction:
    """Return the product in normal form: one coefficient, no nested products, sorted factors."""
    factors: list[TimeFunction] = []
    for function in functions:
        number, parts = _split(function)
        coefficient *= number
        factors.extend(parts)
    if coefficient == 0.0 or not factors:
        return Constant(finite_number("product of the coefficients", coefficient))
    if coefficient == 1.0 and len(factors) == 1:
        return factors[0]
    factors.sort(key=lambda factor: repr(factor._key))
    return Product(finite_number("product of the coefficients", coefficient), tuple(factors))


def sum_of(functions: Sequence[TimeFunction]) -> TimeFunction:
    """Return the sum in normal form: no nested sums, proportional terms merged, terms sorted."""
    collected: dict[tuple[TimeFunction, ...], float] = {}

    def collect(function: TimeFunction, scale: float) -> None:
        number, factors = _split(function)
        if len(factors) == 1 and isinstance(factors[0], Sum):
            for term in factors[0].terms:
                collect(term, scale * number)
        else:
            collected[factors] = collected.get(factors, 0.0) + scale * number

    for function in functions:
        collect(function, 1.0)
    terms = [product_of(number, factors) for factors, number in collected.items() if number != 0.0]
    if not terms:
        return Constant(0.0)
    if len(terms) == 1:
        return terms[0]
    return Sum(tuple(sorted(terms, key=lambda term: repr(term._key))))
