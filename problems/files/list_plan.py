"""Factored plans of batch lists in problem files: their datasets, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.operators import BatchedKron
from batchkron.operators.factored_list.choice import PlanChoice, stored_choice
from batchkron.operators.factored_list.stored import StoredGraph
from batchkron.spec.kron import BatchSpec
from batchkron.storage import Document
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import Field, array_of, check_range

__all__ = ["PLAN", "decode_plan", "encode_plan", "plan_fields"]

PLAN = "plan/"
"""The group of a list's file that says how products are computed, not which."""

_LAYERS, _PARTIAL, _RESULTS, _WEIGHTS = (
    f"{PLAN}{name}" for name in ("layers", "partial", "results", "weights")
)


def encode_plan(operator: BatchedKron) -> dict[str, Value]:
    """Return the datasets of a factored plan; none for the direct plan."""
    stored = operator._stored_graph()
    if stored is None:
        return {}
    found: dict[str, Value] = {
        _LAYERS: stored.layers,
        _PARTIAL: stored.partial,
        _RESULTS: stored.results,
    }
    if stored.weights.any():
        found[_WEIGHTS] = stored.weights
    return found


def plan_fields() -> dict[str, Field]:
    """Return the datasets of a plan: all or none but for the numbers of the weights."""
    return {
        _LAYERS: Field("int64", ("layers",), "plan"),
        _PARTIAL: Field("int64", ("partial edges", 4), "plan"),
        _RESULTS: Field("int64", ("result edges", 5), "plan"),
        _WEIGHTS: Field("int64", ("products",), "plan weights"),
    }


def decode_plan(document: Document, spec: BatchSpec) -> PlanChoice | None:
    """Check the plan of a list and return it; None if the file has none.

    Raises
    ------
    ProblemFileError
        If a number is out of range, or the plan is not one of this list.
    """
    if _LAYERS not in document.datasets:
        if _WEIGHTS in document.datasets:
            raise ProblemFileError(f"dataset '{_LAYERS}' is missing, and there is '{_WEIGHTS}'")
        return None
    layers, partial, results = (array_of(document, p) for p in (_LAYERS, _PARTIAL, _RESULTS))
    products = len(spec.inputs)
    weights = np.zeros(products, np.int64)
    if _WEIGHTS in document.datasets:
        weights = array_of(document, _WEIGHTS)
        check_range(_WEIGHTS, weights, 0, products)
    check_range(_LAYERS, layers, 0, len(partial) + 1)
    nodes = spec.num_inputs + sum(layers.tolist())
    if nodes > spec.num_inputs + len(partial) or len(layers) >= len(spec.pools):
        raise ProblemFileError(
            f"dataset '{_LAYERS}' has {nodes - spec.num_inputs} partial products in {len(layers)} "
            f"layers; expected at most {len(partial)}, one for each row of '{_PARTIAL}', and fewer "
            f"layers than the list has modes"
        )
    _check_column(_PARTIAL, partial, 0, spec.num_inputs, nodes)
    _check_column(_RESULTS, results, 0, 0, spec.num_outputs)
    _check_column(_RESULTS, results, 4, 0, int(weights.max(initial=0)) + 1)
    for path, table, lowest in ((_PARTIAL, partial, 0), (_RESULTS, results, -1)):
        _check_column(path, table, 1, 0, nodes)
        _check_column(path, table, 2, lowest, len(spec.pools))
        counts = np.array([*(pool.shape[1] for pool in spec.pools), 1])  # mode -1: matrix 0
        _refuse(path, table, 3, (table[:, 3] < 0) | (table[:, 3] >= counts[table[:, 2]]))
    with refusing(f"group '{PLAN[:-1]}'"):
        return stored_choice(spec, StoredGraph(layers, partial, results, weights))


def _check_column(path: str, table: NDArray[np.int64], column: int, lower: int, stop: int) -> None:
    wrong = (table[:, column] < lower) | (table[:, column] >= stop)
    _refuse(path, table, column, wrong, f"{lower} … {stop - 1}")


def _refuse(
    path: str,
    table: NDArray[np.int64],
    column: int,
    wrong: NDArray[np.bool_],
    expected: str = "the number of a matrix of that mode",
) -> None:
    """Refuse a table where ``wrong`` says so; the text names the first row."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ProblemFileError(
            f"dataset '{path}' holds {table[row, column]} at [{row}, {column}]; expected {expected}"
        )
