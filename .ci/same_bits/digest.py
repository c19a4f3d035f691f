"""SHA-256 of a result: shapes, dtypes and bytes of all arrays and numbers in it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np


def digest(result: Any) -> str:
    """Return the SHA-256 (hexadecimal) of a result.

    Parameters
    ----------
    result : array, number, str, None, or nested lists, tuples and dicts of these
        CuPy's arrays are copied to the host.

    Raises
    ------
    TypeError
        For anything else, of which it is not known what belongs to the result.
    """
    summary = hashlib.sha256()
    _add(summary, result)
    return summary.hexdigest()


def _add(summary: Any, value: Any) -> None:
    if value is None:
        summary.update(b"none\n")
    elif isinstance(value, str):
        text = str(value).encode()
        summary.update(b"text %d\n%b" % (len(text), text))
    elif isinstance(value, dict):
        summary.update(b"dict %d\n" % len(value))
        for key, entry in value.items():
            _add(summary, str(key))
            _add(summary, entry)
    elif isinstance(value, list | tuple):
        summary.update(b"list %d\n" % len(value))
        for entry in value:
            _add(summary, entry)
    else:
        _add_array(summary, value.get() if hasattr(value, "get") else np.asarray(value))


def _add_array(summary: Any, array: Any) -> None:
    if array.dtype.hasobject:
        raise TypeError(f"no bits are defined for {array!r}")
    summary.update(f"array {array.dtype.str} {array.shape}\n".encode())
    summary.update(array.tobytes())
