"""Boundary conditions of a PDE, one at each end of each axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .axis import Axis
from .formula import FormulaText
from .functions import function_of_axes
from .number_checks import finite_number
from .separable import Separable, SeparableFunction, SeparableSum, separable_parts

__all__ = [
    "Boundary",
    "BoundaryOfAxis",
    "Condition",
    "Dirichlet",
    "EdgeKind",
    "Inflow",
    "Neumann",
    "NoFlux",
    "Periodic",
    "Robin",
    "chain_conditions",
    "check_data",
    "ends_text",
    "parse_boundary",
]

FROM_EXACT = "from exact"
"""Given in place of data or functions, it takes them from the PDE's exact solution."""

EdgeKind: TypeAlias = Literal["periodic", "dirichlet", "neumann"]
"""How a first derivative treats an end of an axis.

"periodic" takes the trace (the value at the edge) from the other end, "dirichlet" drops the trace
from inside, for which a datum is given, and "neumann" keeps it.
"""


@dataclass(frozen=True)
class Periodic:
    """The axis is periodic: its two ends are the same place."""

    @property
    def kind(self) -> EdgeKind:
        """The word "periodic"."""
        return "periodic"


@dataclass(frozen=True)
class Dirichlet:
    """The value f = data is given at an end of an axis.

    For a first derivative alone that is well-posed only where f flows in; see `Inflow`.

    Attributes
    ----------
    data : float, Separable, SeparableSum, callable, str or "from exact"
        Function of the other coordinates and of time. A factor that depends on the axis itself is
        evaluated at the end. A callable or the text of a formula, such as "sin(y - t)", is given as
        ``sources`` of a `PDE`, and has the axis's end for that coordinate. "from exact" takes the
        PDE's exact solution.
    """

    data: SeparableFunction | Callable[..., Any] | str = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _checked_data("Dirichlet", self.data))

    @property
    def kind(self) -> EdgeKind:
        """The word "dirichlet"."""
        return "dirichlet"


@dataclass(frozen=True)
class Neumann:
    """The derivative ∂f/∂x_k = data is given at an end of axis k; the value of f is free.

    Attributes
    ----------
    data : float, Separable, SeparableSum, callable, str or "from exact"
        Derivative along the axis (in the direction of growing x_k at both ends, not along the
        outward normal), as a function of the other coordinates and of time. A factor that depends
        on the axis itself is evaluated at the end: a function of the axis is differentiated there,
        a number is taken as the derivative, and so is the value of a callable or formula, as of
        `Dirichlet`.
        "from exact" differentiates the PDE's exact solution.

    Notes
    -----
    For a first derivative alone it is the outflow condition, which uses no data. With mixed
    derivatives ``div(x_k) @ grad(x_j)`` the condition is on the co-normal derivative,
    Σ_j K_kj ∂f/∂x_j = K_kk data, so that zero data mean zero flux; "from exact" gives the whole
    sum.
    """

    data: SeparableFunction | Callable[..., Any] | str = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _checked_data("Neumann", self.data))

    @property
    def kind(self) -> EdgeKind:
        """The word "neumann"."""
        return "neumann"


@dataclass(frozen=True)
class Inflow:
    """The value f = data is given where f flows in through an end, and is free where it flows out.

    Attributes
    ----------
    data : float, Separable, SeparableSum, callable, str or "from exact"
        As in `Dirichlet`.

    Notes
    -----
    It is for first derivatives. On the right-hand side of f_t = …, ∂(g f)/∂x and g ∂f/∂x carry f
    with the velocity -g, so that f flows in at the right end where g > 0 and at the left end where
    g < 0. Here g is the whole coefficient, factors in other coordinates included: in v ∂f/∂x each
    sign of v has its own inflow end. Second derivatives along the axis need a condition of their
    own (the argument ``boundary`` of the term).
    """

    data: SeparableFunction | Callable[..., Any] | str = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _checked_data("Inflow", self.data))

    @property
    def kind(self) -> Literal["inflow"]:
        """The word "inflow"."""
        return "inflow"


@dataclass(frozen=True)
class Robin:
    """The condition f_n + r f = data at an end of axis k, with the outward derivative f_n.

    f_n is -∂f/∂x_k at the left end and ∂f/∂x_k at the right one. With r > 0 it is the exchange of
    heat with surroundings; r = 0 is Neumann with the slope along the outward normal.

    Attributes
    ----------
    r : float
        The number r; it is the same at all places of the end and at all times.
    data : float, Separable, SeparableSum, callable, str or "from exact"
        Function of the other coordinates and of time, as in `Dirichlet`: a number; a Separable, of
        which factors may depend on time; a callable such as ``lambda y, t: np.sin(y - t)``; or the
        text of a formula, such as "sin(y - t)". "from exact" is f_n + r f of the PDE's exact
        solution.

    Notes
    -----
    It is for second derivatives ``div(x_k, g) @ grad(x_k, h)``, whose flux through the end is
    g h (data - r f), outward. First derivatives along the axis need a condition of their own (the
    argument ``boundary`` of the term). With mixed derivatives the condition is on the co-normal
    derivative, as of `Neumann`.

    Examples
    --------
    >>> from batchkron.problems import PDE, Axis, Robin, laplacian
    >>> x = Axis("x", 0, 1)
    >>> PDE([x], laplacian(x), boundary=Robin(2.0, 1.0), initial=0.0).discretize(3, 2).unknowns
    24
    """

    r: float
    data: SeparableFunction | Callable[..., Any] | str = 0.0

    def __post_init__(self) -> None:
        if callable(self.r) or isinstance(self.r, (str, Separable, SeparableSum)):
            raise TypeError(
                f"Robin's r is {type(self.r).__name__}; expected a number, the same at all places "
                "of the end and at all times. Only the data may be a function of these"
            )
        object.__setattr__(self, "r", finite_number("Robin's r", self.r))
        object.__setattr__(self, "data", _checked_data("Robin", self.data))

    @property
    def kind(self) -> Literal["robin"]:
        """The word "robin"."""
        return "robin"


@dataclass(frozen=True)
class NoFlux:
    """The end of an axis is a wall: the flux through it is zero.

    Notes
    -----
    The flux of every single term is zero there: g f for a first derivative ∂(g f)/∂x, and k ∂f/∂x
    for a second derivative ∂(k ∂f/∂x)/∂x. So is their sum, and ∫ f is conserved.
    """

    @property
    def kind(self) -> Literal["no-flux"]:
        """The word "no-flux"."""
        return "no-flux"


Condition: TypeAlias = Periodic | Dirichlet | Neumann | Inflow | Robin | NoFlux
Word: TypeAlias = Literal["periodic", "dirichlet", "neumann", "inflow", "no-flux"]
Boundary: TypeAlias = Word | Condition | tuple[Word | Condition, Word | Condition]
"""What a user may give for one axis: one condition for both ends, or a pair (left, right)."""

BoundaryOfAxis: TypeAlias = Boundary | str | tuple[str | Condition, str | Condition]
"""The same in a mapping, in which type checkers take words for any strings."""

_WORDS: dict[str, type[Periodic | Dirichlet | Neumann | Inflow | NoFlux]] = {
    "periodic": Periodic,
    "dirichlet": Dirichlet,
    "neumann": Neumann,
    "inflow": Inflow,
    "no-flux": NoFlux,
}
_CHOICES = "Dirichlet(data), Neumann(data), Inflow(data), Robin(r, data)"


def parse_boundary(
    boundary: Boundary | Mapping[Any, BoundaryOfAxis], axes: Sequence[Axis]
) -> dict[Axis, tuple[Condition, Condition]]:
    """Return the conditions at the (left, right) end of every axis.

    They are given by a string, a condition, a pair (left, right) of them, or a mapping from each
    axis, or its name, to one of these. The strings are "periodic", "dirichlet", "neumann", "inflow"
    and "no-flux"; they stand for conditions with zero data. Raises TypeError or ValueError if a
    string or kind is unknown, an axis is missing or unknown, or only one end of an axis is
    periodic.
    """
    if not isinstance(boundary, Mapping):
        return {axis: parse_ends(boundary, axis, axes) for axis in axes}
    names = {axis.name: axis for axis in axes}
    result: dict[Axis, tuple[Condition, Condition]] = {}
    for key, value in boundary.items():
        axis = names.get(key) if isinstance(key, str) else key
        if axis is None or axis not in axes:
            raise ValueError(
                f"boundary names the axis {getattr(key, 'name', key)!r}, which the PDE does not "
                f"have; its axes are {', '.join(names)}"
            )
        result[axis] = parse_ends(value, axis, axes)
    missing = [axis.name for axis in axes if axis not in result]
    if missing:
        raise ValueError(
            f"boundary says nothing about the axes {', '.join(missing)}; give every axis "
            f"{', '.join(map(repr, _WORDS))}, {_CHOICES} or a pair of them"
        )
    return result


def parse_ends(
    value: BoundaryOfAxis, axis: Axis, axes: Sequence[Axis] | None
) -> tuple[Condition, Condition]:
    """Return the conditions at the two ends of an axis from a string, a condition, or a pair.

    The data may depend on the axes alone, if they are given; what is raised is as for
    `parse_boundary`.
    """
    ends = value if isinstance(value, (tuple, list)) else (value, value)
    if len(ends) != 2:
        raise ValueError(
            f"the boundary of axis {axis.name!r} has {len(ends)} entries; expected a pair "
            "(left, right)"
        )
    left, right = (_parse_condition(end, axis) for end in ends)
    if isinstance(left, Periodic) != isinstance(right, Periodic):
        raise ValueError(
            f"axis {axis.name!r} is periodic at one end only; make both ends periodic or neither"
        )
    for end, condition in (("left", left), ("right", right)):
        data = getattr(condition, "data", 0.0)
        if axes is not None and data != FROM_EXACT:
            check_data(f"the data at the {end} end of axis {axis.name!r}", data, axes)
    return left, right


def check_data(name: str, data: object, axes: Sequence[Axis]) -> None:
    """Refuse data that are neither separable nor a function of the axes and time, with TypeError.

    ValueError if they name another axis; ``name`` is for the texts.
    """
    if callable(data):
        function_of_axes(name, data, axes, in_time=True)
    else:
        separable_parts(name, data, axes)  # type: ignore[arg-type]


def chain_conditions(
    ends: tuple[Condition, Condition], own: tuple[Condition, Condition] | None
) -> tuple[Condition, Condition]:
    """Return the conditions of a chain div @ grad at the two ends of its axis.

    They are the PDE's, except at an end where the chain's div itself has NoFlux: div's flux is that
    of the whole chain.
    """
    first, last = own or (None, None)
    return (
        first if isinstance(first, NoFlux) else ends[0],
        last if isinstance(last, NoFlux) else ends[1],
    )


def ends_text(ends: Sequence[Condition]) -> str:
    """Return the names of the conditions at the two ends, such as "Dirichlet and NoFlux"."""
    return " and ".join(dict.fromkeys(type(condition).__name__ for condition in ends))


def _parse_condition(value: object, axis: Axis) -> Condition:
    if isinstance(value, Condition):
        return value
    if isinstance(value, str):
        if value not in _WORDS:
            raise ValueError(
                f"the boundary of axis {axis.name!r} is {value!r}; expected one of "
                f"{', '.join(_WORDS)}, or {_CHOICES}"
            )
        return _WORDS[value]()
    raise TypeError(
        f"the boundary of axis {axis.name!r} is {type(value).__name__}; expected a word such as "
        f"'periodic', or {_CHOICES}, or a pair of them"
    )


def _checked_data(kind: str, data: Any) -> Any:
    """Return data, a text as `FormulaText`."""
    if isinstance(data, str):
        try:
            return data if data == FROM_EXACT else FormulaText(data)
        except ValueError as error:
            raise ValueError(
                f"{kind}: {error}. The only word for data is {FROM_EXACT!r}; give that, a number, "
                "a Separable, or a function of the coordinates, such as lambda y: np.sin(y) or "
                "'sin(y)'"
            ) from None
    if not (callable(data) or isinstance(data, (Separable, SeparableSum))):
        separable_parts(f"{kind}'s data", data, ())
    return data
