"""How errors that are made on the way to exp(A) b grow until its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from batchkron.arrays import array_module

from ..krylov.phi_functions import KrylovPhi, Substep
from ..products import Vector, norm

__all__ = ["ErrorGrowth"]

_RTOL = 0.1  # with which perturbations are propagated
# Errors of a segment are added at its beginning and its end: it is at most this part of the time,
# and the solution grows by at most this factor in it; chosen by hand.
_MAX_SEGMENT, _MAX_GROWTH = 0.125, 30.0


class ErrorGrowth:
    """The error of a march by `KrylovPhi` at its end, from those of its substeps.

    An error made at a time is multiplied by the exponential of what is left, which for operators
    far from normal may grow by far more than the solution does. `bound` takes the largest rate of
    growth that the Krylov spaces have shown, the numerical abscissa, and costs nothing.
    `propagated` marches a random vector of the errors' length, which costs about as many products
    as the march itself, and knows how errors of other directions grow.

    Parameters
    ----------
    end : float
        The time at which the march ends.
    """

    def __init__(self, end: float) -> None:
        self._end = end
        # substeps of w' = (A - shift) w, with their begin, shift and scale: w is w_true exp(-scale)
        self._pieces: list[tuple[float, complex, float, Sequence[Substep]]] = []

    def add(self, begin: float, shift: complex, scale: float, substeps: Sequence[Substep]) -> None:
        """Add a piece of substeps of w' = (A - shift) w, at first w = w_true e^-scale."""
        self._pieces.append((begin, shift, scale, list(substeps)))

    def bound(self, inherited: float = 0.0) -> float:
        """Return the logarithm of a bound of the error, by the largest rate that has been seen.

        ``inherited`` is the length of an error at the beginning.
        """
        rate = max(s.abscissa + shift.real for _, shift, _, own in self._pieces for s in own)
        logs = [_log(inherited) + rate * (self._end - self._pieces[0][0])]
        for begin, shift, scale, substeps in self._pieces:
            left = self._end - begin
            for step in substeps:
                after = scale + shift.real * step.tau
                grown = max(scale + rate * left, after + rate * (left - step.tau))
                logs.append(_log(step.error) + grown)
                logs.append(_log(step.late) + after + rate * (left - step.tau))
                left, scale = left - step.tau, after
        return float(np.logaddexp.reduce(logs))

    def propagated(
        self,
        multiply: Callable[[Vector, complex, Vector], None],
        phi: KrylovPhi,
        like: Vector,
        inherited: float = 0.0,
    ) -> float:
        """Return the logarithm of the length of random errors at the end.

        Parameters
        ----------
        multiply : callable
            ``multiply(x, shift, out)`` writes A x - shift x into out.
        phi : KrylovPhi
            Whose basis is used; made for vectors like this.
        like : ndarray, (N,)
            The result's dtype and size.
        """
        rng = np.random.default_rng(0)
        errors = _random(rng, like, inherited)
        out, scale = array_module(like).empty_like(like), self._pieces[0][2]
        for _, shift, first_scale, substeps in self._pieces:
            errors *= errors.dtype.type(math.exp(min(scale - first_scale, 700.0)))
            scale = first_scale

            def shifted(x: Vector, y: Vector, shift: complex = shift) -> None:
                multiply(x, shift, y)

            for own in self._segments(substeps):
                first = own[0].length
                # what is made later grows for a shorter time: w's growth is taken off
                early = math.hypot(*(s.error / max(1.0, s.length / first) for s in own))
                errors += _random(rng, like, early)
                time = sum(step.tau for step in own)
                scale += shift.real * time
                if not phi.solve(shifted, [errors], time, out, rtol=_RTOL).converged:
                    return math.inf
                errors, out = out, errors
                errors += _random(rng, like, math.hypot(*(max(s.error, s.late) for s in own)))
        return _log(norm(errors)) + scale

    def _segments(self, substeps: Sequence[Substep]) -> Iterator[list[Substep]]:
        """Yield the substeps of a piece, those that follow each other in one list."""
        own: list[Substep] = []
        time = 0.0
        for step in substeps:
            long = time + step.tau > _MAX_SEGMENT * self._end
            if own and (long or step.length > _MAX_GROWTH * own[0].length):
                yield own
                own, time = [], 0.0
            own.append(step)
            time += step.tau
        yield own


def _log(length: float) -> float:
    return math.log(length) if length > 0.0 else -math.inf


def _random(rng: np.random.Generator, like: Vector, length: float) -> Vector:
    """Return a random vector of some length."""
    numbers = rng.standard_normal(like.size)
    if like.dtype.kind == "c":
        numbers = numbers + 1j * rng.standard_normal(like.size)
    numbers *= length / max(float(np.linalg.norm(numbers)), 1e-300)
    return array_module(like).asarray(numbers.astype(like.dtype))  # type: ignore[no-any-return]
