"""Solves with arrays of other libraries, whose solutions are of their kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from batchkron.array_kinds import common_kind, in_kind
from batchkron.arrays import array_module

from .result import KrylovResult


def solve_in_kind(
    solve: Callable[..., KrylovResult], A: Any, b: Any, x0: Any, M: Any
) -> KrylovResult:
    """Solve with views of foreign arrays, such as tensors of torch; ``x`` is of their kind.

    On a CUDA device the work goes to the library's current stream.

    Parameters
    ----------
    solve : callable
        ``solve(A, b, x0, M=M)`` takes arrays of NumPy or CuPy.
    A, b, x0, M : object
        As of a method; one at least is a foreign array. Operators that are none get vectors of
        NumPy or CuPy.

    Returns
    -------
    KrylovResult
        Norms and counts are those of ``solve``.

    Raises
    ------
    TypeError
        If there are arrays of two kinds, or a gradient is wanted of a tensor.
    """
    found: list[KrylovResult] = []

    def solution(A: Any, b: Any, x0: Any, M: Any) -> Any:
        found.append(solve(A, b, x0, M=M))
        x = found[0].x
        return array_module(x).ascontiguousarray(x)  # not all libraries take strides

    x = in_kind(solution, common_kind(A=A, b=b, x0=x0, M=M), A, b, x0, M)
    return replace(found[0], x=x)
