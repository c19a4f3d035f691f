"""The content of a result file of ASGarD, in the basis of this package."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...discretization.basis.evaluation import evaluate_on_grid
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis

__all__ = ["AsgardField", "AsgardLayout", "AsgardState"]

AsgardLayout: TypeAlias = Literal["2024", "0.9.0"]


@dataclass(frozen=True, eq=False)
class AsgardField:
    """A function f(x) = Σ_blocks Σ_j c_(block, j) Π_k ψ_(block_k, j_k)(x_k) on a sparse grid.

    Parameters
    ----------
    name : str
        The field's name in the file.
    axes : tuple of Axis
        The d axes.
    degree : int
        Degree of the polynomials.
    grid : SparseGrid
        The grid, of kind "custom"; its finest levels are the largest that occur in the file.
    coefficients : float64 (num_cells * (degree + 1)**d,)
        Coefficients in the basis of this package, in the order of the grid's cells; within a block
        the last dimension is the fastest. Read-only.
    """

    name: str
    axes: tuple[Axis, ...]
    degree: int
    grid: SparseGrid
    coefficients: NDArray[np.float64] = field(repr=False)

    def evaluate(self, points: ArrayLike) -> NDArray[np.float64]:
        """Return the field's values at points.

        Parameters
        ----------
        points : array_like, float64 (m, d)
            Coordinates in the order of the axes. A point on an edge between cells takes the value
            from the cell above it.

        Returns
        -------
        float64 (m,)
            Values.

        Raises
        ------
        ValueError
            If the points have another shape, or one lies outside the domain.
        """
        return evaluate_on_grid(self.coefficients, points, self.axes, self.grid, self.degree)


@dataclass(frozen=True, eq=False)
class AsgardState(AsgardField):
    """The state in a result file of ASGarD, and the fields saved with it.

    Parameters
    ----------
    name, axes, degree, grid, coefficients
        As of `AsgardField`; the name is the problem's title.
    subtitle : str
        The problem's subtitle.
    layout : {"2024", "0.9.0"}
        The layout of the file.
    time : float
        The time of the state.
    fields : tuple of AsgardField
        Auxiliary fields that were saved with the state, each on its own grid.
    moments : mapping of tuple of int to AsgardField
        The moments ∫ Π_i v_i^k_i f dv over the velocities, as fields on the position axes; the key
        is the tuple of powers (k_1, …).
    """

    subtitle: str
    layout: AsgardLayout
    time: float
    fields: tuple[AsgardField, ...] = ()
    moments: Mapping[tuple[int, ...], AsgardField] = field(default_factory=dict)
