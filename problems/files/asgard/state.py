"""What a result file of ASGarD holds, in the basis of this package."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...discretization.evaluation import evaluate_on_grid
from ...grids.sparse_grid import SparseGrid
from ...statement.axis import Axis

__all__ = ["AsgardField", "AsgardLayout", "AsgardState"]

AsgardLayout: TypeAlias = Literal["2024", "0.9.0"]


@dataclass(frozen=True, eq=False)
class AsgardField:
    """A function on a sparse grid, Σ_blocks Σ_j c_(block, j) Π_k ψ_(block_k, j_k)(x_k).

    Parameters
    ----------
    name : str
        The field's name in the file.
    axes : tuple of Axis
        The d axes.
    degree : int
        Degree of the polynomials.
    grid : SparseGrid
        Of kind "custom"; its levels are the largest that occur.
    coefficients : float64 (num_cells * (degree + 1)**d,)
        By the basis of this package, in the order of the grid's cells, the last dimension fastest
        within a block. Read-only.
    """

    name: str
    axes: tuple[Axis, ...]
    degree: int
    grid: SparseGrid
    coefficients: NDArray[np.float64] = field(repr=False)

    def evaluate(self, points: ArrayLike) -> NDArray[np.float64]:
        """Values at points.

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
        Auxiliary fields that were saved with the state, each on a grid of its own.
    moments : mapping of tuple of int to AsgardField
        ∫ Π_i v_i^k_i f dv by the powers (k_1, …), on the axes of position.
    """

    subtitle: str
    layout: AsgardLayout
    time: float
    fields: tuple[AsgardField, ...] = ()
    moments: Mapping[tuple[int, ...], AsgardField] = field(default_factory=dict)
