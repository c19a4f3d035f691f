"""Context managers that turn any exception about a bad file into ProblemFileError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from batchkron.errors import ProblemFileError


@contextlib.contextmanager
def translated(path: str, place: str) -> Iterator[None]:
    """Turn whatever h5py raises into one ProblemFileError that names the place.

    ``place``: what is being read, such as "dataset 'initial'".

    Raises `ProblemFileError` for every exception but MemoryError, which is passed on unchanged.
    """
    try:
        yield
    except (ProblemFileError, MemoryError):
        raise
    except Exception as error:
        detail = " ".join(str(error).split())[:300]
        raise ProblemFileError(f"{path}: {place} is damaged: {detail}") from error


@contextlib.contextmanager
def refusing(place: str) -> Iterator[None]:
    """Turn the error of a check or a constructor about a file's values into ProblemFileError.

    ``place``: what the values are, such as "dataset 'grid/cells'", or the file; put before the
      text.

    Raises `ProblemFileError` for ValueError, TypeError, IndexError, OverflowError and
    RecursionError. A ProblemFileError is itself a ValueError: in nested contexts each puts its
    place before the text.
    """
    try:
        yield
    except (ValueError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise ProblemFileError(f"{place}: {error}") from error
