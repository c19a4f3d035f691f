"""Comparing a problem's states with its exact solution."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from batchkron.operators import on_device

from .exact.function import ExactFunction, OnGrid
from .exact.separable import SeparableSolution
from .value import ProblemValue

__all__ = ["ExactComparison"]


class ExactComparison(ProblemValue):
    """The exact solution on a problem's grid, and errors of states."""

    def exact_coefficients(self, t: float) -> NDArray[np.float64] | None:
        """Return the exact solution's projection on the grid, or None if it is not known.

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        ndarray, shape (N,), float64, or None
        """
        return None if self.exact is None else on_device(self._known.coefficients(t), self.device)

    def l2_error(self, u: NDArray[np.float64], t: float) -> float:
        """Return the L2 error ‖u - f(t)‖ against the exact solution f, where ‖f‖² = ∫ f² dV.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        t : float
            Time.

        Returns
        -------
        float
            In the unit of f times the square root of the domain's volume.

        Raises
        ------
        ValueError
            If the exact solution is not known.

        Notes
        -----
        With the projection P onto the grid, ‖u - f‖² = ‖u - Pf‖² + ‖f - Pf‖², where the second
        part, what the grid leaves out, is summed directly (`exact.error`). With volume elements
        both are computed in orthonormal coordinates (`weighted_norm`), and against an
        `ExactFunction` that is not separable the error is computed by quadrature. All of it runs on
        the CPU, wherever the state is.
        """
        return self._known.error(self._on_host(u), t)

    def l2_norm_exact(self, t: float) -> float:
        """Return the L2 norm ‖f(t)‖ of the exact solution.

        Parameters
        ----------
        t : float
            Time.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the exact solution is not known.
        """
        return self._known.norm(t)

    def relative_error(self, u: NDArray[np.float64], t: float) -> float:
        """Return ‖u - f(t)‖ / ‖f(t)‖; inf if f(t) is zero and u is not, 0 if both are zero.

        Parameters
        ----------
        u : ndarray, shape (N,), float64
            State.
        t : float
            Time.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the exact solution is not known.
        """
        error, norm = self.l2_error(u, t), self.l2_norm_exact(t)
        if norm == 0.0:
            return math.inf if error > 0.0 else 0.0
        return error / norm

    @cached_property
    def _known(self) -> OnGrid:
        """The exact solution with its projections on the grid."""
        if self.exact is None:
            raise ValueError(
                f"the exact solution of {self.name!r} is not known; give PDE(..., exact=...) one"
            )
        if isinstance(self.exact, ExactFunction):
            return self.exact.on(self.grid)
        return SeparableSolution(self.exact, self.masses, self.grid, self.degree)
