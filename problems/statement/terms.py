"""The terms of a PDE f_t = Σ terms: first derivatives, their chains, and multiplications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from .axis import Axis
from .boundary import Boundary, Condition, ends_text, parse_ends
from .coefficients import FLUX_SIGNS, ByDegree, Flux, Function
from .electric import ElectricComponent
from .fields import FieldExpression
from .function_checks import check_function
from .number_checks import finite_number, is_number
from .text import time_text
from .time import TimeFunction, constant

__all__ = [
    "AxisName",
    "Term",
    "TermFactor",
    "Terms",
    "div",
    "grad",
    "laplacian",
    "mass",
    "penalty",
    "term_text",
]


class AxisName(Axis):
    """An axis of which a term knows the name alone; `PDE` puts its own axis in the place."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 0.0, 1.0)


Others: TypeAlias = (
    Mapping[Axis, Function | FieldExpression]
    | Mapping[str, Function | FieldExpression]
    | Mapping[Any, Function | FieldExpression | ElectricComponent]
)
"""Coefficients in other coordinates, by their axes or the axes' names, a component of an `Electric`
by all its axes."""

FactorKind: TypeAlias = Literal["div", "grad", "penalty", "mass"]


@dataclass(frozen=True, eq=False)
class TermFactor:
    """One operator along one axis, a factor of a `Term`.

    ``kind`` ({"div", "grad", "penalty", "mass"}): ∂(g f)/∂x, g ∂f/∂x, the damping of jumps between
      cells, or g f.
    ``axis``: the axis of x, along which it acts.
    ``coefficient``: g, a function of the axis's own coordinate.
    ``flux`` ({"upwind", "central", "downwind", "by degree"} or None): from which side of an edge f
      is taken. None is "upwind"; but in a chain div @ grad it is the side that fits the other
      factor and the other chains along the axis. "by degree" is for such chains only: central for
      even degrees, None for odd ones.
    ``boundary`` ((condition, condition) or None): conditions of this factor alone at the two ends;
      None derives them from the PDE's.
    """

    kind: FactorKind
    axis: Axis
    coefficient: Function
    flux: Flux | ByDegree | None = None
    boundary: tuple[Condition, Condition] | None = None


@dataclass(frozen=True, eq=False)
class Term:
    """A product scale · time(t) · factor_1 factor_2 … of one-dimensional operators.

    Terms are made by `div`, `grad`, `penalty` and `mass`, by chaining terms with ``@`` (the right
    one is applied first), and by multiplying them by numbers and functions of time.

    Attributes
    ----------
    factors : tuple of TermFactor
        The operators; the last one is applied first.
    scale : float
        A constant that multiplies the term.
    time : TimeFunction
        The coefficient's dependence on time.
    fields : tuple of (Axis, FieldExpression)
        Fields that multiply the term, each a function of its axis. In ``factors`` a field has a
        mass with the coefficient 1, or the derivative along its axis has that coefficient.
    stiff : bool
        Whether IMEX methods treat the term implicitly also if its fluxes are upwind, as those of
        collisions.
    electric : ElectricComponent or None
        The component of an electric field of several coordinates that multiplies the term.
    """

    factors: tuple[TermFactor, ...]
    scale: float = 1.0
    time: TimeFunction = field(default_factory=constant)
    fields: tuple[tuple[Axis, FieldExpression], ...] = ()
    stiff: bool = False
    electric: ElectricComponent | None = None

    def __post_init__(self) -> None:
        """Refuse a scale that is infinite or NaN."""
        finite_number("the number that multiplies a term", self.scale)

    def __matmul__(self, other: Term) -> Term:
        """Chain: the term on the right is applied first."""
        if not isinstance(other, Term):
            return NotImplemented
        if self.electric is not None or other.electric is not None:
            raise TypeError(
                "a field of several positions multiplies one first derivative, or f itself; its "
                "term is not chained with @"
            )
        return Term(
            self.factors + other.factors,
            self.scale * other.scale,
            self.time * other.time,
            self.fields + other.fields,
            self.stiff or other.stiff,
        )

    def __mul__(self, other: TimeFunction | float) -> Term:
        """Product with a number or a function of time."""
        if isinstance(other, TimeFunction):
            return replace(self, time=self.time * other)
        if is_number(other):
            return replace(self, scale=self.scale * float(other))
        return NotImplemented

    __rmul__ = __mul__

    def __add__(self, other: object) -> Any:
        """Terms are not added: raise TypeError that says so; leave other classes' operators."""
        if not isinstance(other, Term | Terms):
            return NotImplemented
        raise TypeError(f"{self!r} is one term of a sum; give sums as a list, terms=[a, b]")

    def __neg__(self) -> Term:
        """Negative of the term."""
        return self * -1.0

    def __repr__(self) -> str:
        return f"<Term {term_text(self)}>"


class Terms(tuple[Term, ...]):
    """Several terms, which numbers and functions of time multiply together."""

    __array_ufunc__ = None  # scalars of NumPy leave the product to this class

    def __mul__(self, other: TimeFunction | float) -> Terms:  # type: ignore[override]
        """Product of each term with a number or a function of time."""
        return Terms(term * other for term in self)

    __rmul__ = __mul__  # type: ignore[assignment]

    def __neg__(self) -> Terms:
        """Negative of each term."""
        return self * -1.0


def div(
    axis: Axis | str,
    coefficient: Function | FieldExpression = 1.0,
    *,
    flux: Flux | None = None,
    boundary: Boundary | None = None,
    others: Others | None = None,
    time: TimeFunction | None = None,
) -> Term:
    """Return the term ∂(g f)/∂x of the right-hand side; f_t = -v f_x is ``div(x, -v)``.

    Parameters
    ----------
    axis : Axis or str
        The axis of x, or its name, such as ``div("x", -1)``; the PDE has an axis of that name.
    coefficient : callable, float or FieldExpression
        g, a number, a function of x that takes and returns an array, or a field of x that is
        computed from the state, as u in f_t = -(u f)_x: ``div(x, -Moment({v: 1}) / Moment(v))``.
        A term with a field here has no other factor along x and no other derivative.
    flux : {"upwind", "central", "downwind"}, optional
        From which side of an edge f is taken; which side is upwind depends on the sign of the
        whole coefficient. The default is "upwind". In a chain div @ grad (see `grad`) the default
        is the side that is upwind for a coefficient of 1, whatever the coefficient is; a flux
        that is given there refers to the sign of this factor's own coefficient.
    boundary : str, condition or pair of them, optional
        Conditions of this factor alone at the two ends of the axis; by default the PDE's. NoFlux
        on the div of a chain div @ grad holds for the whole chain.
    others : mapping of Axis or str to callable, float or FieldExpression, optional
        Coefficients in other coordinates, which multiply g: ``div(x, -1, others={v: g})`` is
        -g(v) f_x. Where they change sign, so does the upwind side. A field is computed from the
        state: ``div(v, -1, others={x: Poisson(x, Moment(v))})``.
    time : TimeFunction, optional
        A function of time that multiplies g. With an upwind flux it must not be negative.

    Returns
    -------
    Term

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, the flux is unknown, or `others` has `axis` itself.

    Notes
    -----
    The flux between two cells takes g from the edge; where a function jumps there, from each side
    its own value. Moments jump at all edges: a field has the mean of the values of both cells, the
    same for both, so that ∂(g f)/∂x conserves ∫ f. Upwind sides and inflow ends follow the sign of
    this value, for each state anew; at inflow ends only zero data are possible, as of
    ``Inflow()``. A density that multiplies itself, as ``div(x, -0.5 * Moment(v))``, forms shocks,
    after which its upwind flux fails: write ``flux="central"`` and add `penalty`.

    Examples
    --------
    >>> x, v = Axis("x", 0, 1), Axis("v", -1, 1)
    >>> transport = div(x, -1.0, others={v: lambda s: s})
    >>> diffusion = 0.1 * div(x) @ grad(x)
    """
    return _term("div", axis, coefficient, flux, boundary, others, time)


def grad(
    axis: Axis | str,
    coefficient: Function | FieldExpression = 1.0,
    *,
    flux: Flux | None = None,
    boundary: Boundary | None = None,
    others: Others | None = None,
    time: TimeFunction | None = None,
) -> Term:
    """Return the term g ∂f/∂x; chained as ``div(x, h) @ grad(y, g)`` it is ∂(h g ∂f/∂y)/∂x.

    Parameters
    ----------
    axis, coefficient, boundary, others, time
        As in `div`; ``coefficient`` may be a field of x if grad is not in a chain.
    flux : {"upwind", "central", "downwind"}, optional
        From which side of an edge f is taken. The default is "upwind" if grad is alone. In a chain
        div @ grad, along one axis or two, it is the side opposite to that of div along the same
        axis (the local discontinuous Galerkin method).

    Returns
    -------
    Term

    Raises
    ------
    TypeError, ValueError
        As in `div`.

    Notes
    -----
    A mixed derivative is written ``div(x) @ grad(y)``. All chains along an axis x that has one
    use the same discrete gradient G_x, with traces from one side whatever the coefficients' signs,
    and -G_xᵀ as div. So the sum of K_ij ``div(x_i) @ grad(x_j)`` is -Gᵀ K G. It has no growing
    modes if K is constant and positive definite, nor if K(x, …) is given by masses between div and
    grad. Where K is not positive semidefinite, as in ``div(x, -1) @ grad(x)``, the PDE is
    ill-posed, and `PDE.discretize` refuses it. At a Neumann end the condition is on the co-normal
    derivative Σ_j K_ij ∂f/∂x_j; see docs/background/discretization.md. Products
    ``grad(x) @ grad(y)`` and ``div(x) @ div(y)`` are not of this form: both traces are upwind, the
    operator may have growing modes, and `PDE.discretize` warns of it.

    Examples
    --------
    >>> x, y = Axis("x", 0, 1), Axis("y", 0, 1)
    >>> both = -0.5 * div(x) @ grad(y), -0.5 * div(y) @ grad(x)
    >>> full = [*laplacian([x, y]), *both]  # K = [[1, -0.5], [-0.5, 1]]
    """
    return _term("grad", axis, coefficient, flux, boundary, others, time)


def penalty(
    axis: Axis | str,
    coefficient: Function = 1.0,
    *,
    flux: Flux = "upwind",
    others: Others | None = None,
    time: TimeFunction | None = None,
) -> Term:
    """Return the term that damps the jumps of f between cells; it is zero for continuous f.

    It is the difference of an upwind `div` and a central one.

    Parameters
    ----------
    axis, coefficient, flux, others, time
        As in `div`.

    Returns
    -------
    Term

    Raises
    ------
    TypeError, ValueError
        As in `div`.
    """
    return _term("penalty", axis, coefficient, flux, None, others, time)


def mass(
    axis: Axis | str,
    coefficient: Function | FieldExpression = 1.0,
    *,
    others: Others | None = None,
    time: TimeFunction | None = None,
) -> Term:
    """Return the term g f, for reactions and for coefficients inside chains.

    Parameters
    ----------
    axis, others, time
        As in `div`.
    coefficient : callable, float or FieldExpression
        g, as in `div`, or a field.

    Returns
    -------
    Term

    Raises
    ------
    TypeError, ValueError
        As in `div`.
    """
    return _term("mass", axis, coefficient, None, None, others, time)


def laplacian(
    axes: Axis | str | Sequence[Axis | str], k: Function = 1.0, *, time: TimeFunction | None = None
) -> Terms:
    """Return the terms Σ_i ∂(k ∂f/∂x_i)/∂x_i, one chain div @ grad per axis.

    Parameters
    ----------
    axes : Axis, str, or sequence of them
        The axes of the x_i, or their names.
    k : callable or float
        Diffusivity: a number, or a function of x_i that is the same for every i.
    time : TimeFunction, optional
        A function of time that multiplies k.

    Returns
    -------
    tuple of Term
        Numbers and functions of time multiply each of them.

    Raises
    ------
    TypeError, ValueError
        As in `div`.

    Examples
    --------
    >>> len(2 * laplacian([Axis("x", 0, 1), Axis("y", 0, 1)], 0.5))
    2
    """
    chosen = (axes,) if isinstance(axes, (Axis, str)) else tuple(axes)
    if not chosen:
        raise ValueError("axes is empty; give at least one axis")
    return Terms(div(axis, k, time=time) @ grad(axis) for axis in chosen)


def _term(
    kind: FactorKind,
    given: Axis | str,
    coefficient: Function | FieldExpression,
    flux: Flux | None,
    boundary: Boundary | None,
    others: Others | None,
    time: TimeFunction | None,
) -> Term:
    """Check the arguments of `div` and the like; return the term, with a mass per other axis."""
    axis = AxisName(given) if isinstance(given, str) else given
    if not isinstance(axis, Axis):
        raise TypeError(f"{kind}: axis must be an Axis or its name, got {type(axis).__name__}")
    if flux is not None and flux not in FLUX_SIGNS:
        raise ValueError(f"{kind}: flux is {flux!r}; expected one of {', '.join(FLUX_SIGNS)}")
    if time is not None and not isinstance(time, TimeFunction):
        raise TypeError(
            f"{kind}: time must be a TimeFunction of batchkron.problems.time, "
            f"got {type(time).__name__}"
        )
    ends = None if boundary is None else parse_ends(boundary, axis, None)
    if isinstance(coefficient, FieldExpression) and kind == "penalty":
        raise ValueError(
            f"penalty: the coefficient in {axis.name!r} is a field, whose absolute value at the "
            "edges would be the strength; expected a number or a function. A div or grad with the "
            "field has its own upwind flux"
        )
    fields: list[tuple[Axis, FieldExpression]] = []
    factors = [TermFactor(kind, axis, _plain(kind, axis, coefficient, fields), flux, ends)]
    electric: ElectricComponent | None = None
    for key, function in (others or {}).items():
        if isinstance(key, tuple) or isinstance(function, ElectricComponent):
            if electric is not None:
                raise ValueError(f"{kind}: others has two fields of several positions")
            electric = _component(kind, key, function)
            continue
        other = AxisName(key) if isinstance(key, str) else key
        if not isinstance(other, Axis):
            raise TypeError(f"{kind}: the keys of others must be axes, got {type(other).__name__}")
        if other.name == axis.name:
            raise ValueError(
                f"{kind}: others names {axis.name!r}, the axis of the term itself; "
                "put that coefficient into coefficient"
            )
        factors.insert(0, TermFactor("mass", other, _plain(kind, other, function, fields)))
    found = constant(1.0) if time is None else time
    return Term(tuple(factors), time=found, fields=tuple(fields), electric=electric)


def _component(kind: str, key: object, given: object) -> ElectricComponent:
    """Return what ``others`` has for several axes, after checking it."""
    if not isinstance(given, ElectricComponent):
        raise TypeError(
            f"{kind}: others has {type(given).__name__} for several axes; expected a component of "
            "an Electric, such as E.x. A given function of several axes is a pointwise one: "
            "div(v) @ pointwise(lambda f, x, y: g(x, y) * f, linear=True, speed=...)"
        )
    axes = given.electric.positions
    names = [axis.name for axis in axes]
    keys = list(key) if isinstance(key, tuple) else [key]
    if {str(getattr(own, "name", own)) for own in keys} != set(names) or len(keys) > len(names):
        raise ValueError(
            f"{kind}: {given.text()} is a function of {', '.join(names)}; give it for all of them, "
            f"as others={{({', '.join(names)}): E.{given.axis.name}}}"
        )
    return given


def _plain(
    kind: str,
    axis: Axis,
    coefficient: Function | FieldExpression,
    fields: list[tuple[Axis, FieldExpression]],
) -> Function:
    """Return a coefficient after checking it; a field is put into ``fields``, and 1 returned."""
    if isinstance(coefficient, FieldExpression):
        fields.append((axis, coefficient))
        return 1.0
    _check_coefficient(kind, axis, coefficient)
    return coefficient


def _check_coefficient(kind: str, axis: Axis, coefficient: object) -> None:
    if isinstance(coefficient, TimeFunction):
        raise TypeError(
            f"{kind}: the coefficient in {axis.name!r} is a function of time; give it as time="
        )
    if not (callable(coefficient) or is_number(coefficient)):
        raise TypeError(
            f"{kind}: the coefficient in {axis.name!r} must be a number or a function of one "
            f"array, got {type(coefficient).__name__}"
        )
    check_function(
        f"{kind}: the coefficient in {axis.name!r}",
        coefficient,
        f"For a product g(x) h(y) use others, as in {kind}(x, g, others={{y: h}})",
    )


def term_text(term: Term) -> str:
    """Return a term as one line, much like the code that makes it: ``-1 * div(x) @ grad(x)``."""
    front = [] if term.scale == 1.0 else [f"{term.scale:.6g}"]
    if not term.time.is_constant:
        front.append(time_text(term.time))
    elif (value := term.time(0.0)) != 1.0:
        front.append(f"{value:.6g}")
    behind = [] if term.electric is None else [term.electric.text()]
    return " * ".join([*front, " @ ".join(_factor_texts(term)), *behind])


def _factor_texts(term: Term) -> Iterator[str]:
    """Yield the text of each factor; a mass that stands for a field shows the field."""
    fields = list(term.fields)
    for factor in term.factors:
        own = [k for k, (axis, _) in enumerate(fields) if axis == factor.axis]
        alone = sum(other.axis == factor.axis for other in term.factors) == 1
        if own and (factor.kind == "mass" or alone) and factor.coefficient == 1.0:
            yield _factor_text(factor, fields.pop(own[0])[1])
        else:
            yield _factor_text(factor)


def _factor_text(factor: TermFactor, field: FieldExpression | None = None) -> str:
    words = [factor.axis.name]
    g = factor.coefficient
    if field is not None:
        words.append(field.text())
    elif is_number(g):
        words += [f"{g:.6g}"] * (g != 1.0)
    else:
        words.append(getattr(g, "__name__", type(g).__name__))
    if factor.flux not in (None, "upwind"):
        words.append(f"flux={factor.flux!r}")
    if factor.boundary is not None:
        words.append(f"boundary={ends_text(factor.boundary)!r}")
    return f"{factor.kind}({', '.join(words)})"
