"""The terms of a problem as batched Kronecker operators, one per function of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from batchkron.operators import BatchedKron, KroneckerTerm, KroneckerTerms, ValidationReport
from batchkron.problems.batch_list import batch_list
from batchkron.problems.grid import SparseGrid
from batchkron.problems.problem_parts import OperatorTerm
from batchkron.problems.time import constant
from batchkron.problems.time_functions import TimeFunction, split_number

__all__ = ["TermGroup", "group_terms", "validate_groups"]


class TermGroup(NamedTuple):
    """All terms that share one function of time."""

    time: TimeFunction
    """The function, without a number in front; one for the terms that are constant."""
    operator: BatchedKron
    """The terms on the grid, with the numbers in front of their functions of time."""

    def to(self, device: str) -> TermGroup:
        """Return the group with its operator on a device."""
        return self._replace(operator=cast(BatchedKron, self.operator.to(device)))


def group_terms(
    terms: Sequence[OperatorTerm], grid: SparseGrid, degree: int
) -> tuple[TermGroup, ...]:
    """Assemble terms on a grid, those of equal time in one batch.

    Parameters
    ----------
    terms : sequence of OperatorTerm
        The terms; none at all gives one group, the zero operator.
    grid : SparseGrid
        The grid.
    degree : int
        Polynomial degree.

    Returns
    -------
    tuple of TermGroup
        The constant terms first, if there are any.
    """
    collected: dict[TimeFunction, list[tuple[float, OperatorTerm]]] = {}
    for term in terms:
        number, function = split_number(term.time)
        collected.setdefault(function, []).append((number, term))
    functions = sorted(collected, key=lambda key: not key.is_constant) or [constant()]
    return tuple(
        TermGroup(function, _assemble(collected.get(function, []), grid, degree))
        for function in functions
    )


def _assemble(
    terms: Sequence[tuple[float, OperatorTerm]], grid: SparseGrid, degree: int
) -> BatchedKron:
    products = batch_list(grid, [term.modes for _, term in terms], degree)
    numbers = np.array([number for number, _ in terms], dtype=np.float64)
    weights = np.repeat(numbers, np.diff(products.term_offsets))
    operator = BatchedKron(
        products.pools,
        products.factor_ids,
        products.inputs,
        products.outputs,
        weights=weights,
        num_inputs=grid.num_cells,
        num_outputs=grid.num_cells,
    )
    kronecker = tuple(KroneckerTerm(number, term.modes) for number, term in terms)
    sizes = (degree + 1,) * grid.dimensions
    operator.declare_terms(KroneckerTerms(sizes, kronecker, grid.cells))
    return operator


def validate_groups(
    groups: Sequence[TermGroup], samples: int | None, seed: int
) -> ValidationReport:
    """Validate every group's operator and return the worst of each figure.

    Parameters
    ----------
    groups : sequence of TermGroup
        At least one.
    samples, seed
        As in `BatchedKron.validate`.

    Returns
    -------
    ValidationReport
        Counts added up, errors the largest.
    """
    reports = [group.operator.validate(samples, seed) for group in groups]
    return ValidationReport(
        samples=sum(report.samples for report in reports),
        products=sum(report.products for report in reports),
        max_error=max(report.max_error for report in reports),
        max_error_over_bound=max(report.max_error_over_bound for report in reports),
    )
