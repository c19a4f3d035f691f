"""The strong-stability-preserving Runge-Kutta method of order 3."""

from __future__ import annotations

from .passes import STATE, Combine, Evaluate, Norm, StepPasses, Term
from .stepper import FixedStepper

_SLOPE, _STAGE = 1, 2  # numbers of the vectors besides u


class SspRk3(FixedStepper):
    """Three forward Euler steps in a convex combination; order 3.

    v = u + dt f(t, u),
    w = ¾ u + ¼ (v + dt f(t + dt, v)),
    u_next = ⅓ u + ⅔ (w + dt f(t + dt/2, w)).

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step.

    Notes
    -----
    Storage: 2 vectors besides u. Stable for real dt λ in [-2.5127, 0] and imaginary |dt λ| ≤ √3.
    Source: C.-W. Shu, S. Osher, Efficient implementation of essentially non-oscillatory
    shock-capturing schemes, J. Comput. Phys. 77 (1988), eq. (2.18).
    """

    name = "ssp-rk3"
    order = 3
    works_on_ranks = True
    stages = 3
    real_limit = 2.5127453266183286
    imaginary_limit = 1.7320508075688772
    euler_steps = ((1.0, 0.0), (0.25, 1.0), (2.0 / 3.0, 0.5))
    stability_polynomial = (1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0)

    passes = StepPasses(
        (
            Evaluate(0.0, STATE, _SLOPE),
            Combine(_STAGE, (Term(STATE, 1.0, 0.0), Term(_SLOPE, 0.0, 1.0))),
            Evaluate(1.0, _STAGE, _SLOPE),
            Combine(
                _STAGE, (Term(_STAGE, 0.25, 0.0), Term(STATE, 0.75, 0.0), Term(_SLOPE, 0.0, 0.25))
            ),
            Evaluate(0.5, _STAGE, _SLOPE),
            Combine(
                STATE,
                (
                    Term(_STAGE, 2.0 / 3.0, 0.0),
                    Term(STATE, 1.0 / 3.0, 0.0),
                    Term(_SLOPE, 0.0, 2.0 / 3.0),
                ),
                Norm.END,
            ),
        ),
        vectors=3,
    )
