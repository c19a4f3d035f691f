"""The terms of a problem as operators on its grid, one operator per function of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module
from batchkron.operators import (
    BatchedKron,
    KroneckerProduct,
    KroneckerTerm,
    KroneckerTerms,
    Operator,
    SparseGridOperator,
    ValidationReport,
)

from ..discretization.basis.multiwavelets import filters
from ..discretization.matrices.mode_operator import ModeOperator
from ..discretization.parts import OperatorTerm
from ..grids.degrees import Degree, of_each_axis, sizes_of_degrees
from ..grids.sparse_grid import SparseGrid
from ..statement.time import constant
from ..statement.time_functions import TimeFunction, split_number
from .batch_list import batch_list

__all__ = [
    "OPERATOR_FORMS",
    "OperatorForm",
    "TermGroup",
    "choose_form",
    "group_terms",
    "operator_sum",
    "two_scale_filters",
    "validate_groups",
]

OperatorForm: TypeAlias = Literal["auto", "sweep", "batch", "dense"]
OPERATOR_FORMS = ("auto", "sweep", "batch", "dense")
MAX_DENSE_UNKNOWNS = 8192  # unknowns of a dense operator; its matrix of float64 takes 512 MiB


def choose_form(form: str, device: str, unknowns: int) -> OperatorForm:
    """Return how a problem's operator is applied on a device: as "sweep", "batch" or "dense".

    "auto" means "sweep". Raises ValueError if the form is unknown or not available on the device,
    or the vectors are too long for a dense matrix.
    """
    if form not in OPERATOR_FORMS:
        raise ValueError(
            f"the operator's form is {form!r}; expected one of {', '.join(OPERATOR_FORMS)}"
        )
    if form == "auto":
        return "sweep"
    if form == "dense" and device != "cpu":
        raise ValueError(
            f"operators of form {form!r} run on the CPU only; on {device} use 'sweep', the default"
        )
    if form == "dense" and unknowns > MAX_DENSE_UNKNOWNS:
        raise ValueError(
            f"the problem has {unknowns} unknowns; a dense operator is for at most "
            f"{MAX_DENSE_UNKNOWNS}"
        )
    return form  # type: ignore[return-value]


@dataclass(frozen=True)
class TermGroup:
    """All terms that have the same function of time, up to a constant factor.

    ``time``: the function, without its constant factor; that of constant terms is 1.
    ``operator``: the sum of the terms on the grid, each times its constant factor.
    ``source``: the operator from which a dense one was made; it is used for validation.
    """

    time: TimeFunction
    operator: Operator
    source: SparseGridOperator | None = None

    def to(self, device: str) -> TermGroup:
        """Return the group with its operator on a device."""
        return TermGroup(self.time, self.operator.to(device), self.source)

    def on_grid(self, grid: SparseGrid) -> TermGroup:
        """Return the group, whose operator is a sweep, on another grid of the same levels."""
        assert isinstance(self.operator, SparseGridOperator)
        return TermGroup(self.time, self.operator.on_grid(grid))

    def accumulate(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Add the group's A(t) u to ``out``."""
        alpha = 1.0 if self.time.is_constant else self.time(t)
        if isinstance(self.operator, (BatchedKron, SparseGridOperator)):
            shape = (self.operator.num_inputs, -1)
            self.operator.accumulate(u.reshape(shape), out.reshape(shape), alpha=alpha)
        else:
            self.operator.accumulate(u, out, alpha=alpha)

    def write(self, t: float, u: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Overwrite ``out`` with the group's product with u, without its function of time."""
        self.operator.matvec(u, out)

    def validate(self, samples: int | None, seed: int) -> ValidationReport:
        """Compare the operator with dense Kronecker products."""
        operator = self.operator
        if isinstance(operator, (BatchedKron, SparseGridOperator)):
            return operator.validate(samples, seed)
        assert self.source is not None
        return self.source.validate(samples, seed, apply=operator)


def group_terms(
    terms: Sequence[OperatorTerm], grid: SparseGrid, degree: Degree, form: OperatorForm = "sweep"
) -> tuple[TermGroup, ...]:
    """Assemble terms on a grid; those with the same function of time become one operator.

    The group of the constant terms is the first one, if there are any; without any terms there is
    one group with the zero operator.
    """
    collected: dict[TimeFunction, list[tuple[float, OperatorTerm]]] = {}
    for term in terms:
        number, function = split_number(term.time)
        collected.setdefault(function, []).append((number, term))
    functions = sorted(collected, key=lambda key: not key.is_constant) or [constant()]
    return tuple(
        _assemble(function, collected.get(function, []), grid, degree, form)
        for function in functions
    )


def _assemble(
    function: TimeFunction,
    terms: Sequence[tuple[float, OperatorTerm]],
    grid: SparseGrid,
    degree: Degree,
    form: OperatorForm,
) -> TermGroup:
    numbers = np.array([number for number, _ in terms], dtype=np.float64)
    modes = [term.fixed_modes for _, term in terms]
    if form == "batch":
        return TermGroup(function, _batch_operator(numbers, modes, grid, degree))
    transforms = two_scale_filters(grid, degree)
    sizes = sizes_of_degrees(degree, grid.dimensions)
    sweeps = SparseGridOperator(grid, modes, sizes, coefficients=numbers, transforms=transforms)
    if form == "sweep":
        return TermGroup(function, sweeps)
    return TermGroup(function, KroneckerProduct([sweeps.to_dense()]), sweeps)


def _batch_operator(
    numbers: NDArray[np.float64],
    modes: Sequence[Sequence[ModeOperator | None]],
    grid: SparseGrid,
    degree: Degree,
) -> BatchedKron:
    """Return the terms as a list of all coupled pairs of cells."""
    pools, factor_ids, inputs, outputs, offsets = batch_list(grid, modes, degree)
    operator = BatchedKron(
        pools,
        factor_ids,
        inputs,
        outputs,
        weights=np.repeat(numbers, np.diff(offsets)),
        num_inputs=grid.num_cells,
        num_outputs=grid.num_cells,
    )
    kronecker = tuple(
        KroneckerTerm(number, tuple(own)) for number, own in zip(numbers, modes, strict=True)
    )
    sizes = sizes_of_degrees(degree, grid.dimensions)
    transforms = two_scale_filters(grid, degree)
    operator.declare_terms(KroneckerTerms(sizes, kronecker, grid.cells, transforms))
    return operator


def two_scale_filters(grid: SparseGrid, degree: Degree) -> tuple[NDArray[np.float64], ...]:
    """Return the filters of the multiwavelets for each axis, (4, n, n)."""
    return tuple(np.stack(filters(own)) for own in of_each_axis(degree, grid.dimensions))


def sum_of_groups(
    groups: Sequence[TermGroup], t: float, u: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the product of the groups' A(t) with a state."""
    found = array_module(u).empty_like(u)
    found[...] = 0.0
    for group in groups:
        group.accumulate(t, u, found)
    return found  # type: ignore[no-any-return]


def operator_sum(groups: Sequence[TermGroup], t: float) -> Operator:
    """Return Σ time(t) · operator; if no term depends on time, the operator itself, not a copy."""
    if all(group.time.is_constant for group in groups):
        return groups[0].operator
    return reduce(add, [group.time(t) * group.operator for group in groups])


def validate_groups(
    groups: Sequence[TermGroup], samples: int | None, seed: int
) -> ValidationReport:
    """Validate the operator of one group at least, and return one report on all of them.

    It has the sums of counts and the largest errors; NaN counts as larger than any number.
    """
    reports = [group.validate(samples, seed) for group in groups]
    ratios = [report.max_error_over_bound for report in reports]
    return ValidationReport(
        samples=sum(report.samples for report in reports),
        products=sum(report.products for report in reports),
        max_error=float(np.max([report.max_error for report in reports])),
        max_error_over_bound=float(np.max(ratios)),
        worst=reports[int(np.argmax(ratios))].worst,
    )
