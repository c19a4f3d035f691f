"""What all Krylov methods share: how a solve begins, goes on and ends.

A method is a recursion: it begins from a true residual b - A x (`_begin`) and iterates (`_iterate`)
until it has an estimate of the residual that is small enough, or cannot go on. Then the true
residual is computed (`_check`), and either ends the solve or begins the next recursion. What passes
over vectors find is in the memory of a device; `_steps_until_look` says how many iterations are
done before the host looks at it.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from batchkron.array_kinds import any_foreign, native
from batchkron.arrays import array_module, as_array, device_errors, native_dtype
from batchkron.operators import Operator, on_device

from ...products import Vector, working_dtype
from ..systems.foreign_arrays import refuse_foreign, solve_in_kind
from ..systems.layouts import as_systems, check_layout, from_systems
from ..systems.limits import SolveLimits, check_count
from ..systems.result import KrylovResult, Status, raise_if_failed, worst_of
from ..systems.system import LinearSystem
from ..vectors.passes import (
    OperatorExtent,
    ScaleResidual,
    SharedVectors,
    StartExtent,
    StartNorms,
    TrueResidual,
)
from ..vectors.ranks import norms_over, ranks_of, sum_over
from ..vectors.space import Field, Flag, KrylovSpace, Passes, Progress, Recorder
from .recordings import Recordings
from .residual_history import ResidualHistory
from .verified_iterates import VerifiedIterates

_ITERATIONS_PER_CHECK = 8  # at most, on a device, between two readings of its status
_ITERATIONS_PER_CHECK_SMALL = 16  # the same where reading takes as long as several iterations
_SMALL_UNKNOWNS = 1 << 18  # of all systems together, up to which that is so
_MAX_AHEAD = 32  # iterations that are done at once with the check; chosen by hand
_MIN_CAPTURED_ITERATIONS = 2  # number of iterations from which capturing a CUDA graph pays
# Solves whose iterations are remembered: as many as an IMEX method has stages. One iteration too
# many costs less than one too few, after which a device has to be waited for twice.
_REMEMBERED = 4
# Addresses of right-hand sides for which that is done. Stages that are iterated have two.
_MAX_ADDRESSES = 2
# Residual / √N in units of the recursion, below which squares of entries may have underflowed.
_MIN_MEASURABLE_RESIDUAL = {"d": 1e-140, "f": 1e-30}

_STATUS = {
    Progress.CONVERGED: Status.CONVERGED,
    Progress.MAX_ITERATIONS: Status.MAX_ITERATIONS,
    Progress.STAGNATED: Status.STAGNATED,
    Progress.BREAKDOWN: Status.BREAKDOWN,
    Progress.NOT_FINITE_AT_END: Status.NOT_FINITE,
    Progress.INDEFINITE_AT_END: Status.INDEFINITE,
    Progress.LEAST_SQUARES: Status.LEAST_SQUARES,
}
_BY_CODE = np.full(max(_STATUS) + 1, None)
_BY_CODE[list(_STATUS)] = list(_STATUS.values())
_B = SharedVectors._fields.index("b")


class KrylovMethod(ABC):
    """A method with its workspace, kept from solve to solve."""

    _space: KrylovSpace  # made in the first solve

    # What a method says of itself.

    _flags = Flag(0)  # options of its passes
    _flags_with_m = Flag.PRECONDITIONED  # others where there is an M
    _basis_size = 0  # m, of methods with a basis of m + 1 vectors
    _max_steps: int | float = math.inf  # of a recursion, before the true residual is computed
    _measures = False  # whether the first product with A says in what unit they are taken
    _never_worse = False  # whether an iterate is taken over only if its true residual is less
    _checks_ahead = False  # whether `_check` may be called while a system is running

    @abstractmethod
    def _allocate(self, space: KrylovSpace, preconditioned: bool) -> tuple[Vector, Vector, Vector]:
        """Make the vectors and the passes over them.

        Returns
        -------
        x : ndarray
        r : ndarray
            Where the true residual is written when no system is running.
        w : ndarray
            Where products with A are; the first one may say in what unit they are taken.
        """

    def _begin(self, system: LinearSystem) -> int:
        """Begin from the true residual; return what the last pass did."""
        return self._scale.run()

    @abstractmethod
    def _iterate(self, system: LinearSystem, steps: range) -> int:
        """Do iterations, counted since `_begin`, until no system is running.

        Returns what the last pass did: 0 where no system is running, -1 where that is not known.
        """

    def _step_key(self, step: int) -> int:
        """Return what iterations of the same work have in common."""
        return step % 2

    def _check(self, system: LinearSystem, ahead: int = 0) -> int:
        """Compute the true residual, and what it says; return what the last pass did.

        If ``ahead`` is not 0, the system may be running after so many iterations, and can then go
        on.
        """
        system.apply(self._solution, self._residual)
        return self._decide.run()

    def _checked_residual(self) -> Vector:
        """Return the residual that `_check` has computed."""
        return self._residual

    def _go_on(self) -> None:
        """After `_check` with ``_checks_ahead``: bring the residual to where a cycle begins."""
        return

    def _recognise(self, system: LinearSystem, progress: Any, scalars: Any) -> None:
        """Say of systems that did not converge what their passes could not know: nothing here."""
        return

    def _iterations_in_a_launch(self, A: Any) -> Passes | None:
        """Return iterations that the device does in one launch, None where there are none."""
        return None

    def forget_operands(self) -> None:
        """Let go of the arrays of the last solve that are not the workspace's own."""
        self._point_at(None, 0)

    # The workspace.

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
        self._has_m: bool | None = None  # whether the passes are those with M, None before all
        self._recordings: Recordings | None = None
        self._launch: Passes | None = None  # iterations that the device does in one launch
        self._under_way = threading.Lock()
        self._measured = False  # whether the unit of products with A is known
        self._done = 0  # iterations of the solve under way
        self._expected = 0  # iterations that it is taken to need
        self._taken = 0  # iterations that the last solve took
        # those of the last solves, by the addresses of their right-hand sides
        self._taken_at: dict[int, deque[int]] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of the workspace."""
        return 0 if self._has_m is None else self._space.nbytes

    @property
    def _recorder(self) -> Recorder | None:
        return None if self._recordings is None else self._recordings.recorder

    def _fit(self, system: LinearSystem) -> None:
        """Make the vectors and passes for a system, and forget recordings of other operators."""
        b = system.b
        if b.shape[-1] != self.size:
            raise ValueError(
                f"b has {b.shape[-1]} elements; expected {self.size}, as the workspace has. Make "
                f"another {type(self).__name__} for another size."
            )
        if self._has_m is None or self._space.shape != b.shape:
            self._space = KrylovSpace(
                self._arrays, b.shape, self.dtype, self._basis_size, self._ranks
            )
            self._has_m = None
        if self._has_m is not system.preconditioned:
            self._make_passes(self._space, system.preconditioned)
            self._recordings = None
        if not system.recordable:
            self._recordings = self._launch = None
        elif self._recordings is None or not self._recordings.fit(system):
            recorder, (A, M) = self._space.recorder(), system.operators
            self._recordings = None if recorder is None else Recordings(recorder, system)
            self._launch = None if M is not None else self._iterations_in_a_launch(A)

    def _make_passes(self, space: KrylovSpace, preconditioned: bool) -> None:
        space.flags = self._flags | (self._flags_with_m if preconditioned else Flag(0))
        x, r, w = self._allocate(space, preconditioned)
        self._solution, self._residual = x, r
        self._start = space.passes((StartExtent, StartNorms), SharedVectors(r=r, x=x))
        self._scale = space.passes((ScaleResidual,), SharedVectors(r=r))
        self._extent = space.passes((OperatorExtent,), SharedVectors(w=w))
        self._decide = space.passes((TrueResidual,), SharedVectors(r=r, x=x))
        self._has_m = preconditioned

    def _point_at(self, b: Vector | None, address: int) -> None:
        """Let the passes that read b read these right-hand sides."""
        for passes in (self._start, self._decide):
            passes.set_vector(_B, b, address)

    def _measure(self) -> None:
        """After the first product with A: see in what unit products are taken."""
        if not self._measured:
            self._extent.run()
            self._measured = True

    def _recent(self, address: int) -> deque[int]:
        """Return the iterations of the last solves of a right-hand side at an address."""
        recent = self._taken_at.get(address)
        if recent is None:
            while len(self._taken_at) >= _MAX_ADDRESSES:
                self._taken_at.pop(next(iter(self._taken_at)))
            recent = self._taken_at[address] = deque(maxlen=_REMEMBERED)
        return recent

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
            system = LinearSystem(A, rows, M)
            self._check_ranks(A)
            self._fit(system)
            self._check_out(out, b)
            limits.begin_solve(self._unknowns)
            history, verified = self._run(system, x0, limits)
            progress, scalars = self._verdict(system, verified, limits)
            result = self._result(system, history, progress, scalars, out)
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

    def _run(
        self, system: LinearSystem, x0: Any, limits: SolveLimits
    ) -> tuple[ResidualHistory, VerifiedIterates]:
        """Iterate until the true residual of every system has ended it."""
        space = self._space
        guessed = self._first_residual(system, x0, limits)
        ahead = 0 if guessed else self._first_cycle(system, limits)
        self._check_untried(system, guessed)
        first = space.field(Field.NORM_B if ahead else Field.RESIDUAL)
        history = ResidualHistory(space, first)
        verified = VerifiedIterates(first, lambda out: system.initial_guess(x0, out, self.batched))
        limits.norm_b = float(space.field(Field.NORM_B)[0]) if limits.callback else 1.0
        running = space.running()
        if ahead:
            history.take()
            if running and space.field(Field.RESTARTS)[0]:
                self._go_on()
                ahead = 0
        while running:
            self._recur(system, limits, history, ahead)
            ahead = 0
            space.changed()
            running = space.running(self._check(system))
            if running and not self._never_worse:
                verified.compare(self._solution, space.field(Field.RESIDUAL))
            history.take()
            limits.cycle_ended(from_systems(self._solution, self.batched))
        return history, verified

    def _first_residual(self, system: LinearSystem, x0: Any, limits: SolveLimits) -> bool:
        """Write the initial guess and its residual, and set the limits of the solve.

        Return whether the guess may be anything but zero.
        """
        guessed = system.initial_guess(x0, self._solution, self.batched)
        if guessed:
            system.apply(self._solution, self._residual)
        else:
            self._residual.fill(0.0)
        self._point_at(system.b, self._space.address(system.b))
        self._start.set(
            rtol=limits.rtol,
            atol=limits.atol,
            max_iterations=limits.max_iterations,
            max_cycles=limits.max_cycles,
        )
        self._measured = not self._measures
        self._done = 0
        # a power of two, for few graphs; others' operators may be slow
        self._expected = 1 << self._taken.bit_length() >> 1 if system.recordable else 0
        self._start.run()
        self._space.changed()
        return guessed

    def _first_cycle(self, system: LinearSystem, limits: SolveLimits) -> int:
        """On a device do as many iterations as the last solves took, and the check, at once.

        They are one graph after a few solves, and nothing is read in between: passes over a system
        that has stopped change nothing.

        Returns
        -------
        int
            The number of iterations, 0 if it is not known or too large.
        """
        if not self._checks_ahead or self._recordings is None:
            return 0
        address = self._space.address(system.b)  # graphs have it
        count = int(min(max(self._recent(address), default=0), self._max_steps))
        if limits.callback is not None or self._space.systems > 1 or not 0 < count <= _MAX_AHEAD:
            return 0

        def work() -> None:
            self._begin(system)
            self._iterate(system, range(count))
            self._check(system, count)

        self._repeat(system, ("cycle", count, self._measured, address), work)
        self._space.changed()
        self._done = count
        self._expected = 0
        return count

    def _check_untried(self, system: LinearSystem, guessed: bool) -> None:
        """End systems that zero seems to solve, without a product with A, and A has NaN there."""
        space = self._space
        progress = space.progress()
        untried = (progress[0] == Progress.CONVERGED) & (progress[1] == 0)
        if guessed and untried.any():  # where b is zero, so is x
            untried &= space.field(Field.NORM_B) == 0
        if not untried.any():
            return
        product = self._arrays.empty_like(self._solution)
        system.apply(self._solution, product)
        space.spoil(np.flatnonzero(untried & ~np.isfinite(self._norms(product, slice(None)))))

    def _recur(
        self, system: LinearSystem, limits: SolveLimits, history: ResidualHistory, begun: int
    ) -> None:
        """Iterate from the true residual until every system stops.

        Of a recursion that was begun by `_first_cycle`, ``begun`` iterations are done already.
        """
        space, step, unread = self._space, begun, 0
        left = -1 if begun else self._begin(system)
        while True:
            count = self._steps_until_look(step, begun, limits)
            if unread + count > space.rows:
                history.take()
                unread = 0
            space.changed()
            together = count >= _MIN_CAPTURED_ITERATIONS
            if together and self._launch is not None:
                self._launch.set_count(count)
                left = self._launch.run()
            elif together and self._recordings is not None:
                self._repeat_iterations(system, range(step, step + count))
            else:
                left = self._iterate(system, range(step, step + count))
            step += count
            unread += count
            self._done += count
            if limits.callback is not None and history.take():
                seen = from_systems(self._solution, self.batched)
                limits.iteration_ended(history.latest(), seen)
            if step == self._max_steps or space.running(left) == 0:
                break

    def _repeat_iterations(self, system: LinearSystem, steps: range) -> None:
        """Do iterations on a device that have a graph after a few times."""

        def work() -> None:
            self._iterate(system, steps)

        self._repeat(system, (self._step_key(steps.start), len(steps), self._measured), work)

    def _repeat(self, system: LinearSystem, key: Any, work: Callable[[], None]) -> None:
        """Do work that takes the first product's unit unless that is known."""
        assert self._recordings is not None
        if self._recordings.run(system, key, work):
            self._measured = True

    def _steps_until_look(self, step: int, begun: int, limits: SolveLimits) -> int:
        """Return how many iterations to do before looking at what became of the systems."""
        space, maximum = self._space, self._max_steps - step
        if begun and self._launch is None and maximum:
            return int(min(max(1, begun // 4), maximum, space.rows))
        if limits.callback is not None:
            return 1
        if self._arrays is np or self._launch is not None:
            # passes say how many systems run, or each system how many iterations it does
            return int(min(space.rows, maximum)) if self._measured or self._arrays is np else 1
        if space.systems * self.size <= _SMALL_UNKNOWNS:
            count = min(max(self._done, self._expected), _ITERATIONS_PER_CHECK_SMALL)
        else:
            count = min(self._done, _ITERATIONS_PER_CHECK)
        count = max(1, count)
        if step == self._done:  # more would change nothing
            maximum = min(maximum, max(limits.max_iterations - step, 1))
            count = int(min(count, maximum))
        return int(maximum) if maximum <= 1.5 * count else count

    # Its result.

    def _verdict(
        self, system: LinearSystem, verified: VerifiedIterates, limits: SolveLimits
    ) -> tuple[Any, Any]:
        """Return the progress and the scalars of all systems, and the best verified iterates in x.

        Residuals, of the scalars, are those of x.
        """
        progress, scalars = self._space.progress(), self._space.scalars()
        self._taken = int(progress[1].max(initial=0))
        self._recent(self._space.address(system.b)).append(self._taken)
        self._judge_tiny(system, progress, scalars, limits)
        failed = np.flatnonzero(progress[0] != Progress.CONVERGED)
        if failed.size:
            self._recognise(system, progress, scalars)
            settled = progress[0] == Progress.LEAST_SQUARES if system.preconditioned else None
            residuals = scalars[:, Field.RESIDUAL]
            if verified.restore(self._solution, residuals, settled).any():
                self._recognise(system, progress, scalars)
            lost = failed[self._lost(progress, scalars)[failed]]
            if lost.size:
                residuals[lost] = self._norms(self._measured_residual(system), lost)
        return progress, scalars

    def _result(
        self,
        system: LinearSystem,
        history: ResidualHistory,
        progress: Any,
        scalars: Any,
        out: Vector | None,
    ) -> KrylovResult:
        """Copy x out of the workspace, and say how each system ended."""
        x = from_systems(self._solution, self.batched)
        if out is None:
            out = x.copy()
        else:
            np.copyto(out, x)
        one, batch = self.batched is None, self._space.shape[:-1]
        residuals, norms = scalars[:, Field.RESIDUAL].copy(), history.norms()
        failed = np.flatnonzero(progress[0] != Progress.CONVERGED)
        norms[progress[1, failed], failed] = residuals[failed]
        statuses = _BY_CODE[progress[0]]
        restarts = scalars[:, Field.RESTARTS]
        return KrylovResult(
            x=out,
            status=worst_of(_BY_CODE[np.flatnonzero(np.bincount(progress[0]))]),
            residual_norm=float(residuals[0]) if one else residuals.reshape(batch),
            residual_norms=norms[:, 0] if one else norms.reshape(len(norms), *batch),
            iterations=int(progress[1, 0]) if one else progress[1].astype(int).reshape(batch),
            restarts=int(restarts[0]) if one else restarts.astype(int).reshape(batch),
            applications=system.applications + int(scalars[:, Field.PRODUCTS].max(initial=0)),
            preconditioner_applications=system.preconditioner_applications,
            statuses=None if one else statuses.reshape(batch),
        )

    def _judge_tiny(
        self, system: LinearSystem, progress: Any, scalars: Any, limits: SolveLimits
    ) -> None:
        """Measure residuals again whose squares were lost beside b or the first residual.

        Such a system may have been taken for solved: it has stagnated where it is not. Without
        iterations and with a norm of b that is zero, b is.
        """
        solved = progress[0] == Progress.CONVERGED
        which = np.flatnonzero(self._lost(progress, scalars) & solved)
        if not which.size:
            return
        lengths = self._norms(system.b, which)
        # of several systems, the residuals of those that ended before are not kept
        if self._space.systems > 1:
            left = self._measured_residual(system)
        else:
            left = self._checked_residual() if progress[1, 0] else self._residual
        norms = scalars[which, Field.RESIDUAL] = self._norms(left, which)
        bounds = np.maximum(limits.rtol * lengths, limits.atol)
        progress[0, which[norms > bounds]] = Progress.STAGNATED

    def _lost(self, progress: Any, scalars: Any) -> Any:
        """Return of which systems the squares of residuals may have underflowed."""
        minimum = _MIN_MEASURABLE_RESIDUAL[self.dtype.char.lower()] * math.sqrt(
            max(self._unknowns, 1)
        )
        tiny = scalars[:, Field.RESIDUAL] < minimum * scalars[:, Field.UNIT]
        return tiny & ((progress[1] > 0) | (scalars[:, Field.NORM_B] > 0))

    def _norms(self, vectors: Vector, which: Any) -> Any:
        """Return the norms of some systems' vectors."""
        rows = vectors.reshape(self._space.systems, self.size)
        return norms_over(self._ranks, rows[which])

    def _measured_residual(self, system: LinearSystem) -> Vector:
        """Return b - A x of all systems, where the passes have it."""
        left = self._residual
        system.apply(self._solution, left)
        np.subtract(system.b, left, out=left)
        return left
