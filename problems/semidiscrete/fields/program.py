"""Arithmetic with fields at points, as steps for the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...statement.fields import Arithmetic, FieldExpression, Resolved

__all__ = ["field_program"]

Values = NDArray[np.float64]

# Those of csrc/engine/fields/program.hpp.
_OPERATIONS = {"+": 0, "-": 1, "*": 2, "/": 3}
_DIVIDE_BY_POSITIVE, _PROJECT = 4, 5


def field_program(
    steps: Sequence[tuple[FieldExpression, FieldExpression | None]],
    given: Mapping[int, Any],
    channels: Sequence[Sequence[FieldExpression]],
    shape: tuple[int, int],
    projection: Callable[[Resolved], Values | None],
) -> tuple[dict[str, NDArray[Any]], dict[int, int]] | None:
    """Return the program of some expressions, or None if it cannot compute one of them.

    It is arrays, and the row of values of each expression, by its id. The first rows are those of
    the channels of a `PointMap`, then come those that are known, then one for each step.

    ``code`` (ndarray, shape (steps, 3), int64): of each step the operation and two rows.
    ``known`` (ndarray, shape (count, points), float64): the rows that are known.
    ``projection`` (ndarray, shape (size, size), float64): what a row is multiplied by, each
      ``size`` values of it, to project it.

    The steps are what is computed, operands first, with an earlier expression that is the same, if
    there is one; ``given`` are the values of what does not depend on the state, by id; ``channels``
    what each channel is the values of; ``shape`` the cells, and the points of each. ``projection``
    returns the matrix of a `Resolved`, of shape (0, 0) where it is the identity, None if it is too
    large.
    """
    rows = {id(node): k for k, nodes in enumerate(channels) for node in nodes}
    known = np.zeros((len(given), *shape))
    for k, (key, values) in enumerate(given.items()):
        rows[key], known[k] = len(channels) + k, values
    first, code, matrix = len(channels) + len(given), [], np.zeros((0, 0))
    for node, equal in steps:
        if equal is not None:
            rows[id(node)] = rows[id(equal)]
            continue
        if isinstance(node, Arithmetic):
            left, right = (rows[id(operand)] for operand in node.operands)
            operation = _OPERATIONS[node.operation]
            if node.operation == "/" and id(node.right) not in given:
                operation = _DIVIDE_BY_POSITIVE
            code.append((operation, left, right))
        elif isinstance(node, Resolved):
            own, place = projection(node), rows[id(node.field)]
            if own is None or (own.size and matrix.size and own is not matrix):
                return None
            if not own.size:
                rows[id(node)] = place
                continue
            matrix = own
            code.append((_PROJECT, place, place))
        else:
            return None
        rows[id(node)] = first + len(code) - 1
    arrays = {
        "code": np.array(code, dtype=np.int64).reshape(-1, 3),
        "known": known.reshape(len(given), shape[0] * shape[1]),
        "projection": np.ascontiguousarray(matrix),
    }
    return arrays, rows
