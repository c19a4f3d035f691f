"""Checks before a run whether a method is stable with its step, and which step would be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from batchkron.attributes import attribute

from ...products import as_product, norm_over
from ...protocols import has_operator, operator_of, says_linear
from ...spectrum import krylov_matrix, random_start
from ..start.integration import Integration
from .linearity import is_imex, is_linear

__all__ = [
    "SAFE_FRACTION",
    "StepCheck",
    "UnstableStepError",
    "check_stability",
    "check_step",
    "is_explicit_and_linear",
    "is_stable",
    "largest_explicit_step",
    "largest_stable",
]

# Log of the largest factor by which a component may grow in a run, relative to the solution; chosen
# by hand.
_MAX_LOG_GROWTH = math.log(2.0)
# Fraction of the estimated largest stable step from which a run is watched by step doubling;
# measured on the gallery.
SAFE_FRACTION = 0.8
_ROUNDING = 1e-10  # a value of log |R| per step up to this is a rounding error


class UnstableStepError(ValueError):
    """A step for which a method is not stable, refused before a run.

    ``method``: the method's name.
    ``dt``: the step of the run.
    ``rate``: the rate λ with which the solution changes the component that is amplified most: an
      eigenvalue of A, as estimated.
    ``growth``: the factor by which a step multiplies that component.
    ``largest``: the estimated largest stable step; 0 if there is none.
    ``is_eigenvalue``: whether the growth follows from λ, as that of an explicit method.
    """

    def __init__(
        self,
        method: str,
        dt: float,
        rate: complex,
        growth: float,
        largest: float,
        is_eigenvalue: bool = True,
    ) -> None:
        self.method, self.dt, self.rate, self.growth = method, dt, rate, growth
        self.largest, self.is_eigenvalue = largest, is_eigenvalue
        super().__init__(self.text("allow_unstable=True"))

    def __reduce__(self) -> tuple[type[UnstableStepError], tuple[Any, ...]]:
        of_step = self.method, self.dt, self.rate, self.growth, self.largest, self.is_eigenvalue
        return type(self), of_step

    def text(self, override: str) -> str:
        """Return an error text; ``override`` is the option with which the run is done anyway."""
        value = self.rate
        shown = f"{value.real:.4g}" if value.imag == 0.0 else f"{value:.4g}"
        grown = math.exp(min(self.dt * max(value.real, 0.0), 700.0))
        solution = "does not grow" if grown <= 1.0 else f"grows by {grown:.4g}"
        way = f"take dt <= {_floor(self.largest)}, the largest stable step, or"
        found = (
            f"A has an eigenvalue of about {shown} (estimated by Arnoldi's method), whose "
            f"component each step multiplies by {self.growth:.4g}"
            if self.is_eigenvalue
            else f"each step multiplies a component by about {self.growth:.4g} (estimated by "
            "Arnoldi's method with the steps)"
        )
        return (
            f"dt is {self.dt:.4g}, and {self.method} is not stable with it: {found}, where that "
            f"of the solution {solution}; {way if self.largest > 0.0 else 'take'} an implicit "
            f"method, or pass {override} to run all the same."
        )


StepCheck: TypeAlias = tuple[UnstableStepError | None, bool]
"""The error of a step if it is unstable, and whether it is below 0.8 times the estimated
largest stable one, False without an estimate: the run is then watched by step doubling."""


def is_stable(excess: float, dt: float, length: float, rounding: float = _ROUNDING) -> bool:
    """Return whether a component grows by at most 2 in a run, relative to the solution.

    ``excess`` is the log of its growth in a step, minus that of the solution; up to ``rounding`` it
    counts as 0. ``length`` is that of the run.
    """
    return excess <= rounding or excess * length <= _MAX_LOG_GROWTH * dt


def largest_stable(stable: Callable[[float], bool], dt: float) -> float:
    """Return the largest stable step below ``dt``, which is not stable; 0 if there is none."""
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


# Longest allowed step relative to the estimated largest stable one; measured on the gallery, see
# check_step.
_MARGIN = 1.25


def is_explicit_and_linear(integration: Integration) -> bool:
    """Return whether an explicit method takes equal steps of f(t, u) = A(t) u + s(t).

    Result: False also if the problem has no operator A, f is not A u + s, or there are no unknowns.
    """
    if integration.tolerances is not None or integration.method.implicit:
        return False
    return has_operator(integration.problem) and _is_linear_run(integration)


def _is_linear_run(integration: Integration) -> bool:
    """Whether f(t, u) = A(t) u + s(t) at the run's beginning, with the operator if there is one."""
    problem, u = integration.problem, integration.u
    if integration.unknowns == 0:
        return False
    if says_linear(problem):  # saves making a random vector
        return True
    ranks = integration.ranks
    change = random_start(u, ranks)
    change *= norm_over(ranks, u) or 1.0
    return is_linear(problem, integration.begin, u, change, ranks)


def check_stability(
    integration: Integration,
    allow_unstable: bool,
    check_imex: Callable[[Integration], StepCheck],
) -> bool | None:
    """Raise if a step is unstable; return whether steps have to be compared with half steps.

    ``allow_unstable``: do not check the step of a linear problem.
    ``check_imex``: how the step of an IMEX method is checked, see `check_imex_step`.

    Result: None if the explicit part of the method is known to be stable, or is not to be checked.
    Else steps are to be compared, by `StepDoubling`: True if f(t, u) = A(t) u + s(t), as far as is
    known. Raises `UnstableStepError` if the step is not stable; the text has the largest stable
    one.
    """
    method = integration.method
    if integration.tolerances is not None or (method.implicit and not is_imex(method)):
        return None
    is_known = method.implicit or has_operator(integration.problem)
    if not (is_known and _is_linear_run(integration)):
        return False
    if allow_unstable:
        return None
    if method.implicit:
        unstable, is_safe = check_imex(integration)
    else:
        unstable, is_safe = check_step(integration)
    if unstable is not None:
        raise unstable
    return None if is_safe else True


def largest_explicit_step(integration: Integration) -> float:
    """Return the estimated largest stable step of an explicit method, at most the integration's.

    ``integration``: an integration for which `is_explicit_and_linear` is True.

    Result: 0 if there is none, or no estimate.
    """
    found = _ritz_values(integration)
    if found is None:
        return 0.0
    stable = _criterion(integration, found[0])
    return integration.dt if stable(integration.dt) else largest_stable(stable, integration.dt)


def check_step(integration: Integration) -> StepCheck:
    """Check the step of an explicit run of a linear problem.

    ``integration``: an integration for which `is_explicit_and_linear` is True.

    Returns the result; without information for a method that has no ``stability_polynomial``.

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
    estimate, and a run with a step from 0.8 times the estimate on is watched by `StepDoubling`.
    """
    found = None if integration.is_done else _ritz_values(integration)
    if found is None:
        return None, False
    (values, exact), dt, method = found, integration.dt, integration.method
    stable = _criterion(integration, values)
    margin = 1.0 if exact else _MARGIN
    if stable(dt / margin):
        return None, stable(dt / SAFE_FRACTION)
    polynomial = method.stability_polynomial
    worst = complex(values[int(np.argmax(_excess(polynomial, dt, values)))])
    unstable = UnstableStepError(
        method.name,
        dt,
        complex(worst.real, abs(worst.imag)),
        float(_amplification(polynomial, dt * np.array([worst], np.complex128))[0]),
        largest_stable(stable, dt / margin),
    )
    return unstable, False


def _ritz_values(integration: Integration) -> tuple[NDArray[np.complex128], bool] | None:
    """Return the Ritz values of A, and whether they can be trusted as eigenvalues.

    None for a method that has no ``stability_polynomial``, and if products are not finite.
    """
    u, ranks = integration.u, integration.ranks
    if not integration.method.stability_polynomial:
        return None
    begin, until = integration.begin, integration.until
    varying = attribute(integration.problem, "operator_at") is not None
    times = (begin, 0.5 * (begin + until), until) if varying else (begin,)
    problem = integration.problem
    start = random_start(u, ranks)
    products = (as_product(operator_of(problem, t), "problem.operator", u) for t in times)
    seen = [krylov_matrix(product, start, ranks) for product in products]
    known = [matrix for matrix in seen if matrix is not None]
    if not known:
        return None
    exact = all(matrix.exact for matrix in known)
    return np.concatenate([matrix.values for matrix in known]), exact


def _criterion(integration: Integration, values: NDArray[np.complex128]) -> Callable[[float], bool]:
    """Return ``stable(step)``, whether an explicit method is stable for A's eigenvalues."""
    polynomial = integration.method.stability_polynomial
    length = integration.until - integration.t0
    return lambda step: is_stable(float(_excess(polynomial, step, values).max()), step, length)


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
