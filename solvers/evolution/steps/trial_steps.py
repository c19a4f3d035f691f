"""The state of a run, and trial steps from it, which are computed before they are accepted."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import is_plain
from batchkron.errors import NotPhysicalError
from batchkron.functions.vector_sum import linear_combination

from ...krylov.systems.result import KrylovResult
from ...krylov.vectors.ranks import Ranks, any_over, dot_over, norm_over, sum_over
from ...products import Vector
from ...steppers.embedded import EmbeddedStepper
from ...steppers.passes import Norm
from ...steppers.step_runner import StepTimes
from ...steppers.stepper import Stepper

__all__ = ["TrialSteps"]

_MIN_SHARED_COPY = 1 << 15  # elements from which a copy takes longer than a call; chosen by hand


class TrialSteps:
    """A state, and a method that computes the end of a step from it.

    An `EmbeddedStepper` writes the end of a step to a second vector, which becomes the state by
    `accept`. Other methods overwrite the state, so that all their steps are accepted.

    ``stepper``: the method.
    ``u`` (ndarray, shape (N,)): the first state, overwritten by the steps.
    ``estimates``: whether the error of each step is to be estimated, if the method can.
    ``ranks``: the ranks that share the state.
    ``u`` (ndarray, shape (N,)): the state at the beginning of a trial step.
    ``end`` (ndarray, shape (N,)): the state at its end; ``u`` itself if the method works in place.
    ``in_place``: whether the method overwrites the state.
    ``size``: ‖u‖₂.
    ``takes_several``: whether it saves time to take several steps before looking at any of them.
    ``not_physical``: the error by which the right-hand side ended the last trial step.
    """

    def __init__(
        self, stepper: Stepper, u: Vector, *, estimates: bool, ranks: Ranks | None = None
    ) -> None:
        self._stepper, self._ranks, self._estimates = stepper, ranks, estimates
        self._embedded = stepper if isinstance(stepper, EmbeddedStepper) else None
        self.in_place = self._embedded is None
        self.u, self.end = u, u
        self._size: float | None = None
        self._end_size = math.nan
        self.not_physical: NotPhysicalError | None = None
        stepper.measures = is_plain(u)
        self.takes_several = stepper.measures and stepper.is_faster_ahead
        if self._embedded is not None:
            self._embedded.estimates = estimates
            self.end = np.empty_like(u)
        self._saved: Vector | None = None
        self._squares: NDArray[np.float64] | None = None  # of norms, found by the last trial step
        limits = np.finfo(u.dtype)
        self._least = float(limits.tiny) / float(limits.eps)  # square that has not underflowed

    @property
    def size(self) -> float:
        """‖u‖₂, where that is found without another pass over u."""
        if self._size is None:
            self._size = norm_over(self._ranks, self.u)
        return self._size

    def attempt(self, step: StepTimes) -> tuple[float, KrylovResult | None]:
        """Compute the end of a step.

        ``step``: the step to try.

        Returns ``size``: ‖end‖₂; NaN if the state is not finite or not physical, or a solve failed;
        ``failed``: the failed linear solve, if there was one.
        """
        self.not_physical = None
        if self._size is None and self._estimates:  # of a resumed run, with the bits of the first
            square = self._stepper.square(self.u)
            if square is None:
                square = dot_over(self._ranks, self.u, self.u).real
            else:
                square = float(sum_over(self._ranks, np.array([square]))[0])
            self._size = self._root(square, self.u)
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                if self._embedded is None:
                    failed = self._stepper.step(self.u, step.t, step.t_next)
                else:
                    failed = self._embedded.attempt(self.u, step.t, step.t_next, step.dt, self.end)
            except NotPhysicalError as error:
                self.not_physical = error
                return math.nan, None
            self._squares = self._found_squares() if failed is None else None
            self._end_size = self._norm(self.end, Norm.END) if failed is None else math.nan
            return self._end_size, failed

    def error_size(self) -> float:
        """Return ‖e‖₂ of the estimated error e of the last trial step.

        With a second estimate e₂, of lower order, it is ‖e‖² / (‖e‖² + 0.01 ‖e₂‖²)^½. Source:
        E. Hairer, S. P. Nørsett, G. Wanner, Solving Ordinary Differential Equations I,
        section II.10.
        """
        own = self._embedded
        assert own is not None
        if own.error is not None:
            first = self._norm(own.error, Norm.ERROR)
            if own.second_error is None:
                return first
            second = self._norm(own.second_error, Norm.SECOND_ERROR)
        else:
            assert self._squares is not None  # of double precision; below 1e-162 the norm is 0
            first, *rest = (math.sqrt(square) for square in self._squares[-1, Norm.ERROR :])
            if not rest:
                return first
            second = rest[0]
        size = math.hypot(first, 0.1 * second)
        return first if size == 0.0 else first * (first / size)

    def accept(self) -> None:
        """Make the end of the last trial step the state."""
        if self._embedded is not None:
            _copy(self.end, self.u)
            self._embedded.accept()
        self._size = self._end_size

    def take_several(self, steps: Sequence[StepTimes]) -> list[float] | None:
        """Take steps one after the other without looking at what is between them.

        ``steps``: at most `MAX_STEPS`, of which the first one begins with the state.

        Result: ‖u‖₂ at the ends of the steps. None if they have to be taken one by one to see what
        becomes of them: then the state is as before.
        """
        if self._saved is None:
            self._saved = np.empty_like(self.u)
        _copy(self.u, self._saved)
        squares = None
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                self._stepper.take(self.u, steps, self.end)
                squares = self._found_squares()
        except NotPhysicalError:
            pass
        finally:
            if squares is None or not all(map(self._is_usual, squares[:, Norm.END].tolist())):
                self.undo()
                squares = None
        if squares is None:
            return None
        sizes = [math.sqrt(square) for square in squares[:, Norm.END].tolist()]
        self._size = sizes[-1]
        return sizes

    def _found_squares(self) -> NDArray[np.float64] | None:
        """Return what the stepper's `squares` returns, of whole vectors; ranks add theirs up."""
        squares = self._stepper.squares()
        if squares is None or self._ranks is None:
            return squares
        return sum_over(self._ranks, squares.flatten()).reshape(squares.shape)

    def undo(self) -> None:
        """Return to the state before `take_several`."""
        assert self._saved is not None
        _copy(self._saved, self.u)
        self._stepper.restart()
        self._size = None

    def _is_usual(self, square: float) -> bool:
        """Whether the square of a norm has neither overflowed nor underflowed."""
        return self._least < square < math.inf

    def _norm(self, vector: Vector, place: int) -> float:
        """Return ‖v‖₂, NaN if v is not finite; a single pass unless the squares overflow."""
        squares, ranks = self._squares, self._ranks
        if squares is None:
            square = dot_over(ranks, vector, vector).real
        else:
            square = float(squares[-1, place])
        return self._root(square, vector)

    def _root(self, square: float, vector: Vector) -> float:
        """Return ‖v‖₂ from its square, or from v where that has over- or underflowed."""
        ranks = self._ranks
        if self._is_usual(square) or square == 0.0:
            return math.sqrt(square)
        if any_over(ranks, not np.isfinite(vector).all()):
            return math.nan
        return min(norm_over(ranks, vector), sys.float_info.max)


def _copy(source: Vector, target: Vector) -> None:
    """Copy a vector, a long one on the CPU by as many threads as sums of vectors have."""
    if type(source) is np.ndarray and source.size >= _MIN_SHARED_COPY:
        linear_combination([1.0], [source], target)
    else:
        target[...] = source
