"""Fields with samples in place of functions: all that a discretized problem keeps of them."""

from __future__ import annotations

from ...statement.axis import Axis
from ...statement.fields import (
    Arithmetic,
    FieldExpression,
    FunctionOf,
    Poisson,
    Power,
    Resolved,
    Samples,
    nodes_of,
)
from .points import CellPoints

__all__ = ["sampled"]


def sampled(field: FieldExpression, axis: Axis, level: int, degree: int) -> FieldExpression:
    """Return a field with each function replaced by its values at the Gauss points of an axis.

    Parts that occur several times in the expression remain one object.
    """
    points = CellPoints(axis, level, degree)
    made: dict[int, FieldExpression] = {}
    for node in nodes_of(field):
        done: FieldExpression = node
        if isinstance(node, FunctionOf):
            values = points.sample(node.function, f"function of {axis.name!r} in a field")
            values.setflags(write=False)
            done = Samples(values, node.name)
        elif isinstance(node, Arithmetic):
            done = Arithmetic(node.operation, made[id(node.left)], made[id(node.right)])
        elif isinstance(node, Resolved):
            done = Resolved(made[id(node.field)], node.velocities)
        elif isinstance(node, Power):
            done = Power(made[id(node.base)], node.exponent)
        elif isinstance(node, Poisson):
            density = made[id(node.density)]
            if node.background is None:
                done = Poisson(node.axis, density, potential=node.potential)
            else:
                base = made[id(node.background)]
                done = Poisson(node.axis, density, base, potential=node.potential)
        made[id(node)] = done
    return made[id(field)]
