"""From a problem's content to the document of its file, and the hash that identifies a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.storage import Document, strict_json
from batchkron.storage.document import Value
from batchkron.storage.formats import FIRST_VERSION, VERSION_WITH_DEGREES, VERSION_WITH_RULES
from batchkron.storage.provenance import writer_provenance

from ..discretization.basis.multiwavelets import BASIS_ID, filters
from ..discretization.fields.modes import FieldMode
from ..discretization.matrices.mode_operator import ModeOperator
from ..discretization.parts import OperatorTerm, SeparableVector
from ..grids.degrees import of_each_axis
from .adapt import encode_adapt
from .content import ProblemContent
from .edges import encode_edges
from .electric import encode_electric
from .fields import encode_fields
from .functions import (
    FUNCTION_DATASETS,
    check_function_count,
    encode_functions,
    refuse_callables,
)
from .gains import encode_gains
from .pointwise import all_terms, encode_pointwise
from .schema import FORMAT, check_counts

__all__ = ["encode_problem", "problem_hash"]

_EXPLICIT = "sources/explicit"  # dataset that counts for the file's hash, not for the problem's
_WELL_POSED = "well_posed_until"  # attribute of which the same is true
_IDENTITY = -1  # number of the identity in the dataset "terms/operators"


def encode_problem(content: ProblemContent) -> Document:
    """Return the document of a problem's file.

    It has each distinct 1-D operator once, in the order in which the terms first use them. Raises
    TypeError or ValueError if units or provenance are not plain JSON data, sources or boundary data
    are callables, or there are more terms, sources or parts than a file may have.
    """
    refuse_callables(content)
    parts = () if content.exact is None else content.exact.parts
    dimensions = content.grid.dimensions
    check_counts(len(all_terms(content)), len(content.sources), len(parts), dimensions)
    document = _document(content)
    for path in FUNCTION_DATASETS:
        check_function_count(path, len(document.datasets.get(path, ())))
    return document


def _document(content: ProblemContent) -> Document:
    """Return the document of a problem; callables have a hash of values for their text."""
    grid, degrees = content.grid, of_each_axis(content.degree, len(content.axes))
    lengths = [own + 1 << level for own, level in zip(degrees, grid.levels, strict=True)]
    datasets: dict[str, Value] = {
        "name": (content.name,),
        "axes/name": tuple(axis.name for axis in content.axes),
        "axes/lower": np.array([axis.lower for axis in content.axes], dtype=np.float64),
        "axes/upper": np.array([axis.upper for axis in content.axes], dtype=np.float64),
        "basis/filters": np.stack(filters(max(degrees))),
        "grid/kind": (grid.kind,),
        "grid/levels": np.array(grid.levels, dtype=np.int64),
        "grid/cells": grid.cells,
        **_encode_terms(all_terms(content), grid.dimensions, max(degrees) + 1),
        **encode_electric(content),
        **encode_pointwise(content),
        **encode_fields(content.terms, content.axes),
        **encode_gains(content.gains),
        **encode_functions(content),
        **encode_edges(content),
        **encode_adapt(content.adapt),
        **_encode_vectors("sources", content.sources, lengths),
        "initial": content.initial,
        "stepper/method": (content.stepper.method,),
        "stepper/dt": np.array([content.stepper.dt]),
        "stepper/until": np.array([content.stepper.until]),
        "units": (strict_json.dumps(_checked_units(content.units)),),
        "provenance/problem": (strict_json.dumps(dict(content.provenance)),),
        "provenance/file": (strict_json.dumps(writer_provenance()),),
    }
    explicit = np.array([source.explicit for source in content.sources], dtype=np.int64)
    # without explicit sources the file and its hash are the same as of versions without the dataset
    if explicit.any():
        datasets[_EXPLICIT] = explicit
    if not isinstance(content.degree, int):
        datasets["basis/degrees"] = np.array(degrees, dtype=np.int64)
    for k, mass in enumerate(content.masses):
        if mass is not None:
            datasets[f"masses/axis_{k}"] = mass
    if content.exact is not None:
        datasets |= _encode_vectors("exact", content.exact.parts, lengths)
        datasets["exact/remainders"] = content.exact.remainders
    attributes: dict[str, str | int | float] = {
        "format": FORMAT,
        "format_version": _version(content),
        "basis_id": BASIS_ID,
        "degree": max(degrees),
        "t0": content.t0,
    }
    if content.limiter is not None:
        attributes["limiter"] = content.limiter
    if content.well_posed_until is not None:
        attributes[_WELL_POSED] = content.well_posed_until
    return Document(attributes, datasets)


def _version(content: ProblemContent) -> int:
    if not isinstance(content.degree, int):
        return VERSION_WITH_DEGREES
    return FIRST_VERSION if content.adapt is None else VERSION_WITH_RULES


def problem_hash(content: ProblemContent) -> str:
    """Return the SHA-256 (hexadecimal) of a problem's content, computed from its file's document.

    Saving and loading do not change it. It does not depend on the provenance, nor on which sources
    are explicit, nor on until when the PDE is known to be well-posed: these do not change A(t) u +
    s(t), and checkpoints of versions that did not store them remain valid. Callables, which files
    do not hold, count by their values at some points.
    """
    document = _document(content)
    datasets, attributes = dict(document.datasets), dict(document.attributes)
    datasets.pop(_EXPLICIT, None)
    attributes.pop(_WELL_POSED, None)
    return replace(document, attributes=attributes, datasets=datasets).content_hash


def _encode_terms(terms: Sequence[OperatorTerm], dimensions: int, n: int) -> dict[str, Value]:
    """Return the datasets of the terms: the distinct operators, and their numbers in each term.

    A field counts as the identity here; `encode_fields` writes it. Blocks of fewer than n functions
    are filled up with zeros.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    distinct: list[ModeOperator] = []
    table = np.full((len(terms), dimensions), _IDENTITY, dtype=np.int64)
    for t, term in enumerate(terms):
        for k, mode in enumerate(term.modes):
            if mode is None or isinstance(mode, FieldMode):
                continue
            key = (
                mode.cells, mode.n,
                mode.rows.tobytes(), mode.columns.tobytes(), mode.blocks.tobytes(),
            )  # fmt: skip
            if key not in numbers:
                numbers[key] = len(distinct)
                distinct.append(mode)
            table[t, k] = numbers[key]
    none = np.zeros(0, dtype=np.int64)
    return {
        "operators/level": np.array([mode.level for mode in distinct], dtype=np.int64),
        "operators/offsets": np.cumsum([0, *(mode.rows.size for mode in distinct)]),
        "operators/rows": np.concatenate([none, *(mode.rows for mode in distinct)]),
        "operators/columns": np.concatenate([none, *(mode.columns for mode in distinct)]),
        "operators/blocks": np.concatenate(
            [np.zeros((0, n, n)), *(_filled_up(mode.blocks, n) for mode in distinct)]
        ),
        "terms/operators": table,
        "terms/one_sided": np.array([_sidedness(term) for term in terms], dtype=np.int64),
        "terms/time": tuple(strict_json.dumps(term.time.to_json()) for term in terms),
    }


def _filled_up(blocks: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    missing = n - blocks.shape[1]
    return np.pad(blocks, ((0, 0), (0, missing), (0, missing)))


def _sidedness(term: OperatorTerm) -> int:
    return 1 if term.one_sided else 2 if term.keeps_sign else 0


def _encode_vectors(
    group: str, vectors: Sequence[SeparableVector], sizes: Sequence[int]
) -> dict[str, Value]:
    """Return the datasets of separable vectors: one table per axis, with a row per vector."""
    tables: dict[str, Value] = {}
    for k, size in enumerate(sizes):
        table: NDArray[np.float64] = np.empty((len(vectors), size))
        for row, vector in zip(table, vectors, strict=True):
            row[:] = vector.factors[k]
        tables[f"{group}/factor_{k}"] = table
    times = tuple(strict_json.dumps(vector.time.to_json()) for vector in vectors)
    return {f"{group}/time": times, **tables}


def _checked_units(units: Any) -> dict[str, str]:
    for name, unit in units.items():
        if not isinstance(name, str) or not isinstance(unit, str):
            raise TypeError(f"units maps {name!r} to {unit!r}; expected str to str")
    return dict(units)
