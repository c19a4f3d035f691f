"""A step of an explicit method as a list of passes: values of f, and sums of vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tableau import Tableau

__all__ = [
    "END",
    "ERROR",
    "SLOPES",
    "STATE",
    "Combine",
    "Evaluate",
    "Norm",
    "StepPasses",
    "Term",
    "dense_passes",
    "tableau_passes",
    "tableau_terms",
]

STATE = 0
"""Number of the vector u at the beginning of a step, in all passes."""
END, ERROR, SLOPES = 1, 2, 3
"""Numbers of u_next, of its estimated error and of k_1 in the passes of a tableau."""


class Evaluate(NamedTuple):
    """k = f(t + node dt, v).

    ``node``: 0 stands for t, 1 for t_next.
    ``state``, ``slope``: the numbers of v and k among the vectors of the step.
    """

    node: float
    state: int
    slope: int


class Term(NamedTuple):
    """A summand (constant + per_dt dt) v, of the vector v with a number."""

    vector: int
    constant: float
    per_dt: float


class Norm:
    """Places of squares of norms among the results of a step: of u_next, and of its errors."""

    NONE, END, ERROR, SECOND_ERROR = -1, 0, 1, 2


class Combine(NamedTuple):
    """v = Σ terms, in one pass over memory.

    ``target``: the number of v, which may be that of one of the terms.
    ``terms``: at least one.
    ``norm``: the place of ‖v‖² in the results of the step, if it is wanted: of `Norm`.
    ``is_read``: whether v itself is read later, not only its norm.
    """

    target: int
    terms: tuple[Term, ...]
    norm: int = Norm.NONE
    is_read: bool = True


@dataclass(frozen=True, eq=False)
class StepPasses:
    """The passes of a step.

    ``passes``: in their order.
    ``vectors``: how many vectors there are, with the state.
    ``known``: the values of f that are known before.
    """

    passes: tuple[Evaluate | Combine, ...]
    vectors: int
    known: tuple[Evaluate, ...] = ()


def tableau_passes(
    tableau: Tableau, *, in_place: bool, knows_first: bool, estimates: bool
) -> StepPasses:
    """Return the passes of a step of an explicit tableau.

    ``tableau``: the method's coefficients.
    ``in_place``: whether u_next overwrites u; the vector of u_next then only has the stages.
    ``knows_first``: whether k_1 is known.
    ``estimates``: whether the error is estimated; of it, the norm alone is found. The vector of the
      error by a second embedded method follows the slopes.
    """
    passes: list[Evaluate | Combine] = []
    count, end = tableau.stages, STATE if in_place else END
    if not knows_first:
        passes.append(Evaluate(0.0, STATE, SLOPES))
    for i in range(1, count):
        is_end = tableau.first_is_last and i == count - 1
        stage = end if is_end else END
        terms = tableau_terms(tableau.explicit[i, :i])
        norm = Norm.END if is_end else Norm.NONE
        passes.append(Combine(stage, (Term(STATE, 1.0, 0.0), *terms), norm))
        passes.append(Evaluate(float(tableau.nodes[i]), stage, SLOPES + i))
    if not tableau.first_is_last:
        terms = tableau_terms(tableau.weights)
        passes.append(Combine(end, (Term(STATE, 1.0, 0.0), *terms), Norm.END))
    if estimates:
        terms = tableau_terms(tableau.weights - tableau.embedded)
        passes.append(Combine(ERROR, terms, Norm.ERROR, is_read=False))
    if estimates and tableau.second_embedded is not None:
        terms = tableau_terms(tableau.weights - tableau.second_embedded)
        passes.append(Combine(SLOPES + count, terms, Norm.SECOND_ERROR, is_read=False))
    known = (Evaluate(0.0, STATE, SLOPES),) if knows_first else ()
    return StepPasses(tuple(passes), SLOPES + count + 1, known)


def dense_passes(tableau: Tableau) -> StepPasses:
    """Return the passes of the further stages for the solution inside a step that was taken.

    The vectors are u, u_next, a vector for the stages and all slopes.
    """
    count = tableau.stages
    known = tuple(Evaluate(float(c), STATE, SLOPES + i) for i, c in enumerate(tableau.nodes))
    passes: list[Evaluate | Combine] = []
    for i, row in enumerate(tableau.dense_stages, start=count):
        passes.append(Combine(ERROR, (Term(STATE, 1.0, 0.0), *tableau_terms(row))))
        passes.append(Evaluate(float(row.sum()), ERROR, SLOPES + i))
    return StepPasses(tuple(passes), SLOPES + count + tableau.more_stages, known)


def tableau_terms(weights: NDArray[np.float64]) -> tuple[Term, ...]:
    """Return the summands Σ dt weights[i] k_i that are not zero."""
    return tuple(
        Term(SLOPES + i, 0.0, float(weight)) for i, weight in enumerate(weights) if weight != 0.0
    )
