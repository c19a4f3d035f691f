"""Batch lists in problem files: the content, its document, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.operators import BatchedKron
from batchkron.operators.recovered_terms.grids import MAX_LEVEL
from batchkron.spec.batch import batch_spec
from batchkron.storage import Document, strict_json
from batchkron.storage.document import Value, value_kind
from batchkron.storage.file_errors import refusing
from batchkron.storage.formats import VERSION_WITH_LISTS
from batchkron.storage.provenance import writer_provenance
from batchkron.storage.schema import (
    Field,
    array_of,
    check_attributes,
    check_datasets,
    check_range,
    json_of,
    number_of,
    texts_of,
)

from ..discretization.parts import StepperSettings
from ..statement.time_functions import TimeFunction
from .decode import decode_times
from .list_plan import decode_plan, encode_plan, plan_fields
from .schema import FORMAT

__all__ = ["OWN_QUANTITIES", "ListContent", "decode_list", "encode_list", "holds_list"]

MAX_MODES = 31
"""Modes of a list in a file: with the block, vectors have at most 32 indices."""

_IDS = "list/factor_ids"
_WEIGHTS = "quantities/weights"
OWN_QUANTITIES = ("norm", "error")
"""Names of quantities that a problem has by itself."""

_ORDERS = ("row-major", "column-major")
_OPTIONAL_ATTRIBUTES = {"t0": float, "matrix_order": str}
_PRECISIONS = ("float32", "float64")

Parts = tuple[tuple[TimeFunction, NDArray[Any]], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class ListContent:
    """What a file holds of a `LinearProblem`, named as its arguments; arrays of NumPy."""

    name: str
    operator: BatchedKron
    initial: NDArray[Any]
    blocks: tuple[int, ...]
    t0: float
    sources: Parts
    exact: Parts
    quantities: Mapping[str, NDArray[Any]]
    stepper: StepperSettings | None
    levels: NDArray[np.int64] | None
    cells: NDArray[np.int64] | None


def encode_list(content: ListContent, with_plan: bool = True) -> Document:
    """Return the document of a list's file; matrices are row-major.

    Left out are weights that are all 1, what the problem does not have, and if wished its plan: the
    problem is the same without it.
    """
    spec = content.operator._spec
    datasets: dict[str, Value] = {
        "name": (content.name,),
        _IDS: spec.factor_ids,
        "list/inputs": spec.inputs,
        "list/outputs": spec.outputs,
        "initial": _stored(content.initial),
        "blocks": np.array(content.blocks, np.int64),
        "provenance/file": (strict_json.dumps(writer_provenance()),),
    }
    for k, pool in enumerate(spec.pools):
        datasets[f"list/pool_{k}"] = _stored(pool[0])
    if not (spec.weights == 1).all():
        datasets["list/weights"] = _stored(spec.weights[0])
    for name, hint in (("levels", content.levels), ("cells", content.cells)):
        if hint is not None:
            datasets[f"list/{name}"] = hint
    for group, parts in (("sources", content.sources), ("exact", content.exact)):
        if parts:
            datasets[f"{group}/time"] = tuple(strict_json.dumps(f.to_json()) for f, _ in parts)
            datasets[f"{group}/vectors"] = np.stack([_stored(vector) for _, vector in parts])
    if content.quantities:
        datasets["quantities/name"] = tuple(content.quantities)
        datasets["quantities/weights"] = np.stack(list(content.quantities.values()))
    if content.stepper is not None:
        datasets["stepper/method"] = (content.stepper.method,)
        datasets["stepper/dt"] = np.array([content.stepper.dt])
        datasets["stepper/until"] = np.array([content.stepper.until])
    if with_plan:
        datasets |= encode_plan(content.operator)
    attributes: dict[str, str | int | float] = {
        "format": FORMAT,
        "format_version": VERSION_WITH_LISTS,
        "t0": float(content.t0),
    }
    return Document(attributes, datasets)


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as files hold it: complex numbers as pairs along a last axis."""
    if array.dtype.kind != "c":
        return array
    pairs: NDArray[Any] = np.ascontiguousarray(array).view(array.real.dtype)
    return pairs.reshape(*array.shape, 2)


def holds_list(document: Document) -> bool:
    """Whether a problem's file holds a batch list, by its version."""
    return document.attributes.get("format_version") == VERSION_WITH_LISTS


def list_fields(document: Document, modes: int, order: str) -> dict[str, Field]:
    """Return the datasets of a list's file.

    Floating-point numbers may be of either precision, and have a last axis of length 2 if they are
    complex: both are taken from the document.
    """

    def numbers(path: str, shape: tuple[int | str, ...], group: str = "") -> Field:
        value = document.datasets.get(path)
        if not isinstance(value, np.ndarray):
            return Field("float64", shape, group)
        kind = value_kind(value)
        pair = (2,) if value.ndim == len(shape) + 1 and path != _WEIGHTS else ()
        return Field(kind if kind in _PRECISIONS else "float64", (*shape, *pair), group)

    one = ("text", (1,))
    fields = {
        "name": Field(*one, "name"),
        _IDS: Field("int64", ("products", modes)),
        "list/inputs": Field("int64", ("products",)),
        "list/outputs": Field("int64", ("products",)),
        "list/weights": numbers("list/weights", ("products",), "weights"),
        "list/levels": Field("int64", ("axes",), "levels"),
        "list/cells": Field("int64", ("blocks", "axes"), "cells"),
        "initial": numbers("initial", ("unknowns",)),
        "blocks": Field("int64", ("indices",), "shape"),
        "sources/time": Field("text", ("sources",), "sources"),
        "sources/vectors": numbers("sources/vectors", ("sources", "unknowns"), "sources"),
        "exact/time": Field("text", ("parts",), "exact"),
        "exact/vectors": numbers("exact/vectors", ("parts", "unknowns"), "exact"),
        "quantities/name": Field("text", ("quantities",), "quantities"),
        _WEIGHTS: numbers(_WEIGHTS, ("quantities", "unknowns"), "quantities"),
        "stepper/method": Field(*one, "stepper"),
        "stepper/dt": Field("float64", (1,), "stepper"),
        "stepper/until": Field("float64", (1,), "stepper"),
        "provenance/file": Field(*one, "provenance"),
        **plan_fields(),
    }
    for k in range(modes):
        sides = (f"rows_{k}", f"columns_{k}")
        shape = (f"matrices_{k}", *(sides if order == _ORDERS[0] else sides[::-1]))
        fields[f"list/pool_{k}"] = numbers(f"list/pool_{k}", shape)
    return fields


def decode_list(document: Document) -> ListContent:
    """Check the document of a list's file and return its content.

    Raises `ProblemFileError` if a check fails; the text names the dataset, and the first wrong
    entry.
    """
    check_attributes(document, {}, _OPTIONAL_ATTRIBUTES)
    order = document.attributes.get("matrix_order", _ORDERS[0])
    if order not in _ORDERS:
        raise ProblemFileError(
            f"attribute 'matrix_order' is {order!r}; expected one of {', '.join(_ORDERS)}"
        )
    ids = document.datasets.get(_IDS)
    if not isinstance(ids, np.ndarray) or ids.ndim != 2 or not 1 <= ids.shape[1] <= MAX_MODES:
        raise ProblemFileError(
            f"dataset '{_IDS}' is missing or has another shape than (products, modes), with 1 to "
            f"{MAX_MODES} modes: a problem file of version {VERSION_WITH_LISTS} holds a batch list"
        )
    lengths = check_datasets(document, list_fields(document, ids.shape[1], str(order)))
    pools = [_numbers(document, f"list/pool_{k}", 3) for k in range(ids.shape[1])]
    if order == _ORDERS[1]:
        pools = [pool.swapaxes(1, 2) for pool in pools]
    operator = _decode_operator(document, ids, pools, lengths["unknowns"])
    if "provenance/file" in document.datasets:
        json_of(document, "provenance/file", dict)
    initial = _numbers(document, "initial", 1)
    states = np.result_type(operator.dtype, initial.dtype)
    for path, dimensions in (("sources/vectors", 2), ("exact/vectors", 2), (_WEIGHTS, 2)):
        if path in document.datasets:
            _check_fits(path, _numbers(document, path, dimensions), states)
    return ListContent(
        name=_decode_name(document),
        operator=operator,
        initial=initial,
        blocks=_decode_blocks(document, operator, lengths["unknowns"]),
        t0=number_of(document, "t0") if "t0" in document.attributes else 0.0,
        sources=_decode_parts(document, "sources"),
        exact=_decode_parts(document, "exact"),
        quantities=_decode_quantities(document),
        stepper=_decode_stepper(document),
        levels=_decode_levels(document),
        cells=_decode_cells(document, operator.num_inputs),
    )


def _numbers(document: Document, path: str, dimensions: int) -> NDArray[Any]:
    """Return floating-point numbers; pairs along a last axis as complex ones."""
    array = array_of(document, path)
    if array.ndim == dimensions:
        return array
    kind = np.result_type(array.dtype, np.complex64)
    pairs: NDArray[Any] = np.ascontiguousarray(array).view(kind)
    return pairs.reshape(array.shape[:-1])


def _check_fits(path: str, vectors: NDArray[Any], states: np.dtype[Any]) -> None:
    """Refuse vectors that are complex, or too large, where states are not."""
    if vectors.dtype.kind == "c" and states.kind != "c":
        raise ProblemFileError(
            f"dataset '{path}' is complex, and the states, as 'initial' and the list, are real"
        )
    with np.errstate(over="ignore"):
        wrong = np.argwhere(~np.isfinite(vectors.astype(states)))
    if wrong.size:
        place = ", ".join(map(str, wrong[0].tolist()))
        raise ProblemFileError(
            f"dataset '{path}' holds {vectors[tuple(wrong[0])]} at [{place}], which is too large "
            f"for states of {states}"
        )


def _decode_operator(
    document: Document, ids: NDArray[Any], pools: Sequence[NDArray[Any]], unknowns: int
) -> BatchedKron:
    """Return the batch list with its plan; every index is checked, so that a text names it."""
    for k, pool in enumerate(pools):
        if 0 in pool.shape[1:]:
            raise ProblemFileError(
                f"dataset 'list/pool_{k}' has matrices of shape {pool.shape[1:]}; expected at "
                "least 1 × 1"
            )
    counts = np.array([len(pool) for pool in pools])
    wrong = np.argwhere((ids < 0) | (ids >= counts))
    if wrong.size:
        row, k = wrong[0].tolist()
        raise ProblemFileError(
            f"dataset '{_IDS}' holds {ids[row, k]} at [{row}, {k}]; expected 0 … {counts[k] - 1}, "
            f"for 'list/pool_{k}' has {counts[k]} matrices"
        )
    found = []
    for name, axis in (("inputs", 2), ("outputs", 1)):
        size = math.prod(pool.shape[axis] for pool in pools)
        blocks, rest = divmod(unknowns, size)
        if rest or not blocks:
            raise ProblemFileError(
                f"dataset 'initial' has {unknowns} unknowns; expected a multiple of {size}, the "
                f"elements of a block that 'list/{name}' names"
            )
        check_range(f"list/{name}", array_of(document, f"list/{name}"), 0, blocks)
        found.append(blocks)
    weights = None
    if "list/weights" in document.datasets:
        weights = _numbers(document, "list/weights", 1)
    with refusing("group 'list'"):
        spec = batch_spec(
            pools,
            ids,
            array_of(document, "list/inputs"),
            array_of(document, "list/outputs"),
            weights=weights,
            num_inputs=found[0],
            num_outputs=found[1],
            accumulation="auto",
            skip_identities=True,
        )
    plan = decode_plan(document, spec)
    with refusing("group 'list'"):
        return BatchedKron._from_spec(spec, wanted=plan or "direct")


def _decode_name(document: Document) -> str:
    if "name" not in document.datasets:
        return "list"
    name = texts_of(document, "name")[0]
    if not name:
        raise ProblemFileError("dataset 'name' is empty; expected the problem's name")
    return name


def _decode_blocks(document: Document, operator: BatchedKron, unknowns: int) -> tuple[int, ...]:
    if "blocks" not in document.datasets:
        return (operator.num_inputs, *(pool.shape[3] for pool in operator._spec.pools))
    shape = tuple(array_of(document, "blocks").tolist())
    right = 1 <= len(shape) <= MAX_MODES + 1 and all(size >= 1 for size in shape)
    if not right or math.prod(shape) != unknowns:
        raise ProblemFileError(
            f"dataset 'blocks' is {shape[:40]}; expected 1 to {MAX_MODES + 1} numbers >= 1 with "
            f"the product {unknowns}, the number of unknowns"
        )
    return shape


def _decode_parts(document: Document, group: str) -> Parts:
    if f"{group}/time" not in document.datasets:
        return ()
    times = decode_times(document, f"{group}/time")
    if not times:
        raise ProblemFileError(
            f"dataset '{group}/time' is empty; expected one function or more, or no group '{group}'"
        )
    return tuple(zip(times, _numbers(document, f"{group}/vectors", 2), strict=True))


def _decode_quantities(document: Document) -> dict[str, NDArray[Any]]:
    if "quantities/name" not in document.datasets:
        return {}
    names, weights = texts_of(document, "quantities/name"), array_of(document, _WEIGHTS)
    if not names or len({*names, "", *OWN_QUANTITIES}) != len(names) + 1 + len(OWN_QUANTITIES):
        raise ProblemFileError(
            "dataset 'quantities/name' has no names, an empty one, one twice, or one of "
            f"{', '.join(OWN_QUANTITIES)}, which every problem has; expected different ones"
        )
    return dict(zip(names, weights, strict=True))


def _decode_stepper(document: Document) -> StepperSettings | None:
    if "stepper/method" not in document.datasets:
        return None
    with refusing("group 'stepper'"):
        return StepperSettings(
            texts_of(document, "stepper/method")[0],
            float(array_of(document, "stepper/dt")[0]),
            float(array_of(document, "stepper/until")[0]),
        )


def _decode_levels(document: Document) -> NDArray[np.int64] | None:
    if "list/levels" not in document.datasets:
        return None
    levels = array_of(document, "list/levels")
    check_range("list/levels", levels, 0, MAX_LEVEL + 1)
    return levels


def _decode_cells(document: Document, blocks: int) -> NDArray[np.int64] | None:
    if "list/cells" not in document.datasets:
        return None
    cells = array_of(document, "list/cells")
    if len(cells) != blocks:
        raise ProblemFileError(
            f"dataset 'list/cells' has {len(cells)} rows; expected {blocks}, one for each block"
        )
    check_range("list/cells", cells, 0, 1 << MAX_LEVEL)
    return cells
