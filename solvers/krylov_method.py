"""What the workspaces of all Krylov methods share."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.arrays import array_module, as_array
from batchkron.solvers.krylov_result import KrylovResult, SolveLog, Status
from batchkron.solvers.linear_system import LinearSystem, Vector, check_count, working_dtype

WORTHWHILE = 0.5  # restarts go on as long as each shrinks the true residual to this part of it
_ITERATIONS_PER_UNKNOWN = 10  # SciPy's default for maxiter


class KrylovMethod:
    """The workspace of a method for systems of one size, kept from solve to solve.

    Parameters
    ----------
    size : int
        N, the number of unknowns.
    dtype : dtype_like
        float32, float64, complex64 or complex128.
    like : ndarray, optional
        Where the vectors are: NumPy's, or those of the device of a CuPy array.

    Raises
    ------
    ValueError
        If ``size`` < 0.
    TypeError
        If it is not an integer, or the dtype is not one of the four.
    """

    def __init__(self, size: int, dtype: Any = np.float64, *, like: Any = None) -> None:
        self.size = check_count("size", size, least=0)
        self.dtype = working_dtype(np.empty(0, dtype=dtype))
        self._arrays = array_module(like)
        self._preconditioned: Vector = self._empty(0)

    def _empty(self, *shape: int) -> Vector:
        return self._arrays.empty(shape, self.dtype)  # type: ignore[no-any-return]

    def _vector(self) -> Vector:
        return self._empty(self.size)

    def _check(self, system: LinearSystem, out: Vector | None) -> None:
        """Refuse a system or an ``out`` of another size; make room for M's product."""
        if system.size != self.size:
            raise ValueError(
                f"b has {system.size} elements; expected {self.size}, as the workspace has. Make "
                f"another {type(self).__name__} for another size."
            )
        as_array(system.b, "b", self._arrays)
        if out is not None:
            as_array(out, "out", self._arrays)
        if out is not None and (out.shape != (self.size,) or out.dtype != self.dtype):
            raise ValueError(
                f"out has shape {out.shape} and dtype {out.dtype}; "
                f"expected ({self.size},) and {self.dtype}."
            )
        if system.preconditioned and self._preconditioned.size != self.size:
            self._preconditioned = self._vector()

    def _finish(
        self,
        system: LinearSystem,
        x: Vector,
        status: Status,
        log: SolveLog,
        out: Vector | None,
        raise_on_failure: bool,
    ) -> KrylovResult:
        """Copy x out of the workspace into the result."""
        target = np.empty_like(x) if out is None else out
        np.copyto(target, x)
        return system.result(target, status, log, raise_on_failure=raise_on_failure)


def most_iterations(maxiter: int | None, size: int) -> int:
    """Return ``maxiter``, or 10 N where it is None.

    Parameters
    ----------
    maxiter : int or None
        The user's bound.
    size : int
        N.

    Returns
    -------
    int
        At least 1.
    """
    if maxiter is None:
        return max(_ITERATIONS_PER_UNKNOWN * size, 1)
    return check_count("maxiter", maxiter)
