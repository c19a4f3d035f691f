"""Texts about the size of a problem."""

from __future__ import annotations

from collections.abc import Sequence

from batchkron.cli.output.text import plural
from batchkron.operators import BatchedKron
from batchkron.problems import LinearProblem, Problem

__all__ = ["added_cells", "describe_size"]


def added_cells(problem: Problem | LinearProblem) -> list[tuple[str, str]]:
    """Return a row about the cells outside the grid that sweeps need, if there are any.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    list of tuple of (str, str)
    """
    if isinstance(problem, LinearProblem):
        return []
    try:
        count = problem.num_added_cells
    except ValueError as error:
        return [("added cells", str(error))]
    return [("added cells", f"{count}, which sweeps pass through beside the grid's")] * (count > 0)


def describe_size(problem: Problem | LinearProblem) -> str:
    """Return a line with the unknowns, grid and degree of a problem, or the size of its list.

    Examples
    --------
    >>> from batchkron.problems import gallery
    >>> print(describe_size(gallery.make("continuity-2d", level=6, degree=2)))
    2304 unknowns in 256 cells of a sparse grid, level 6, degree 2
    """
    if isinstance(problem, LinearProblem):
        operator = problem.operator
        assert isinstance(operator, BatchedKron)  # what files hold
        return (
            f"{plural(problem.unknowns, 'unknown')} in {plural(operator.num_inputs, 'block')}, "
            f"{plural(operator.num_products, 'product')} of a batch list"
        )
    return (
        f"{plural(problem.unknowns, 'unknown')} in {plural(problem.grid.num_cells, 'cell')} of a "
        f"{problem.grid.kind} grid, {_of_axes('level', problem.grid.levels)}, "
        f"{_of_axes('degree', problem.degrees)}"
    )


def _of_axes(what: str, numbers: Sequence[int]) -> str:
    """Return "level 4", or "levels 4, 5" where the axes differ."""
    if len(set(numbers)) == 1:
        return f"{what} {numbers[0]}"
    return f"{what}s {', '.join(map(str, numbers))}"
