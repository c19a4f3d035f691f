"""A function of some of a problem's axes, by its hierarchical coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import to_host

from ...discretization.basis.mesh_evaluation import evaluate_at
from ...discretization.parts import Masses
from ...grids.degrees import Degree, of_each_axis, sizes_of_degrees
from ...grids.sparse_grid import SparseGrid, grid_text
from ...statement.axis import Axis
from ..sources import kron_on_grid
from ..weighted_norm import OrthonormalCoordinates
from .contraction import power_weights

__all__ = ["Field"]


@dataclass(frozen=True, eq=False, repr=False)
class Field:
    """A function on some of a problem's axes: a moment, a marginal, a slice, or a field of a term.

    Attributes
    ----------
    axes : tuple of Axis
        Its axes, in the problem's order.
    grid : SparseGrid
        The cells of these axes.
    degree : int or tuple of int
        Polynomial degree, of all axes or of each.
    coefficients : ndarray, shape (N,), float64
        Hierarchical coefficients, ordered as a problem's state, where the state is.
    masses : tuple of (ndarray or None)
        The mass blocks of axes with a volume element.
    has_integral : bool
        Whether integrals are known.

    Examples
    --------
    >>> from batchkron.problems import make
    >>> problem = make("continuity-2d", 4, 1)
    >>> x, y = problem.axes
    >>> problem.slice(problem.exact_coefficients(0.3), {y: 0.5}).axes == (x,)
    True
    """

    axes: tuple[Axis, ...]
    grid: SparseGrid
    degree: Degree
    coefficients: NDArray[np.float64]
    masses: Masses
    has_integral: bool = True

    def __repr__(self) -> str:
        names = ", ".join(axis.name for axis in self.axes)
        return f"<Field of {names}: degree {self.degree}, grid {grid_text(self.grid)}>"

    def evaluate(self, points: ArrayLike, *others: ArrayLike) -> NDArray[np.float64]:
        """Return the values at points.

        Parameters
        ----------
        points : array_like, shape (m,) for one axis, else (..., axes), float64
            Coordinates in the order of the axes. A point on an edge between cells takes the value
            from the cell above it.
        *others : array_like
            If given, ``points`` and these are the coordinates along each axis, arrays that are
            broadcast together, such as those of `numpy.meshgrid`.

        Returns
        -------
        ndarray, float64
            Of the shape (m,), (...), or that of the broadcast coordinates; on the CPU.

        Raises
        ------
        ValueError
            For another number of arrays, other shapes, or points outside the domain.
        """
        state = to_host(self.coefficients, "coefficients")
        return evaluate_at(state, (points, *others), self.axes, self.grid, self.degree)

    def integral(self) -> float:
        """Return the integral over all axes, volume elements included.

        Raises
        ------
        ValueError
            If it is not known, see `batchkron.problems.Problem.field`.
        """
        self._check_integral()
        degrees = of_each_axis(self.degree, len(self.axes))
        weights = [
            power_weights(axis, level, degree, 0, mass).ravel()
            for axis, level, degree, mass in zip(
                self.axes, self.grid.levels, degrees, self.masses, strict=True
            )
        ]
        whole = kron_on_grid(weights, self.grid, sizes_of_degrees(degrees, len(degrees)))
        return float(whole @ to_host(self.coefficients, "coefficients"))

    def norm(self) -> float:
        """Return the L2 norm (∫ g² dV)^½; raises as `integral`."""
        self._check_integral()
        state = to_host(self.coefficients, "coefficients")
        if any(mass is not None for mass in self.masses):
            state = OrthonormalCoordinates(self.masses, self.grid, self.degree).of_state(state)
        return float(np.linalg.norm(state))

    def _check_integral(self) -> None:
        if not self.has_integral:
            raise ValueError(
                f"the field is a function of {self.axes[0].name!r}, whose volume element a problem "
                "knows for its own degree only; integrate values of evaluate(points), or take "
                "moment(u, powers), whose integral is known"
            )
