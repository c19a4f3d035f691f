"""What results of least squares have in common, and what their functions' docstrings share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from batchkron.array_kinds import any_foreign, common_kind, in_kind
from batchkron.arrays import array_module

from .driver import is_converged

__all__ = ["LeastSquaresResult", "in_kind_of", "with_shared_parts"]

_Result = TypeVar("_Result", bound="LeastSquaresResult")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class LeastSquaresResult:
    """A result that unpacks as SciPy's tuple."""

    _tuple: ClassVar[tuple[str, ...]] = ()

    @property
    def converged(self) -> Any:
        """Whether a solution within the tolerances was found: bool, or ndarray of bool, (...)."""
        return is_converged(self.istop)  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._tuple)

    def __len__(self) -> int:
        return len(self._tuple)

    def __getitem__(self, index: int | slice) -> Any:
        return tuple(self)[index]

    def checked(self: _Result, name: str, raise_on_failure: bool) -> _Result:
        """Return the result; raise RuntimeError if that is wanted and it did not converge."""
        if raise_on_failure and not np.all(self.converged):
            codes = np.unique(self.istop).tolist()  # type: ignore[attr-defined]
            raise RuntimeError(
                f"{name} stopped with istop = {codes}; 3 and 6 say that A is ill-conditioned, 7 "
                "that the limit of iterations is reached, 8 that rounding prevents the accuracy, "
                "9 that there is NaN or infinity"
            )
        return self


def in_kind_of(solve: Callable[[Any, Any, Any], _Result], A: Any, b: Any, x0: Any) -> _Result:
    """Solve; with views of foreign arrays if b is one, such as a tensor, and x of its kind."""
    if not any_foreign(b):
        return solve(A, b, x0)
    found: list[_Result] = []

    def solution(A: Any, b: Any, x0: Any) -> Any:
        found.append(solve(A, b, x0))
        x = found[0].x  # type: ignore[attr-defined]
        return array_module(x).ascontiguousarray(x)

    x = in_kind(solution, common_kind(A=A, b=b, x0=x0), A, b, x0)
    return replace(found[0], x=x)  # type: ignore[type-var]


_PARTS = {
    "A, b, damp": """\
    A : array, sparse array, operator, or object with ``matvec`` and ``rmatvec``, shape (M, N)
    b : array_like, (M,) or (M, 1); (M, K) or (..., M) as ``batched`` says
        The right-hand sides.
    damp : float
        The weight of x - x0.
""",
    "tolerances": """\
    atol, btol : float
        A system is solved when ‖r‖ ≤ btol ‖b‖ + atol ‖A‖ ‖x‖, or ‖A* r‖ ≤ atol ‖A‖ ‖r‖, of the
        damped system with damp: relative errors of A and b that are allowed. 0 is rounding.
    conlim : float
        The condition number at which to stop; 0 for none.
""",
    "x0, batched": """\
    x0 : array_like, optional
        Where to begin, in the layout of the solution; zero by default.
    batched : {None, "columns", "leading"}
        None: one right-hand side. "columns": the K columns of b, "leading": one along the last axis
        for each index of the leading ones. Each stops by itself.
    raise_on_failure : bool
        Raise where a system does not converge, instead of saying so by ``istop``.
""",
    "raises": """\
    ValueError
        If shapes do not agree, or a number is out of range.
    TypeError
        If A has no product with vectors, or none of its adjoint, A is distributed, or operands are
        on different devices.
    RuntimeError
        If ``raise_on_failure`` and a system did not converge.
""",
}


def with_shared_parts(documented: _Function) -> _Function:
    """Put the parts in for lines such as ``[raises]`` of a function's docstring."""
    if documented.__doc__ is not None:  # which python -OO leaves out
        for name, part in _PARTS.items():
            documented.__doc__ = documented.__doc__.replace(f"    [{name}]\n", part)
    return documented
