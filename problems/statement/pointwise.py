"""Terms of functions of the state at points, such as the flux f²/2 of Burgers' equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from .axis import Axis
from .boundary import FROM_EXACT, Condition, Dirichlet
from .functions import FunctionOfAxes, function_of_axes
from .number_checks import finite_number, is_number
from .separable import SeparableOnAxes
from .terms import Term, TermFactor, term_text
from .time import TimeFunction

__all__ = [
    "Pointwise",
    "PointwiseTerm",
    "central",
    "damping_of",
    "flux_at_ends",
    "pointwise",
    "with_axes",
]


@dataclass(frozen=True, eq=False)
class Pointwise:
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
    """

    function: Callable[..., Any] | str
    speed: float | None
    extra: int
    linear: bool
    factor: Term = field(default_factory=lambda: Term(()))
    plain: Pointwise | None = None

    def __mul__(self, other: TimeFunction | float) -> Pointwise:
        """Product with a number or a function of time."""
        if isinstance(other, TimeFunction) or is_number(other):
            return replace(self, factor=self.factor * other, plain=self.plain or self)
        return NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Pointwise:
        """Negative of the function."""
        return self * -1.0

    def __add__(self, other: object) -> NoReturn:
        """Refuse sums."""
        raise TypeError(
            "functions of pointwise are not added with +; give them as terms of a list, "
            "[pointwise(F), pointwise(G)], or write one function, pointwise(lambda f: F(f) + G(f))"
        )

    __radd__ = __sub__ = __rsub__ = __add__

    def __rmatmul__(self, other: Term) -> PointwiseTerm:
        """Return the term that applies a derivative or multiplication to F."""
        if not isinstance(other, Term):
            return NotImplemented
        return PointwiseTerm(other @ self.factor, self.plain or self)

    def __matmul__(self, other: Term) -> PointwiseTerm:
        """Return the term in which F is of a derivative of the state, in place of the state."""
        if not isinstance(other, Term):
            return NotImplemented
        return PointwiseTerm(None, self.plain or self, self.factor @ other)


@dataclass(frozen=True, eq=False)
class PointwiseTerm:
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

    def __matmul__(self, other: Term) -> PointwiseTerm:
        """Chain: the other term is applied first."""
        if not isinstance(other, Term):
            return NotImplemented
        return replace(self, inner=other if self.inner is None else self.inner @ other)

    def __rmatmul__(self, other: Term) -> PointwiseTerm:
        """Chain: this term is applied first."""
        if not isinstance(other, Term):
            return NotImplemented
        return replace(self, outer=other if self.outer is None else other @ self.outer)

    def __mul__(self, other: TimeFunction | float) -> PointwiseTerm:
        """Product with a number or a function of time."""
        if isinstance(other, TimeFunction) or is_number(other):
            if self.outer is None:
                assert self.inner is not None
                return PointwiseTerm(None, self.function, self.inner * other)
            return replace(self, outer=self.outer * other)
        return NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> PointwiseTerm:
        """Negative of the term."""
        return self * -1.0

    def text(self) -> str:
        """Return the term as one line, much like the code that makes it."""
        function = self.function.function
        name = repr(function) if isinstance(function, str) else getattr(
            function, "__name__", type(function).__name__
        )  # fmt: skip
        parts = [f"pointwise({name})"]
        if self.outer is not None:
            parts.insert(0, term_text(self.outer))
        if self.inner is not None:
            parts.append(term_text(self.inner))
        return " @ ".join(parts)

    def __repr__(self) -> str:
        return f"<PointwiseTerm {self.text()}>"


def pointwise(
    function: Callable[..., Any] | str,
    *,
    speed: float | None = None,
    degree: str = "p+1",
    linear: bool = False,
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
    degree : {"p+1", "p"}
        The degree of the functions through the points, for states of degree p. "p" takes a third
        of the work in two axes, a seventh in six, and has errors up to three times as large.

    linear : bool
        Whether F is g f, with a function g of the axes and the time. The term is then an operator,
        so that implicit methods, `Problem.operator` and its transpose have it. It is checked.

    Returns
    -------
    Pointwise
        ``mass(x) @ pointwise(F)``, and it alone among the terms, is the reaction F(f); with a
        linear F = k f, ``div(x) @ pointwise(F, linear=True) @ grad(x)`` is ∂(k ∂f/∂x)/∂x. Products
        with numbers and functions of time are such functions, too.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind. `PDE` refuses functions of other arguments, a div without
        ``speed``, and the condition Inflow along its axis.

    Notes
    -----
    Values at points are those of the state, exactly, and what interpolates F at the points is
    projected on the grid. It needs a grid that is closed downward and a degree of at most 5. The
    integral ∫ f dx is conserved exactly by a div, for any interpolation. Explicit methods take it,
    IMEX methods, explicitly, and implicit ones if it is linear. Before a shock forms it converges;
    after that, on a full grid, the solution oscillates at the shock, and on sparse grids it may
    blow up.

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
    if speed is not None and finite_number("speed", speed) <= 0.0:
        raise ValueError(f"pointwise: speed is {speed!r}; expected a positive number")
    bound = None if speed is None else float(speed)
    return Pointwise(function, bound, int(degree == "p+1"), bool(linear))


def with_axes(term: PointwiseTerm, axes: tuple[Axis, ...]) -> FunctionOfAxes:
    """Return F of a term as a function of the state and of all axes of a PDE.

    Raises
    ------
    TypeError, ValueError
        If F takes other arguments, or what acts on it is not possible.
    """
    function = function_of_axes(
        "the function of pointwise", term.function.function, axes, in_time=True, state=True
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
    if len(derivatives) > 1 or any(factor.kind != "div" for factor in derivatives):
        raise ValueError(
            f"{term.text()} is not possible yet; a pointwise function takes masses, and one div, "
            "or it stands between div and grad"
        )
    if term.term.fields:
        raise ValueError(f"{term.text()} has a field as coefficient, which is not possible yet")
    if any(factor.flux not in (None, "central") for factor in derivatives):
        raise ValueError(
            f"{term.text()}: the flux of a pointwise function is that of Lax and Friedrichs, by "
            "speed=; leave out flux="
        )
    if derivatives and term.function.speed is None:
        raise ValueError(
            f"{term.text()}: give pointwise(..., speed=), a bound of |dF/df|; a central flux alone "
            "damps nothing"
        )
    return function


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

        def at_points(*points_and_time: Any) -> Any:
            *points, t = points_and_time
            return function.of_state(value(*points, t), points, t)

        return Dirichlet(
            FunctionOfAxes(
                "the flux of pointwise at an end", at_points, function.axes, None, in_time=True
            )
        )

    return flux(ends[0]), flux(ends[1])


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


def central(term: Term) -> Term:
    """Return a term with central fluxes."""
    factors = tuple(
        replace(factor, flux="central") if factor.kind == "div" else factor
        for factor in term.factors
    )
    return replace(term, factors=factors)


def damping_of(term: PointwiseTerm) -> Term | None:
    """Return the penalty of the jumps of f that belongs to a div of F, None without a div.

    Its coefficients are the absolute values of those of the term, times the bound of the speed.
    """
    if term.inner is not None or all(factor.kind == "mass" for factor in term.term.factors):
        return None
    assert term.function.speed is not None
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
    scale = abs(term.term.scale) * term.function.speed
    return Term(factors, scale, term.term.time)


@dataclass(frozen=True)
class _Absolute:
    """The absolute value of a function of one coordinate."""

    function: Callable[[Any], Any]

    def __call__(self, points: Any) -> Any:
        return abs(self.function(points))
