"""Solves with arrays of other libraries, whose solutions are of their kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchkron.array_kinds import common_kind, in_kind, kind_of
from batchkron.arrays import array_module

from .result import KrylovResult


def refuse_foreign(value: Any, name: str, **native: Any) -> None:
    """Raise TypeError if a value, which errors call ``name``, is foreign and others are native."""
    if kind_of(value) is not None:
        common_kind(**{name: value}, **native)


def solve_in_kind(
    solve: Callable[..., KrylovResult], A: Any, b: Any, x0: Any, M: Any, out: Any = None
) -> KrylovResult:
    """Solve with views of foreign arrays, such as tensors of torch; ``x`` is of their kind.

    ``solve(A, b, x0, M=M)`` takes arrays of NumPy or CuPy; also ``out=``, where that is given. On a
    CUDA device the work goes to the library's current stream. TypeError if there are arrays of two
    kinds, or a gradient is wanted of a tensor.
    """
    found: list[KrylovResult] = []

    def solution(A: Any, b: Any, x0: Any, M: Any, out: Any) -> Any:
        if out is not None:
            found.append(solve(A, b, x0, M=M, out=out))
            return out
        found.append(solve(A, b, x0, M=M))
        x = found[0].x
        return array_module(x).ascontiguousarray(x)  # not all libraries take strides

    kind = common_kind(A=A, b=b, x0=x0, M=M, out=out)
    x = in_kind(solution, kind, A, b, x0, M, out)
    return replace(found[0], x=x)
