"""Identification of a problem, and of the environment that the last bits of a result depend on."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

import batchkron
from batchkron.arrays import array_module, native_dtype, to_host

__all__ = ["problem_hash", "surroundings"]


def problem_hash(problem: Any, initial: NDArray[Any]) -> str:
    """Return a hash that identifies a problem, for its checkpoints.

    Parameters
    ----------
    problem : TimeProblem
        If it has a ``content_hash``, that is returned.
    initial : ndarray, shape (N,)
        Its initial state, which is hashed otherwise.

    Returns
    -------
    str
        Hexadecimal digits.
    """
    own = getattr(problem, "content_hash", None)
    if own is not None:
        return str(own)
    initial = to_host(initial, "problem.initial")
    initial = initial.astype(native_dtype(initial.dtype), copy=False)
    described = hashlib.sha256(f"{initial.dtype} {initial.shape}".encode())
    described.update(np.ascontiguousarray(initial).tobytes())
    return described.hexdigest()


def surroundings(state: NDArray[Any]) -> dict[str, Any]:
    """Return version, threads and instruction set, on which the last bits of a result depend.

    Parameters
    ----------
    state : ndarray
        A vector of the run; for a CuPy array the instruction set is its device's architecture.

    Returns
    -------
    dict
        With the keys ``version``, ``threads`` and ``instruction_set``.
    """
    module = array_module(state)
    instruction_set = batchkron.instruction_set()
    if module is not np:
        instruction_set = f"cuda sm_{module.cuda.Device().compute_capability}"
    return {
        "version": batchkron.__version__,
        "threads": batchkron.get_num_threads(),
        "instruction_set": instruction_set,
    }
