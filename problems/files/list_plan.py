"""Factored plans of batch lists in problem files: their datasets, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.operators import BatchedKron
from batchkron.operators.factored_list.choice import PlanChoice, stored_choice
from batchkron.operators.factored_list.stored import StoredPlan
from batchkron.spec.kron import BatchSpec
from batchkron.storage import Document
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import Field, array_of, check_range

__all__ = ["PLAN", "decode_plan", "encode_plan", "plan_fields"]

PLAN = "plan/"
"""The group of a list's file that says how products are computed, not which."""

_GROUPS, _PARTIAL, _RESULTS, _WEIGHTS = (
    f"{PLAN}{name}" for name in ("groups", "partial", "results", "weights")
)
# Each group takes memory for all blocks: so many for each row of the tables, and at least so many.
_MAX_BLOCKS_A_ROW, _MIN_BLOCKS = 64, 1 << 20


def encode_plan(operator: BatchedKron) -> dict[str, Value]:
    """Return the datasets of a factored plan; none for the direct plan."""
    stored = operator._stored_plan()
    if stored is None:
        return {}
    found: dict[str, Value] = {
        _GROUPS: stored.groups,
        _PARTIAL: stored.partial,
        _RESULTS: stored.results,
    }
    if stored.weights.any():
        found[_WEIGHTS] = stored.weights
    return found


def plan_fields() -> dict[str, Field]:
    """Return the datasets of a plan: all or none but for the numbers of the weights."""
    return {
        _GROUPS: Field("int64", ("groups", "2 + layers"), "plan"),
        _PARTIAL: Field("int64", ("partial edges", 4), "plan"),
        _RESULTS: Field("int64", ("result edges", 5), "plan"),
        _WEIGHTS: Field("int64", ("products",), "plan weights"),
    }


def decode_plan(document: Document, spec: BatchSpec) -> PlanChoice | None:
    """Check the plan of a list and return it; None if the file has none.

    Raises `ProblemFileError` if a number is out of range, or the plan is not one of this list.
    """
    if _GROUPS not in document.datasets:
        if _WEIGHTS in document.datasets:
            raise ProblemFileError(f"dataset '{_GROUPS}' is missing, and there is '{_WEIGHTS}'")
        return None
    groups, partial, results = (array_of(document, p) for p in (_GROUPS, _PARTIAL, _RESULTS))
    products = len(spec.inputs)
    weights = np.zeros(products, np.int64)
    if _WEIGHTS in document.datasets:
        weights = array_of(document, _WEIGHTS)
        check_range(_WEIGHTS, weights, 0, products)
    _check_groups(groups, len(partial), len(results), len(spec.pools))
    blocks = len(groups) * (spec.num_inputs + spec.num_outputs)
    if blocks > _MAX_BLOCKS_A_ROW * (len(partial) + len(results) + products) + _MIN_BLOCKS:
        raise ProblemFileError(
            f"dataset '{_GROUPS}' has {len(groups)} rows, too many for so few partial products"
        )
    nodes = spec.num_inputs + groups[:, 2:].sum(axis=1)  # of each group
    own = np.repeat(nodes, groups[:, 0])
    _check_column(_PARTIAL, partial, 0, spec.num_inputs, own)
    _check_column(_PARTIAL, partial, 1, 0, own)
    _check_column(_RESULTS, results, 0, 0, spec.num_outputs)
    _check_column(_RESULTS, results, 1, 0, np.repeat(nodes, groups[:, 1]))
    _check_column(_RESULTS, results, 4, 0, int(weights.max(initial=0)) + 1)
    counts = np.array([*(pool.shape[1] for pool in spec.pools), 1])  # mode -1: matrix 0
    for path, table, lowest in ((_PARTIAL, partial, 0), (_RESULTS, results, -1)):
        _check_column(path, table, 2, lowest, len(spec.pools))
        _check_column(path, table, 3, 0, counts[table[:, 2]])
    with refusing(f"group '{PLAN[:-1]}'"):
        return stored_choice(spec, StoredPlan(groups, partial, results, weights))


def _check_groups(groups: NDArray[np.int64], partial: int, results: int, modes: int) -> None:
    """Refuse groups that are not all rows of both tables, or have too many partial products."""
    check_range(_GROUPS, groups, 0, max(partial, results) + 1)
    count, columns = groups.shape
    rows = groups[:, :2].sum(axis=0).tolist()
    if rows != [partial, results] or not count or not 2 <= columns <= 1 + modes:
        raise ProblemFileError(
            f"dataset '{_GROUPS}' has {count} groups of {rows} rows and {columns - 2} layers; "
            f"expected one group or more of {partial} rows of '{_PARTIAL}' and {results} of "
            f"'{_RESULTS}', and fewer layers than the list has modes"
        )
    wrong = np.flatnonzero(groups[:, 2:].sum(axis=1) > groups[:, 0])
    if len(wrong):
        raise ProblemFileError(
            f"dataset '{_GROUPS}' has more partial products than rows of '{_PARTIAL}' in row "
            f"{wrong[0]}"
        )


def _check_column(
    path: str, table: NDArray[np.int64], column: int, lower: int, stop: int | NDArray[np.int64]
) -> None:
    """Refuse a column with numbers outside lower … stop - 1; stop may differ from row to row."""
    values = table[:, column]
    wrong = (values < lower) | (values >= stop)
    if wrong.any():
        row = int(np.argmax(wrong))
        last = int(np.broadcast_to(stop, values.shape)[row]) - 1
        raise ProblemFileError(
            f"dataset '{path}' holds {values[row]} at [{row}, {column}]; expected {lower} … {last}"
        )
