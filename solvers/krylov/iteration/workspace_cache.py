"""Solver objects that the functions `cg` … `fgmres` keep between their calls.

What a call sets up, memory and the graphs of its iterations, takes as long as tens of iterations of
a small system. A solver object belongs to one call at a time, which takes it out and puts it back;
one whose solve raised is dropped.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from batchkron.array_kinds import any_foreign
from batchkron.arrays import array_module, as_array

from ...products import working_dtype
from ..systems.foreign_arrays import refuse_foreign, solve_in_kind
from ..systems.result import KrylovResult
from ..systems.system import check_count
from ..vectors.ranks import ranks_of
from ..vectors.space import place_of_work
from .method import KrylovMethod

_MAX_CACHED_SOLVERS = 8  # of a thread; chosen by hand
_MAX_CACHE_BYTES = 64 << 20  # of a thread's solvers together; chosen by hand
_MAX_CPU_BYTES = 1 << 20  # of one solver on the CPU; larger systems take much longer than set-up


@dataclass(frozen=True, slots=True)
class _CachedSolver:
    solver: KrylovMethod
    place: object  # keeps a device's stream: while it lives, no other one has its address
    nbytes: int


class _SolverCache(threading.local):
    """The solver objects of a thread, the latest one last."""

    def __init__(self) -> None:
        self.entries: dict[Hashable, _CachedSolver] = {}

    def keep(self, key: Hashable, entry: _CachedSolver) -> None:
        """Keep one more, and drop the oldest ones as far as that is too many."""
        if entry.nbytes > (_MAX_CPU_BYTES if entry.place is None else _MAX_CACHE_BYTES):
            return
        self.entries[key] = entry
        total = sum(each.nbytes for each in self.entries.values())
        while total > _MAX_CACHE_BYTES or len(self.entries) > _MAX_CACHED_SOLVERS:
            total -= self.entries.pop(next(iter(self.entries))).nbytes


_cache = _SolverCache()


def free_workspaces() -> None:
    """Free the workspaces that the Krylov functions keep for the calling thread.

    They are at most 8, and 64 MiB together: those of the latest calls without a callback, on the
    CPU where they are at most 1 MiB. Memory of a device goes back to CuPy's pool.

    Examples
    --------
    >>> from batchkron.solvers import free_workspaces
    >>> free_workspaces()
    """
    _cache.entries.clear()


atexit.register(free_workspaces)  # while CUDA is still there


def solve_once(
    method: type[KrylovMethod],
    A: Any,
    b: Any,
    x0: Any,
    *,
    batched: str | None,
    callback: Any,
    M: Any,
    restart: int | None = None,
    **options: Any,
) -> KrylovResult:
    """Solve A x = b by a method, in a workspace that is kept for the next call.

    Parameters
    ----------
    method : type
        The method.
    A, b, x0, batched, callback, M : object
        As for its function. With a callback, which sees the workspace, it is not kept.
    restart : int, optional
        Of methods with a basis.
    **options
        Others of its function.

    Returns
    -------
    KrylovResult
        Its arrays are no part of a workspace; x is of the kind of b.
    """
    if type(b) is not np.ndarray and any_foreign(b):
        solve = partial(
            solve_once, method, batched=batched, callback=callback, restart=restart, **options
        )
        return solve_in_kind(solve, A, b, x0, M)
    rhs = as_array(b, "b", array_module(b))
    given = {} if restart is None else {"restart": check_count("restart", restart)}
    options |= {"M": M, "callback": callback}
    try:
        dtype = working_dtype(A, rhs)
    except TypeError:
        refuse_foreign(A, "A", b=rhs)  # whose dtype is no dtype of NumPy
        raise
    if ranks_of(A) is not None:  # ranks would keep and drop workspaces of different sizes
        solver = method(A, dtype, like=rhs, batched=batched, **given)
        return solver.solve(A, rhs, x0, **options)
    if callback is not None:
        return _new(method, rhs, dtype, batched, given).solve(A, rhs, x0, **options)
    place = place_of_work(array_module(rhs))
    key = method, rhs.shape, dtype, batched, M is None, restart, place[0]
    entry = _cache.entries.pop(key, None)
    solver = _new(method, rhs, dtype, batched, given) if entry is None else entry.solver
    result: KrylovResult = solver.solve(A, rhs, x0, **options)
    solver.forget_operands()
    _cache.keep(key, entry or _CachedSolver(solver, place[1], solver.nbytes))
    return result


def _new(
    method: type[KrylovMethod],
    rhs: Any,
    dtype: np.dtype[Any],
    batched: str | None,
    options: dict[str, Any],
) -> KrylovMethod:
    size = rhs.shape[-1 if batched == "leading" else 0] if rhs.ndim else 0
    return method(size, dtype, like=rhs, batched=batched, **options)
