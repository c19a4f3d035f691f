"""The signs of fields: a term with fields as a sum of terms without, one for each sign."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import mul

from ...statement.axis import Axis
from ...statement.boundary import Inflow
from ...statement.fields import FieldExpression
from ...statement.terms import Term, TermFactor
from .modes import FieldPart

__all__ = ["SignedField", "split_fields"]


@dataclass(frozen=True, eq=False)
class SignedField:
    """A field, or one of its parts, as coefficient of a term along an axis."""

    field: FieldExpression
    part: FieldPart


def split_fields(term: Term) -> list[tuple[Term, dict[Axis, SignedField]]]:
    """Write a term as terms without fields, each with the fields that multiply it.

    Parameters
    ----------
    term : Term
        The term, with fields or without.

    Returns
    -------
    list of (Term, dict of Axis to SignedField)
        The term is the sum of them: of one for each combination of the signs of its fields, if it
        has exactly one derivative or penalty, whose flux or whose ends depend on the sign;
        otherwise of a single one. In the place of max(±E, 0) the plain term has the number ±1, so
        that its upwind sides and inflow ends are those of this sign. A derivative along the axis of
        its field keeps the coefficient 1 and has the whole field. A term that has no field is
        returned as it is.

    Raises
    ------
    ValueError
        If a derivative acts along the axis of a field, and the field is not its coefficient in a
        term that has no other derivative and no other factor along the axis.
    """
    if not term.fields:
        return [(term, {})]
    fields = {axis: _product_along(term, axis) for axis, _ in term.fields}
    derivatives = [factor for factor in term.factors if factor.kind != "mass"]
    # a field in a derivative along its axis: its sign decides edge by edge, see `derivatives`
    inner = {factor.axis: SignedField(fields[factor.axis], 0) for factor in derivatives
             if factor.axis in fields}  # fmt: skip
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
        parts = {
            axis: SignedField(fields[axis], part) for axis, part in zip(fields, chosen, strict=True)
        }
        found.append((plain, parts | inner))
    return found


def _is_central(factor: TermFactor) -> bool:
    """Whether neither the flux nor the ends of a derivative depend on its sign."""
    own = factor.boundary is not None and not any(isinstance(e, Inflow) for e in factor.boundary)
    return own and factor.flux == "central"


def _product_along(term: Term, axis: Axis) -> FieldExpression:
    """Return the product of all coefficients along an axis that has a field."""
    along = [factor for factor in term.factors if factor.axis == axis]
    product = reduce(mul, (field for own, field in term.fields if own == axis))
    if len(along) == 1 and sum(factor.kind != "mass" for factor in term.factors) < 2:
        return product
    for factor in along:
        if factor.kind != "mass":
            raise ValueError(
                f"{factor.kind} acts along {axis.name!r}, and the term has a field as coefficient "
                f"along the same axis. A field may be the coefficient of a first derivative along "
                f"its axis, as in div({axis.name}, E), if nothing else acts along that axis and "
                "the term has no other derivative; second derivatives with a field between them "
                "are not possible yet. It may also multiply derivatives along other axes, as in "
                f"div(v, -1, others={{{axis.name}: E}}), or stand in a term without derivative "
                f"along its axis, as mass({axis.name}, E)"
            )
        if callable(factor.coefficient) or factor.coefficient != 1.0:
            product = product * factor.coefficient
    return product
