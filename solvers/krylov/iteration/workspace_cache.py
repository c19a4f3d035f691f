"""Solver objects that the functions `cg` … `fgmres` keep between their calls.

What a call sets up, memory and the graphs of its iterations, takes as long as tens of iterations of
a small system. A solver object belongs to one call at a time, which takes it out and puts it back;
one whose solve raised is dropped.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from batchkron.array_kinds import any_foreign
from batchkron.arrays import array_module, as_array

from ...products import ranks_of, working_dtype
from ..systems.foreign_arrays import refuse_foreign, solve_in_kind
from ..systems.limits import check_count
from ..systems.result import KrylovResult
from ..vectors.space import place_of_work
from .method import KrylovMethod

_MAX_CACHED_SOLVERS = 8  # of a thread; chosen by hand
_MAX_CACHE_BYTES = 64 << 20  # of a thread's solvers together; chosen by hand
_MAX_CPU_BYTES = 1 << 20  # of one solver on the CPU; larger systems take much longer than set-up


class _SolverCache(threading.local):
    """The solver objects of a thread, the latest one last."""

    def __init__(self) -> None:
        # a place keeps a device's stream: while it lives, no other one has its address
        self.entries: dict[Hashable, tuple[KrylovMethod, object]] = {}

    def keep(self, key: Hashable, solver: KrylovMethod, place: object) -> None:
        """Keep one more, and drop the oldest ones as far as that is too many."""
        if solver.nbytes > (_MAX_CPU_BYTES if place is None else _MAX_CACHE_BYTES):
            return
        self.entries[key] = solver, place
        total = sum(each.nbytes for each, _ in self.entries.values())
        while total > _MAX_CACHE_BYTES or len(self.entries) > _MAX_CACHED_SOLVERS:
            total -= self.entries.pop(next(iter(self.entries)))[0].nbytes


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
    M: Any,
    rtol: float,
    atol: float,
    maxiter: int | None,
    callback: Callable[[Any], object] | None,
    batched: str | None,
    raise_on_failure: bool,
    *,
    restart: int | None = None,
    **options: Any,
) -> KrylovResult:
    """Solve A x = b by a method, in a workspace that is kept for the next call.

    The parameters are those of the method's function; with a callback, which sees the workspace,
    it is not kept. ``restart`` and ``options`` are those of methods with a basis.
    """
    options |= {"rtol": rtol, "atol": atol, "maxiter": maxiter, "callback": callback}
    options["raise_on_failure"] = raise_on_failure
    given = {} if restart is None else {"restart": check_count("restart", restart)}

    def solve(A: Any, b: Any, x0: Any, M: Any) -> KrylovResult:
        """Solve for right-hand sides of NumPy or CuPy."""
        rhs = as_array(b, "b", array_module(b))
        try:
            dtype = working_dtype(A, rhs)
        except TypeError:
            refuse_foreign(A, "A", b=rhs)  # whose dtype is no dtype of NumPy
            raise
        size = rhs.shape[-1 if batched == "leading" else 0] if rhs.ndim else 0
        on_ranks = ranks_of(A) is not None  # which would keep and drop workspaces at other times
        if on_ranks or callback is not None:
            solver = method(A if on_ranks else size, dtype, like=rhs, batched=batched, **given)
            return solver.solve(A, rhs, x0, M=M, **options)
        place = place_of_work(array_module(rhs))
        key = method, rhs.shape, dtype, batched, M is None, restart, place[0]
        entry = _cache.entries.pop(key, None)
        if entry is None:
            solver = method(size, dtype, like=rhs, batched=batched, **given)
        else:
            solver = entry[0]
        result = solver.solve(A, rhs, x0, M=M, **options)
        solver.forget_operands()
        _cache.keep(key, solver, place[1])
        return result

    if type(b) is not np.ndarray and any_foreign(b):
        return solve_in_kind(solve, A, b, x0, M)
    return solve(A, b, x0, M)
