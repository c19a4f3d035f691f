"""Check that the coefficients of terms are finite where they are needed."""

from __future__ import annotations

from collections.abc import Sequence

from ...statement.function_checks import arising_in
from ...statement.terms import Term, term_text
from ..basis.projection import sample
from ..space import DGSpace

__all__ = ["check_coefficients"]


def check_coefficients(terms: Sequence[Term], space: DGSpace) -> None:
    """Refuse coefficients that are not finite, also after multiplication by a volume element."""
    for k, term in enumerate(terms):
        for factor in term.factors:
            if callable(factor.coefficient):
                coefficient = space.coefficient(factor.coefficient, factor.axis)
                with arising_in(f"terms[{k}], {term_text(term)}"):
                    sample(
                        coefficient,
                        factor.axis,
                        space.level(factor.axis),
                        space.degree(factor.axis),
                    )
