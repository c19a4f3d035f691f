"""A checksum of operators and other values: their kinds, and all that they are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from batchkron.arrays import array_module, to_host
from batchkron.operators.algebra import Operator

__all__ = ["add_to_checksum", "parts_of"]

_PLAIN = (str, bytes, bool, int, float, complex, np.generic, np.dtype)


def parts_of(value: Any) -> tuple[Any, ...] | None:
    """Return what a value is made of; None for one that its repr identifies.

    An operator is what it multiplies by, a function its name. Fields that are not compared are left
    out.
    """
    if isinstance(value, (tuple, list)):
        return tuple(value)
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, Operator):
        return value._content()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = (field for field in dataclasses.fields(value) if field.compare)
        return tuple(getattr(value, field.name) for field in compared)
    if value is None or isinstance(value, _PLAIN):
        return None
    inner = getattr(value, "operator", None)  # a preconditioner's
    return (getattr(value, "__qualname__", ""), *([] if inner is None else [inner]))


def add_to_checksum(
    digest: Any, value: Any, parts: Callable[[Any], tuple[Any, ...] | None] = parts_of
) -> None:
    """Add a value to a checksum: its kind and all that it is made of, as ``parts`` returns it.

    Of arrays that is their dtype, shape and all values to the last bit.
    """
    digest.update(f"{type(value).__name__}(".encode())
    if isinstance(value, np.ndarray) or array_module(value) is not np:
        host = np.ascontiguousarray(to_host(value, "value"))
        digest.update(f"{host.dtype.str}{host.shape}".encode())
        digest.update(host.reshape(-1).view(np.uint8).data)
    else:
        found = parts(value)
        if found is None:
            digest.update(repr(value).encode())
        else:
            for part in found:
                add_to_checksum(digest, part, parts)
    digest.update(b")")
