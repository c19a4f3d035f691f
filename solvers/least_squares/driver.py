"""The loop around a method for least squares: when to stop, and what is true at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.arrays import array_module, as_array, device_errors
from batchkron.attributes import attribute

from ..krylov.systems.layouts import as_systems, check_layout
from ..krylov.systems.limits import check_count
from ..products import Vector, norms_of, working_dtype
from ..rows import scaled
from .bidiagonal import Bidiagonal, Estimates, Numbers, Recurrence
from .rectangular import Rectangular

__all__ = ["Request", "Solved", "is_converged", "minimise"]

# Why a system stopped: SciPy's codes, and two of our own.
_ZERO, _CONSISTENT, _LEAST_SQUARES, _ILL_CONDITIONED, _MAX_ITERATIONS = 0, 1, 2, 3, 7
_NOT_CONFIRMED, _NOT_FINITE = 8, 9
_EPS = 3  # added to the codes 1 to 3 where the tolerance was rounding
_CONVERGED = (0, 1, 2, 4, 5)
_SLACK = 2.0  # of true norms beside the estimated ones that met a tolerance


@dataclass(frozen=True)
class Request:
    """What `lsqr` and `lsmr` are asked for, by the names of their arguments."""

    damp: float
    atol: float
    btol: float
    conlim: float
    maxiter: int | None
    batched: str | None

    def check(self) -> None:
        """Raise ValueError or TypeError if a number is out of range."""
        check_layout(self.batched)
        for name, value in (("atol", self.atol), ("btol", self.btol)):
            if not value >= 0.0:
                raise ValueError(f"{name} is {value!r}; expected a number >= 0.")
        for name, value in (("damp", self.damp), ("conlim", self.conlim)):
            if not np.isreal(value) or not np.isfinite(value) or value < 0.0:
                raise ValueError(f"{name} is {value}; expected a finite number >= 0")
        if self.maxiter is not None:
            check_count("the largest number of iterations", self.maxiter, minimum=0)


def minimise(
    method: Callable[[Bidiagonal, Numbers], Recurrence],
    A: Any,
    b: Any,
    x0: Any,
    request: Request,
    most: Callable[[int, int], int],
) -> Solved:
    """Minimise ‖b - A x‖² + damp² ‖x - x0‖² by a method, for each right-hand side.

    ``most`` is the default of the number of iterations, by the shape of A.
    """
    request.check()
    module = array_module(b)
    given = as_array(b, "b", module)
    start = None if x0 is None else as_array(x0, "x0", module)
    dtype = working_dtype(A, given, start)
    rows = as_systems(given, "b", request.batched, dtype, module)
    operator = Rectangular(A, rows)
    many, size = operator.shape
    systems = rows.shape[:-1]
    if rows.shape[-1] != many:
        raise ValueError(f"b has vectors of {rows.shape[-1]} entries; expected {many}, A's rows")
    if start is not None:
        start = as_systems(start, "x0", request.batched, dtype, module)
        if start.shape != (*systems, size):
            raise ValueError(f"x0 has shape {np.shape(x0)}; expected that of the solution")
        start = start.reshape(math.prod(systems), size)
    maximum = most(many, size) if request.maxiter is None else request.maxiter
    rows = module.ascontiguousarray(rows.reshape(math.prod(systems), many))
    solve = Solved(operator, rows, start, request)
    with device_errors(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        solve.run(method, maximum)
        solve.end(systems)
    return solve


class Solved:
    """Solutions in the layout of b, and for each system, (...), codes, counts and norms.

    ``x``, ``istop``, ``iterations``: the solutions, why they stopped, and when.
    ``residual``, ``damped``, ``normal``, ``solution``: true norms of residuals, of these with the
      damping, of those of the normal equations, and of x.
    ``operator``, ``condition``: estimates for the operator.
    ``products``: how many there were.
    ``more`` (ndarray, (..., N), or None): of the recurrence.
    """

    def __init__(self, A: Rectangular, b: Vector, start: Vector | None, request: Request) -> None:
        self.A, self.b, self.start, self.request = A, b, start, request
        self.module, count = array_module(b), len(b)
        self.x = self.module.zeros((count, A.shape[1]), b.dtype)
        self.istop = np.full(count, _MAX_ITERATIONS)
        self.iterations = np.zeros(count, np.int64)
        self.norm_b = norms_of(b)
        self.operator, self.condition = np.zeros(count), np.zeros(count)
        self.more: Vector | None = None

    def run(self, method: Callable[[Bidiagonal, Numbers], Recurrence], maximum: int) -> None:
        """Iterate; leave x, less x0, in the caller's units."""
        residuals = self.b if self.start is None else self.b - self.A.forward(self.start)
        bases = Bidiagonal(self.A, residuals)
        self._active = np.arange(len(self.b))
        norms = np.stack([self.norm_b, bases.unit_b, bases.unit_A])
        none = np.where(norms[1:].all(axis=0), -1, _ZERO)
        none[~np.isfinite(norms).all(axis=0)] = _NOT_FINITE
        recurrence = method(bases, self.request.damp / np.where(norms[2] > 0, norms[2], 1.0))
        self.recurrence = recurrence
        self._end(none, bases, recurrence, None)
        for _ in range(maximum):
            if not len(self._active):
                return
            bases.step(self.A)
            self.iterations[self._active] += 1
            found = recurrence.step(bases)
            self._end(self._codes(bases, recurrence, found), bases, recurrence, found)
        if len(self._active):
            self._end(np.full(len(self._active), _MAX_ITERATIONS), bases, recurrence, None)

    def _codes(
        self, bases: Bidiagonal, recurrence: Recurrence, found: Estimates
    ) -> NDArray[np.int64]:
        """Return why systems stop now, -1 for those that go on."""
        request, eps = self.request, float(np.finfo(self.b.dtype).eps)
        damped, normal, operator, condition = found
        # of the first residual in b, which may be next to nothing beside A x0
        share = bases.unit_b / np.maximum(self.norm_b[self._active], eps * bases.unit_b)
        image = operator * norms_of(recurrence.x) * share
        residual = damped * share
        normal = np.where(damped > 0, normal / (operator * damped), 0.0)
        codes = np.full(len(image), -1)
        singular = 1.0 / condition
        codes[singular <= eps] = _ILL_CONDITIONED + _EPS
        codes[normal <= eps] = _LEAST_SQUARES + _EPS
        codes[residual <= eps * (1.0 + image)] = _CONSISTENT + _EPS
        if request.conlim > 0:
            codes[singular <= 1.0 / request.conlim] = _ILL_CONDITIONED
        codes[normal <= request.atol] = _LEAST_SQUARES
        codes[residual <= request.btol + request.atol * image] = _CONSISTENT
        finite = np.isfinite(np.stack([residual, normal, image])).all(axis=0)
        codes[~finite] = _NOT_FINITE
        return codes

    def _end(
        self,
        codes: NDArray[np.int64],
        bases: Bidiagonal,
        recurrence: Recurrence,
        found: Estimates | None,
    ) -> None:
        """Keep what systems have that stop."""
        active = self._active
        if found is not None:
            _, _, operator, condition = found
            self.operator[active] = operator * bases.unit_A
            self.condition[active] = condition
        ended = codes >= 0
        if not ended.any():
            return
        place = self.module.asarray(active[ended])
        own = self.module.asarray(np.flatnonzero(ended))
        unit = bases.unit_b / np.where(bases.unit_A > 0, bases.unit_A, 1.0)
        self.x[place] = scaled(recurrence.x[own], unit[ended])
        self._take_more(place, recurrence, own, bases.unit_A[ended])
        self.istop[active[ended]] = codes[ended]
        self._active = active[~ended]
        bases.keep(~ended)
        recurrence.keep(~ended)

    def _take_more(self, place: Any, recurrence: Any, own: Any, unit: Numbers) -> None:
        more = attribute(recurrence, "variances")
        if more is None:
            return
        if self.more is None:
            self.more = self.module.zeros(self.x.shape, more.dtype)
        self.more[place] = scaled(scaled(more[own], 1.0 / unit), 1.0 / unit)

    def end(self, systems: tuple[int, ...]) -> None:
        """Set the attributes, by true residuals, which decide whether x is what was asked for."""
        damp, moved = self.request.damp, self.x
        x = moved if self.start is None else moved + self.start
        residuals = self.b - self.A.forward(x)
        residual, size = norms_of(residuals), norms_of(moved)
        damped = np.hypot(residual, damp * size)
        # of residuals of length 1, as A* r may be out of the range of numbers
        unit = np.where(residual > 0, residual, 1.0)
        drawn = scaled(scaled(moved, np.full(len(moved), damp)), damp / unit)
        normal = norms_of(self.A.adjoint(scaled(residuals, 1.0 / unit)) - drawn)
        self._refuse_untrue(damped, normal, size, unit)

        def shaped(numbers: NDArray[Any]) -> Any:
            return numbers.reshape(systems)[()] if systems else numbers[0]

        def laid_out(rows: Vector) -> Vector:
            whole = rows.reshape(*systems, rows.shape[-1])
            return whole.T if self.request.batched == "columns" else whole

        self.x, self.solution = laid_out(x), shaped(norms_of(x))
        self.istop, self.iterations = shaped(self.istop), shaped(self.iterations)
        self.residual, self.damped = shaped(residual), shaped(damped)
        self.normal, self.products = shaped(normal * unit), self.A.products
        self.operator, self.condition = shaped(self.operator), shaped(self.condition)
        self.more = None if self.more is None else laid_out(self.more)

    def _refuse_untrue(
        self, damped: Numbers, normal: Numbers, size: Numbers, unit: Numbers
    ) -> None:
        """Mark systems whose true norms do not meet the tolerance that the estimated ones met.

        ``normal`` is that of A* r - damp² x in units of ``unit``.
        """
        eps, request = float(np.finfo(self.b.dtype).eps), self.request
        image = self.operator * size
        rounding = 100 * eps * (self.norm_b + image)
        consistent = _SLACK * (request.btol * self.norm_b + request.atol * image)
        least = self.operator * (np.maximum(_SLACK * request.atol * damped, rounding) / unit)
        true = (damped <= np.maximum(consistent, rounding)) | (normal <= least)
        self.istop[np.isin(self.istop, (_CONSISTENT, _LEAST_SQUARES)) & ~true] = _NOT_CONFIRMED
        self.istop[~np.isfinite(damped)] = _NOT_FINITE


def is_converged(istop: Any) -> Any:
    """Whether codes, (...), say that a solution was found."""
    found = np.isin(istop, _CONVERGED)
    return bool(found) if np.ndim(istop) == 0 else found
