"""From a problem to the content of its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import to_host
from batchkron.storage import Document, strict_json
from batchkron.storage.document import Value
from batchkron.storage.formats import FORMAT_VERSION
from batchkron.storage.provenance import writer_provenance

from ..discretization.mode_operator import ModeOperator
from ..discretization.multiwavelets import BASIS_ID, filters
from ..semidiscrete.problem import ExactSolution, OperatorTerm, Problem, SeparableVector
from .schema import FORMAT, check_counts

__all__ = ["EXPLICIT", "encode_problem"]

EXPLICIT = "sources/explicit"
"""The dataset that a file has, and its hash, but the hash of its problem leaves out."""

IDENTITY = -1
"""Stands for the identity among the operators of a term."""


def encode_problem(problem: Problem) -> Document:
    """Return the content of a problem's file.

    Parameters
    ----------
    problem : Problem

    Returns
    -------
    Document
        Each distinct 1-D operator once, in the order in which the terms first name it. An exact
        solution that is a function is left out.

    Raises
    ------
    TypeError, ValueError
        If units or provenance are not plain JSON data, or there are more terms, sources or parts
        than a file may have.
    """
    grid, n = problem.grid, problem.degree + 1
    parts = problem.exact.parts if isinstance(problem.exact, ExactSolution) else ()
    check_counts(len(problem.terms), len(problem.sources), len(parts), grid.dimensions)
    datasets: dict[str, Value] = {
        "name": (problem.name,),
        "axes/name": tuple(axis.name for axis in problem.axes),
        "axes/lower": np.array([axis.lower for axis in problem.axes], dtype=np.float64),
        "axes/upper": np.array([axis.upper for axis in problem.axes], dtype=np.float64),
        "basis/filters": np.stack(filters(problem.degree)),
        "grid/kind": (grid.kind,),
        "grid/levels": np.array(grid.levels, dtype=np.int64),
        "grid/cells": grid.cells,
        **_encode_terms(problem.terms, grid.dimensions, n),
        **_encode_vectors("sources", problem.sources, [n << level for level in grid.levels]),
        "initial": to_host(problem.initial, "initial"),
        "stepper/method": (problem.stepper.method,),
        "stepper/dt": np.array([problem.stepper.dt]),
        "stepper/until": np.array([problem.stepper.until]),
        "units": (strict_json.dumps(_checked_units(problem.units)),),
        "provenance/problem": (strict_json.dumps(dict(problem.provenance)),),
        "provenance/file": (strict_json.dumps(writer_provenance()),),
    }
    explicit = np.array([source.explicit for source in problem.sources], dtype=np.int64)
    if explicit.any():  # else the file, and its hash, are those of versions without this dataset
        datasets[EXPLICIT] = explicit
    for k, mass in enumerate(problem.masses):
        if mass is not None:
            datasets[f"masses/axis_{k}"] = mass
    if isinstance(problem.exact, ExactSolution):
        sizes = [n << level for level in grid.levels]
        datasets |= _encode_vectors("exact", problem.exact.parts, sizes)
        datasets["exact/remainders"] = problem.exact.remainders
    return Document(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "basis_id": BASIS_ID,
            "degree": problem.degree,
            "t0": problem.t0,
        },
        datasets,
    )


def _encode_terms(terms: Sequence[OperatorTerm], dimensions: int, n: int) -> dict[str, Value]:
    """Lay the terms out as numbers of operators, and the distinct operators one by one."""
    numbers: dict[tuple[Any, ...], int] = {}
    distinct: list[ModeOperator] = []
    table = np.full((len(terms), dimensions), IDENTITY, dtype=np.int64)
    for t, term in enumerate(terms):
        for k, mode in enumerate(term.modes):
            if mode is None:
                continue
            key = (
                mode.cells, mode.rows.tobytes(), mode.columns.tobytes(), mode.blocks.tobytes()
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
            [np.zeros((0, n, n)), *(mode.blocks for mode in distinct)]
        ),
        "terms/operators": table,
        "terms/one_sided": np.array([term.one_sided for term in terms], dtype=np.int64),
        "terms/time": tuple(strict_json.dumps(term.time.to_json()) for term in terms),
    }


def _encode_vectors(
    group: str, vectors: Sequence[SeparableVector], sizes: Sequence[int]
) -> dict[str, Value]:
    """Lay separable vectors out: one table per axis, a row per vector."""
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
