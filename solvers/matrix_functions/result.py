"""What functions of operators return, and how they say that they did not converge."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..krylov.systems.result import Status
from ..spectra.result import ConvergenceWarning

__all__ = ["FunctionResult", "Outcome", "finished"]


@dataclass(frozen=True)
class Outcome:
    """f(A) b of one vector, a row; its estimated error, how it ended, restarts or steps."""

    row: Any
    error: float
    failure: Status | None
    steps: int


@dataclass(frozen=True, eq=False)
class FunctionResult:
    """f(A) b, an estimate of its error, and what it cost.

    Attributes
    ----------
    x : ndarray, (N,) or (N, K)
        f(t A) b.
    status : Status
        ``CONVERGED`` if all estimates are within the tolerance, else why the worst is not.
    error : float, or ndarray of float64, (K,)
        An estimate of ‖x - f(t A) b‖, for each column.
    steps : int, or ndarray of int, (K,)
        Dimension of the Krylov space, or spaces one after the other.
    products : int
        Vectors multiplied by A.
    """

    x: NDArray[Any] = field(repr=False)
    status: Status
    error: Any
    steps: Any
    products: int

    @property
    def converged(self) -> bool:
        """Whether the estimated errors are within the tolerance."""
        return self.status is Status.CONVERGED


_ADVICE = {
    Status.MAX_ITERATIONS: "raise maxiter or rtol",
    Status.STAGNATED: "rounding prevents the accuracy: raise rtol",
    Status.NOT_FINITE: "NaN or infinity appeared in b or in a product, or the result is beyond "
    "the range of numbers",
    Status.INDEFINITE: "A has an eigenvalue on the negative real axis, or at 0, where the function "
    "is not defined",
}


def finished(result: FunctionResult, name: str, raise_on_failure: bool) -> FunctionResult:
    """Return a result; warn, or raise RuntimeError, unless it converged."""
    if result.converged:
        return result
    text = (
        f"{name} ended with the status '{result.status}' and an estimated error of "
        f"{np.max(result.error):.3e}: {_ADVICE.get(result.status, result.status.advice)}"
    )
    if raise_on_failure:
        raise RuntimeError(text)
    warnings.warn(text, ConvergenceWarning, stacklevel=3)
    return result
