"""Whether all ranks call a function with the same operator or problem, compared by a checksum."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from batchkron.arrays import array_module, to_host
from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.operator import distributed_parts
from batchkron.distributed.problems.problem import SeparableProblem
from batchkron.operators import Operator

__all__ = ["refuse_disagreement"]

_DIGEST_BYTES = 16
_PLAIN = (str, bytes, bool, int, float, complex, np.generic, np.dtype)


def refuse_disagreement(communicator: Communicator, obj: Any, options: Mapping[str, Any]) -> None:
    """Raise ValueError on all ranks unless they pass the same. All ranks call it.

    Parameters
    ----------
    communicator : Communicator
    obj : Operator, Problem or preconditioner
        Compared by its kind, dtype and shapes, and all its values to the last bit.
    options : mapping of str to object
        The other arguments, likewise.

    Raises
    ------
    ValueError
        If the ranks have different checksums of both; it names the ranks that differ from rank 0.
    """
    if communicator.size == 1:
        return
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    _add(digest, (obj, dict(options)))
    found = communicator.allgather(np.frombuffer(digest.digest(), np.int64))
    others = np.flatnonzero((found != found[0]).any(axis=1))
    if others.size:
        shape = getattr(obj, "shape", None)
        described = f"a {type(obj).__name__}" + (f" of shape {shape}" if shape else "")
        raise ValueError(
            f"ranks {', '.join(map(str, others[:10]))}{', …' if others.size > 10 else ''} of "
            f"{communicator.size} pass another operator or problem, or other options, than rank 0; "
            f"rank {communicator.rank} passes {described}. All ranks must pass the same, to the "
            "last bit: make it on one rank and send it by comm.bcast, or from the same data on all"
        )


def _add(digest: Any, value: Any) -> None:
    """Add a value to a checksum: its kind and all that it is made of."""
    digest.update(f"{type(value).__name__}(".encode())
    if isinstance(value, np.ndarray) or array_module(value) is not np:
        host = np.ascontiguousarray(to_host(value, "value"))
        digest.update(f"{host.dtype.str}{host.shape}".encode())
        digest.update(host.reshape(-1).view(np.uint8).data)
    else:
        parts = _parts(value)
        if parts is None:
            digest.update(repr(value).encode())
        else:
            for part in parts:
                _add(digest, part)
    digest.update(b")")


def _parts(value: Any) -> tuple[Any, ...] | None:
    """Return what a value is made of; None for one that its repr identifies."""
    if isinstance(value, (tuple, list)):
        return tuple(value)
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, Operator):
        # what is distributed already has other blocks on each rank
        return () if distributed_parts(value) else value._recipe()
    if isinstance(value, SeparableProblem):
        parts = value.time_parts()
        start = getattr(value, "t0", 0.0), getattr(value, "adapt", None), value.initial
        return (*start, tuple(parts.operators), tuple(parts.sources))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(getattr(value, field.name) for field in dataclasses.fields(value))
    if value is None or isinstance(value, _PLAIN):
        return None
    inner = getattr(value, "operator", None)  # a preconditioner's
    return (getattr(value, "__qualname__", ""), *([] if inner is None else [inner]))
