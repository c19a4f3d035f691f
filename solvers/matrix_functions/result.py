"""What functions of operators return, and how they say that they did not converge."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..krylov.systems.result import Status
from ..products import norm
from ..spectra.result import ConvergenceWarning

__all__ = ["FunctionResult", "Outcome", "finished", "lift_of", "of_no_length"]


@dataclass(frozen=True)
class Outcome:
    """f(A) b of one vector, a row; its estimated error, how it ended, restarts or steps."""

    row: Any
    error: float
    failure: Status | None
    steps: int

    def times(self, number: float) -> Outcome:
        """Return what the vector times a number has; NaN beyond the range of numbers."""
        row, error = self.row * self.row.dtype.type(number), self.error * number
        if self.failure is None and not math.isfinite(norm(row)):
            return replace(self, row=row * np.nan, error=math.nan, failure=Status.NOT_FINITE)
        return replace(self, row=row, error=error)


def of_no_length(b: Any, length: float) -> Outcome:
    """Return 0 for a vector of the length 0, and NaN alone for one that is not finite."""
    if length == 0.0:
        return Outcome(b * 0, 0.0, None, 0)
    return Outcome(b * np.nan, math.nan, Status.NOT_FINITE, 0)


def lift_of(length: float, dtype: Any) -> float:
    """Return a power of two that takes a vector whose squares leave the range of numbers into it.

    It is 1 for other vectors. Its reciprocal is a normal number, too.
    """
    limits = np.finfo(dtype)
    least = math.sqrt(float(limits.tiny) / float(limits.eps))
    if not 0.0 < length < math.inf or least <= length <= 1.0 / least:
        return 1.0
    most = -int(limits.minexp) - 2
    return math.ldexp(1.0, max(-most, min(most, -math.frexp(length)[1])))


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
