"""The classical Runge-Kutta method of order 4."""

from __future__ import annotations

from .passes import STATE, Combine, Evaluate, Norm, StepPasses, Term
from .stepper import FixedStepper

_SLOPE, _STAGE, _TOTAL = 1, 2, 3  # numbers of the vectors besides u


def _advanced(total: int, weight: float, node: float) -> tuple[Combine, Combine]:
    """Add weight dt k to the total; set the stage to u + node dt k."""
    return (
        Combine(_TOTAL, (Term(total, 1.0, 0.0), Term(_SLOPE, 0.0, weight))),
        Combine(_STAGE, (Term(STATE, 1.0, 0.0), Term(_SLOPE, 0.0, node))),
    )


class Rk4(FixedStepper):
    """u_next = u + dt (k₁ + 2 k₂ + 2 k₃ + k₄) / 6; order 4.

    k₁ = f(t, u), k₂ = f(t + dt/2, u + dt/2 k₁), k₃ = f(t + dt/2, u + dt/2 k₂),
    k₄ = f(t + dt, u + dt k₃).

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step.

    Notes
    -----
    Storage: 3 vectors besides u. Stable for real dt λ in [-2.7853, 0] and imaginary |dt λ| ≤ √8.
    Source: E. Hairer, S. P. Nørsett, G. Wanner, Solving Ordinary Differential Equations I,
    2nd ed., section II.1, table 1.2.
    """

    name = "rk4"
    order = 4
    works_on_ranks = True
    stages = 4
    real_limit = 2.785293563405282
    imaginary_limit = 2.8284271247461903
    stability_polynomial = (1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0)

    passes = StepPasses(
        (
            Evaluate(0.0, STATE, _SLOPE),
            *_advanced(STATE, 1.0 / 6.0, 0.5),
            Evaluate(0.5, _STAGE, _SLOPE),
            *_advanced(_TOTAL, 1.0 / 3.0, 0.5),
            Evaluate(0.5, _STAGE, _SLOPE),
            *_advanced(_TOTAL, 1.0 / 3.0, 1.0),
            Evaluate(1.0, _STAGE, _SLOPE),
            Combine(STATE, (Term(_TOTAL, 1.0, 0.0), Term(_SLOPE, 0.0, 1.0 / 6.0)), Norm.END),
        ),
        vectors=4,
    )
