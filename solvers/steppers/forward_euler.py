"""The explicit Euler method."""

from __future__ import annotations

from .passes import STATE, Combine, Evaluate, Norm, StepPasses, Term
from .stepper import FixedStepper


class ForwardEuler(FixedStepper):
    """u_next = u + dt f(t, u); order 1.

    Parameters
    ----------
    problem : TimeProblem
        With ``initial`` and ``rhs``.
    dt : float
        The step.

    Notes
    -----
    Storage: 1 vector besides u. Stable for real dt λ in [-2, 0], but not on the imaginary axis.
    """

    name = "forward-euler"
    order = 1
    works_on_ranks = True
    stages = 1
    real_limit = 2.0
    imaginary_limit = 0.0
    euler_steps = ((1.0, 0.0),)
    stability_polynomial = (1.0, 1.0)

    passes = StepPasses(
        (
            Evaluate(0.0, STATE, 1),
            Combine(STATE, (Term(STATE, 1.0, 0.0), Term(1, 0.0, 1.0)), Norm.END),
        ),
        vectors=2,
    )
