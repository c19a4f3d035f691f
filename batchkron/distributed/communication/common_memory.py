"""Memory that all ranks of one machine have in common."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from batchkron.spec.kron import Array

__all__ = ["common_memory"]

_FOLDER = "/dev/shm"  # files in memory, on Linux


def common_memory(
    rank: int,
    ranks: int,
    size: int,
    broadcast: Callable[[Any], Any],
    allgather: Callable[[Array], Array],
) -> Array | None:
    """Return new memory that all ranks read and write. All ranks call it, with the same size.

    ``size``: in bytes.
    ``broadcast``: ``broadcast(value)`` returns on every rank what rank 0 passes.
    ``allgather``: ``allgather(numbers)`` returns the numbers of all ranks, (ranks, count).

    Returns ndarray of uint8, (at least size,), or None: None on all ranks if they are on several
    machines, or have no such memory or too little.
    """

    def all_ranks(succeed: bool) -> bool:
        return bool(allgather(np.array([succeed], np.uint8)).all())

    share = max(1, -(-size // (ranks * mmap.PAGESIZE))) * mmap.PAGESIZE  # of each rank
    with ExitStack() as stack:
        name, number, memory = "", -1, None
        if rank == 0:
            with suppress(OSError):
                file, name = tempfile.mkstemp(prefix="batchkron-", dir=_FOLDER)
                os.close(file)
        path = broadcast(name)
        with suppress(OSError):
            number = stack.enter_context(open(path, "r+b")).fileno()
        able = all_ranks(number >= 0)
        if name:
            os.unlink(name)  # while it is empty: what is killed later leaves nothing behind
        try:
            # otherwise a page that the system cannot give ends the process when it is written to
            os.posix_fallocate(number, rank * share, share)
        except OSError:
            able = False
        if not all_ranks(able):
            return None
        with suppress(OSError):
            memory = np.frombuffer(mmap.mmap(number, ranks * share), np.uint8)
        return memory if all_ranks(memory is not None) else None
