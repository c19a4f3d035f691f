"""Quantities of a state that are recorded over time, by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ...discretization.fields.modes import FieldMode
from ...discretization.interpolation.transform import PointTransform
from ...statement.axis import Axis
from ...statement.electric import ElectricComponent
from ...statement.fields import MAX_POWER, FieldExpression, Moment, Poisson, nodes_of
from ..fields.field import Field
from ..value import ProblemValue
from .observables import Observables

__all__ = [
    "StateQuantity",
    "poisson_fields_of",
    "product_powers",
    "quantities_of",
    "recurrence_time_of",
]

_POWER = re.compile(r"(\w+)(?:\^([0-9]{1,2}))?")  # one factor of a moment, such as v or v^2


_Weights = tuple[float, Mapping[Axis, int]]  # c and the powers of c ∫ v^k f


@dataclass(frozen=True, eq=False)
class StateQuantity:
    """A number that is computed from a state: a moment, an energy, a norm, an error.

    `batchkron.solvers.evolve` measures it if it is given in ``watch=``.

    ``name``: its name, such as "energy".
    ``label``: what it is, as a formula.
    ``unit``: its unit, if the problem's ``units`` have one by its name; else empty.
    """

    name: str
    label: str
    unit: str
    _output: Any = field(repr=False)
    _measure: Callable[[float, NDArray[np.float64]], float] = field(repr=False)

    def __call__(self, t: float, u: NDArray[np.float64]) -> float:
        """Return its value for a state at a time."""
        return self._measure(t, u)

    def for_problem(self, problem: Any) -> StateQuantity:
        """Return the quantity for the same problem on another grid."""
        own = problem.output
        return self if own is self._output else quantities_of(own, [self.name])[self.name]


def quantities_of(output: Observables, names: Sequence[str]) -> dict[str, StateQuantity]:
    """Return quantities of a problem's states by their names; all that it has if none is named."""
    known = _Known(output)
    return {name: known.quantity(name) for name in (names or known.names())}


def product_powers(text: str, names: Container[str]) -> dict[str, int] | None:
    """Return the power of each factor of a product such as "v1*v2^2"; None if the text is no such.

    The names are those that may occur, the powers 1 to 64.

    Examples
    --------
    >>> product_powers("v1*v2^2", ["v1", "v2"]), product_powers("v3", ["v1", "v2"])
    ({'v1': 1, 'v2': 2}, None)
    """
    found: dict[str, int] = {}
    for factor in text.split("*"):
        part = _POWER.fullmatch(factor)
        if part is None or part[1] not in names or not 0 < int(part[2] or 1) <= MAX_POWER:
            return None
        found[part[1]] = found.get(part[1], 0) + int(part[2] or 1)
    return found


def poisson_fields_of(output: Observables) -> list[Poisson]:
    """Return the Poisson equations in a problem's terms, each once."""
    return _Known(output).fields


def recurrence_time_of(output: Observables) -> float | None:
    """Return 2π/(k Δv) of the longest wave of a plasma, as of `Problem.recurrence_time`."""
    known = _Known(output)
    waves = [node.axis for node in known.fields if node.potential is None]
    for own in known.problem.electric:
        pairs = zip(own.electric.positions, own.periodic, strict=True)
        waves += [axis for axis, periodic in pairs if periodic]
    if not waves or not known.velocities:
        return None
    v = known.velocities[0]
    width = v.cell_width(known.problem.grid.levels[known.problem.axes.index(v)])
    return waves[0].length / width


class _Least:
    """The least value of a state at the points where functions of it are taken."""

    def __init__(self, problem: ProblemValue) -> None:
        self._transform = PointTransform(
            problem.axes, problem.grid, problem.degree, device=problem.device
        )

    def __call__(self, t: float, u: NDArray[np.float64]) -> float:
        return float(self._transform.values(u).min())


class _Known:
    """The quantities of a problem."""

    def __init__(self, output: Observables) -> None:
        self.output, self.problem = output, output.problem

    def names(self) -> list[str]:
        """Return the names of the quantities that the problem has, without other moments."""
        found = ["mass"]
        if self.velocities:
            several = len(self.velocities) > 1
            found += [f"momentum-{v.name}" if several else "momentum" for v in self.velocities]
            found.append("kinetic-energy")
        if self.fields or self.electric:
            found += ["field", "field-energy", "energy"]
        found.append("norm")
        if self.problem.exact is not None:
            found.append("error")
        return found

    def quantity(self, name: str) -> StateQuantity:
        """Return a quantity; raise TypeError or ValueError if the problem does not have it."""
        if not isinstance(name, str):
            raise TypeError(f"a quantity is named {name!r}; expected a text such as 'mass'")
        label, measure = self._made(name)
        unit = self.problem.units.get(name, "")
        return StateQuantity(name, label, unit, self.output, measure)

    def _made(self, name: str) -> tuple[str, Callable[[float, NDArray[np.float64]], float]]:
        output = self.output
        if name == "mass":
            return "∫ f", self._sum([(1.0, {})])
        if name == "norm":
            return "‖f‖", _Norm(self.problem)
        if name == "min":
            return "least f at the points of the grid", _Least(self.problem)
        if name == "error":
            if self.problem.exact is None:
                raise ValueError(f"{name!r} needs the exact solution, which is not known")
            return "‖f - exact‖", lambda t, u: output.l2_error(u, t)
        if name == "outflow-rate":
            return "-d/dt ∫ f", output.outflow_rate
        if name == "momentum" or name.startswith("momentum-"):
            v = self._velocity(name)
            return f"∫ {v.name} f", self._sum([(1.0, {v: 1})])
        if name == "kinetic-energy":
            return _half_squares(self._checked_velocities(name)), self._kinetic(name)
        if name == "field":
            return "‖E‖", _FieldNorm(output, self._checked_fields(name))
        if name == "field-energy":
            norm = _FieldNorm(output, self._checked_fields(name))
            return "½ ∫ E²", lambda t, u: 0.5 * norm(t, u) ** 2
        if name == "energy":
            kinetic = self._kinetic(name)
            norm = _FieldNorm(output, self._checked_fields(name))
            squares = _half_squares(self._checked_velocities(name))
            return f"{squares} + ½ ∫ E²", lambda t, u: kinetic(t, u) + 0.5 * norm(t, u) ** 2
        powers = self._powers(name)
        return f"∫ {name.replace('*', ' ')} f", self._sum([(1.0, powers)])

    def _kinetic(self, name: str) -> Callable[[float, NDArray[np.float64]], float]:
        return self._sum([(0.5, {v: 2}) for v in self._checked_velocities(name)])

    def _sum(self, parts: Sequence[_Weights]) -> _Functional:
        return _Functional(self.output, parts)

    def _powers(self, name: str) -> dict[Axis, int]:
        """Return the powers of a moment from a name such as "v1*v2^2"."""
        axes = {axis.name: axis for axis in self.problem.axes}
        found = product_powers(name, axes)
        if found is None:
            raise ValueError(
                f"{name!r} is no quantity of {self.problem.name}; it has "
                f"{', '.join(self.names())}, min, outflow-rate, and moments by powers of "
                f"{', '.join(axes)} such as {self.problem.axes[-1].name}^2"
            )
        return {axes[factor]: power for factor, power in found.items()}

    def _velocity(self, name: str) -> Axis:
        """Return the axis of a momentum."""
        velocities = self._checked_velocities(name)
        if name == "momentum" and len(velocities) == 1:
            return velocities[0]
        for v in velocities:
            if name == f"momentum-{v.name}":
                return v
        known = ", ".join(f"momentum-{v.name}" for v in velocities)
        raise ValueError(f"{name!r} is no quantity of {self.problem.name}; it has {known}")

    def _checked_velocities(self, name: str) -> list[Axis]:
        if not self.velocities:
            raise ValueError(
                f"{name!r} needs velocities, which are the axes of moments in the equation, and "
                f"that of {self.problem.name} has none; name a moment such as "
                f"{self.problem.axes[-1].name}^2"
            )
        return self.velocities

    def _checked_fields(self, name: str) -> Sequence[Poisson | ElectricComponent]:
        if not (self.fields or self.electric):
            raise ValueError(
                f"{name!r} needs the field of a Poisson equation, and the terms of "
                f"{self.problem.name} have none"
            )
        return *self.fields, *self.electric

    @cached_property
    def velocities(self) -> list[Axis]:
        """The axes over which moments are taken in terms and gains, in the problem's order."""
        nodes = [node for node in self._nodes() if isinstance(node, Moment)]
        named = {axis for node in nodes for axis, _ in node.powers}
        named |= {gain.velocity for gain in self.problem.gains}
        for own in self.problem.electric:
            named |= {axis for _, moment in own.electric.moments for axis, _ in moment.powers}
        return [axis for axis in self.problem.axes if axis in named]

    @cached_property
    def fields(self) -> list[Poisson]:
        """The Poisson equations in the terms, each once."""
        found: dict[str, Poisson] = {}
        for node in self._nodes():
            if isinstance(node, Poisson):
                found.setdefault(node.text(10**6), node)
        return list(found.values())

    @cached_property
    def electric(self) -> list[ElectricComponent]:
        """The components of electric fields of several positions, each once."""
        fields = dict.fromkeys(own.electric for own in self.problem.electric)
        return [electric[axis] for electric in fields for axis in electric.positions]

    def _nodes(self) -> Iterator[FieldExpression]:
        """Yield all parts of the fields in the terms."""
        for term in self.problem.terms:
            for mode in term.modes:
                if isinstance(mode, FieldMode):
                    yield from nodes_of(mode.field)
        for own in self.problem.pointwise:
            for argument in own.fields:
                yield from nodes_of(argument.field)


class _Functional:
    """Σ c ∫ Π v_i^k_i f dV over all axes, a linear function of the state."""

    def __init__(self, output: Observables, parts: Sequence[_Weights]) -> None:
        axes = output.problem.axes  # moment_weights wants a power of each
        self._weights: Any = sum(
            c * output.moment_weights({axis: powers.get(axis, 0) for axis in axes})
            for c, powers in parts
        )

    def __call__(self, t: float, u: NDArray[np.float64]) -> float:
        return float(self._weights @ u)


class _Norm:
    """The L2 norm (∫ f² dV)^½."""

    def __init__(self, problem: ProblemValue) -> None:
        self._problem = problem

    def __call__(self, t: float, u: NDArray[np.float64]) -> float:
        problem = self._problem
        if all(mass is None for mass in problem.masses):
            return float(array_module(u).linalg.norm(u))
        return Field(problem.axes, problem.grid, problem.degree, u, problem.masses).norm()


class _FieldNorm:
    """The L2 norm (Σ ∫ E² dx)^½ of the fields of Poisson's equations."""

    def __init__(self, output: Observables, fields: Sequence[Poisson | ElectricComponent]) -> None:
        self._output, self._fields = output, fields

    def __call__(self, t: float, u: NDArray[np.float64]) -> float:
        norms = [self._output.field(u, own, t).norm() for own in self._fields]
        return float(np.linalg.norm(norms))


def _half_squares(velocities: Sequence[Axis]) -> str:
    squares = " + ".join(f"{v.name}²" for v in velocities)
    return f"½ ∫ {squares} f" if len(velocities) == 1 else f"½ ∫ ({squares}) f"
