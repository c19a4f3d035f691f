"""Reading result files of ASGarD in two HDF5 layouts: see docs/guides/read-asgard-files.md."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage import read_foreign_file
from batchkron.storage.file_errors import refusing

from ...discretization.basis.multiwavelets import MAX_DEGREE
from ...grids.levels import MAX_LEVEL
from ...grids.sparse_grid import SparseGrid, levels_of_cells
from ...statement.axis import RESERVED_NAMES, Axis
from ...statement.frozen import Frozen
from .basis import rotate_from_asgard
from .content import AsgardContent
from .state import AsgardField, AsgardState

__all__ = ["load_asgard"]

_FILE_VERSION = 1  # the only value of the dataset _VERSION that can be read
_MAX_DIMENSIONS = 6  # ASGarD's own limit
_MAX_FIELDS = 512  # auxiliary fields that are read from one file
_VERSION = "asgard file version"  # a dataset that the layout of 0.9.0 has, and that of 2024 not
# the objects of each layout that are read; "*" stands for any characters
_NAMES_090 = (
    _VERSION,
    "title",
    "subtitle",
    "degree",
    "num_dims",
    "num_pos",
    "num_vel",
    "dim*_name",
    "domain_range",
    "grid_indexes",
    "state",
    "dtime_time",
    "num_aux_fields",
    "aux_field_*",
)
_NAMES_2024 = ("pde", "ndims", "dim*_min", "dim*_max", "elements", "soln", "time", "dt", "timings")
# the name of a field that is a moment, with one digit for each velocity: its power
_MOMENT = re.compile(r"__moment_(\d+)x*\Z", re.ASCII)


def load_asgard(path: str | os.PathLike[str], *, trusted: bool = False) -> AsgardState:
    """Read a result file of ASGarD, in its layout of 2024 or that of version 0.9.0, and close it.

    Parameters
    ----------
    path : path
        The file.
    trusted : bool
        False, for files of unknown origin, parses in a process of its own with limits on time and
        memory, because libhdf5 can crash on a malicious file. True reads in this process without
        these limits.

    Returns
    -------
    AsgardState
        Grid, axes, time and coefficients; the coefficients are converted to the basis of this
        package.

    Raises
    ------
    ProblemFileError
        If the file is not a result file of ASGarD or any check fails; the text names the offending
        dataset.
    OSError
        If it cannot be opened: FileNotFoundError, IsADirectoryError, ….
    """
    content = AsgardContent(
        read_foreign_file(path, (*_NAMES_090, *_NAMES_2024), trusted=trusted).datasets
    )
    with refusing(os.fspath(path)):
        if _VERSION in content:
            return _decode_090(content)
        if "elements" in content:
            return _decode_2024(content)
        raise ProblemFileError(
            f"the file has neither a dataset '{_VERSION}' nor a dataset 'elements'; expected a "
            f"result file of ASGarD"
        )


def _decode_090(content: AsgardContent) -> AsgardState:
    content.integer(_VERSION, _FILE_VERSION, _FILE_VERSION)
    dimensions = content.integer("num_dims", 1, _MAX_DIMENSIONS)
    degree = content.integer("degree", 0, MAX_DEGREE)
    ends = content.reals("domain_range", 2 * dimensions).tolist()
    names = [content.text(f"dim{k}_name") for k in range(dimensions)]
    places = ["dataset 'domain_range'"] * dimensions
    axes = _axes(names, ends[0::2], ends[1::2], places)
    with refusing("dataset 'grid_indexes'"):
        cells = _check_cells(content.table("grid_indexes", dimensions))
    with refusing("dataset 'state'"):
        state = _field(content.text("title"), axes, degree, cells, content.reals("state"))
    fields, moments = _fields_and_moments(content, axes, degree)
    return AsgardState(
        **vars(state),
        subtitle=content.text("subtitle"),
        layout="0.9.0",
        time=content.real("dtime_time"),
        fields=fields,
        moments=Frozen(moments),
    )


def _decode_2024(content: AsgardContent) -> AsgardState:
    dimensions = content.integer("ndims", 1, _MAX_DIMENSIONS)
    # in this layout "degree" is the number of functions per cell and dimension
    functions = content.integer("degree", 1, MAX_DEGREE + 1)
    lower = [content.real(f"dim{k}_min") for k in range(dimensions)]
    upper = [content.real(f"dim{k}_max") for k in range(dimensions)]
    places = [f"dataset 'dim{k}_min' or 'dim{k}_max'" for k in range(dimensions)]
    axes = _axes([""] * dimensions, lower, upper, places)
    with refusing("dataset 'elements'"):
        elements = content.table("elements", 2 * dimensions)
        cells = _cells_at(elements[:, :dimensions], elements[:, dimensions:])
    with refusing("dataset 'soln'"):
        state = _field(content.text("pde"), axes, functions - 1, cells, content.reals("soln"))
    # the file of a state after a step has the time at which the step began, so add its length
    has_stepped = any(name.endswith("time_advance") for name in content.members("timings"))
    time = content.real("time") + (content.real("dt") if has_stepped else 0.0)
    return AsgardState(**vars(state), subtitle="", layout="2024", time=time)


def _axes(
    names: Sequence[str], lower: Sequence[float], upper: Sequence[float], places: Sequence[str]
) -> tuple[Axis, ...]:
    """Return the axes; they are named x1, x2, … unless all names in the file can name axes."""
    usable = [name for name in names if name.isidentifier() and name not in RESERVED_NAMES]
    if len(set(usable)) < len(names):
        names = [f"x{k + 1}" for k in range(len(names))]
    axes = []
    for place, name, left, right in zip(places, names, lower, upper, strict=True):
        with refusing(place):
            axes.append(Axis(name, left, right))
    return tuple(axes)


def _cells_at(levels: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the 1-D cells of levels and positions within a level; refuse those out of range."""
    wrong = np.argwhere((levels < 0) | (levels > MAX_LEVEL))
    if wrong.size:
        row, k = wrong[0]
        raise ValueError(f"element {row} has level {levels[row, k]}; expected 0 … {MAX_LEVEL}")
    first = (1 << levels) >> 1  # index of the first cell of the level
    wrong = np.argwhere((positions < 0) | (positions >= np.maximum(first, 1)))
    if wrong.size:
        row, k = wrong[0]
        raise ValueError(
            f"element {row} has position {positions[row, k]} on level {levels[row, k]}; expected "
            f"0 … {max(first[row, k], 1) - 1}"
        )
    return _check_cells(first + positions)


def _check_cells(cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the cells; refuse an empty grid, cells out of range, and repeated ones."""
    if not cells.size:
        raise ValueError("the grid has no cells; expected at least one")
    wrong = np.argwhere((cells < 0) | (cells >> MAX_LEVEL > 0))
    if wrong.size:
        row, k = wrong[0]
        raise ValueError(
            f"cell {row} has index {cells[row, k]} in dimension {k}; expected 0 … "
            f"{(1 << MAX_LEVEL) - 1}"
        )
    if len(np.unique(cells, axis=0)) < len(cells):
        raise ValueError("a cell occurs twice; expected distinct cells")
    return cells


def _field(
    name: str,
    axes: tuple[Axis, ...],
    degree: int,
    cells: NDArray[np.int64],
    values: NDArray[np.float64],
) -> AsgardField:
    """Return a field whose coefficients are in this package's basis and order of cells."""
    block = (degree + 1) ** len(axes)
    if values.size != len(cells) * block:
        raise ValueError(
            f"has {values.size} values; expected {len(cells) * block}: blocks of "
            f"{block} = {degree + 1}^{len(axes)} wavelet coefficients for {len(cells)} cells"
        )
    levels = levels_of_cells(cells).max(axis=0)
    grid = SparseGrid.custom(cells, [int(level) for level in levels])
    coefficients = np.empty((grid.num_cells, block))
    coefficients[grid.find(cells)] = rotate_from_asgard(values, cells, degree)
    coefficients = coefficients.reshape(-1)
    coefficients.setflags(write=False)
    return AsgardField(name, axes, degree, grid, coefficients)


def _fields_and_moments(
    content: AsgardContent, axes: tuple[Axis, ...], degree: int
) -> tuple[tuple[AsgardField, ...], dict[tuple[int, ...], AsgardField]]:
    """Read the auxiliary fields, and return those that are moments separately, by their powers.

    A field is a moment if it has the name of one and lives on the position axes.
    """
    positions = content.integer("num_pos", 0, len(axes))
    velocities = content.integer("num_vel", 0, len(axes))
    fields = []
    moments: dict[tuple[int, ...], AsgardField] = {}
    for i in range(content.integer("num_aux_fields", 0, _MAX_FIELDS)):
        field = _auxiliary_field(content, f"aux_field_{i}", axes, degree)
        match = _MOMENT.match(field.name)
        powers = tuple(map(int, match[1])) if match else ()
        if powers and len(powers) == velocities and len(field.axes) == positions:
            if powers in moments:
                raise ProblemFileError(f"dataset 'aux_field_{i}_name' repeats {field.name!r}")
            moments[powers] = field
        else:
            fields.append(field)
    return tuple(fields), moments


def _auxiliary_field(
    content: AsgardContent, prefix: str, axes: tuple[Axis, ...], degree: int
) -> AsgardField:
    """Read a field on the first axes; if the file does not give their number, it has all axes."""
    dimensions = len(axes)
    if f"{prefix}_dims" in content:
        dimensions = content.integer(f"{prefix}_dims", 1, dimensions)
    name = content.text(f"{prefix}_name")
    with refusing(f"dataset '{prefix}_grid'"):
        cells = _check_cells(content.table(f"{prefix}_grid", dimensions))
    with refusing(f"dataset '{prefix}_data'"):
        return _field(name, axes[:dimensions], degree, cells, content.reals(f"{prefix}_data"))
