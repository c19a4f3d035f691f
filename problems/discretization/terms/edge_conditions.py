"""How each derivative treats the ends of an axis, given the conditions there.

The result for an end is a kind, "periodic", "neumann" (take the trace of f from inside) or
"dirichlet" (drop it), and for a "dirichlet" end the datum that replaces the trace, or None for 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...statement.axis import Axis
from ...statement.boundary import (
    Condition,
    Dirichlet,
    EdgeKind,
    Inflow,
    Neumann,
    NoFlux,
    Periodic,
    Robin,
)
from ...statement.separable import SeparableFunction
from ..matrices.dg_matrices import Edges

__all__ = ["EdgeData", "EdgeDatum", "chain_ends", "mixed_ends", "own_ends", "single_ends"]


@dataclass(frozen=True, eq=False)
class EdgeDatum:
    """The datum at an end where a factor does not take the trace from inside.

    Attributes
    ----------
    data : float, Separable, SeparableSum, callable or "from exact"
        The function given there.
    slope : bool
        Whether it is ∂f/∂x, which is multiplied by the coefficients inside the div; otherwise f.
    at_inflow : bool
        Whether it is given only if f flows in there.
    inner : bool
        Whether the datum is the exact solution after the factors along other axes have been
        applied to it: the part of a mixed derivative in the flux through the end.
    share : float or None
        The number r of `Robin`: the slope along the outward normal is the datum less r f. None if
        the datum is the slope along the axis itself.
    """

    data: SeparableFunction | Callable[..., Any] | str
    slope: bool
    at_inflow: bool = False
    inner: bool = False
    share: float | None = None


EdgeData: TypeAlias = tuple[EdgeDatum | None, EdgeDatum | None]
"""The data at the left and the right end; None where there are none."""


def chain_ends(kind: str, ends: tuple[Condition, Condition]) -> tuple[Edges, EdgeData]:
    """Return the kinds and data of the ends for the div or grad of a chain div @ grad.

    At a Dirichlet end grad takes the given value and div the trace from inside. At a Neumann end
    grad takes the trace from inside and div the given slope. NoFlux is Neumann with slope zero,
    Robin is Neumann with a slope that has a part in f.
    """
    edges: list[EdgeKind] = []
    data: list[EdgeDatum | None] = []
    for condition in ends:
        if isinstance(condition, Periodic):
            edges.append("periodic")
            data.append(None)
        elif isinstance(condition, Dirichlet) == (kind == "grad"):
            edges.append("dirichlet")
            data.append(
                None
                if isinstance(condition, NoFlux)
                else EdgeDatum(
                    condition.data,
                    slope=isinstance(condition, (Neumann, Robin)),
                    share=getattr(condition, "r", None),
                )
            )
        else:
            edges.append("neumann")
            data.append(None)
    return (edges[0], edges[1]), (data[0], data[1])


def mixed_ends(kind: str, ends: tuple[Condition, Condition]) -> tuple[Edges, EdgeData]:
    """Return the kinds and data of the ends for the div or grad of a mixed derivative.

    The kinds are those of a chain along the same axis. The mixed derivative's flux through a
    Neumann end is zero, so that the condition is on the co-normal derivative; with data "from
    exact" it is the flux of the exact solution.
    """
    edges, data = chain_ends(kind, ends)
    if kind == "grad":
        return edges, data
    shares = [
        EdgeDatum(datum.data, slope=False, inner=True)
        if datum is not None and isinstance(datum.data, str)
        else None
        for datum in data
    ]
    return edges, (shares[0], shares[1])


def single_ends(
    ends: tuple[Condition, Condition], is_inner: bool = False
) -> tuple[Edges, EdgeData]:
    """Return the kinds and data of the ends for a first derivative alone.

    Neumann means outflow; its slope is not used. An inner derivative is one that another derivative
    is applied to. NoFlux does not act on it, because the flux through the end is the outer one's.
    """
    edges: list[EdgeKind] = []
    data: list[EdgeDatum | None] = []
    for condition in ends:
        if isinstance(condition, (Dirichlet, Inflow)):
            edges.append("dirichlet")
            at_inflow = isinstance(condition, Inflow)
            data.append(EdgeDatum(condition.data, slope=False, at_inflow=at_inflow))
        elif isinstance(condition, NoFlux):
            edges.append("neumann" if is_inner else "dirichlet")
            data.append(None)
        elif isinstance(condition, Robin):  # of a penalty; first derivatives are refused
            edges.append("neumann")
            data.append(None)
        else:
            edges.append(condition.kind)
            data.append(None)
    return (edges[0], edges[1]), (data[0], data[1])


def own_ends(
    kind: str, axis: Axis, ends: tuple[Condition, Condition], periodic: bool, is_inner: bool
) -> tuple[Edges, EdgeData]:
    """Return the kinds and data of the ends for conditions that were given to a factor itself."""
    if isinstance(ends[0], Periodic) != periodic:
        raise ValueError(
            f"{kind} along {axis.name!r} has its own boundary {ends[0].kind!r}, but the PDE's "
            f"axis is {'' if periodic else 'not '}periodic; both must agree"
        )
    for condition in ends:
        if isinstance(condition, Neumann) and condition.data != 0.0:
            raise ValueError(
                f"{kind} along {axis.name!r} has its own boundary, which cannot be Neumann with "
                "data; where it takes the trace from inside, write Neumann() without data"
            )
    return single_ends(ends, is_inner)
