"""What all Krylov methods share: how a solve begins, goes on and ends."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.array_kinds import any_foreign
from batchkron.arrays import as_array, device_errors

from ...products import Vector
from ..systems.foreign_arrays import refuse_foreign, solve_in_kind
from ..systems.layouts import as_systems, from_systems
from ..systems.limits import SolveLimits
from ..systems.result import WORST_FIRST, KrylovResult, Status
from ..systems.system import LinearSystem, check_tolerances
from ..vectors.ranks import norms_over
from ..vectors.space import (
    Field,
    Progress,
)
from .residual_history import ResidualHistory
from .verified_iterates import VerifiedIterates
from .workspace import MethodWorkspace

_ITERATIONS_PER_CHECK = 8  # at most, on a device, between two readings of its status
_ITERATIONS_PER_CHECK_SMALL = 16  # the same where reading takes as long as several iterations
_SMALL_UNKNOWNS = 1 << 18  # of all systems together, up to which that is so
_MAX_AHEAD = 32  # iterations that are done at once with the check; chosen by hand
_MIN_CAPTURED_ITERATIONS = 2  # number of iterations from which capturing a CUDA graph pays
# Residual / √N in units of the recursion, below which squares of entries may have underflowed.
_MIN_MEASURABLE_RESIDUAL = {"d": 1e-140, "f": 1e-30}

_CONVERGED = int(Progress.CONVERGED)
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


class KrylovMethod(MethodWorkspace):
    """A method with its workspace, kept from solve to solve.

    Parameters
    ----------
    size : int, or operator of shape (N, N)
        N, the number of unknowns; or A, for calls of the object with b alone.
    dtype : dtype_like, optional
        float32, float64, complex64 or complex128: float64, or A's own, by default.
    like : ndarray, optional
        Where the vectors are: NumPy's by default, or those of the device of a CuPy array; where
        A is, if it is given.
    M : operator, optional
        The preconditioner of calls with b alone.
    batched : {None, "columns", "leading"}
        The layout of right-hand sides: (N,), (N, K) or (..., N).

    Raises
    ------
    ValueError
        If ``size`` < 0, or a layout is unknown.
    TypeError
        If it is not an integer, or the dtype is not one of the four.
    """

    # What a method says of itself.

    _max_steps: int | float = math.inf  # of a recursion, before the true residual is computed
    _never_worse = False  # whether an iterate is taken over only if its true residual is less
    _checks_ahead = False  # whether `_check` may be called while a system is running

    def _checked_residual(self) -> Vector:
        """Return the residual that `_check` has computed."""
        return self._residual

    def _go_on(self) -> None:
        """After `_check` with ``_checks_ahead``: bring the residual to where a cycle begins."""

    def _begin(self, system: LinearSystem) -> int:
        """Begin from the true residual; return what the last pass did."""
        return self._scale.run()

    @abstractmethod
    def _iterate(self, system: LinearSystem, step: int) -> int:
        """Do iteration ``step`` since `_begin`; return what the last pass did."""

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
        limits = SolveLimits(maxiter, callback)
        return self._solve(A, b, x0, M, (rtol, atol), limits, out, raise_on_failure)

    def _solve(
        self,
        A: Any,
        b: Any,
        x0: Any,
        M: Any,
        tolerances: tuple[float, float],
        limits: SolveLimits,
        out: Vector | None,
        raise_on_failure: bool,
    ) -> KrylovResult:
        """Solve; the arguments are those of a method's own `solve`."""
        if type(b) is not np.ndarray and any_foreign(b):

            def native_solve(A: Any, b: Any, x0: Any, M: Any, out: Any = None) -> KrylovResult:
                return self._solve(A, b, x0, M, tolerances, limits, out, raise_on_failure)

            return solve_in_kind(native_solve, A, b, x0, M, out)
        check_tolerances(*tolerances)
        ignored = np.errstate(over="ignore", invalid="ignore", divide="ignore")
        with self._one_at_a_time(), device_errors(), ignored:
            given = as_systems(b, "b", self.batched, self.dtype, self._arrays)
            rows = self._arrays.ascontiguousarray(given)
            if self._arrays is np and not rows.flags.aligned:
                rows = rows.copy()
            system = LinearSystem(A, rows, M)
            self._check_ranks(A)
            space = self._workspace(rows, system.preconditioned)
            self._check_out(out, b)
            self._prepare_recorder(space, system)
            limits.begin_solve(self._unknowns)
            guessed = self._first_residual(system, x0, tolerances, limits)
            ahead = 0 if guessed else self._first_cycle(system, limits)
            self._check_untried(system, guessed)
            first = space.field(Field.NORM_B if ahead else Field.RESIDUAL)
            history = ResidualHistory(space, first)
            verified = VerifiedIterates(
                first,
                lambda out: system.initial_guess(x0, out, self.batched),
            )
            limits.norm_b = float(space.field(Field.NORM_B)[0]) if limits.callback else 1.0
            running = space.running()
            if ahead:
                history.take()
                if running and space.field(Field.RESTARTS)[0]:
                    self._go_on()
                    ahead = 0
            while running:
                self._sweep(system, limits, history, ahead)
                ahead = 0
                space.changed()
                running = space.running(self._check(system))
                if running and not self._never_worse:
                    verified.compare(self._solution, space.field(Field.RESIDUAL))
                history.take()
                limits.cycle_ended(self._solution, self.batched)
            return self._result(system, history, verified, out, raise_on_failure, tolerances)

    def _first_residual(
        self, system: LinearSystem, x0: Any, tolerances: tuple[float, float], limits: SolveLimits
    ) -> bool:
        """Write the initial guess and its residual, and set the limits of the solve.

        Return whether the guess may be anything but zero.
        """
        assert self._space is not None
        guessed = system.initial_guess(x0, self._solution, self.batched)
        if guessed:
            system.apply(self._solution, self._residual)
        else:
            self._residual.fill(0.0)
        self._point_at(system.b, self._space.address(system.b))
        self._start.set(
            rtol=tolerances[0],
            atol=tolerances[1],
            max_iterations=limits.max_iterations,
            max_cycles=limits.max_cycles,
        )
        self._measured = not self._measures
        self._done = 0
        # a power of two, for few graphs; others' operators may be slow
        self._expected_iterations = 1 << self._taken.bit_length() >> 1 if system.recordable else 0
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
        space = self._space
        assert space is not None
        address = space.address(system.b)  # graphs have it
        count = int(min(max(self._recent(address), default=0), self._max_steps))
        if not (self._checks_ahead and self._recorder is not None and system.recordable):
            return 0
        if limits.callback is not None or space.systems > 1 or not 0 < count <= _MAX_AHEAD:
            return 0

        def work() -> None:
            self._begin(system)
            for step in range(count):
                self._iterate(system, step)
            self._check(system, count)

        self._repeat(system, ("cycle", count, self._measured, address), work)
        space.changed()
        self._done = count
        self._expected_iterations = 0
        return count

    def _check_untried(self, system: LinearSystem, guessed: bool) -> None:
        """End systems that zero seems to solve, without a product with A, and A has NaN there."""
        space = self._space
        assert space is not None
        progress = space.progress()
        untried = (progress[0] == Progress.CONVERGED) & (progress[1] == 0)
        if guessed and untried.any():  # where b is zero, so is x
            untried &= space.field(Field.NORM_B) == 0
        if not untried.any():
            return
        product = self._arrays.empty_like(self._solution)
        system.apply(self._solution, product)
        space.spoil(np.flatnonzero(untried & ~np.isfinite(self._norms(product, slice(None)))))

    def _sweep(
        self, system: LinearSystem, limits: SolveLimits, history: ResidualHistory, first: int = 0
    ) -> None:
        """Iterate from the true residual, or iteration ``first``, until every system stops."""
        assert self._space is not None
        space, step = self._space, first
        left = -1 if first else self._begin(system)
        untaken = 0
        while True:
            count = max(1, first // 4) if first and self._iterations is None else 0
            count = min(count, int(min(self._max_steps - step, space.rows))) or self._block(
                step, limits
            )
            if untaken + count > space.rows:
                history.take()
                untaken = 0
            space.changed()
            if count >= _MIN_CAPTURED_ITERATIONS and self._iterations is not None:
                self._iterations.set_count(count)
                left = self._iterations.run()
                step += count
            elif (
                count >= _MIN_CAPTURED_ITERATIONS
                and self._recorder is not None
                and system.recordable
            ):
                self._repeat_iterations(system, step, count)
                step += count
            else:
                for _ in range(count):
                    left = self._iterate(system, step)
                    step += 1
                    if left == 0:
                        break
            untaken += count
            self._done += count
            if limits.callback is not None and history.take():
                limits.iteration_ended(history.latest(), self._solution, self.batched)
            if step == self._max_steps or space.running(left) == 0:
                break

    def _repeat_iterations(self, system: LinearSystem, step: int, count: int) -> None:
        """Do iterations on a device that have a graph after a few times."""

        def work() -> None:
            for k in range(count):
                self._iterate(system, step + k)

        self._repeat(system, (self._step_key(step), count, self._measured), work)

    def _repeat(self, system: LinearSystem, key: Any, work: Callable[[], None]) -> None:
        """Do work that takes the first product's unit unless that is known, and count products."""
        assert self._recorder is not None
        applications = system.applications
        preconditioner_applications = system.preconditioner_applications
        if self._recorder.run(key, work):
            system.applications += self._costs[key][0]
            system.preconditioner_applications += self._costs[key][1]
            self._measured = True
        else:
            self._costs[key] = (
                system.applications - applications,
                system.preconditioner_applications - preconditioner_applications,
            )

    def _block(self, step: int, limits: SolveLimits) -> int:
        """Return how many iterations to do before looking at what became of the systems."""
        assert self._space is not None
        maximum = self._max_steps - step
        if limits.callback is not None:
            return 1
        if self._arrays is np or self._iterations is not None:
            # passes say how many systems run, or each system how many iterations it does
            return (
                int(min(self._space.rows, maximum)) if self._measured or self._arrays is np else 1
            )
        if self._space.systems * self.size <= _SMALL_UNKNOWNS:
            count = max(
                1, min(max(self._done, self._expected_iterations), _ITERATIONS_PER_CHECK_SMALL)
            )
        else:
            count = max(1, min(self._done, _ITERATIONS_PER_CHECK))
        if step == self._done:  # more would change nothing
            maximum = min(maximum, max(limits.max_iterations - step, 1))
            count = int(min(count, maximum))
        return int(maximum) if maximum <= 1.5 * count else count

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

    def _result(
        self,
        system: LinearSystem,
        history: ResidualHistory,
        verified: VerifiedIterates,
        out: Vector | None,
        raise_on_failure: bool,
        tolerances: tuple[float, float],
    ) -> KrylovResult:
        """Copy x out of the workspace, and say how each system ended."""
        space = self._space
        assert space is not None
        progress, scalars = space.progress(), space.scalars()
        self._taken = int(progress[1].max(initial=0))
        self._recent(space.address(system.b)).append(self._taken)
        residuals, restarts = scalars[:, Field.RESIDUAL].copy(), scalars[:, Field.RESTARTS]
        self._judge_tiny(system, progress, residuals, scalars, tolerances)
        failed = np.flatnonzero(progress[0] != _CONVERGED)
        if failed.size:
            self._settle(system, verified, progress, residuals, scalars)
            lost = failed[self._lost(progress, residuals, scalars)[failed]]
            if lost.size:
                residuals[lost] = self._norms(self._measured_residual(system), lost)
        x = from_systems(self._solution, self.batched)
        if out is None:
            target = x.copy()
        else:
            target = out
            np.copyto(target, x)
        statuses = _BY_CODE[progress[0]]
        codes = np.flatnonzero(np.bincount(progress[0])).tolist()
        found = {_STATUS[Progress(code)] for code in codes}
        worst = min(found, key=WORST_FIRST.index, default=Status.CONVERGED)
        batch = space.shape[:-1]
        one = self.batched is None
        norms = history.norms()
        if failed.size:
            norms[progress[1, failed], failed] = residuals[failed]
        result = KrylovResult(
            x=target,
            status=worst,
            residual_norm=float(residuals[0]) if one else residuals.reshape(batch),
            residual_norms=norms[:, 0] if one else norms.reshape(len(norms), *batch),
            iterations=int(progress[1, 0]) if one else progress[1].astype(int).reshape(batch),
            restarts=int(restarts[0]) if one else restarts.astype(int).reshape(batch),
            applications=system.applications + int(scalars[:, Field.PRODUCTS].max(initial=0)),
            preconditioner_applications=system.preconditioner_applications,
            statuses=None if one else statuses.reshape(batch),
        )
        if raise_on_failure and not result.converged:
            self._raise(result, statuses, tolerances)
        return result

    def _settle(
        self,
        system: LinearSystem,
        verified: VerifiedIterates,
        progress: Any,
        residuals: Any,
        scalars: Any,
    ) -> None:
        """Take the best verified iterates for those of systems that did not converge."""
        self._recognise(system, progress, residuals, scalars)
        settled = progress[0] == Progress.LEAST_SQUARES if system.preconditioned else None
        if verified.restore(self._solution, residuals, settled).any():
            self._recognise(system, progress, residuals, scalars)

    def _recognise(self, system: LinearSystem, progress: Any, residuals: Any, scalars: Any) -> None:
        """Say of systems that did not converge what their passes could not know: nothing here."""
        return

    def _judge_tiny(
        self,
        system: LinearSystem,
        progress: Any,
        residuals: Any,
        scalars: Any,
        tolerances: tuple[float, float],
    ) -> None:
        """Measure residuals again whose squares were lost beside b or the first residual.

        Such a system may have been taken for solved: it has stagnated where it is not. Without
        iterations and with a norm of b that is zero, b is.
        """
        assert self._space is not None
        solved = progress[0] == Progress.CONVERGED
        which = np.flatnonzero(self._lost(progress, residuals, scalars) & solved)
        if not which.size:
            return
        lengths = self._norms(system.b, which)
        # of several systems, the residuals of those that ended before are not kept
        if self._space.systems > 1:
            left = self._measured_residual(system)
        else:
            left = self._checked_residual() if progress[1, 0] else self._residual
        residuals[which] = self._norms(left, which)
        bounds = np.maximum(tolerances[0] * lengths, tolerances[1])
        progress[0, which[residuals[which] > bounds]] = Progress.STAGNATED

    def _lost(self, progress: Any, residuals: Any, scalars: Any) -> Any:
        """Return of which systems the squares of residuals may have underflowed."""
        minimum = _MIN_MEASURABLE_RESIDUAL[self.dtype.char.lower()] * math.sqrt(
            max(self._unknowns, 1)
        )
        tiny = residuals < minimum * scalars[:, Field.UNIT]
        return tiny & ((progress[1] > 0) | (scalars[:, Field.NORM_B] > 0))

    def _norms(self, vectors: Vector, which: Any) -> Any:
        """Return the norms of some systems' vectors."""
        assert self._space is not None
        rows = vectors.reshape(self._space.systems, self.size)
        return norms_over(self._ranks, rows[which])

    def _measured_residual(self, system: LinearSystem) -> Vector:
        """Return b - A x of all systems, where the passes have it."""
        left = self._residual
        system.apply(self._solution, left)
        np.subtract(system.b, left, out=left)
        return left

    def _raise(self, result: KrylovResult, statuses: Any, tolerances: tuple[float, float]) -> None:
        failed = sum(status is not Status.CONVERGED for status in statuses)
        which = "The solve" if len(statuses) == 1 else f"{failed} of {len(statuses)} systems"
        raise RuntimeError(
            f"{which} stopped with status '{result.status}' after "
            f"{np.max(result.iterations)} iterations at a residual of "
            f"{np.max(result.residual_norm):.3e}; expected at most max(rtol ‖b‖, atol) with "
            f"rtol = {tolerances[0]:g}, atol = {tolerances[1]:g}. {result.status.advice}"
        )
