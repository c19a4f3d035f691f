"""Result files (where a run ended) and checkpoints (a state from which it can go on)."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import os
import warnings
from dataclasses import dataclass, field
from typing import Any, Protocol, get_type_hints

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage import strict_json
from batchkron.storage.checkpoint_paths import CHECKPOINT, checkpoint_obstacle, previous_path
from batchkron.storage.document import Attribute, Document, Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.formats import FIRST_VERSION, VERSION_WITH_GRIDS, VERSION_WITH_MEMORY
from batchkron.storage.provenance import writer_provenance
from batchkron.storage.reader import read_file
from batchkron.storage.rotation import file_identity, note_sound, rotate
from batchkron.storage.schema import (
    Field,
    array_of,
    check_attributes,
    check_datasets,
    check_range,
    json_of,
    provenance_paths,
)
from batchkron.storage.writer import write_document

_WRITER = "provenance/file"  # dataset: when and with what the file was written, as JSON
_MAX_STEPS = 2.0**53  # all integers up to it are exact in float64
_ROUNDING = 1e-6  # tolerance, relative and absolute, of a number of steps (until - t0) / dt
_MAX_LEVEL = 30  # largest level of a grid's cells
_REAL = ("float32", "float64")  # dtypes in which a run may compute


@dataclass(frozen=True, eq=False)
class StoredGrid:
    """The grid of a state whose grid follows the solution.

    Attributes
    ----------
    cells : ndarray, shape (num_cells, axes), int64
        The cells, as multi-indices of 1-D hierarchical cells, in the order of the state's blocks.
    levels : ndarray, shape (axes,), int64
        The finest level of each axis.
    calm : ndarray, shape (num_cells,), int64
        For each cell the number of successive adaptations in which it was not needed; -1 for a new
        one.
    """

    cells: NDArray[np.int64] = field(repr=False)
    levels: NDArray[np.int64]
    calm: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True, eq=False)
class StoredMemory:
    """What a method needs of earlier steps besides the state.

    Attributes
    ----------
    vectors : ndarray, shape (m, N), float64
        Vectors, such as differences of states; finite.
    numbers : ndarray, shape (n,), float64
        Numbers, such as the order and the length of the last step; finite.
    """

    vectors: NDArray[np.float64] = field(repr=False)
    numbers: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ResultFile:
    """What a result file holds: where a run ended.

    Attributes
    ----------
    u : ndarray, shape (N,), float64
        The state, finite.
    t : float
        Its time.
    status : str
        Why the run ended ("completed", …).
    steps : int
        Steps from t0 to t.
    dt : float
        The time step.
    method : str
        The stepper's name.
    problem_hash : str
        `Problem.content_hash` of the problem.
    problem_name : str
        Its name.
    l2_error, relative_error : float or None
        Against the exact solution, where it is known and the error is finite.
    history : list
        JSON data: the record of the run.
    grid : StoredGrid or None
        The state's grid, if it is not the problem's.
    """

    u: NDArray[np.float64] = field(repr=False)
    t: float
    status: str
    steps: int
    dt: float
    method: str
    problem_hash: str
    problem_name: str
    l2_error: float | None = None
    relative_error: float | None = None
    history: list[Any] = field(default_factory=list, repr=False)
    grid: StoredGrid | None = field(default=None, repr=False)


class HasFileContent(Protocol):
    """An object that says what a result file of it holds, as `batchkron.solvers.Result` does."""

    def file_content(self) -> ResultFile:
        """Return the content of the file."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a checkpoint holds: a state from which a run goes on with bitwise the same results.

    Attributes
    ----------
    u : ndarray, shape (N,), float64
        The state after `step` steps, finite.
    t0, dt : float
        Start time and time step; the state's time is t0 + step · dt, unless `time` is given.
    step : int
        Steps done since t0.
    until : float
        Time at which the run is to end.
    method : str
        The stepper's name.
    problem_hash : str
        `Problem.content_hash` of the problem.
    version : str
        Version of batchkron; this and the next two fields can change the bits of the results.
    threads : int
        Number of threads in use.
    instruction_set : str
        Instruction set of the CPU in use.
    dtype : str
        The dtype in which the run computes.
    history : list
        JSON data: the record of the run.
    time : float or None
        The state's time in a run with adaptive steps; then `dt` is the step to try next.
    last_error : float or None
        In a run with adaptive steps, the error of its last step divided by the tolerance.
    origin_step, origin_time : int and float, or None
        In a run whose grid follows the solution, with the problem's default steps: the step and
        time from which steps of the length `dt` are counted.
    grid : StoredGrid or None
        In a run whose grid follows the solution, the state's grid.
    memory : StoredMemory or None
        What the method needs of earlier steps; None if that is nothing.
    """

    u: NDArray[np.float64] = field(repr=False)
    t0: float
    dt: float
    step: int
    until: float
    method: str
    problem_hash: str
    version: str
    threads: int
    instruction_set: str
    dtype: str
    history: list[Any] = field(default_factory=list, repr=False)
    time: float | None = None
    last_error: float | None = None
    origin_step: int | None = None
    origin_time: float | None = None
    grid: StoredGrid | None = field(default=None, repr=False)
    memory: StoredMemory | None = field(default=None, repr=False)

    @property
    def origin(self) -> tuple[int, float]:
        """The step and time from which equal steps are counted."""
        if self.origin_step is None or self.origin_time is None:
            return 0, self.t0
        return self.origin_step, self.origin_time

    @property
    def t(self) -> float:
        """The state's time: that of `origin` and the steps since then, or `time`."""
        if self.time is not None:
            return self.time
        first, begin = self.origin
        return begin + (self.step - first) * self.dt


def save_result(
    path: str | os.PathLike[str], result: ResultFile | HasFileContent, *, overwrite: bool = False
) -> None:
    """Write a result file, whole or not at all.

    Parameters
    ----------
    path : path
    result : ResultFile, or the Result of `batchkron.solvers.evolve`
        A `Result` is written as its ``file_content()``.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    ValueError
        If the state or another number is not finite, the history is not JSON data, or the content
        is so large that the file could not be read back.
    TypeError
        For another object, or a field of another type.
    FileExistsError
        If the file exists and `overwrite` is false.
    OSError
        If it cannot be written; an existing file is untouched.
    """
    content = result
    if not isinstance(content, ResultFile):
        if not hasattr(content, "file_content"):
            raise TypeError(
                f"result is a {type(result).__name__}; expected the Result that "
                "batchkron.solvers.evolve returns, or a batchkron.storage.ResultFile"
            )
        content = content.file_content()
    write_document(path, _encode("batchkron-result", content), overwrite=overwrite)


def load_result(path: str | os.PathLike[str], *, trusted: bool = False) -> ResultFile:
    """Read a result file and close it.

    Parameters
    ----------
    path : path
    trusted : bool
        False parses in a process of its own; see `batchkron.storage.read_file`.

    Returns
    -------
    ResultFile

    Raises
    ------
    ProblemFileError
        If the file is not a result file or any check fails; the text names the offending dataset.
    OSError
        If it cannot be opened.
    """
    document = read_file(path, "batchkron-result", trusted=trusted)
    with refusing(os.fspath(path)):
        result: ResultFile = _decode(document, ResultFile)
        _check_not_negative("steps", result.steps)
    return result


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write a checkpoint and keep the one before it as "PATH.previous".

    If one of the two files was complete and undamaged before, one is at every instant of the call.

    Parameters
    ----------
    path : path
        The file; an existing undamaged checkpoint becomes "PATH.previous".
    checkpoint : Checkpoint

    Raises
    ------
    ValueError
        If the state or another number is not finite, the history is not JSON data, or the content
        is so large that the file could not be read back.
    TypeError
        For a field of another type.
    FileExistsError
        If the write would destroy a file that is not a checkpoint; see `checkpoint_obstacle`.
    OSError
        If it cannot be written; existing files are untouched.
    """
    document = _encode(CHECKPOINT, checkpoint)
    # if the files cannot be examined, they are taken for checkpoints
    with contextlib.suppress(ChildProcessError):
        obstacle = checkpoint_obstacle(path)
        if obstacle is not None:
            raise FileExistsError(errno.EEXIST, obstacle, os.fspath(path))
    write_document(path, document, overwrite=True, publish=rotate)


def load_checkpoint(
    path: str | os.PathLike[str], *, trusted: bool = False, previous: bool = True
) -> Checkpoint:
    """Read a checkpoint, or the one before it ("PATH.previous") if the file is broken or gone.

    Parameters
    ----------
    path : path
    trusted : bool
        False parses in a process of its own; see `batchkron.storage.read_file`.
    previous : bool
        False reads the named file only.

    Returns
    -------
    Checkpoint

    Raises
    ------
    ProblemFileError
        If neither file is an undamaged checkpoint.
    OSError
        If neither can be opened.

    Warns
    -----
    UserWarning
        If the previous checkpoint is used instead; the text says why.
    """
    try:
        return _load_one_checkpoint(os.fspath(path), trusted)
    except (ProblemFileError, FileNotFoundError) as error:
        if not previous:
            raise
        fallback = previous_path(path)
        try:
            checkpoint = _load_one_checkpoint(str(fallback), trusted)
        except (ProblemFileError, OSError):
            raise error from None
        warnings.warn(
            f"the checkpoint cannot be used ({error}); taking the one before it, {fallback}",
            UserWarning,
            stacklevel=2,
        )
        return checkpoint


def _load_one_checkpoint(path: str, trusted: bool) -> Checkpoint:
    identity = file_identity(path)
    document = read_file(path, CHECKPOINT, trusted=trusted)
    with refusing(path):
        checkpoint: Checkpoint = _decode(document, Checkpoint)
        check_checkpoint(checkpoint)
    note_sound(path, identity)
    return checkpoint


def check_checkpoint(checkpoint: Checkpoint) -> None:
    """Check that the numbers of a checkpoint are consistent with each other.

    Raises `ProblemFileError`: (A ValueError.) If a count is negative, dt is not positive, the run
    would have 2^53 steps or more, ``until`` lies before ``t0`` or before the state's time, the
    dtype is neither float32 nor float64, the vectors of ``memory`` are not finite or not as long as
    the state, or ``time`` is given and ``last_error`` is not a number of at least 0.
    """
    t0, dt, until = checkpoint.t0, checkpoint.dt, checkpoint.until
    _check_not_negative("step", checkpoint.step)
    _check_not_negative("threads", checkpoint.threads)
    if checkpoint.dtype not in _REAL:
        raise ProblemFileError(
            f"attribute 'dtype' is {checkpoint.dtype[:40]!r}; expected one of {', '.join(_REAL)}"
        )
    if checkpoint.memory is not None:
        _check_memory(checkpoint.memory, checkpoint.u.size)
    if not 0.0 < dt < math.inf:
        raise ProblemFileError(f"attribute 'dt' is {dt}; expected a time step greater than 0")
    if not t0 <= until < math.inf:
        raise ProblemFileError(f"attribute 'until' is {until}; expected at least t0 = {t0}")
    if checkpoint.time is not None:
        if not t0 <= checkpoint.time <= until:
            raise ProblemFileError(
                f"attribute 'time' is {checkpoint.time}; expected one from t0 = {t0} to {until}"
            )
        if checkpoint.last_error is None or not 0.0 <= checkpoint.last_error < math.inf:
            raise ProblemFileError(
                f"attribute 'last_error' is {checkpoint.last_error}; expected a number, at least 0"
            )
        return
    if (checkpoint.origin_step is None) != (checkpoint.origin_time is None):
        raise ProblemFileError("attributes 'origin_step' and 'origin_time' are given together only")
    first, begin = checkpoint.origin
    _check_not_negative("origin_step", first)
    if first > checkpoint.step or not t0 <= begin <= until:
        raise ProblemFileError(
            f"attributes 'origin_step' and 'origin_time' are {first} and {begin}; expected a step "
            f"up to {checkpoint.step}, and a time from t0 = {t0} to until = {until}"
        )
    steps = first + (until - begin) / dt
    if not steps < _MAX_STEPS:
        raise ProblemFileError(
            f"attribute 'dt' is {dt}; expected a step that leads from t0 = {t0} to until = {until}"
        )
    if checkpoint.step > steps * (1.0 + _ROUNDING) + _ROUNDING:
        raise ProblemFileError(
            f"attribute 'step' is {checkpoint.step}; expected at most the {steps:.6g} steps from "
            f"t0 = {t0} to until = {until}"
        )


def _check_memory(memory: StoredMemory, size: int) -> None:
    """Check that what a method needs of earlier steps are finite vectors of the state's length."""
    vectors, numbers = np.asarray(memory.vectors), np.asarray(memory.numbers)
    if vectors.ndim != 2 or vectors.shape[1] != size or numbers.ndim != 1:
        raise ProblemFileError(
            f"datasets 'memory/vectors' and 'memory/numbers' have shapes {vectors.shape} and "
            f"{numbers.shape}; expected (m, {size}) and (n,)"
        )
    if not (np.isfinite(vectors).all() and np.isfinite(numbers).all()):
        raise ProblemFileError("datasets 'memory/…' have values that are not finite")


_DATASETS = {
    "u": Field("float64", ("unknowns",)),
    "history": Field("text", (1,)),
    "grid/cells": Field("int64", ("cells", "axes"), "grid"),
    "grid/levels": Field("int64", ("axes",), "grid"),
    "grid/calm": Field("int64", ("cells",), "grid"),
    "memory/vectors": Field("float64", ("vectors", "unknowns"), "memory"),
    "memory/numbers": Field("float64", ("numbers",), "memory"),
    **provenance_paths(["file"]),
}


def _attributes_of(kind: type) -> tuple[dict[str, type], dict[str, type]]:
    """Return the fields that are attributes, with their types: those there must be, and others."""
    hints = get_type_hints(kind)
    plain: tuple[type, ...] = (float, int, str)
    required = {name: hint for name, hint in hints.items() if hint in plain}
    optional = {name: own for name, hint in hints.items() for own in plain if hint == own | None}
    return required, optional


def _encode(format_name: str, state: ResultFile | Checkpoint) -> Document:
    """Return a state's document: numbers and short texts as attributes, the rest as datasets."""
    grid, memory = state.grid, getattr(state, "memory", None)
    version = FIRST_VERSION if grid is None else VERSION_WITH_GRIDS
    version = version if memory is None else VERSION_WITH_MEMORY
    attributes: dict[str, Attribute] = {"format": format_name, "format_version": version}
    required, optional = _attributes_of(type(state))
    for name, kind in {**required, **optional}.items():
        value = getattr(state, name)
        if value is not None or name in required:
            attributes[name] = _plain(name, value, kind)
    u = np.asarray(state.u)
    if u.dtype != np.float64:
        raise TypeError(f"u has dtype {u.dtype}; expected float64")
    if u.ndim != 1:
        raise ValueError(f"u has shape {u.shape}; expected (N,)")
    datasets: dict[str, Value] = {
        "u": u,
        "history": (strict_json.dumps(list(state.history)),),
        _WRITER: (strict_json.dumps(writer_provenance()),),
    }
    if grid is not None:
        for name in ("cells", "levels", "calm"):
            datasets[f"grid/{name}"] = np.asarray(getattr(grid, name), dtype=np.int64)
    if memory is not None:
        datasets["memory/vectors"] = np.asarray(memory.vectors, dtype=np.float64)
        datasets["memory/numbers"] = np.asarray(memory.numbers, dtype=np.float64)
    return Document(attributes, datasets)


def _plain(name: str, value: Any, kind: type) -> Attribute:
    """Return a field as the Python type that it is stored as; NumPy scalars are converted."""
    accepted = {str: str, int: int | np.integer, float: float | int | np.floating | np.integer}[
        kind
    ]
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise TypeError(f"{name} is {type(value).__name__}; expected {kind.__name__}")
    plain: Attribute = kind(value)
    return plain


def _decode(document: Document, kind: type) -> Any:
    check_attributes(document, *_attributes_of(kind))
    check_datasets(document, _DATASETS)
    json_of(document, _WRITER, dict)
    values: dict[str, Any] = {
        entry.name: document.attributes[entry.name]
        for entry in dataclasses.fields(kind)
        if entry.name in document.attributes
    }
    if kind is Checkpoint and "memory/vectors" in document.datasets:
        values["memory"] = StoredMemory(
            array_of(document, "memory/vectors"), array_of(document, "memory/numbers")
        )
    return kind(
        u=array_of(document, "u"),
        history=json_of(document, "history", list),
        grid=_grid_of(document),
        **values,
    )


def _grid_of(document: Document) -> StoredGrid | None:
    """Return the grid of a document whose datasets are checked.

    Raises `ProblemFileError` if an index is out of range, or the state does not have equal blocks
    for the cells.
    """
    if "grid/cells" not in document.datasets:
        return None
    cells, levels = array_of(document, "grid/cells"), array_of(document, "grid/levels")
    calm, size = array_of(document, "grid/calm"), array_of(document, "u").size
    check_range("grid/levels", levels, 0, _MAX_LEVEL + 1)
    check_range("grid/calm", calm, -1, 128)
    for axis, level in enumerate(levels.tolist()):
        check_range("grid/cells", cells[:, axis : axis + 1], 0, 1 << level)
    if 0 in cells.shape or size % len(cells):
        raise ProblemFileError(
            f"dataset 'u' has {size} values for the {len(cells)} cells of 'grid/cells'; expected "
            "as many for each"
        )
    return StoredGrid(cells, levels, calm)


def _check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise ProblemFileError(f"attribute '{name}' is {value}; expected at least 0")
