"""From the document of a problem file, which may be malicious, to the problem's content."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage import Document, strict_json
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import (
    array_of,
    check_attributes,
    check_datasets,
    check_range,
    json_of,
    number_of,
    texts_of,
)

from ..discretization.basis.multiwavelets import BASIS_ID, check_degree, filters
from ..discretization.matrices.mode_operator import ModeOperator
from ..discretization.parts import (
    ExactSolution,
    Masses,
    OperatorTerm,
    SeparableVector,
    StepperSettings,
    check_mass,
)
from ..grids.degrees import common_or_each, sizes_of_degrees
from ..grids.levels import check_level
from ..grids.sparse_grid import GRID_KINDS, GridKind, SparseGrid
from ..statement.axis import Axis
from ..statement.time import TimeFunction, from_json
from .adapt import decode_adapt
from .content import ProblemContent
from .edges import split_edges
from .electric import split_electric
from .fields import decode_fields
from .functions import decode_functions
from .gains import decode_gains
from .pointwise import split_pointwise
from .schema import ATTRIBUTES, OPTIONAL_ATTRIBUTES, check_counts, problem_fields

__all__ = ["decode_problem", "decode_times"]

_FILTER_TOLERANCE = 1e-12  # difference of two-scale filters (entries of at most 1) by rounding


def decode_problem(document: Document) -> ProblemContent:
    """Check the document of a problem file and return the problem's content.

    Each part is checked by itself, or ProblemFileError raised, whose text names the dataset or
    attribute; `Problem` checks that the parts fit together.
    """
    check_attributes(document, ATTRIBUTES, OPTIONAL_ATTRIBUTES)
    degrees, axes, lengths = _check_layout(document)
    _check_basis(document, max(degrees))
    levels = _decode_levels(document)
    sizes = sizes_of_degrees(degrees, len(axes))
    _check_sizes(levels, sizes, lengths)
    grid = _decode_grid(document, levels)
    terms = decode_fields(document, _decode_terms(document, sizes, levels), axes, levels, degrees)
    sources = _decode_sources(document, len(axes))
    exact = _decode_exact(document, len(axes))
    masses = _decode_masses(document, grid, sizes)
    gains = decode_gains(document, axes)
    functions = decode_functions(document, axes)
    lengths_along = [n << level for n, level in zip(sizes, levels, strict=True)]
    terms, edges = split_edges(document, terms, axes, lengths_along)
    own, at_points = split_pointwise(document, terms, axes, levels, degrees)
    own, electric = split_electric(document, own, axes)
    adapt = decode_adapt(document, [axis.name for axis in axes])
    with refusing("group 'stepper'"):
        stepper = StepperSettings(
            texts_of(document, "stepper/method")[0],
            float(array_of(document, "stepper/dt")[0]),
            float(array_of(document, "stepper/until")[0]),
        )
    json_of(document, "provenance/file", dict)
    with refusing("the problem"):
        return ProblemContent(
            name=texts_of(document, "name")[0],
            axes=axes,
            degree=common_or_each(degrees),
            grid=grid,
            terms=own,
            sources=sources,
            initial=array_of(document, "initial"),
            exact=exact,
            t0=number_of(document, "t0"),
            stepper=stepper,
            units=_decode_units(document),
            masses=masses,
            gains=gains,
            source_functions=functions,
            edge_functions=edges,
            pointwise=at_points,
            electric=electric,
            adapt=adapt,
            limiter=str(document.attributes["limiter"])
            if "limiter" in document.attributes
            else None,
            well_posed_until=(
                number_of(document, "well_posed_until")
                if "well_posed_until" in document.attributes
                else None
            ),
            provenance=json_of(document, "provenance/problem", dict),
        )


def _check_layout(
    document: Document,
) -> tuple[tuple[int, ...], tuple[Axis, ...], dict[str, int]]:
    """Check kinds and shapes of all datasets; return the degrees, the axes and all lengths.

    The lengths are those of the names in `problem_fields`, such as "terms" or "unknowns".
    """
    with refusing("attribute 'degree'"):
        degree = check_degree(int(number_of(document, "degree")))
    names = document.datasets.get("axes/name")
    if not isinstance(names, tuple) or not names:
        raise ProblemFileError("dataset 'axes/name' is missing, empty or not text")
    fields = problem_fields(len(names))
    degrees = _decode_degrees(document, degree, len(names))
    sizes = {f"n_{k}": own + 1 for k, own in enumerate(degrees)}
    lengths = check_datasets(document, fields, {"n": degree + 1, "d": len(names), **sizes})
    check_counts(lengths["terms"], lengths["sources"], lengths.get("parts", 0), len(names))
    if not texts_of(document, "name")[0]:
        raise ProblemFileError("dataset 'name' is empty; expected the problem's name")
    if len(set(names)) != len(names):
        raise ProblemFileError(
            f"dataset 'axes/name' is {', '.join(names)}; expected different names"
        )
    ends = zip(array_of(document, "axes/lower"), array_of(document, "axes/upper"), strict=True)
    with refusing("group 'axes'"):
        axes = tuple(
            Axis(name, float(lower), float(upper))
            for name, (lower, upper) in zip(names, ends, strict=True)
        )
    return degrees, axes, lengths


def _decode_degrees(document: Document, largest: int, dimensions: int) -> tuple[int, ...]:
    """Return the degree along each axis, of which the file's attribute is the largest."""
    found = document.datasets.get("basis/degrees")
    if found is None:
        return (largest,) * dimensions
    degrees = tuple(found.tolist()) if isinstance(found, np.ndarray) and found.ndim == 1 else ()
    lowest = min(degrees, default=-1)
    if len(degrees) != dimensions or not 0 <= lowest < max(degrees) == largest:
        raise ProblemFileError(
            f"dataset 'basis/degrees' is {found!r}; expected different degrees of the {dimensions} "
            f"axes, of which {largest}, the attribute 'degree', is the largest"
        )
    return degrees


def _check_basis(document: Document, degree: int) -> None:
    """Refuse coefficients in another basis: another name or other two-scale filters."""
    found = document.attributes["basis_id"]
    if found != BASIS_ID:
        raise ProblemFileError(
            f"attribute 'basis_id' is {found!r}; expected '{BASIS_ID}', the basis of this "
            f"batchkron. Make the file again with this version"
        )
    difference = np.abs(array_of(document, "basis/filters") - np.stack(filters(degree))).max()
    if not difference <= _FILTER_TOLERANCE:
        raise ProblemFileError(
            f"dataset 'basis/filters' differs by {difference:.1e} from the two-scale filters of "
            f"'{BASIS_ID}'; expected at most {_FILTER_TOLERANCE:.0e}. The coefficients belong to "
            f"another basis; make the file again with this version"
        )


def _decode_levels(document: Document) -> tuple[int, ...]:
    with refusing("dataset 'grid/levels'"):
        return tuple(check_level(level) for level in array_of(document, "grid/levels").tolist())


def _decode_grid(document: Document, levels: tuple[int, ...]) -> SparseGrid:
    kind = texts_of(document, "grid/kind")[0]
    if kind not in GRID_KINDS:
        raise ProblemFileError(
            f"dataset 'grid/kind' is {kind!r}; expected one of {', '.join(GRID_KINDS)}"
        )
    with refusing("dataset 'grid/cells'"):
        return SparseGrid(array_of(document, "grid/cells"), levels, cast("GridKind", kind))


def _check_sizes(levels: tuple[int, ...], sizes: tuple[int, ...], lengths: dict[str, int]) -> None:
    """Check the lengths that follow from the grid; Python's integers cannot overflow here."""
    expected = {
        "initial": ("unknowns", lengths["blocks"] * math.prod(sizes)),
        "operators/offsets": ("operators_and_end", lengths["operators"] + 1),
    }
    for k, (level, n) in enumerate(zip(levels, sizes, strict=True)):
        expected[f"sources/factor_{k}"] = (f"size_{k}", n << level)
    for path, (name, length) in expected.items():
        if lengths[name] != length:
            raise ProblemFileError(
                f"dataset '{path}' has {lengths[name]} for {name}; expected {length}"
            )


def _decode_terms(
    document: Document, sizes: tuple[int, ...], levels: tuple[int, ...]
) -> tuple[OperatorTerm, ...]:
    table = array_of(document, "terms/operators")
    count = array_of(document, "operators/level").size
    check_range("terms/operators", table, -1, count)
    if np.unique(table[table >= 0]).size != count:
        raise ProblemFileError(
            f"dataset 'terms/operators' does not name each of the {count} operators; expected no "
            f"others to be stored"
        )
    own_sizes = {number: n for row in table.tolist() for number, n in zip(row, sizes, strict=True)}
    operators = _decode_operators(document, own_sizes)
    for t, row in enumerate(table.tolist()):
        for k, number in enumerate(row):
            if number >= 0 and operators[number].level != levels[k]:
                raise ProblemFileError(
                    f"dataset 'terms/operators' names at [{t}, {k}] an operator of level "
                    f"{operators[number].level}; expected level {levels[k]}, that of axis {k}"
                )
    times = decode_times(document, "terms/time")
    sides = array_of(document, "terms/one_sided")
    check_range("terms/one_sided", sides, 0, 3)
    return tuple(
        OperatorTerm(
            tuple(None if i < 0 else operators[i] for i in row), time, side == 1, side == 2
        )
        for row, time, side in zip(table.tolist(), times, sides.tolist(), strict=True)
    )


def _decode_operators(document: Document, sizes: Mapping[int, int]) -> list[ModeOperator]:
    """Return the distinct operators, which the file stores one after another in common arrays.

    ``sizes`` has the number of functions per cell of each.
    """
    rows, columns = array_of(document, "operators/rows"), array_of(document, "operators/columns")
    blocks = array_of(document, "operators/blocks")
    offsets = array_of(document, "operators/offsets").tolist()
    if offsets[0] != 0 or offsets[-1] != rows.size or sorted(offsets) != offsets:
        raise ProblemFileError(
            f"dataset 'operators/offsets' must rise from 0 to {rows.size}, the number of pairs"
        )
    operators = []
    for i, level in enumerate(array_of(document, "operators/level").tolist()):
        piece = slice(offsets[i], offsets[i + 1])
        with refusing(f"dataset 'operators/level'[{i}]"):
            cells = 1 << check_level(level)
        for name, ids in (("rows", rows), ("columns", columns)):
            check_range(f"operators/{name}", ids[piece], 0, cells)
        n, own = sizes[i], blocks[piece]
        if own[:, n:].any() or own[:, :, n:].any():
            raise ProblemFileError(
                f"dataset 'operators/blocks' has numbers that are not zero beyond the {n} "
                f"functions of operator {i}"
            )
        with refusing(f"group 'operators', number {i}"):
            operators.append(ModeOperator(cells, n, rows[piece], columns[piece], own[:, :n, :n]))
    return operators


def _decode_vectors(document: Document, group: str, dimensions: int) -> tuple[SeparableVector, ...]:
    times = decode_times(document, f"{group}/time")
    tables = [array_of(document, f"{group}/factor_{k}") for k in range(dimensions)]
    return tuple(
        SeparableVector(tuple(table[i] for table in tables), time) for i, time in enumerate(times)
    )


def _decode_sources(document: Document, dimensions: int) -> tuple[SeparableVector, ...]:
    """Return the sources; if the file does not say which are explicit, all are implicit."""
    vectors = _decode_vectors(document, "sources", dimensions)
    if "sources/explicit" not in document.datasets:
        return vectors
    sides = array_of(document, "sources/explicit")
    check_range("sources/explicit", sides, 0, 2)
    pairs = zip(vectors, sides.tolist(), strict=True)
    return tuple(replace(vector, explicit=bool(side)) for vector, side in pairs)


def _decode_exact(document: Document, dimensions: int) -> ExactSolution | None:
    if "exact/time" not in document.datasets:
        return None
    with refusing("group 'exact'"):
        return ExactSolution(
            _decode_vectors(document, "exact", dimensions),
            array_of(document, "exact/remainders"),
        )


def _decode_masses(document: Document, grid: SparseGrid, sizes: tuple[int, ...]) -> Masses:
    masses: list[NDArray[np.float64] | None] = []
    for k, (level, n) in enumerate(zip(grid.levels, sizes, strict=True)):
        path = f"masses/axis_{k}"
        if path not in document.datasets:
            masses.append(None)
            continue
        with refusing("the volume elements"):
            masses.append(check_mass(f"dataset '{path}'", array_of(document, path), level, n))
    return tuple(masses)


def decode_times(document: Document, path: str) -> Sequence[TimeFunction]:
    """Return the functions of time of a dataset of texts."""
    functions = []
    for i, text in enumerate(texts_of(document, path)):
        with refusing(f"dataset '{path}'[{i}]"):
            functions.append(from_json(strict_json.loads(text)))
    return functions


def _decode_units(document: Document) -> dict[str, str]:
    units: dict[str, Any] = json_of(document, "units", dict)
    for name, unit in units.items():
        if not isinstance(unit, str):
            raise ProblemFileError(f"dataset 'units' gives {name!r} a unit that is no text")
    return units
