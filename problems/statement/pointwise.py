"""Terms of functions of the state at points, such as the flux f²/2 of Burgers' equation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .fields import FieldExpression
from .number_checks import finite_number, is_number
from .terms import Term, term_text
from .time import TimeFunction

__all__ = ["Pointwise", "PointwiseTerm", "pointwise"]


class _Chained:
    """What numbers multiply and terms act on with @; other arithmetic is refused."""

    __array_ufunc__ = None  # arrays and scalars of NumPy leave products to __rmul__

    def _refuse(self, other: object) -> Any:
        """Raise TypeError: say what is possible; leave classes of others to their operators."""
        if type(other).__module__.split(".")[0] not in ("builtins", "numpy", "batchkron"):
            return NotImplemented
        raise TypeError(
            f"{self!r} takes numbers and functions of time as factors, 0.5 * pointwise(F), "
            "and terms that are chained with @, div(x) @ pointwise(F). Write quotients, powers and "
            "products into the function, pointwise(lambda f: F(f) / 2), and give sums as terms of "
            "a list, [pointwise(F), pointwise(G)]"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _refuse


@dataclass(frozen=True, eq=False, repr=False)
class Pointwise(_Chained):
    """A function F of the state's values at points; `pointwise` makes it.

    Attributes
    ----------
    function : callable or str
        F, as a user gives it.
    speed : float or None
        A bound of |dF/df|.
    extra : int
        By how much the degree of the functions through the points is higher than that of states.
    linear : bool
        Whether F is g f.
    factor : Term
        The number and function of time that multiply F, a term without derivatives and masses.
    plain : Pointwise or None
        F without them; None if there are none.
    speed_of : callable, str or None
        A function whose largest magnitude at the points is the bound of |dF/df|.
    derivative : callable, str or None
        dF/df.
    fields : tuple of (str, FieldExpression)
        Fields that the functions take by these names.
    """

    function: Callable[..., Any] | str
    speed: float | None
    extra: int
    linear: bool
    factor: Term = field(default_factory=lambda: Term(()))
    plain: Pointwise | None = None
    speed_of: Callable[..., Any] | str | None = None
    derivative: Callable[..., Any] | str | None = None
    fields: tuple[tuple[str, FieldExpression], ...] = ()

    def __mul__(self, other: TimeFunction | float) -> Pointwise:
        """Product with a number or a function of time."""
        other = _scalar(other)
        if isinstance(other, TimeFunction) or is_number(other):
            return replace(self, factor=self.factor * other, plain=self.plain or self)
        return self._refuse(other)  # type: ignore[no-any-return]

    __rmul__ = __mul__

    def __neg__(self) -> Pointwise:
        """Negative of the function."""
        return self * -1.0

    def __rmatmul__(self, other: Term) -> PointwiseTerm:
        """Return the term that applies a derivative or multiplication to F."""
        if not isinstance(other, Term):
            return self._refuse(other)
        return PointwiseTerm(other @ self.factor, self.plain or self)

    def __matmul__(self, other: Term) -> PointwiseTerm:
        """Return the term in which F is of a derivative of the state, in place of the state."""
        if not isinstance(other, Term):
            return self._refuse(other)
        return PointwiseTerm(None, self.plain or self, self.factor @ other)

    def text(self) -> str:
        """Return F as one line, much like the code that makes it."""
        own, front = self.function, term_text(self.factor)  # such as "0.5 * "
        name = None if isinstance(own, str) else getattr(own, "__name__", type(own).__name__)
        return f"{front}pointwise({name or repr(own)})"

    def __repr__(self) -> str:
        return f"<Pointwise {self.text()}>"


@dataclass(frozen=True, eq=False, repr=False)
class PointwiseTerm(_Chained):
    """A term that acts on a function of the state: div(x) @ pointwise(F) is ∂F(f)/∂x.

    Attributes
    ----------
    outer : Term or None
        What acts on F; None is the identity.
    function : Pointwise
        F.
    inner : Term or None
        What acts on the state before F; None is the identity.
    """

    outer: Term | None
    function: Pointwise
    inner: Term | None = None

    @property
    def term(self) -> Term:
        """What acts on F, and on the state before it, as one chain without F."""
        if self.inner is None or self.outer is None:
            found = self.outer or self.inner
            assert found is not None
            return found
        return self.outer @ self.inner

    @property
    def is_second_derivative(self) -> bool:
        """Whether it is div @ grad of F along one axis."""
        found = [factor for factor in self.term.factors if factor.kind != "mass"]
        kinds, axes = [factor.kind for factor in found], {factor.axis for factor in found}
        return self.inner is None and kinds == ["div", "grad"] and len(axes) == 1

    def __matmul__(self, other: Term) -> PointwiseTerm:
        """Chain: the other term is applied first."""
        if not isinstance(other, Term):
            return self._refuse(other)
        return replace(self, inner=other if self.inner is None else self.inner @ other)

    def __rmatmul__(self, other: Term) -> PointwiseTerm:
        """Chain: this term is applied first."""
        if not isinstance(other, Term):
            return self._refuse(other)
        return replace(self, outer=other if self.outer is None else other @ self.outer)

    def __mul__(self, other: TimeFunction | float) -> PointwiseTerm:
        """Product with a number or a function of time."""
        other = _scalar(other)
        if isinstance(other, TimeFunction) or is_number(other):
            if self.outer is None:
                assert self.inner is not None
                return PointwiseTerm(None, self.function, self.inner * other)
            return replace(self, outer=self.outer * other)
        return self._refuse(other)  # type: ignore[no-any-return]

    __rmul__ = __mul__

    def __neg__(self) -> PointwiseTerm:
        """Negative of the term."""
        return self * -1.0

    def text(self) -> str:
        """Return the term as one line, much like the code that makes it."""
        parts = [self.function.text()]
        if self.outer is not None:
            parts.insert(0, term_text(self.outer))
        if self.inner is not None:
            parts.append(term_text(self.inner))
        return " @ ".join(parts)

    def __repr__(self) -> str:
        return f"<PointwiseTerm {self.text()}>"


def _scalar(value: Any) -> Any:
    """Return the number of an array without axes; other values as they are."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def pointwise(
    function: Callable[..., Any] | str,
    *fields: FieldExpression,
    speed: float | None = None,
    speed_of: Callable[..., Any] | str | None = None,
    degree: str = "p+1",
    linear: bool = False,
    derivative: Callable[..., Any] | str | None = None,
    **named: FieldExpression,
) -> Pointwise:
    """Return a function of the state's values, to be chained: ``-1 * div(x) @ pointwise(F)``.

    Parameters
    ----------
    function : callable or str
        F. A callable of one array gets the values of f at all points of the grid; one whose
        arguments are named gets f, the axes and t by these names, each an array of a number for
        each point, and t a number. It is called once for each evaluation of the right-hand side
        and returns an array of finite numbers. A text is a formula such as "f * (1 - f)", which
        problem files hold.
    speed : float, optional
        α > 0, a bound of |dF/df| for all states of a run. A div needs it: between cells it takes
        the local Lax-Friedrichs flux ½ (F(f⁻) + F(f⁺)) - ½ α (f⁺ - f⁻), for a div that is
        multiplied by -1.
    speed_of : callable or str, optional
        A function as F in place of ``speed``, such as dF/df: α is the largest of its absolute
        values at the points, anew in each evaluation. The default step follows α at the beginning.
    degree : {"p+1", "p"}
        The degree of the functions through the points, for states of degree p. "p" takes a third
        of the work in two axes, a seventh in six, and has errors up to three times as large.
    linear : bool
        Whether F is g f, with a function g of the axes and the time. The term is then an operator,
        so that implicit methods, `Problem.operator` and its transpose have it. It is checked.
    derivative : callable or str, optional
        dF/df, a function as F, for Newton's method in implicit methods. Without it a formula is
        differentiated exactly, a callable by a difference of its values.
    *fields : FieldExpression
        Fields of the state for the arguments of a callable after f, in their order, such as
        ``pointwise(lambda f, n, x: ..., Moment(v))`` for n. ``speed_of`` and ``derivative`` take
        them by these names.
    **named : FieldExpression
        Fields by name, such as ``n=Moment(v)``, also for formulas. The functions get arrays of
        their values at the points.

    Returns
    -------
    Pointwise
        ``mass(x) @ pointwise(F)``, and it alone among the terms, is the reaction F(f); with a
        linear F = k f, ``div(x) @ pointwise(F, linear=True) @ grad(x)`` is ∂(k ∂f/∂x)/∂x, and with
        F that grows with f, ``div(x) @ grad(x) @ pointwise(F)`` is ∂²F/∂x². Products with numbers
        and functions of time are such functions, too.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, or two exclude each other. `PDE` refuses functions of
        other arguments, a div without ``speed`` or ``speed_of``, and the condition Inflow along its
        axis.

    Notes
    -----
    Values at points are those of the state, exactly, and what interpolates F at the points is
    projected on the grid. It needs a grid that is closed downward and a degree of at most 5. The
    integral ∫ f dx is conserved exactly by a div, for any interpolation. IMEX methods take it
    explicitly, implicit ones by Newton's method, exponential ones if it is linear. Before a shock
    forms it converges; after that, on a full grid, the solution oscillates at the shock, and on
    sparse grids it may blow up.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.problems import PDE, Axis, div, pointwise
    >>> x, y = Axis("x", 0, 2 * np.pi), Axis("y", 0, 2 * np.pi)
    >>> flux = pointwise("f**2 / 2", speed=1.0)
    >>> burgers = PDE([x, y], [-1 * div(x) @ flux, -1 * div(y) @ flux], boundary="periodic",
    ...               initial=lambda x, y: np.sin(x + y))
    >>> burgers.discretize(4, 2).unknowns
    432
    """
    if not (callable(function) or isinstance(function, str)):
        raise TypeError(
            f"pointwise: the function is {type(function).__name__}; expected a function of f, such "
            "as lambda f: f**2, or a formula"
        )
    if degree not in ("p", "p+1"):
        raise ValueError(f"pointwise: degree is {degree!r}; expected 'p' or 'p+1'")
    by_name = _named_fields(function, fields, named)
    _check_companions(speed, speed_of, linear, derivative, by_name)
    if speed is not None and finite_number("speed", speed) <= 0.0:
        raise ValueError(f"pointwise: speed is {speed!r}; expected a positive number")
    bound = None if speed is None else float(speed)
    return Pointwise(
        function,
        bound,
        int(degree == "p+1"),
        bool(linear),
        speed_of=speed_of,
        derivative=derivative,
        fields=tuple(by_name.items()),
    )


def _named_fields(
    function: Callable[..., Any] | str,
    fields: Sequence[FieldExpression],
    named: Mapping[str, FieldExpression],
) -> dict[str, FieldExpression]:
    """Return all fields by name: positional ones have those of a callable's arguments after f."""
    if not fields:
        return dict(named)
    for k, given in enumerate(fields):
        if not isinstance(given, FieldExpression):
            raise TypeError(
                f"pointwise: argument {k + 2} is {type(given).__name__}; expected a field such as "
                "Moment(v); speed, degree and the others are given by name, speed=1.0"
            )
    if isinstance(function, str):
        raise TypeError(
            f"pointwise: the formula {function!r} takes fields by name; give the one after it as "
            "one, n=Moment(v)"
        )
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    own: list[str] = []
    if not isinstance(function, np.ufunc):  # whose next argument is what it writes to
        with suppress(TypeError, ValueError):  # of functions that do not say what they take
            parameters = inspect.signature(function).parameters.values()
            own = [each.name for each in parameters if each.kind in kinds]
    places = own[1 : 1 + len(fields)]
    twice = [name for name in places if name in named]
    if len(places) < len(fields) or twice:
        raise TypeError(
            f"pointwise: the function takes ({', '.join(own)}) and is followed by {len(fields)} "
            + (f"fields, the one for {twice[0]} also by name" if twice else "fields")
            + "; expected an argument after f for each, lambda f, n: ..., or fields by name"
        )
    return {**dict(zip(places, fields, strict=True)), **named}


def _check_companions(
    speed: float | None,
    speed_of: object,
    linear: bool,
    derivative: object,
    fields: dict[str, FieldExpression],
) -> None:
    """Refuse what does not go together with F, and fields that are none."""
    for name, given in (("speed_of", speed_of), ("derivative", derivative)):
        if not (given is None or callable(given) or isinstance(given, str)):
            raise TypeError(
                f"pointwise: {name} is {type(given).__name__}; expected a function of f, such as "
                "lambda f: f, or a formula"
            )
        if linear and given is not None:
            advice = "give speed=, a number" if name == "speed_of" else "it is F(1)"
            raise ValueError(f"pointwise: a linear function takes no {name}=; {advice}")
    if speed is not None and speed_of is not None:
        raise ValueError("pointwise: speed and speed_of are both given; expected one of them")
    for name, given in fields.items():
        if not isinstance(given, FieldExpression):
            raise TypeError(
                f"pointwise: {name} is {type(given).__name__}; expected a field such as Moment(v), "
                "or one of the arguments speed, speed_of, degree, linear, derivative"
            )
    if linear and fields:
        raise ValueError(
            f"pointwise: {', '.join(fields)} makes the coefficient depend on the state; leave out "
            "linear="
        )
