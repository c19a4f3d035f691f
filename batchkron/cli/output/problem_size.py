"""Texts about the size of a problem."""

from __future__ import annotations

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
    levels = problem.grid.levels
    level = (
        f"level {levels[0]}" if len(set(levels)) == 1 else f"levels {', '.join(map(str, levels))}"
    )
    return (
        f"{plural(problem.unknowns, 'unknown')} in {plural(problem.grid.num_cells, 'cell')} of a "
        f"{problem.grid.kind} grid, {level}, degree {problem.degree}"
    )
