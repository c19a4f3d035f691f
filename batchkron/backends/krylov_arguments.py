"""Arguments of the passes of Krylov methods, with the layouts of ``csrc/krylov/common.hpp``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np

MAX_VECTORS = 10  # kVectors: vectors of a method
STATE_FIELDS = 32  # kStateFields: scalars of a system
MAX_SUMS = 5  # kMaxSums: largest number of sums of a pass over single elements

# The C++ struct KrylovArguments.
ARGUMENTS = np.dtype(
    [
        ("n", np.int64),
        ("systems", np.int64),
        ("progress", np.uint64),
        ("vectors", np.uint64, (MAX_VECTORS,)),
        ("state", np.uint64),
        ("small", np.uint64),
        ("history", np.uint64),
        ("partial", np.uint64),
        ("tickets", np.uint64),
        ("parts", np.int64),
        ("small_size", np.int64),
        ("rows", np.int64),
        ("column", np.int64),
        ("restart", np.int64),
        ("flags", np.int64),
        ("rtol", np.float64),
        ("atol", np.float64),
        ("max_iterations", np.float64),
        ("max_cycles", np.float64),
    ]
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of an iteration: a pass over vectors, or a product A x.

    ``name`` is that of the pass, "" for a product. ``vectors`` are the indices of the method's
    vectors that the pass takes, in its order, or those of x and A x.
    """

    name: str
    vectors: tuple[int, ...]


class Progress(IntEnum):
    """Status of a system: running, waiting for the true residual (1 to 7), or done (from 8 on)."""

    RUNNING = 0
    CLAIMED = 1
    SPENT = 2
    BROKEN = 3
    NOT_FINITE = 4
    INDEFINITE = 5
    CYCLE_END = 6
    DRIFTED = 7
    CONVERGED = 8
    MAX_ITERATIONS = 9
    STAGNATED = 10
    BREAKDOWN = 11
    NOT_FINITE_AT_END = 12
    INDEFINITE_AT_END = 13
    LEAST_SQUARES = 14


class Field(IntEnum):
    """Indices of a system's scalars in its row of the state."""

    RESIDUAL = 0
    ESTIMATE = 1
    TOLERANCE = 2
    NORM_B = 3
    UNIT = 4
    OPERATOR = 6
    RESTARTS = 7
    PRODUCTS = 11
    OPERATOR_NORM = 13
    COLUMNS = 17  # of GMRES, of its triangle when a cycle has ended
    KEPT = 18  # of GMRES, those of them that are regular to working precision


class Flag(IntFlag):
    """Options of a method."""

    RETRIES = 1
    PRECONDITIONED = 2
    FLEXIBLE = 4
    PERSISTS = 8


def small_size(restart: int, dtype: np.dtype[np.generic]) -> int:
    """Return the float64 values that a system needs for GMRES (``gmres::Triangle``)."""
    reals = 2 if dtype.kind == "c" else 1
    return reals * (2 * restart**2 + 7 * (restart + 1)) + 2 * (restart + 1)


def max_sums(restart: int, dtype: np.dtype[np.generic]) -> int:
    """Return the largest number of sums of any pass, with a basis of ``restart`` vectors."""
    reals = 2 if dtype.kind == "c" else 1
    return max(MAX_SUMS, 2 * restart * reals + 2 + reals)
