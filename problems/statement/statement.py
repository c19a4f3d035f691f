"""The parts of a PDE as one value, and checks that they are consistent with each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from .axis import Axis
from .boundary import (
    Condition,
    Dirichlet,
    Inflow,
    Neumann,
    Robin,
    chain_conditions,
    check_data,
    ends_text,
)
from .coefficients import Function
from .functions import FunctionOfAxes
from .gains import MaxwellianGain
from .pointwise import PointwiseTerm
from .separable import Separable
from .terms import Term, term_text
from .text import axes_text, count

__all__ = ["Statement", "check_statement"]

_TERMS_SHOWN = 4  # number of terms that a repr writes out; it counts the others


@dataclass(frozen=True, init=False, eq=False)
class Statement:
    """The parts of an initial value problem f_t = Σ terms(f) + Σ sources on a box.

    `batchkron.problems.PDE` makes them from its arguments of the same names, which it documents.
    ``gains`` are those among the terms, which have no operator; so are ``pointwise``, functions of
    the state, the penalties of whose fluxes are terms, and ``electric``, terms that an electric
    field of several coordinates multiplies.
    ``initial``, ``sources`` and ``exact`` are the separable parts of sums. ``initial`` may be a
    function of all axes; it is None if the initial state is that of ``exact_function``, a callable
    exact solution. ``source_functions`` are the sources that are functions of all axes.
    """

    axes: tuple[Axis, ...]
    terms: tuple[Term, ...]
    gains: tuple[MaxwellianGain, ...]
    pointwise: tuple[PointwiseTerm, ...]
    electric: tuple[Term, ...]
    boundary: Mapping[Axis, tuple[Condition, Condition]]
    initial: tuple[Separable, ...] | FunctionOfAxes | None
    sources: tuple[Separable, ...] | str
    source_functions: tuple[FunctionOfAxes, ...]
    exact: tuple[Separable, ...]
    exact_function: Callable[..., Any] | None
    name: str
    units: Mapping[str, str]
    t0: float
    volume: Mapping[Axis, Function]

    def __repr__(self) -> str:
        ends = ", ".join(f"{axis.name} {ends_text(both)}" for axis, both in self.boundary.items())
        terms = [term_text(term) for term in self.terms[:_TERMS_SHOWN]]
        if len(self.terms) > _TERMS_SHOWN:
            terms.append(f"… {count(len(self.terms) - _TERMS_SHOWN, 'more term')}")
        terms += [gain.text() for gain in self.gains]
        terms += [term.text() for term in self.pointwise]
        terms += [term_text(term) for term in self.electric]
        number = len(self.sources) + len(self.source_functions)
        sources = self.sources if isinstance(self.sources, str) else str(number)
        known = "known" if self.exact or self.exact_function is not None else "not known"
        text = "\n".join(
            [
                f"PDE {self.name!r}: {axes_text(self.axes)}",
                f"  boundary: {ends}",
                "  f_t = " + "\n        + ".join(terms or ["0"]),
                f"  sources: {sources}; exact solution: {known}; t0 = {self.t0:.6g}",
            ]
        )
        return f"<{text}>"


def check_statement(pde: Statement) -> None:
    """Refuse a PDE whose parts contradict each other, with TypeError or ValueError.

    It also converts ``t0`` to a float.
    """
    if not isinstance(pde.name, str) or not pde.name:
        raise TypeError(f"name must be a string that is not empty, got {pde.name!r}")
    if not isinstance(pde.t0, Real) or not math.isfinite(pde.t0):
        raise ValueError(f"t0 must be a finite number, got {pde.t0!r}")
    object.__setattr__(pde, "t0", float(pde.t0))
    known = (*pde.terms, *pde.electric)
    own = [factor for term in known for factor in term.factors if factor.boundary is not None]
    ends = [*pde.boundary.items(), *((factor.axis, factor.boundary) for factor in own)]
    for axis, conditions in ends:
        for side, condition in zip(("left", "right"), conditions or (), strict=True):
            data = getattr(condition, "data", 0.0)
            where = f"the data at the {side} end of axis {axis.name!r}"
            if isinstance(data, str) and not pde.exact:
                raise ValueError(
                    f"{where} is {data!r}, which needs exact=Separable(...) or a sum of them; for "
                    "other solutions give the data as a function or formula of the coordinates and "
                    "t, such as Dirichlet(f)"
                )
            if not isinstance(data, str):
                check_data(where, data, pde.axes)
    _check_pointwise(pde)
    _check_slopes(pde)
    _check_robin(pde)
    _check_inflow(pde)


def _check_robin(pde: Statement) -> None:
    """Refuse Robin for first derivatives, which it says nothing about."""
    for term in pde.terms:
        derivatives = [factor for factor in term.factors if factor.kind in ("div", "grad")]
        for factor in derivatives:
            ends = factor.boundary or pde.boundary[factor.axis]
            alone = len(derivatives) == 1 or factor.boundary is not None
            if alone and any(isinstance(condition, Robin) for condition in ends):
                name = factor.axis.name
                raise ValueError(
                    f"{factor.kind}({name}) meets the condition Robin at an end of axis {name!r}, "
                    "which says what second derivatives div @ grad take there, by the PDE's "
                    f"boundary; give the factor its own: {factor.kind}({name}, "
                    "boundary=(Inflow(data), Inflow(data))), or Neumann() where f flows out"
                )


def _check_inflow(pde: Statement) -> None:
    """Refuse Inflow for terms of several derivatives, for it says nothing about their flux."""
    for term in pde.terms:
        derivatives = [factor for factor in term.factors if factor.kind in ("div", "grad")]
        if len(derivatives) < 2:
            continue
        chain = " @ ".join(f"{factor.kind}({factor.axis.name})" for factor in derivatives)
        for factor in derivatives:
            name = factor.axis.name
            along = [other for other in derivatives if other.axis == factor.axis]
            ends = factor.boundary
            if ends is None:
                ends = chain_conditions(pde.boundary[factor.axis], along[0].boundary)
            if any(isinstance(condition, Inflow) for condition in ends):
                raise ValueError(
                    f"the term {chain} meets the condition Inflow at an end of axis {name!r}, "
                    "which says what first derivatives take there, and nothing about second ones; "
                    f"give the chain its own condition: div({name}, boundary=NoFlux()) @ "
                    f"grad({name}) where nothing may pass, or div({name}, boundary=Neumann()) @ "
                    f"grad({name}, boundary=Dirichlet(data)) where the value is given"
                )


def _check_pointwise(pde: Statement) -> None:
    """Refuse conditions at ends that functions of the state cannot take, and exact sources."""
    for term in pde.pointwise:
        if isinstance(pde.sources, str):
            raise ValueError(
                f"sources is {pde.sources!r}, which has no part of {term.text()}; give the sources "
                "as functions of the axes and the time"
            )
        for factor in term.term.factors:
            if factor.kind == "mass":
                continue
            where = f"{term.text()} acts along axis {factor.axis.name!r}"
            if factor.boundary is not None:
                raise ValueError(f"{where} with conditions of its own; give them as the PDE's")
            for end in pde.boundary[factor.axis]:
                if isinstance(end, Inflow):
                    raise ValueError(
                        f"{where}, which has the condition Inflow: where f flows in depends on the "
                        "state; give Dirichlet(data) where it does, and Neumann() where f flows out"
                    )
                if term.inner is not None and isinstance(end, Dirichlet):
                    raise ValueError(
                        f"{where}, which has the condition Dirichlet; that is not possible yet for "
                        f"a diffusivity that is no product. Expected {_possible_ends(term)}"
                    )
                second = term.inner is not None or term.is_second_derivative
                has_slope = isinstance(end, Neumann) and (callable(end.data) or end.data != 0.0)
                if isinstance(end, Robin) or (second and has_slope):
                    kind = "Robin" if isinstance(end, Robin) else "Neumann with data"
                    raise ValueError(
                        f"{where}, which has the condition {kind}; of pointwise terms none takes "
                        "it, only div @ grad of f itself, whose coefficients are products. "
                        f"Expected {_possible_ends(term)}"
                    )


def _possible_ends(term: PointwiseTerm) -> str:
    """Return the conditions that a pointwise term takes along the axes of its derivatives."""
    values = "" if term.inner is not None else "Dirichlet(data), "
    return f"periodic, {values}Neumann() without data, or NoFlux()"


def _check_slopes(pde: Statement) -> None:
    """Refuse Neumann data along axes without a second derivative: no term would use the data."""
    for axis, conditions in pde.boundary.items():
        kinds = [
            [factor.kind for factor in term.factors if factor.axis == axis] for term in pde.terms
        ]
        if any("div" in kind and "grad" in kind for kind in kinds):
            continue
        for condition in conditions:
            has_data = isinstance(condition, Neumann) and condition.data != 0.0
            if has_data or isinstance(condition, Robin):
                raise ValueError(
                    f"axis {axis.name!r} has {type(condition).__name__} data but no second "
                    "derivative div @ grad that could take it; an outflow end is Neumann() "
                    "without data"
                )
