"""One solve: how it begins, goes on and ends.

A recursion is a recursion: it begins from a true residual b - A x and iterates until it has an
estimate of the residual that is small enough, or cannot go on. Then the true residual is computed,
and either ends the solve or begins the next recursion. What passes over vectors find is in the
memory of a device; `Solve._steps_until_look` says how many iterations are done before the host
looks at it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...products import Vector, norms_over
from ..systems.limits import SolveLimits
from ..systems.result import KrylovResult, Status, worst_of
from ..systems.system import LinearSystem
from ..vectors.space import Field, Progress
from .recordings import IterationCounts, Recordings
from .recursion import Recursion
from .residual_history import ResidualHistory
from .verified_iterates import VerifiedIterates

_ITERATIONS_PER_CHECK = 8  # at most, on a device, between two readings of its status
_ITERATIONS_PER_CHECK_SMALL = 16  # the same where reading takes as long as several iterations
_SMALL_UNKNOWNS = 1 << 18  # of all systems together, up to which that is so
_MAX_AHEAD = 32  # iterations that are done at once with the check; chosen by hand
_MIN_CAPTURED_ITERATIONS = 2  # number of iterations from which capturing a CUDA graph pays
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


class Solve:
    """A solve of linear systems by a method's recursion.

    ``x0`` (array_like, "Mb" or None): as for the method's function.
    ``recordings``: those of a device with the system's operators.
    ``counts``: of the solves before; this one is added to them.
    """

    def __init__(
        self,
        recursion: Recursion,
        system: LinearSystem,
        x0: Any,
        limits: SolveLimits,
        recordings: Recordings | None,
        counts: IterationCounts,
    ) -> None:
        self._recursion, self._space = recursion, recursion.space
        self._system, self._x0, self._limits = system, x0, limits
        recursion.confirms = limits.confirms
        self._recordings, self._counts = recordings, counts
        self._launch = None if recordings is None else recordings.launch
        self._address = self._space.address(system.b)  # graphs have it
        self._done = 0  # iterations
        # a power of two, for few graphs; others' operators may be slow
        self._expected = 1 << counts.latest.bit_length() >> 1 if system.recordable else 0

    def run(self) -> None:
        """Iterate until the true residual of every system has ended it."""
        recursion, space = self._recursion, self._space
        guessed = self._first_residual()
        ahead = 0 if guessed else self._first_cycle()
        self._check_untried(guessed)
        first = space.field(Field.NORM_B if ahead else Field.RESIDUAL)
        self._history = history = ResidualHistory(space, first)
        self._verified = VerifiedIterates(first, partial(self._system.initial_guess, self._x0))
        if self._limits.callback and space.systems:
            self._limits.norm_b = float(space.field(Field.NORM_B)[0])
        running = space.running()
        if ahead:
            history.take()
            if running and space.field(Field.RESTARTS)[0]:
                recursion.go_on()
                ahead = 0
        while running:
            self._recur(ahead)
            ahead = 0
            space.changed()
            running = space.running(recursion.check(self._system))
            if running and not recursion.never_worse:
                self._verified.compare(recursion.x, space.field(Field.RESIDUAL))
            history.take()
            self._limits.cycle_ended(self._system.seen(recursion.x))

    def _first_residual(self) -> bool:
        """Write the initial guess and its residual, and set the limits of the solve.

        Return whether the guess may be anything but zero.
        """
        recursion, system, limits = self._recursion, self._system, self._limits
        guessed = system.initial_guess(self._x0, recursion.x)
        if guessed:
            system.apply(recursion.x, recursion.residual)
        else:
            recursion.residual.fill(0.0)
        recursion.point_at(system.b, self._address)
        recursion.start.set(
            rtol=limits.rtol,
            atol=limits.atol,
            max_iterations=limits.max_iterations,
            max_cycles=limits.max_cycles,
        )
        recursion.measured = not recursion.measures
        recursion.start.run()
        self._space.changed()
        return guessed

    def _first_cycle(self) -> int:
        """On a device do as many iterations as the last solves took, and the check, at once.

        They are one graph after a few solves, and nothing is read in between: passes over a system
        that has stopped change nothing.

        Returns the number of iterations, 0 if it is not known or too large.
        """
        recursion, system = self._recursion, self._system
        if not (recursion.checks_ahead and recursion.confirms) or self._recordings is None:
            return 0
        if self._limits.callback is not None or self._space.systems > 1:
            return 0
        count = int(min(max(self._counts.at(self._address), default=0), recursion.max_steps))
        if not 0 < count <= _MAX_AHEAD:
            return 0

        def work() -> None:
            recursion.begin(system)
            recursion.iterate(system, range(count))
            recursion.check(system, count)

        self._repeat(("cycle", count, recursion.measured, self._address), work)
        self._space.changed()
        self._done = count
        self._expected = 0
        return count

    def _check_untried(self, guessed: bool) -> None:
        """End systems that zero seems to solve, without a product with A, and A has NaN there."""
        if not self._limits.confirms:
            return
        space, x = self._space, self._recursion.x
        progress = space.progress()
        untried = (progress[0] == Progress.CONVERGED) & (progress[1] == 0)
        if guessed and untried.any():  # where b is zero, so is x
            untried &= space.field(Field.NORM_B) == 0
        if not untried.any():
            return
        product = space.module.empty_like(x)
        self._system.apply(x, product)
        space.spoil(np.flatnonzero(untried & ~np.isfinite(self._norms(product, slice(None)))))

    def _recur(self, begun: int) -> None:
        """Iterate from the true residual until every system stops.

        Of a recursion that was begun by `_first_cycle`, ``begun`` iterations are done already.
        """
        recursion, system, space = self._recursion, self._system, self._space
        step, unread = begun, 0
        left = -1 if begun else recursion.begin(system)
        while True:
            count = self._steps_until_look(step, begun)
            if unread + count > space.rows:
                self._history.take()
                unread = 0
            space.changed()
            together = count >= _MIN_CAPTURED_ITERATIONS
            if together and self._launch is not None:
                self._launch.set_count(count)
                left = self._launch.run()
            elif together and self._recordings is not None:
                self._repeat_iterations(range(step, step + count))
            else:
                left = recursion.iterate(system, range(step, step + count))
            step += count
            unread += count
            self._done += count
            if self._limits.callback is not None and self._history.take():
                seen = system.seen(recursion.x)
                self._limits.iteration_ended(self._history.latest(), seen)
            if step == recursion.max_steps or space.running(left) == 0:
                break

    def _repeat_iterations(self, steps: range) -> None:
        """Do iterations on a device that have a graph after a few times."""
        recursion = self._recursion

        def work() -> None:
            recursion.iterate(self._system, steps)

        self._repeat((recursion.step_key(steps.start), len(steps), recursion.measured), work)

    def _repeat(self, key: Any, work: Callable[[], None]) -> None:
        """Do work that takes the first product's unit unless that is known."""
        assert self._recordings is not None
        if self._recordings.run(self._system, key, work):
            self._recursion.measured = True

    def _steps_until_look(self, step: int, begun: int) -> int:
        """Return how many iterations to do before looking at what became of the systems."""
        recursion, space, limits = self._recursion, self._space, self._limits
        maximum = recursion.max_steps - step
        if begun and self._launch is None and maximum:
            return int(min(max(1, begun // 4), maximum, space.rows))
        if limits.callback is not None:
            return 1
        on_host = space.module is np
        if on_host or self._launch is not None:
            # passes say how many systems run, or each system how many iterations it does
            return int(min(space.rows, maximum)) if recursion.measured or on_host else 1
        if space.systems * space.size <= _SMALL_UNKNOWNS:
            count = min(max(self._done, self._expected), _ITERATIONS_PER_CHECK_SMALL)
        else:
            count = min(self._done, _ITERATIONS_PER_CHECK)
        count = max(1, count)
        if step == self._done:  # more would change nothing
            maximum = min(maximum, max(limits.max_iterations - step, 1))
            count = int(min(count, maximum))
        return int(maximum) if maximum <= 1.5 * count else count

    # Its result.

    def result(self, out: Vector | None) -> KrylovResult:
        """Copy x out of the workspace, and say how each system ended."""
        progress, scalars = self._verdict()
        system, x = self._system, self._system.seen(self._recursion.x)
        if out is None:
            out = x.copy()
        else:
            np.copyto(out, x)
        one, batch = system.batched is None, self._space.shape[:-1]
        residuals, norms = scalars[:, Field.RESIDUAL].copy(), self._history.norms()
        failed = np.flatnonzero(progress[0] != Progress.CONVERGED)
        norms[progress[1, failed], failed] = residuals[failed]
        statuses, restarts = _BY_CODE[progress[0]], scalars[:, Field.RESTARTS]
        products = int(scalars[:, Field.PRODUCTS].max(initial=0))  # of iterations in a launch
        return KrylovResult(
            x=out,
            status=worst_of(_BY_CODE[np.flatnonzero(np.bincount(progress[0]))]),
            residual_norm=float(residuals[0]) if one else residuals.reshape(batch),
            residual_norms=norms[:, 0] if one else norms.reshape(len(norms), *batch),
            iterations=int(progress[1, 0]) if one else progress[1].astype(int).reshape(batch),
            restarts=int(restarts[0]) if one else restarts.astype(int).reshape(batch),
            applications=system.applications + products,
            preconditioner_applications=system.preconditioner_applications,
            statuses=None if one else statuses.reshape(batch),
        )

    def _verdict(self) -> tuple[Any, Any]:
        """Return the progress and the scalars of all systems, and the best verified iterates in x.

        Residuals, of the scalars, are those of x.
        """
        recursion, system = self._recursion, self._system
        progress, scalars = self._space.progress(), self._space.scalars()
        self._counts.latest = int(progress[1].max(initial=0))
        self._counts.at(self._address).append(self._counts.latest)
        self._judge_tiny(progress, scalars)
        failed = np.flatnonzero(progress[0] != Progress.CONVERGED)
        if failed.size:
            recursion.recognise(system, progress, scalars)
            settled = progress[0] == Progress.LEAST_SQUARES if system.preconditioned else None
            residuals = scalars[:, Field.RESIDUAL]
            if self._verified.restore(recursion.x, residuals, settled).any():
                recursion.recognise(system, progress, scalars)
            lost = failed[self._lost(progress, scalars)[failed]]
            if lost.size:
                residuals[lost] = self._norms(recursion.measured_residual(system), lost)
        return progress, scalars

    def _judge_tiny(self, progress: Any, scalars: Any) -> None:
        """Measure residuals again whose squares were lost beside b or the first residual.

        Such a system may have been taken for solved: it has stagnated where it is not. Without
        iterations and with a norm of b that is zero, b is.
        """
        recursion, limits = self._recursion, self._limits
        solved = progress[0] == Progress.CONVERGED
        which = np.flatnonzero(self._lost(progress, scalars) & solved)
        if not which.size:
            return
        lengths = self._norms(self._system.b, which)
        # of several systems, the residuals of those that ended before are not kept
        if self._space.systems > 1:
            left = recursion.measured_residual(self._system)
        else:
            left = recursion.checked_residual() if progress[1, 0] else recursion.residual
        norms = scalars[which, Field.RESIDUAL] = self._norms(left, which)
        bounds = np.maximum(limits.rtol * lengths, limits.atol)
        progress[0, which[norms > bounds]] = Progress.STAGNATED

    def _lost(self, progress: Any, scalars: Any) -> Any:
        """Return of which systems the squares of residuals may have underflowed."""
        minimum = _MIN_MEASURABLE_RESIDUAL[self._space.dtype.char.lower()]
        minimum *= math.sqrt(max(self._limits.unknowns, 1))
        tiny = scalars[:, Field.RESIDUAL] < minimum * scalars[:, Field.UNIT]
        return tiny & ((progress[1] > 0) | (scalars[:, Field.NORM_B] > 0))

    def _norms(self, vectors: Vector, which: Any) -> Any:
        """Return the norms of some systems' vectors."""
        rows = vectors.reshape(self._space.systems, self._space.size)
        return norms_over(self._space.ranks, rows[which])
