"""Explicit Runge-Kutta methods, for any tableau."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from batchkron.functions.vector_sum import linear_combination

from ..krylov.systems.result import KrylovResult
from ..protocols import TimeProblem
from .embedded import EmbeddedStepper
from .passes import SLOPES, StepPasses, dense_passes, tableau_passes, tableau_terms
from .step_runner import StepRunner, StepTimes
from .tableau import Tableau


class RungeKutta(EmbeddedStepper):
    """u_next = u + dt Σ_i b_i k_i, k_i = f(t + c_i dt, u + dt Σ_{j<i} a_ij k_j).

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step.

    Notes
    -----
    Storage: a vector for each stage and 1 besides u, 2 where the error estimate is wanted and not
    only its norm. If the last stage is the first one of the next step (FSAL), an accepted step
    saves one evaluation of f. After a rejected step, f is not evaluated again at the beginning of
    the step.
    """

    works_on_ranks = True
    tableau: ClassVar[Tableau]

    def __init__(self, problem: TimeProblem, dt: float) -> None:
        super().__init__(problem, dt)
        self._slopes = [self._vector() for _ in range(self.stages)]
        results = 2 if self.tableau.second_embedded is None else 3
        self._runner = StepRunner(problem, self._slopes[0], self.products, results)
        self._first_is_last = self.tableau.first_is_last
        self._has_error = self.tableau.embedded is not None
        self._kinds: dict[tuple[bool, bool, bool], StepPasses] = {}
        self._known: float | None = None
        self._times = StepTimes(0.0, 0.0, 0.0)  # of the last attempt
        self._dense: tuple[StepPasses, list[NDArray[Any]]] | None = None
        self._has_dense_stages = False  # of the last attempt

    def step(self, u: NDArray[Any], t: float, t_next: float) -> KrylovResult | None:
        """Advance ``u`` in place from t to t_next; return None."""
        self.restart()  # u may differ from the end of the last step
        self.take(u, [StepTimes(t, t_next, self.dt)])
        return None

    def restart(self) -> None:
        """Forget f at the end of the last step."""
        self._known = None

    def take(
        self, u: NDArray[Any], steps: Sequence[StepTimes], work: NDArray[Any] | None = None
    ) -> None:
        """Advance ``u`` in place by steps, without waiting for a device."""
        works, stage = [], self._stage_vector() if work is None else work
        for times in steps:
            works.append((*self._passes(u, stage, times, in_place=True), times))
            self._end = times.t_next
            self.accept()
        self._runner.run(works, self.measures)

    def attempt(
        self, u: NDArray[Any], t: float, t_next: float, dt: float, out: NDArray[Any]
    ) -> None:
        """Compute the state at t_next from ``u`` (N,) into another array ``out``; set `error`."""
        times = StepTimes(t, t_next, dt)
        passes = self._passes(u, out, times, in_place=False)
        self._runner.run([(*passes, times)], self.measures)
        self._known, self._end = t, t_next
        self._times, self._has_dense_stages = times, False

    def _passes(
        self, u: NDArray[Any], out: NDArray[Any], times: StepTimes, *, in_place: bool
    ) -> tuple[StepPasses, list[Any]]:
        """Return the passes of a step and its vectors."""
        knows_first = self._known == times.t
        estimates = self._has_error and self.estimates and not in_place
        kind = in_place, knows_first, estimates
        if kind not in self._kinds:
            self._kinds[kind] = tableau_passes(
                self.tableau, in_place=in_place, knows_first=knows_first, estimates=estimates
            )
        if estimates and not self.measures and self.error is None:
            self.error = self._vector()
            if self.tableau.second_embedded is not None:
                self.second_error = self._vector()
        error = out if self.error is None else self.error  # of the former, nothing is written
        second = out if self.second_error is None else self.second_error
        return self._kinds[kind], [u, out, error, *self._slopes, second]

    @property
    def is_faster_ahead(self) -> bool:
        """Whether several steps of `take` are faster than single ones."""
        return self._runner.is_faster_ahead

    def squares(self) -> NDArray[np.float64] | None:
        """Return (‖u_next‖², ‖error‖², …) of the last steps, if `measures`."""
        return self._runner.squares() if self.measures else None

    def square(self, u: NDArray[Any]) -> float | None:
        """Return ‖u‖² as `squares` gives it, if `measures`."""
        return self._runner.square(u) if self.measures else None

    def accept(self) -> None:
        """Accept the last attempt; its last slope may be the first one of the next step."""
        if self._first_is_last:
            self._slopes[0], self._slopes[-1] = self._slopes[-1], self._slopes[0]
            self._known = self._end
        else:
            self._known = None

    @property
    def dense_degree(self) -> int:
        """The degree in θ of the tableau's continuous weights, or of cubic interpolation."""
        return 3 if self.tableau.dense is None else int(self.tableau.dense.shape[1])

    def interpolate(self, u: NDArray[Any], theta: float, out: NDArray[Any]) -> bool:
        """Write the state at t + θ dt with the tableau's continuous weights, if it has them."""
        if self.tableau.dense is None:
            return False
        if self.tableau.more_stages and not self._has_dense_stages:
            self._evaluate_dense_stages(u)
        powers = theta ** np.arange(1, self.tableau.dense.shape[1] + 1)
        self._runner.sum_of(tableau_terms(self.tableau.dense @ powers), out, base=u)
        return True

    def _evaluate_dense_stages(self, u: NDArray[Any]) -> None:
        """Evaluate the stages that only the solution inside the last attempt, from ``u``, needs."""
        if self._dense is None:
            more = [self._vector() for _ in range(self.tableau.more_stages + 1)]
            self._dense = dense_passes(self.tableau), more
        passes, (stage, *more) = self._dense
        self._runner.run([(passes, [u, stage, stage, *self._slopes, *more], self._times)], False)
        self._has_dense_stages = True

    def end_slope(self) -> NDArray[Any] | None:
        """Return f at the end of the step if it is the last stage's slope, else None.

        The next call overwrites it.
        """
        if not self._first_is_last:
            return None
        return self._runner.whole_slope(SLOPES + self.stages - 1)


def combine(
    u: NDArray[Any] | None,
    weights: Sequence[float] | NDArray[Any],
    vectors: Sequence[NDArray[Any]],
    out: NDArray[Any],
    work: NDArray[Any],
) -> None:
    """Write u + Σ_i weights[i] vectors[i] into ``out``; on the CPU in one pass over memory.

    ``u`` (ndarray, shape (N,), or None): the first summand, which must not be ``out``; None stands
      for zero.
    ``weights``: the factors; vectors with factor 0 are not read.
    ``vectors`` (sequence of ndarray, shape (N,)): at least as many vectors as factors.
    ``out``, ``work`` (ndarray, shape (N,)): overwritten with the result, and with intermediate
      values.
    """
    used = [(float(w), vector) for w, vector in zip(weights, vectors, strict=False) if w != 0.0]
    if u is not None:
        used.insert(0, (1.0, u))
    if used:
        linear_combination([w for w, _ in used], [v for _, v in used], out, scratch=work)
    else:
        out[...] = 0.0
