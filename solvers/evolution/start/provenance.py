"""Identification of a problem, and of the environment that the last bits of a result depend on."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

import batchkron
from batchkron.arrays import array_module, native_dtype, to_host
from batchkron.attributes import attribute

__all__ = ["problem_hash", "surroundings"]


def problem_hash(problem: Any, initial: NDArray[Any]) -> str:
    """Return a hash that identifies a problem, in hexadecimal digits, for its checkpoints.

    It is the problem's ``content_hash``, if it has one, else the hash of its initial state.
    """
    own = attribute(problem, "content_hash")
    if own is not None:
        return str(own)
    initial = to_host(initial, "problem.initial")
    initial = initial.astype(native_dtype(initial.dtype), copy=False)
    described = hashlib.sha256(f"{initial.dtype} {initial.shape}".encode())
    described.update(np.ascontiguousarray(initial).tobytes())
    return described.hexdigest()


def surroundings(state: NDArray[Any]) -> dict[str, Any]:
    """Return what the last bits of a result depend on: version, threads and instruction set.

    ``state`` is a vector of the run; the instruction set of a CuPy array is its device's
    architecture.
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
