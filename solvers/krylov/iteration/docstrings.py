"""What the docstrings of Krylov methods share, written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Documented = TypeVar("_Documented", bound=Callable[..., Any])

_PARTS = {
    "rhs": """\
    b : array_like, shape (N,) or (N, 1); (N, K) or (..., N) as ``batched`` says
        The right-hand sides.
    x0 : array_like of b's shape, "Mb", or None
        The initial guess; None is zero, "Mb" is M b.
    rtol, atol : float
        The solve stops when the true residual satisfies ‖b - A x‖₂ ≤ max(rtol ‖b‖₂, atol).
""",
    "maxiter": """\
    maxiter : int, optional
        The largest number of iterations; 10 N by default.
""",
    "callback": """\
    callback : callable, optional
        Called with the iterate after each iteration: a read-only view that the next iteration
        overwrites. On a device, each call waits for it.
""",
    "batched": """\
    batched : {None, "columns", "leading"}
        None: one right-hand side. "columns": the K columns of b. "leading": one along the last
        axis for each index of the leading ones; A may have matrices (..., N, N), or a
        ``batch_shape`` of these axes. Each system stops by itself.
    raise_on_failure : bool
        Raise where a solve does not converge, instead of returning a status.
""",
    "columns": """\
    b : array_like, (N, K)
        The right-hand sides.
    x0 : array_like, (N, K), "Mb", or None
        The initial guess; None is zero, "Mb" is M b.
    rtol, atol : float
        A column is solved when its true residual satisfies ‖b - A x‖₂ ≤ max(rtol ‖b‖₂, atol).
""",
    "raises": """\
    ValueError
        If shapes do not agree, a tolerance is negative, or an option is unknown.
    TypeError
        If an operand has no product with a vector, a dtype is not a float or complex one, or
        operands are on different devices.
    RuntimeError
        If ``raise_on_failure`` and the status is not ``Status.CONVERGED``.
""",
}


def with_shared_parts(documented: _Documented) -> _Documented:
    """Put the parts in for lines such as ``[rhs]`` of a function's or class's docstring."""
    if documented.__doc__ is not None:  # which python -OO leaves out
        for name, part in _PARTS.items():
            documented.__doc__ = documented.__doc__.replace(f"    [{name}]\n", part)
    return documented
