"""Fields that depend on the state by moments linearly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ...statement.axis import Axis
from ...statement.fields import Arithmetic, EndMoment, FieldExpression, Moment, Samples, Uniform

__all__ = ["LinearPart", "MomentKey", "moment_key"]

MomentKey: TypeAlias = tuple[tuple[tuple[Axis, int], ...], Axis | None]
"""The powers of a moment, and the axis along which it is the gain between the ends, if any."""


def moment_key(node: Moment) -> MomentKey:
    """Return a key that equal moments have in common."""
    return node.powers, node.end if isinstance(node, EndMoment) else None


@dataclass(frozen=True)
class LinearPart:
    """The field Σ_m w_m m + Σ_g w_g g, with moments m and given functions g.

    ``moments`` (mapping of MomentKey to float): the w_m.
    ``given`` (mapping of FieldExpression to float): the w_g.
    """

    moments: Mapping[MomentKey, float] = field(default_factory=dict)
    given: Mapping[FieldExpression, float] = field(default_factory=dict)

    @classmethod
    def of(cls, node: FieldExpression, known: Mapping[int, LinearPart | None]) -> LinearPart | None:
        """Return an expression in this form; None if it cannot be written so by its own shape.

        ``known`` has the forms of its operands, by their ids.
        """
        if isinstance(node, Moment):
            return cls({moment_key(node): 1.0})
        if isinstance(node, (Uniform, Samples)):
            return cls({}, {node: 1.0})
        if not isinstance(node, Arithmetic):
            return None
        left, right = known[id(node.left)], known[id(node.right)]
        if left is None or right is None:
            return None
        if node.operation in "+-":
            return left._plus(right, 1.0 if node.operation == "+" else -1.0)
        if isinstance(node.right, Uniform):
            factor = node.right.value
            return left._times(factor if node.operation == "*" else 1.0 / factor)
        if isinstance(node.left, Uniform) and node.operation == "*":
            return right._times(node.left.value)
        return None

    def constant(self, known: Mapping[int, Any], cells: int, count: int, module: Any) -> Any:
        """Return the values (cells, count) of the given functions' sum."""
        found = module.zeros((cells, count))
        for node, weight in self.given.items():
            found += weight * known[id(node)]
        return found

    def _plus(self, other: LinearPart, factor: float) -> LinearPart:
        return LinearPart(
            _sum(self.moments, other.moments, factor), _sum(self.given, other.given, factor)
        )

    def _times(self, factor: float) -> LinearPart:
        return LinearPart(_sum({}, self.moments, factor), _sum({}, self.given, factor))


def _sum(left: Mapping[Any, float], right: Mapping[Any, float], factor: float) -> dict[Any, float]:
    found = dict(left)
    for key, weight in right.items():
        found[key] = found.get(key, 0.0) + factor * weight
    return {key: weight for key, weight in found.items() if np.isfinite(weight)}
