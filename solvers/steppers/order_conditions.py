"""Order conditions: equations that the coefficients of a Runge-Kutta method must satisfy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["missed_condition"]

# Conditions up to this order are checked: 200 of them, or 1860 for a method with two matrices; this
# takes milliseconds.
MAX_CHECKED_ORDER = 8
# Largest difference of a condition's two sides: coefficients with eight digits pass.
_TOLERANCE = 1e-7


_Tree: TypeAlias = tuple[NDArray[np.float64], str, int]
"""A rooted tree: its elementary weight at each stage, the weights' expression, its density."""


def missed_condition(
    weights: NDArray[np.float64], matrices: Mapping[str, NDArray[np.float64]], order: int
) -> tuple[int, str, float, Fraction] | None:
    """Return the condition of lowest order that does not hold, up to a given order.

    ``weights`` (float64 (s,)): the weights b.
    ``matrices`` (mapping of str to float64 (s, s)): the matrix a by its name; several matrices,
      with the same row sums c, for an additive method.
    ``order``: the order; conditions beyond `MAX_CHECKED_ORDER` are not checked.

    Result: the condition's order, its left side in NumPy's notation, the value of that, and the
    right side. None if all conditions hold.

    The conditions are Σ_i b_i Φ_i(τ) = 1/γ(τ) for every rooted tree τ with at most `order` nodes;
    for additive methods, for every choice of a matrix on each edge between inner nodes. Source:
    E. Hairer, S. P. Nørsett, G. Wanner, *Solving Ordinary Differential Equations I*, theorem
    II.2.13 and section II.15.

    Examples
    --------
    >>> missed_condition(np.array([0.5, 0.5]), {"a": np.array([[0, 0], [1.0, 0]])}, 3)
    (3, 'weights @ (c * c)', 0.5, Fraction(1, 3))
    """
    nodes = next(iter(matrices.values())).sum(axis=1)
    branches: list[list[_Tree]] = [[(nodes, "c", 1)]]  # of 1, 2, … nodes, as children
    for size in range(2, min(order, MAX_CHECKED_ORDER) + 1):
        trees = [_joined(children, size) for children in _forests(branches, size - 1)]
        for values, expression, density in trees:
            value, expected = float(weights @ values), Fraction(1, density)
            scale = max(1.0, float(np.abs(weights) @ np.abs(values)))
            if abs(value - expected) > _TOLERANCE * scale:
                return size, f"weights @ {expression}", value, expected
        branches.append(
            [
                (matrix @ values, f"({name} @ {expression})", density)
                for values, expression, density in trees
                for name, matrix in matrices.items()
            ]
        )
    return None


def _joined(children: tuple[_Tree, ...], size: int) -> _Tree:
    """Return the tree whose root has the given children."""
    values, expressions, densities = zip(*children, strict=True)
    text = " * ".join(expressions)
    expression = f"({text})" if len(children) > 1 else text
    return np.prod(values, axis=0), expression, size * prod(densities)


def _forests(
    branches: list[list[_Tree]], nodes: int, start: tuple[int, int] = (1, 0)
) -> Iterator[tuple[_Tree, ...]]:
    """Yield all multisets of branches with ``nodes`` nodes in all, from (size, index) start on."""
    if nodes == 0:
        yield ()
        return
    for size in range(start[0], nodes + 1):
        for place in range(start[1] if size == start[0] else 0, len(branches[size - 1])):
            for rest in _forests(branches, nodes - size, (size, place)):
                yield (branches[size - 1][place], *rest)
