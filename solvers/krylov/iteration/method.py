"""What Krylov methods share: what a method says of itself, its workspace, and `solve`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from batchkron.array_kinds import any_foreign, native
from batchkron.arrays import array_module, as_array, device_errors, native_dtype
from batchkron.operators import Operator, on_device

from ...products import Vector, ranks_of, sum_over, working_dtype
from ..systems.foreign_arrays import refuse_foreign, solve_in_kind
from ..systems.layouts import as_systems, check_layout
from ..systems.limits import SolveLimits, check_count
from ..systems.result import KrylovResult, raise_if_failed
from ..systems.system import LinearSystem
from ..vectors.space import KrylovSpace
from .recordings import IterationCounts, Recordings
from .recursion import Recursion
from .solve import Solve


class KrylovMethod:
    """A method with its workspace, kept from solve to solve."""

    _recursion_type: type[Recursion]
    _basis_size = 0  # m, of methods with a basis of m + 1 vectors

    def __init__(
        self,
        size: Any,
        dtype: Any = None,
        *,
        like: Any = None,
        M: Any = None,
        batched: str | None = None,
    ) -> None:
        """Make the object; its workspace is allocated in the first solve.

        It is allocated again where the shape of b changes. One solve at a time, else RuntimeError.

        Parameters
        ----------
        size : int, or operator of shape (N, N)
            N, the number of unknowns; or A, for calls ``solver(b)``.
        dtype : dtype_like, optional
            float32, float64, complex64 or complex128: float64, or A's own, by default.
        like : ndarray, optional
            Where the vectors are: NumPy's by default, or those of the device of a CuPy array; where
            A is, if it is given.
        M : operator, optional
            The preconditioner of calls ``solver(b)``.
        batched : {None, "columns", "leading"}
            The layout of right-hand sides: (N,), (N, K) or (..., N).

        Raises
        ------
        ValueError
            If ``size`` < 0, or the layout is unknown.
        TypeError
            If it is not an integer, or the dtype is not one of the four.
        """
        check_layout(batched)
        self.batched = batched
        self._A: Any = None
        self._M = M
        if hasattr(size, "shape") and not np.isscalar(size):
            self._A, size = size, size.shape[-1]
            own = native(self._A, "A")
            dtype = working_dtype(own) if dtype is None else dtype
            if like is None and isinstance(self._A, Operator):
                like = on_device(np.empty(0), self._A.device)
            like = own if like is None else like
        self.size = check_count("size", size, minimum=0)
        self._ranks = ranks_of(self._A)
        self._unknowns = int(sum_over(self._ranks, np.array([self.size], np.int64))[0])
        self.dtype = native_dtype(np.dtype(np.float64 if dtype is None else dtype))
        if self.dtype.char not in "fdFD":
            raise TypeError(
                f"dtype is {self.dtype}; expected float32, float64, complex64 or complex128."
            )
        self._arrays = array_module(native(like, "like"))
        self._space: KrylovSpace | None = None
        self._recursion: Recursion | None = None
        self._recordings: Recordings | None = None
        self._counts = IterationCounts()
        self._under_way = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The bytes of the workspace."""
        return 0 if self._space is None else self._space.nbytes

    def forget_operands(self) -> None:
        """Let go of the arrays of the last solve that are not the workspace's own."""
        if self._recursion is not None:
            self._recursion.forget_operands()

    def _fitting(self, system: LinearSystem) -> Recursion:
        """Return a recursion for a system, and begin new recordings for other operators."""
        b = system.b
        if b.shape[-1] != self.size:
            raise ValueError(
                f"b has {b.shape[-1]} elements; expected {self.size}, as the workspace has. Make "
                f"another {type(self).__name__} for another size."
            )
        if self._space is None or self._space.shape != b.shape:
            self._recursion = None
            self._space = KrylovSpace(
                self._arrays, b.shape, self.dtype, self._basis_size, self._ranks
            )
        recursion = self._recursion
        if recursion is None or recursion.preconditioned is not system.preconditioned:
            recursion = self._recursion_type(self._space, system.preconditioned)
            self._recursion, self._recordings = recursion, None
        if not system.recordable:
            self._recordings = None
        elif self._recordings is None or not self._recordings.fit(system):
            recorder, (A, M) = self._space.recorder(), system.operators
            self._recordings = None
            if recorder is not None:
                launch = None if M is not None else recursion.in_a_launch(A)
                self._recordings = Recordings(recorder, system, launch)
        return recursion

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Refuse a solve while another one has the workspace."""
        if not self._under_way.acquire(blocking=False):
            raise RuntimeError(
                f"this {type(self).__name__} is solving already, and has one workspace; make "
                "another for each thread, and for solves within a product."
            )
        try:
            yield
        finally:
            self._under_way.release()

    # A solve.

    def __call__(self, b: Any, x0: Any = None, **options: Any) -> KrylovResult:
        """Solve A x = b with the operator that the object was made with; as `solve`."""
        if self._A is None:
            raise TypeError(
                f"this {type(self).__name__} was made for a size; call solve(A, b), or make it "
                "with an operator."
            )
        return self.solve(self._A, b, x0, M=self._M, **options)

    def solve(
        self,
        A: Any,
        b: Any,
        x0: Any = None,
        *,
        rtol: float = 1e-5,
        atol: float = 0.0,
        maxiter: int | None = None,
        M: Any = None,
        callback: Callable[[Any], object] | None = None,
        out: Vector | None = None,
        raise_on_failure: bool = False,
    ) -> KrylovResult:
        """Solve A x = b in this workspace; the parameters are those of the method's function.

        Parameters
        ----------
        A, b, x0, rtol, atol, maxiter, M, callback, raise_on_failure
            As for `cg`, `minres` or `bicgstab`.
        out : ndarray, of x's shape, optional
            Where x is written; a fresh array by default, of the kind of b.

        Returns
        -------
        KrylovResult
            As for the function; ``x`` is ``out`` where that is given.

        Raises
        ------
        ValueError, TypeError, RuntimeError
            As for the function; ValueError also if b or ``out`` does not fit.
        """
        limits = SolveLimits(rtol, atol, maxiter, callback)
        return self._solve(A, b, x0, M, limits, out, raise_on_failure)

    def _solve(
        self,
        A: Any,
        b: Any,
        x0: Any,
        M: Any,
        limits: SolveLimits,
        out: Vector | None,
        raise_on_failure: bool,
    ) -> KrylovResult:
        """Solve; the arguments are those of a method's own `solve`."""
        if type(b) is not np.ndarray and any_foreign(b):

            def native_solve(A: Any, b: Any, x0: Any, M: Any, out: Any = None) -> KrylovResult:
                return self._solve(A, b, x0, M, limits, out, raise_on_failure)

            return solve_in_kind(native_solve, A, b, x0, M, out)
        ignored = np.errstate(over="ignore", invalid="ignore", divide="ignore")
        with self._one_at_a_time(), device_errors(), ignored:
            given = as_systems(b, "b", self.batched, self.dtype, self._arrays)
            rows = self._arrays.ascontiguousarray(given)
            if self._arrays is np and not rows.flags.aligned:
                rows = rows.copy()
            system = LinearSystem(A, rows, M, self.batched)
            self._check_ranks(A)
            recursion = self._fitting(system)
            self._check_out(out, b)
            limits.begin_solve(self._unknowns)
            solve = Solve(recursion, system, x0, limits, self._recordings, self._counts)
            solve.run()
            result = solve.result(out)
        if raise_on_failure:
            raise_if_failed(result, limits.rtol, limits.atol)
        return result

    def _check_ranks(self, A: Any) -> None:
        """Raise ValueError if A's vectors are on other ranks than the workspace's."""
        here, there = (1 if each is None else each.size for each in (self._ranks, ranks_of(A)))
        if here != there:
            raise ValueError(
                f"A's vectors are spread over {there} ranks, those of the workspace over {here}; "
                f"make the object with the operator, {type(self).__name__}(A)."
            )

    def _check_out(self, out: Vector | None, b: Any) -> None:
        if out is None:
            return
        refuse_foreign(out, "out", b=b)
        if as_array(out, "out", self._arrays) is not out:
            raise TypeError(f"out is a {type(out).__name__}; expected an array.")
        if isinstance(out, np.ndarray) and not out.flags.writeable:
            raise ValueError("out is read-only.")
        wanted = (self.size,) if self.batched is None else np.shape(b)
        if out.shape != wanted or out.dtype != self.dtype:
            raise ValueError(
                f"out has shape {out.shape} and dtype {out.dtype}; "
                f"expected {wanted} and {self.dtype}."
            )
