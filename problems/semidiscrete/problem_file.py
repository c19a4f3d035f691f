"""Saving problems to HDF5 files and loading them."""

from __future__ import annotations

import os

import numpy as np

from batchkron.operators import on_device
from batchkron.storage import read_file, write_document
from batchkron.storage.file_errors import refusing

from ..files.decode import decode_problem
from ..files.encode import encode_problem
from ..files.schema import FORMAT
from .problem import Problem
from .value import content_of

__all__ = ["load_problem", "save_problem"]


def save_problem(
    path: str | os.PathLike[str], problem: Problem, *, overwrite: bool = False
) -> None:
    """Write a problem as an HDF5 file, whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    problem : Problem
        Its whole content is stored, and no Python code, so that an exact solution which is a
        function is left out; `docs/reference/problem-files.md` has the schema.
    overwrite : bool
        Replace an existing file.

    Raises
    ------
    TypeError, ValueError
        If units or provenance are not plain JSON data.
    FileExistsError
        If the file exists and `overwrite` is false.
    OSError
        If it cannot be written; an existing file is untouched.
    """
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem is {type(problem).__name__}; expected a Problem, such as "
            f"PDE(...).discretize(...) returns"
        )
    write_document(path, encode_problem(content_of(problem)), overwrite=overwrite)


def load_problem(
    path: str | os.PathLike[str], *, device: str = "cpu", trusted: bool = False
) -> Problem:
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
    Problem
        With the same bits as the one that was saved, and the same `content_hash`.

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
        content = decode_problem(document)
        with refusing("the problem"):
            problem = Problem(**vars(content))
        return problem.to(device)
