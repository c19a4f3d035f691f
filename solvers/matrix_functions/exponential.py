"""exp(t A) b for one vector b, by a march of Krylov spaces or by the matrix."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from batchkron.arrays import array_module

from ..krylov.phi_functions import MAX_SUBSTEPS, KrylovPhi
from ..krylov.systems.result import Status
from ..products import Vector, dot, norm
from .error_growth import ErrorGrowth
from .result import Outcome, lift_of, of_no_length
from .whole_matrix import MAX_MATRIX, by_matrix

__all__ = ["ROUNDING", "exponential", "limits_of_products"]

_MAX_DECAY = 100.0  # of a vector's length in a piece of time: errors are relative to its beginning
_MAX_GROWTH = 20.0  # its logarithm, in the first piece, by the initial rate; chosen by hand
ROUNDING = 500.0  # errors that are always allowed, in units of ε; chosen by hand
_MAX_PRODUCTS = 2  # for each unknown of few ones, after which the matrix is formed
_MAX_TRIALS = 200  # of the length of pieces, chosen by hand


def exponential(
    product: Callable[[Vector], Vector],
    b: Vector,
    t: complex,
    rtol: float,
    dimension: int,
    mean: complex = 0.0,
    atol: float = 0.0,
    inherited: float = 0.0,
) -> Outcome:
    """Return exp(t A) b for a vector b (N,), with an error of about rtol relative to the result.

    Parameters
    ----------
    product : callable
        Of a vector (N,) with A; it returns an array of its own.
    t : complex
        Real for real vectors.
    dimension : int
        The most Krylov vectors.
    mean : complex
        A mean of the eigenvalues of t A. If its real part is positive, it is the first growth rate
        that is taken out: exp(t A) = exp(μ) exp(t A - μ I).
    atol : float
        Of the error, where that of rtol is smaller.
    inherited : float
        The length of b's error, which adds to that of the result.

    Notes
    -----
    `KrylovPhi` marches over pieces of the time from 0 to 1. Its errors are relative to the length
    at the beginning of a piece. So a piece in which that falls below 1/100 is halved, and after
    each piece the growth rate in it is taken out of t A, so that exponentials of any size have the
    same relative error. `ErrorGrowth` says what the errors of all pieces have become at the end: if
    that is too much, the march is repeated once with a smaller tolerance. Of at most 512 unknowns
    the matrix is formed where that does not do or takes more products. So it is of at most
    ``dimension`` unknowns that grow, or decay so fast that rounding matters.
    """
    size = norm(b)
    if size == 0.0 or not math.isfinite(size):
        return of_no_length(b, size)
    if size < float(np.finfo(b.dtype).tiny) / float(np.finfo(b.dtype).eps):
        lift = lift_of(size, b.dtype)
        lengths = min(atol * lift, 1e300), inherited * lift
        found = exponential(product, b * b.dtype.type(lift), t, rtol, dimension, mean, *lengths)
        return found.times(1.0 / lift)
    eps = float(np.finfo(b.dtype).eps)
    reached = max(rtol, ROUNDING * eps)
    march = _March(product, b * (1.0 / size), t, dimension, mean)
    if len(b) <= dimension and (march.piece < 1.0 or eps * abs(march.growth) > reached):
        whole = by_matrix(product, b, t, reached, atol)
        if whole is not None:
            return whole
    best = Outcome(b * np.nan, math.nan, Status.STAGNATED, march.applications)
    for most in limits_of_products(len(b), dimension):
        found = march.result(rtol, reached, atol, inherited, size, most)
        if found.failure in (None, Status.NOT_FINITE):
            return found
        best = found if not best.error <= found.error else best
        if most < math.inf:
            whole = by_matrix(product, b, t, reached, atol)
            if whole is not None:
                return whole if not best.error <= whole.error else best
            if found.error < math.inf:  # the march has not been cut short
                break
    return best


def limits_of_products(size: int, dimension: int) -> list[float]:
    """Return the most products of one march, and of another one if the matrix does not do."""
    if size > MAX_MATRIX:
        return [math.inf]
    return [max(4 * dimension, _MAX_PRODUCTS * size), math.inf]


def _ratio(length: float, scale: float) -> float:
    """Return length / exp(scale), at most 1e300."""
    return math.exp(min(math.log(length) - scale, 690.0)) if length > 0.0 else 0.0


class _March:
    """w = exp(t A) b e^-scale of a vector b of length 1, piece by piece."""

    def __init__(
        self,
        product: Callable[[Vector], Vector],
        b: Vector,
        t: complex,
        dimension: int,
        mean: complex,
    ) -> None:
        self._product, self._b, self._t = product, b, t
        self._kept = max(2, min(dimension, len(b) + 2))
        self._phi = KrylovPhi(b, dimension=self._kept)
        shift = complex(max(complex(mean).real, 0.0), complex(mean).imag)
        self._shift = shift if b.dtype.kind == "c" else shift.real
        self.growth = (complex(t) * dot(b, product(b))).real - shift.real
        self.piece = min(1.0, _MAX_GROWTH / self.growth) if self.growth > 0 else 1.0
        self._w, self._scale, self._errors = b, 0.0j, ErrorGrowth(1.0)

    @property
    def applications(self) -> int:
        """Products so far, but for the one at the beginning."""
        return self._phi.applications

    def _shifted(self, x: Vector, shift: complex, out: Vector) -> None:
        scalar = x.dtype.type
        np.multiply(self._product(x), scalar(self._t), out=out)
        if shift:
            np.subtract(out, x * scalar(shift), out=out)

    def result(
        self,
        rtol: float,
        reached: float,
        atol: float,
        inherited: float,
        size: float,
        most: float,
    ) -> Outcome:
        """Return the result for a vector of a length ``size``, after at most so many products.

        Its error is NaN if the march does not come to its end.
        """
        local, begun = rtol / _MAX_DECAY, self.applications
        for _ in range(2):
            failure = self._to_end(max(local, 1e-15), begun + most)
            if failure:
                return Outcome(self._b * np.nan, math.nan, failure, self.applications)
            limit = max(reached, _ratio(atol / size, self._scale.real))
            error = self._error(limit, inherited / size)
            smaller = local * limit / (3.0 * error)
            if error <= limit or smaller < np.finfo(self._b.dtype).eps:
                break
            local = smaller
        scalar = self._b.dtype.type
        with np.errstate(over="ignore", under="ignore"):
            half = np.exp(0.5 * (self._scale + math.log(size)))
            half = scalar(half if self._b.dtype.kind == "c" else half.real)
            x = self._w * half * half
            length = norm(x)
        if not math.isfinite(length):  # beyond the range of numbers
            return Outcome(x * np.nan, math.nan, Status.NOT_FINITE, self.applications)
        failure = None if error <= limit else Status.STAGNATED
        if error > max(1.0, 2.0 * limit):  # no digit of it is right
            x = x * np.nan
        return Outcome(x, max(error, rtol) * length, failure, self.applications)

    def _to_end(self, rtol: float, most: float) -> Status | None:
        """March from 0 to 1; return why that failed, or None."""
        self._w, self._scale, self._errors = self._b, 0.0j, ErrorGrowth(1.0)
        done, piece, shift = 0.0, self.piece, self._shift
        for _ in range(_MAX_TRIALS):
            out = array_module(self._b).empty_like(self._b)

            def multiply(x: Vector, y: Vector, mu: complex = shift) -> None:
                self._shifted(x, mu, y)

            with np.errstate(all="ignore"):
                left = min((most - self.applications) / self._kept, MAX_SUBSTEPS)
                limits = rtol, max(1, math.ceil(left))
                found = self._phi.solve(multiply, [self._w], piece, out, *limits)
                length = norm(out) if found.converged else math.nan
            if self.applications > most:
                break
            if not 1.0 / _MAX_DECAY <= length < math.inf:
                if found.status is Status.NOT_FINITE and piece < 1e-12:
                    return found.status
                piece *= 0.5 if found.converged else 0.25
                continue
            self._errors.add(done, shift, self._scale.real, self._phi.substeps)
            done += piece
            self._scale += shift * piece + math.log(length)
            self._w = out * (1.0 / length)
            if done >= 1.0 - 1e-14:
                return None
            shift += math.log(length) / piece
            piece = min(2.0 * piece, 1.0 - done)
        return Status.STAGNATED

    def _error(self, most: float, inherited: float) -> float:
        """Return an estimate of the relative error; bounds do where they are at most ``most``."""
        bound = self._errors.bound(inherited) - self._scale.real
        if bound > math.log(most):
            with np.errstate(all="ignore"):
                grown = self._errors.propagated(self._shifted, self._phi, self._b, inherited)
            bound = grown - self._scale.real
        return math.exp(min(bound, 700.0))
