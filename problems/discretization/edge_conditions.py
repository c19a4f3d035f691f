"""What derivatives take at the ends of an axis, by the conditions that are given there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ..statement.axis import Axis
from ..statement.boundary import Condition, Dirichlet, EdgeKind, Inflow, Neumann, NoFlux, Periodic
from ..statement.separable import Field
from .dg_matrices import Edges

__all__ = ["EdgeData", "EdgeDatum", "chain_ends", "mixed_ends", "own_ends", "single_ends"]


@dataclass(frozen=True, eq=False)
class EdgeDatum:
    """What is given at an end where a factor drops the trace from inside.

    Attributes
    ----------
    data : float, Separable, SeparableSum or "from exact"
        The function given there.
    slope : bool
        Whether it is ∂f/∂x, to be multiplied by the coefficients inside the div; else f.
    at_inflow : bool
        Whether it is given only if f flows in there.
    inner : bool
        Whether it is what the factors along other axes make of the exact solution: the share of a
        mixed derivative in the flux through the end.
    """

    data: Field | str
    slope: bool
    at_inflow: bool = False
    inner: bool = False


EdgeData: TypeAlias = tuple[EdgeDatum | None, EdgeDatum | None]
"""What is given at the left and the right end."""


def chain_ends(kind: str, ends: tuple[Condition, Condition]) -> tuple[Edges, EdgeData]:
    """Return what div or grad of a chain takes where the PDE's conditions are given.

    Dirichlet: grad takes the value, div the trace from inside. Neumann: grad takes the trace
    from inside, div the slope. NoFlux is Neumann without a slope.
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
                else EdgeDatum(condition.data, slope=isinstance(condition, Neumann))
            )
        else:
            edges.append("neumann")
            data.append(None)
    return (edges[0], edges[1]), (data[0], data[1])


def mixed_ends(kind: str, ends: tuple[Condition, Condition]) -> tuple[Edges, EdgeData]:
    """Return what div or grad of a mixed derivative takes: what it takes in a chain of its axis.

    The share of a mixed derivative in the flux through a Neumann end is zero, so that the
    condition is of the co-normal derivative; with an exact solution it is taken from there.
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
    """Return what a first derivative alone takes: Neumann is outflow, whatever its slope.

    Inner derivatives are those that another one is applied to: what passes through an end is the
    outer one's flux, which is the one that NoFlux closes.
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
        else:
            edges.append(condition.kind)
            data.append(None)
    return (edges[0], edges[1]), (data[0], data[1])


def own_ends(
    kind: str, axis: Axis, ends: tuple[Condition, Condition], periodic: bool, is_inner: bool
) -> tuple[Edges, EdgeData]:
    """Return a factor's own conditions, taken as they are."""
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
