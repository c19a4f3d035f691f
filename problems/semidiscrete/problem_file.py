"""Saving problems to HDF5 files and loading them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from batchkron.operators import on_device
from batchkron.storage import Document, read_file, write_document
from batchkron.storage.file_errors import refusing

from ..files.decode import decode_problem
from ..files.encode import encode_problem
from ..files.lists import decode_list, encode_list, holds_list
from ..files.schema import FORMAT
from ..linear.problem import LinearProblem
from .problem import Problem
from .value import content_of

__all__ = ["load_problem", "save_problem"]


def save_problem(
    path: str | os.PathLike[str], problem: Problem | LinearProblem, *, overwrite: bool = False
) -> None:
    """Write a problem as an HDF5 file, whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    problem : Problem or LinearProblem
        Its whole content is stored, and no Python code, so that an exact solution of a Problem
        which is a function is left out, and sources have to be formulas or separable; of a
        LinearProblem the operator must be a batch list. `docs/reference/problem-files.md` has
        the schema.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    TypeError, ValueError
        If units or provenance are not plain JSON data; if a source of a Problem is a callable,
        which the text names; if a LinearProblem has an operator that is no BatchedKron, or a source
        that is Python code.
    FileExistsError
        If the file exists and `overwrite` is false.
    OSError
        If it cannot be written; an existing file is untouched.
    """
    if isinstance(problem, LinearProblem):
        document = encode_list(problem.content)
    elif isinstance(problem, Problem):
        document = encode_problem(content_of(problem))
    else:
        raise TypeError(
            f"problem is {type(problem).__name__}; expected a Problem, such as "
            f"PDE(...).discretize(...) returns, or a LinearProblem, such as LinearProblem(op, u0) "
            "of a BatchedKron"
        )
    write_document(path, document, overwrite=overwrite)


def load_problem(
    path: str | os.PathLike[str], *, device: str = "cpu", trusted: bool = False
) -> Any:  # a union of both kinds would have the attributes of neither
    """Read a whole problem file and close it.

    Parameters
    ----------
    path : path
        The file.
    device : str
        Where to put the problem's operators and vectors: "cpu", or "cuda", CuPy's current device.
    trusted : bool
        False, for files of unknown origin, parses in a process of its own with limits on time and
        memory, because libhdf5 can crash on a malicious file. True reads in this process without
        these limits.

    Returns
    -------
    Problem or LinearProblem
        With the same bits as the one that was saved, and the same `content_hash`. A file of a
        batch list, of whatever program, gives a LinearProblem.

    Raises
    ------
    ProblemFileError
        If the file is not a problem file or any check fails; the text names the offending dataset.
    ValueError
        If the device is unknown.
    BackendUnavailableError
        If CuPy is not installed, or there is no usable device.
    OSError
        If the file cannot be opened: FileNotFoundError, IsADirectoryError, ….
    """
    on_device(np.zeros(0), device)  # raises for a bad device before the file is read
    document = read_file(path, FORMAT, trusted=trusted)
    with refusing(os.fspath(path)):
        return _problem(document).to(device)


def _problem(document: Document) -> Problem | LinearProblem:
    """Return the problem of a document."""
    if not holds_list(document):
        content = decode_problem(document)
        with refusing("the problem"):
            return Problem(**vars(content))
    parts = vars(decode_list(document))
    operator, initial, sources = (parts.pop(name) for name in ("operator", "initial", "sources"))
    with refusing("the problem"):
        return LinearProblem(operator, initial, sources, **parts)
