"""Checks before a run whether an explicit method is stable with its step, by a few products."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...krylov.vectors.ranks import norm_over
from ...protocols import has_operator, says_linear
from ..start.integration import Integration
from .linearity import is_imex, is_linear, product_at
from .spectrum import krylov_matrix, random_start

__all__ = [
    "StepCheck",
    "UnstableStep",
    "check_stability",
    "find_unstable_step",
    "is_explicit_and_linear",
]

# Log of the largest factor by which a component may grow in a run, relative to the solution; chosen
# by hand.
_MAX_LOG_GROWTH = math.log(2.0)
# Longest allowed step relative to the estimated largest stable one, and the fraction of that one
# from which the run is watched by step doubling; measured on the gallery, see _check_step.
_MARGIN = 1.25
_SAFE_FRACTION = 0.8
_ROUNDING = 1e-10  # a value of log |R| per step up to this is a rounding error


@dataclass(frozen=True)
class UnstableStep:
    """A step for which an explicit method is not stable.

    Parameters
    ----------
    method : str
        The method's name.
    dt : float
        The step of the run.
    eigenvalue : complex
        The estimated eigenvalue λ of A whose component is amplified most.
    growth : float
        |R(dt λ)|, the factor by which a step multiplies that component.
    largest : float
        The estimated largest stable step; 0 if there is none.
    """

    method: str
    dt: float
    eigenvalue: complex
    growth: float
    largest: float

    def text(self, override: str) -> str:
        """Return an error text; ``override`` is the option with which the run is done anyway."""
        value = self.eigenvalue
        shown = f"{value.real:.4g}" if value.imag == 0.0 else f"{value:.4g}"
        grown = math.exp(min(self.dt * max(value.real, 0.0), 700.0))
        solution = "does not grow" if grown <= 1.0 else f"grows by {grown:.4g}"
        way = f"take dt <= {_floor(self.largest)}, the largest stable step, or"
        return (
            f"dt is {self.dt:.4g}, and {self.method} is not stable with it: A has an eigenvalue of "
            f"about {shown} (estimated by Arnoldi's method), whose component each "
            f"step multiplies by {self.growth:.4g}, where that of the solution {solution}; "
            f"{way if self.largest > 0.0 else 'take'} an implicit method, or pass {override} to "
            "run all the same."
        )


def is_explicit_and_linear(integration: Integration) -> bool:
    """Return whether an explicit method takes equal steps of f(t, u) = A(t) u + s(t).

    Parameters
    ----------
    integration : Integration
        The integration.

    Returns
    -------
    bool
        False also if the problem has no operator A, f is not A u + s, or there are no unknowns.
    """
    if integration.tolerances is not None or integration.method.implicit:
        return False
    return _is_linear_run(integration)


def _is_linear_run(integration: Integration) -> bool:
    """Whether a problem has an operator and f(t, u) = A(t) u + s(t) at the run's beginning."""
    problem, u = integration.problem, integration.u
    if not has_operator(problem) or integration.unknowns == 0:
        return False
    if says_linear(problem):  # saves making a random vector
        return True
    ranks = integration.ranks
    change = random_start(u, ranks)
    change *= norm_over(ranks, u) or 1.0
    return is_linear(problem, integration.begin, u, change, ranks)


def check_stability(integration: Integration, allow_unstable: bool) -> bool:
    """Raise if a step is unstable; return whether the run has to be watched by `step_doubling`.

    Parameters
    ----------
    integration : Integration
        The integration.
    allow_unstable : bool
        Do not check the step.

    Returns
    -------
    bool
        True if steps are equal and their explicit part is not known to be stable: the run then
        compares some steps with half steps.

    Raises
    ------
    ValueError
        If the step is not stable; the text has the largest stable one.
    """
    if integration.tolerances is not None:
        return False
    method = integration.method
    if method.implicit:
        return is_imex(method) and not _is_linear_run(integration)
    if not _is_linear_run(integration):
        return True
    if allow_unstable:
        return False
    check = _check_step(integration)
    if check.unstable is not None:
        raise ValueError(check.unstable.text("allow_unstable=True"))
    return not check.is_safe


@dataclass(frozen=True)
class StepCheck:
    """The result of the check of a step before the run.

    Parameters
    ----------
    unstable : UnstableStep or None
        A description if the step is unstable, else None.
    is_safe : bool
        Whether the step is below 0.8 times the estimated largest stable one; False if there is no
        estimate. If False, the run is watched by step doubling.
    """

    unstable: UnstableStep | None
    is_safe: bool


def find_unstable_step(integration: Integration) -> UnstableStep | None:
    """Return a description of the step of an explicit, linear run if it is unstable, else None.

    Parameters
    ----------
    integration : Integration
        An integration for which `is_explicit_and_linear` is True.

    Returns
    -------
    UnstableStep or None
        None if the step is stable, or the method has no ``stability_polynomial``.
    """
    return _check_step(integration).unstable


def _check_step(integration: Integration) -> StepCheck:
    """Check the step of an explicit run of a linear problem.

    Parameters
    ----------
    integration : Integration
        An integration for which `is_explicit_and_linear` is True.

    Returns
    -------
    StepCheck
        The result; without information for a method that has no ``stability_polynomial``.

    Notes
    -----
    A step multiplies the component of the eigenvalue λ by R(dt λ), where R is the method's
    stability polynomial; the solution multiplies it by exp(dt λ). A step is called stable if in the
    whole run no component is amplified by more than 2, relative to max(1, |exp(dt λ)|) per step.
    So a small error in the amplitude of components that are resolved, as forward Euler has on the
    imaginary axis, is accepted as long as it does not add up. The λ are the Ritz values of 20 steps
    of Arnoldi's method, at the beginning, the middle and the end of a run whose operator depends on
    time.

    For a self-adjoint operator the Ritz values lie between the extreme eigenvalues, and for up to
    20 unknowns they are the eigenvalues; then any step beyond the estimate is unstable. For other
    operators they lie in the field of values. Over the gallery's problems and methods the estimate
    was 0.8 to 1.26 times the largest step for which the powers of a step stay below 10³
    (`forward-euler` on inflow problems: 0.5 to 2); it may be half the step that the eigenvalues
    alone allow. For these operators, a step is refused if it is longer than 1.25 times the
    estimate, and a run with a step from 0.8 times the estimate on is watched by `step_doubling`.
    """
    method, u, dt = integration.method, integration.u, integration.dt
    if integration.last_step <= integration.first_step or not method.stability_polynomial:
        return StepCheck(None, is_safe=False)
    start = random_start(u, integration.ranks)
    begin, until = integration.begin, integration.until
    varying = getattr(integration.problem, "operator_at", None) is not None
    times = (begin, 0.5 * (begin + until), until) if varying else (begin,)
    # A timed problem (batchkron.cli) counts the products of the run; these must not be counted.
    problem = getattr(integration.problem, "untimed", integration.problem)
    seen = [krylov_matrix(product_at(problem, t, u), start, integration.ranks) for t in times]
    known = [matrix for matrix in seen if matrix is not None]
    if not known:
        return StepCheck(None, is_safe=False)
    values = np.concatenate([matrix.values for matrix in known])
    margin = 1.0 if all(matrix.exact for matrix in known) else _MARGIN
    polynomial, length = method.stability_polynomial, until - integration.t0

    def is_stable(step: float) -> bool:
        return _is_stable(float(_excess(polynomial, step, values).max()), step, length)

    if is_stable(dt / margin):
        return StepCheck(None, is_safe=is_stable(dt / _SAFE_FRACTION))
    worst = complex(values[int(np.argmax(_excess(polynomial, dt, values)))])
    unstable = UnstableStep(
        method.name,
        dt,
        complex(worst.real, abs(worst.imag)),
        float(_amplification(polynomial, dt * np.array([worst], np.complex128))[0]),
        _largest_stable(polynomial, values, dt / margin, length),
    )
    return StepCheck(unstable, is_safe=False)


def _amplification(polynomial: tuple[float, ...], z: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Return |R(z)|, infinite if it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(np.polynomial.polynomial.polyval(z, polynomial))
    return np.where(np.isnan(size), np.inf, size)


def _excess(
    polynomial: tuple[float, ...], dt: float, values: NDArray[np.complex128]
) -> NDArray[np.float64]:
    """Return log |R(dt λ)| - max(0, Re dt λ), the growth per step relative to the solution."""
    with np.errstate(divide="ignore"):
        grown = np.log(_amplification(polynomial, dt * values))
    return np.asarray(grown - np.maximum(0.0, dt * values.real))


def _is_stable(excess: float, dt: float, length: float) -> bool:
    return excess <= _ROUNDING or excess * length <= _MAX_LOG_GROWTH * dt


def _largest_stable(
    polynomial: tuple[float, ...], values: NDArray[np.complex128], dt: float, length: float
) -> float:
    """Return the largest stable step below ``dt``, which is not stable."""

    def stable(step: float) -> bool:
        return _is_stable(float(_excess(polynomial, step, values).max()), step, length)

    good, bad = 0.5 * dt, dt
    while not stable(good):
        good, bad = 0.5 * good, good
        if good <= 1e-15 * dt:
            return 0.0
    for _ in range(40):
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if stable(middle) else (good, middle)
    return good


def _floor(value: float) -> str:
    """Return a number as text, rounded down to three digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.floor(value / unit) * unit:.3g}"
