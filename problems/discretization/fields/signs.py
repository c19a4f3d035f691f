"""The signs of fields: a term with fields as a sum of terms without, one for each sign."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import product
from operator import mul
from typing import TypeAlias

from ...statement.axis import Axis
from ...statement.boundary import Inflow
from ...statement.fields import FieldExpression
from ...statement.terms import Term, TermFactor
from .modes import FieldPart

__all__ = ["SignedField", "split_electric", "split_fields"]


SignedField: TypeAlias = tuple[FieldExpression, FieldPart]
"""A field, and which of its parts is the coefficient of a term along an axis."""


def split_fields(term: Term) -> list[tuple[Term, dict[Axis, SignedField]]]:
    """Write a term as terms without fields, each with the fields that multiply it.

    A derivative along the axis of a field is the term's only derivative, and its only factor along
    that axis. The term is the sum of the terms that are returned: of one for each combination of
    the signs of its fields, if it has exactly one derivative or penalty, whose flux or whose ends
    depend on the sign; otherwise of a single one. In the place of max(±E, 0) the plain term has the
    number ±1, so that its upwind sides and inflow ends are those of this sign. A derivative along
    the axis of its field keeps the coefficient 1 and has the whole field. A term without a field is
    returned as it is.
    """
    if not term.fields:
        return [(term, {})]
    fields = {axis: _product_along(term, axis) for axis, _ in term.fields}
    derivatives = [factor for factor in term.factors if factor.kind != "mass"]
    # a field in a derivative along its axis: its sign decides edge by edge, see `derivatives`
    inner: dict[Axis, SignedField] = {
        factor.axis: (fields[factor.axis], 0) for factor in derivatives if factor.axis in fields
    }
    fields = {axis: field for axis, field in fields.items() if axis not in inner}
    rest = tuple(factor for factor in term.factors if factor.axis not in fields)
    by_sign = len(derivatives) == 1 and not _is_central(derivatives[0])
    signs: tuple[FieldPart, ...] = (1, -1) if by_sign else (0,)
    found = []
    for chosen in product(signs, repeat=len(fields)):
        numbers = [
            TermFactor("mass", axis, float(part or 1))
            for axis, part in zip(fields, chosen, strict=True)
        ]
        plain = Term((*numbers, *rest), term.scale, term.time)
        parts = {axis: (fields[axis], part) for axis, part in zip(fields, chosen, strict=True)}
        found.append((plain, parts | inner))
    return found


def split_electric(term: Term) -> list[tuple[Term, FieldPart]]:
    """Write a term with an electric field as terms without, each with the part that multiplies it.

    As `split_fields`: one for each sign where upwind sides or inflow ends depend on it.
    """
    derivatives = [factor for factor in term.factors if factor.kind != "mass"]
    by_sign = len(derivatives) == 1 and not _is_central(derivatives[0])
    signs: tuple[FieldPart, ...] = (1, -1) if by_sign else (0,)
    plain = replace(term, electric=None)
    return [(plain * float(part or 1), part) for part in signs]


def _is_central(factor: TermFactor) -> bool:
    """Whether neither the flux nor the ends of a derivative depend on its sign."""
    own = factor.boundary is not None and not any(isinstance(e, Inflow) for e in factor.boundary)
    return own and factor.flux == "central"


def _product_along(term: Term, axis: Axis) -> FieldExpression:
    """Return the product of all coefficients along an axis that has a field."""
    product = reduce(mul, (field for own, field in term.fields if own == axis))
    for factor in term.factors:
        if factor.axis != axis or factor.kind != "mass":
            continue
        if callable(factor.coefficient) or factor.coefficient != 1.0:
            product = product * factor.coefficient
    return product
