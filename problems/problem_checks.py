"""Whether the parts of a problem fit its grid and degree."""

from __future__ import annotations

from collections.abc import Sequence

from batchkron.problems.axis import Axis
from batchkron.problems.grid import SparseGrid
from batchkron.problems.problem_parts import OperatorTerm, SeparableVector

__all__ = ["check_axes", "check_terms", "check_vectors"]


def check_axes(axes: Sequence[Axis], grid: SparseGrid) -> None:
    """Refuse axes that are not one per dimension of the grid, of different names.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(grid, SparseGrid):
        raise TypeError(f"grid must be a SparseGrid, got {type(grid).__name__}")
    for k, axis in enumerate(axes):
        if not isinstance(axis, Axis):
            raise TypeError(f"axes[{k}] must be an Axis, got {type(axis).__name__}")
    if len({axis.name for axis in axes}) != len(axes) or len(axes) != grid.dimensions:
        raise ValueError(
            f"axes are {', '.join(axis.name for axis in axes)}; expected {grid.dimensions} axes "
            "of different names, one per dimension of the grid"
        )


def check_terms(terms: Sequence[OperatorTerm], grid: SparseGrid, n: int) -> None:
    """Refuse terms whose modes are not one per axis, of the axis's cells and n functions.

    Raises
    ------
    TypeError, ValueError
    """
    for number, term in enumerate(terms):
        name = f"terms[{number}]"
        if not isinstance(term, OperatorTerm):
            raise TypeError(f"{name} must be an OperatorTerm, got {type(term).__name__}")
        if len(term.modes) != grid.dimensions:
            raise ValueError(f"{name} has {len(term.modes)} modes; expected {grid.dimensions}")
        for k, mode in enumerate(term.modes):
            expected = (1 << grid.levels[k], n)
            if mode is not None and (mode.cells, mode.n) != expected:
                raise ValueError(
                    f"{name}.modes[{k}] has {mode.cells} cells of {mode.n} functions; expected "
                    f"{expected[0]} cells of {n} for level {grid.levels[k]}"
                )


def check_vectors(name: str, vectors: Sequence[SeparableVector], grid: SparseGrid, n: int) -> None:
    """Refuse separable vectors whose factors are not one per axis, of cells * n entries.

    Raises
    ------
    TypeError, ValueError
    """
    shapes = [((1 << level) * n,) for level in grid.levels]
    for r, vector in enumerate(vectors):
        if not isinstance(vector, SeparableVector):
            raise TypeError(f"{name}[{r}] must be a SeparableVector, got {type(vector).__name__}")
        found = [factor.shape for factor in vector.factors]
        if found != shapes:
            raise ValueError(f"{name}[{r}] has factors of shapes {found}; expected {shapes}")
