"""What eigenvalue solvers return: values, vectors, residuals, and what they cost."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module

from ..krylov.systems.result import Status

__all__ = ["ConvergenceWarning", "EigenResult", "finished"]


class ConvergenceWarning(UserWarning):
    """A method ended without the accuracy that was asked for."""


@dataclass(frozen=True, eq=False)
class EigenResult:
    """Eigenpairs A v = λ v, or A v = λ B v, why the solver stopped, and what it cost.

    It stands for SciPy's pair: ``values, vectors = eigsh(A, 4)``.

    Parameters
    ----------
    values : ndarray, (k,)
        Eigenvalues, on the host; real of a Hermitian operator.
    vectors : ndarray, (N, k)
        Their vectors, on the operator's device: of Hermitian problems orthonormal (in the inner
        product x* B y), of others of length 1.
    residual_norms : ndarray of float64, (k,)
        ‖A v - λ B v‖ ÷ ‖v‖, of the vectors that are returned.
    statuses : ndarray of Status, (k,)
        Of each pair.
    iterations : int
        Of the method: extensions of the block, or restarts.
    products : int
        Vectors multiplied by A, a block of k counts k; those inside of M, if it has some, do not.
    preconditioner_applications : int
        Vectors multiplied by M.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.solvers import eigsh
    >>> result = eigsh(np.diag(np.arange(1.0, 101.0)), 2, which="LA", tol=1e-10)
    >>> print(result.status, result.values.round(9))
    converged [ 99. 100.]
    """

    values: NDArray[Any]
    vectors: NDArray[Any] = field(repr=False)
    residual_norms: NDArray[np.float64]
    statuses: NDArray[Any] = field(repr=False)
    iterations: int
    products: int
    preconditioner_applications: int

    @property
    def status(self) -> Status:
        """The status of the first pair that did not converge, ``CONVERGED`` if all did."""
        failed = [status for status in self.statuses if status is not Status.CONVERGED]
        return failed[0] if failed else Status.CONVERGED

    @property
    def converged(self) -> bool:
        """Whether the residuals of all pairs are within the tolerance."""
        return self.status is Status.CONVERGED

    def ordered(self, order: NDArray[np.intp]) -> EigenResult:
        """Return the pairs in another order."""
        place = array_module(self.vectors).asarray(order)
        return replace(
            self,
            values=self.values[order],
            vectors=self.vectors[:, place],
            residual_norms=self.residual_norms[order],
            statuses=self.statuses[order],
        )

    def __iter__(self) -> Iterator[Any]:
        return iter((self.values, self.vectors))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return (self.values, self.vectors)[index]


def finished(result: EigenResult, name: str, raise_on_failure: bool) -> EigenResult:
    """Return a result; warn, or raise RuntimeError, unless all its pairs converged."""
    if result.converged:
        return result
    failed = sum(status is not Status.CONVERGED for status in result.statuses)
    text = (
        f"{name} ended with {failed} of {len(result.statuses)} pairs not converged after "
        f"{result.products} products, status '{result.status}': the largest residual is "
        f"{result.residual_norms.max():.3e}. {_ADVICE.get(result.status, '')}"
    )
    if raise_on_failure:
        raise RuntimeError(text)
    warnings.warn(text.rstrip(), ConvergenceWarning, stacklevel=3)
    return result


_ADVICE = {
    Status.MAX_ITERATIONS: "Raise maxiter or tol, or give a preconditioner M or sigma.",
    Status.STAGNATED: (
        "Residuals no longer shrink: tol may be below what the dtype can reach for A, whose "
        "rounding errors are those of its largest eigenvalue."
    ),
    Status.BREAKDOWN: (
        "A - sigma I is singular or nearly so, as sigma is an eigenvalue to rounding: move sigma "
        "slightly, by a part of the distance to the next eigenvalue."
    ),
    Status.NOT_FINITE: "NaN or infinity appeared in a product with A, B or M: check these.",
    Status.INDEFINITE: (
        "A has eigenvalues of both signs, so which='SM' is not an end of its spectrum: take 'SA', "
        "'LA', or sigma=0. Or B is not positive definite."
    ),
}
