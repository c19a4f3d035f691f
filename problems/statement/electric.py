"""The electric field of Poisson's equation in several coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .axis import Axis
from .fields import Arithmetic, FieldExpression, Moment, Uniform
from .number_checks import finite_number, is_number

__all__ = ["Electric", "ElectricComponent", "Potential"]

Potential: TypeAlias = Mapping[Axis, tuple[float, float]]
"""The potentials at the lower and the upper end of axes."""

_MAX_POSITIONS = 3


class Electric:
    """The field E = -∇φ of Poisson's equation in several coordinates, -Δφ = density - background.

    Parameters
    ----------
    positions : sequence of Axis
        The two or three axes that E is a function of; all other axes of the PDE are integrated
        over in ``density``.
    density : FieldExpression
        n, a moment such as ``Moment([v, w])``, or sums and multiples of moments.
    background : "mean" or float
        n_0; "mean" is the mean of n, so that the whole is neutral, and is needed if all positions
        are periodic.
    potential : mapping of Axis to (float, float), optional
        φ at the lower and the upper end of positions that are not periodic; 0 by default.

    Attributes
    ----------
    positions : tuple of Axis
    moments : tuple of (float, Moment)
        The density Σ weight · moment.
    background : float or None
        None is the mean.
    potential : tuple of (float, float)
        Of each position.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind. `PDE` refuses periodic positions with a potential.

    Notes
    -----
    ``E.x`` or ``E[x]`` is the component along the axis of the name x. It is given to a term by
    ``div(v, -1, others={(x, y): E.x})``. As of `Poisson`, the electron equation with a fixed ion
    background is f_t + v f_x + w f_y + E.x f_v + E.y f_w = 0.

    E is continuous along its own direction and of one degree more than states in it, and its
    divergence is the polynomial n - n_0 of each finest cell, exactly (the mixed finite elements of
    Raviart and Thomas). It is computed on the full grid of the finest cells of all positions,
    whatever the grid of the problem: by eigenvectors along each position, which are computed once.

    References
    ----------
    P. A. Raviart, J. M. Thomas, *A mixed finite element method for 2nd order elliptic problems*,
    Lecture Notes in Mathematics 606 (1977).

    Examples
    --------
    >>> from batchkron.problems import Axis, Electric, Moment, div
    >>> x, y, v, w = Axis("x", 0, 1), Axis("y", 0, 1), Axis("v", -6, 6), Axis("w", -6, 6)
    >>> E = Electric([x, y], Moment([v, w]))
    >>> E.x
    <Electric([x, y], Moment({v: 0, w: 0})).x>
    >>> force = [div(v, -1, others={(x, y): E.x}), div(w, -1, others={(x, y): E.y})]
    """

    def __init__(
        self,
        positions: Sequence[Axis],
        density: FieldExpression,
        background: Literal["mean"] | float = "mean",
        *,
        potential: Potential | None = None,
    ) -> None:
        axes = () if isinstance(positions, (str, Axis)) else tuple(positions)
        if not all(isinstance(axis, Axis) for axis in axes):
            raise TypeError("Electric: positions must be axes, as Axis('x', 0, 1) makes them")
        if not 2 <= len(axes) <= _MAX_POSITIONS or len(set(axes)) < len(axes):
            raise ValueError(
                "Electric: expected two or three different positions, as in Electric([x, y], "
                "Moment([v, w])); for one position Poisson(x, Moment(v)) is the field"
            )
        ends = dict(potential or {})
        for axis in ends:
            if axis not in axes:
                raise ValueError(f"Electric: potential names {axis!r}, which is no position")
        self.positions: tuple[Axis, ...] = axes
        self.moments = _weighted_moments(density, 1.0)
        self.background: float | None = None
        if background != "mean":
            if not is_number(background):
                raise TypeError(
                    f"Electric: background is {background!r}; expected 'mean' or a number"
                )
            self.background = finite_number("the background", background)
        self.potential = tuple(_ends(axis, ends.get(axis, (0.0, 0.0))) for axis in axes)
        self._density = density

    def __getitem__(self, axis: Axis | str) -> ElectricComponent:
        """Return the component along an axis, or the axis of a name; raises ValueError."""
        for own in self.positions:
            if axis in (own, own.name):
                return ElectricComponent(self, own)
        names = ", ".join(own.name for own in self.positions)
        raise ValueError(f"{axis!r} is no position of the field; these are {names}")

    def __getattr__(self, name: str) -> ElectricComponent:
        """Return the component along the axis of a name."""
        if any(own.name == name for own in vars(self).get("positions", ())):
            return self[name]
        raise AttributeError(f"an Electric has no {name!r}; its components have the axes' names")

    @property
    def _key(self) -> tuple[object, ...]:
        moments = tuple((weight, moment.powers) for weight, moment in self.moments)
        return self.positions, moments, self.background, self.potential

    def __eq__(self, other: object) -> bool:
        """Whether the other is the same field."""
        return isinstance(other, Electric) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def text(self) -> str:
        """Return the field as the code that makes it."""
        names = ", ".join(axis.name for axis in self.positions)
        base = "" if self.background is None else f", {self.background:.6g}"
        return f"Electric([{names}], {self._density.text()}{base})"

    def __repr__(self) -> str:
        return f"<{self.text()}>"


@dataclass(frozen=True)
class ElectricComponent:
    """One component of an electric field, a function of all its positions.

    ``axis``: the position along which it points.
    """

    electric: Electric
    axis: Axis

    @property
    def number(self) -> int:
        """The number of its axis among the positions."""
        return self.electric.positions.index(self.axis)

    def text(self) -> str:
        """Return the component as the code that makes it."""
        return f"{self.electric.text()}.{self.axis.name}"

    def __repr__(self) -> str:
        return f"<{self.text()}>"


def _weighted_moments(density: object, weight: float) -> tuple[tuple[float, Moment], ...]:
    """Return a density as moments with their weights; raise TypeError if it is no sum of them."""
    if type(density) is Moment:
        return ((weight, density),)
    if isinstance(density, Arithmetic):
        left, right = density.left, density.right
        if density.operation in "+-":
            sign = 1.0 if density.operation == "+" else -1.0
            return (*_weighted_moments(left, weight), *_weighted_moments(right, sign * weight))
        if isinstance(right, Uniform):
            factor = right.value if density.operation == "*" else 1.0 / right.value
            return _weighted_moments(left, factor * weight)
        if isinstance(left, Uniform) and density.operation == "*":
            return _weighted_moments(right, left.value * weight)
    what = density.text() if isinstance(density, FieldExpression) else type(density).__name__
    raise TypeError(
        f"Electric: density is {what}; expected a moment such as Moment([v, w]), or sums and "
        "multiples of moments; a number to subtract is background="
    )


def _ends(axis: Axis, given: Any) -> tuple[float, float]:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(
            f"Electric: potential along {axis.name!r} is {given!r}; expected the pair (lower, "
            "upper)"
        )
    lower, upper = (finite_number("the potential", value) for value in given)
    return lower, upper
