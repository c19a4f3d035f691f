"""Whether all ranks call a function with the same operator or problem, compared by a checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from batchkron.distributed.communication.communicator import Communicator
from batchkron.distributed.operator import distributed_parts
from batchkron.distributed.problems.problem import SeparableProblem
from batchkron.operators import Operator
from batchkron.operators.checksum import add_to_checksum, parts_of

__all__ = ["refuse_disagreement"]

_DIGEST_BYTES = 16


def refuse_disagreement(communicator: Communicator, obj: Any, options: Mapping[str, Any]) -> None:
    """Raise ValueError on all ranks unless they pass the same. All ranks call it.

    ``obj`` (Operator, Problem or preconditioner): compared by its kind, dtype and shapes, and all
      its values to the last bit.
    ``options`` (mapping of str to object): the other arguments, likewise.

    Raises `ValueError` if the ranks have different checksums of both; it names the ranks that
    differ from rank 0.
    """
    if communicator.size == 1:
        return
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    add_to_checksum(digest, (obj, dict(options)), _parts)
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


def _parts(value: Any) -> tuple[Any, ...] | None:
    """Return what a value is made of, as `parts_of`; of a problem its operators and sources."""
    if isinstance(value, Operator):  # also by its plan and known terms, which decide what it calls
        # what is distributed already has other blocks on each rank
        return () if distributed_parts(value) else value._recipe()
    if isinstance(value, SeparableProblem):
        parts = value.time_parts()
        start = getattr(value, "t0", 0.0), getattr(value, "adapt", None), value.initial
        return (*start, tuple(parts.operators), tuple(parts.sources))
    return parts_of(value)
