"""Find terms in which a density multiplies itself, so that solutions form shocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...statement.fields import Arithmetic, FieldExpression, Moment, Power, Resolved, nodes_of
from ...statement.terms import Term, term_text

__all__ = ["ShockWarning", "densities_that_carry_themselves"]


class ShockWarning(UserWarning):
    """A moment multiplies its own density in an upwind div, which fails once a shock has formed."""


def densities_that_carry_themselves(terms: Sequence[Term]) -> Iterator[str]:
    """Find upwind divs along an axis with moments of f as coefficient, such as Burgers' equation.

    ``terms``: the terms of the PDE.

    Yields the text of a warning for each such term. There is none where the coefficient does not
    change if f is multiplied by a number, as the velocity ∫ v f dv / ∫ f dv, nor for the field of
    Poisson's equation, which is continuous.

    The upwind flux takes the coefficient as the mean of both cells, which vanishes at a steady
    shock between w and -w. Then nothing dissipates what flows into the shock, and f grows there.
    """
    damped = {factor.axis for term in terms for factor in term.factors if factor.kind == "penalty"}
    for k, term in enumerate(terms):
        for axis, field in term.fields:
            for factor in term.factors:
                is_own = factor.kind == "div" and factor.axis == axis and axis not in damped
                if is_own and _power_of_state(field) != 0.0:
                    yield (
                        f"terms[{k}], {term_text(term)}, multiplies f by a moment of f in a div "
                        f"along {axis.name!r}, as Burgers' equation does. Its flux is right while "
                        "f is smooth; after a shock has formed f grows there without bound, since "
                        "the mean of the coefficient on both sides of a shock may vanish, and a "
                        "central flux dissipates nothing. Write flux='central' in this div, and "
                        f"add penalty({axis.name}, c) with c a little above the largest "
                        "|coefficient|"
                    )


def _power_of_state(field: FieldExpression) -> float:
    """Return p if a field is multiplied by s^p where f is multiplied by s, NaN for no such power.

    The field of Poisson's equation counts as independent of f.
    """
    powers: dict[int, float] = {}
    for node in nodes_of(field):
        power = 0.0
        if isinstance(node, Moment):
            power = 1.0
        elif isinstance(node, Power):
            power = powers[id(node.base)] * node.exponent
        elif isinstance(node, Resolved):
            power = powers[id(node.field)]
        elif isinstance(node, Arithmetic):
            left, right = powers[id(node.left)], powers[id(node.right)]
            if node.operation in "+-":
                power = left if left == right else math.nan
            else:
                power = left + right if node.operation == "*" else left - right
        powers[id(node)] = power
    return powers[id(field)]
