"""The one axis of a field: which coordinate is left by its moments."""

from __future__ import annotations

from collections.abc import Sequence

from .axis import Axis
from .electric import Electric
from .fields import FieldExpression, Moment, Poisson, nodes_of
from .statement import Statement
from .terms import Term, term_text

__all__ = [
    "check_electric_axes",
    "check_electric_of",
    "check_field",
    "check_fields_at_points",
    "check_fields_of",
]


def check_fields_of(pde: Statement) -> None:
    """Refuse fields that are not functions of the axis along which they are given, and the like.

    That is, if a derivative acts along its axis together with other factors or derivatives; if
    Poisson's equation does not fit the ends of its axis; or if sources are derived from an exact
    solution. The text names the term.
    """
    for number, term in enumerate(pde.terms):
        for axis, field in term.fields:
            what = f"terms[{number}] has the field {field.text()} along {axis.name!r}"
            own = check_field(field, pde.axes, axis, what)
            if own != axis:
                raise ValueError(
                    f"{what}, and that is a function of {own.name!r}; give it as "
                    f"others={{{own.name}: …}}"
                )
            _check_derivatives(term, axis, what)
            for node in nodes_of(field):
                if isinstance(node, Poisson):
                    _check_poisson(node, pde)
            if isinstance(pde.sources, str):
                raise ValueError(
                    f"sources is {pde.sources!r}, and {what}, whose part of the sources would need "
                    "the field of the exact solution; give the sources as Separable"
                )


def check_electric_of(pde: Statement) -> None:
    """Refuse terms that electric fields of several positions cannot multiply, and such fields.

    The text names the term.
    """
    for term in pde.electric:
        assert term.electric is not None
        electric, what = term.electric.electric, f"the term {term_text(term)}"
        periodic = [
            axis in pde.boundary and pde.boundary[axis][0].kind == "periodic"
            for axis in electric.positions
        ]
        check_electric_axes(electric, pde.axes, periodic, list(pde.volume))
        derivatives = [factor for factor in term.factors if factor.kind != "mass"]
        if len(derivatives) > 1 or any(factor.kind == "penalty" for factor in derivatives):
            raise ValueError(
                f"{what} has a penalty or several derivatives; a field of several positions "
                "multiplies one first derivative, or f itself"
            )
        if any(factor.axis in electric.positions for factor in derivatives):
            raise ValueError(
                f"{what} acts along a position of the field, which is not possible yet; expected "
                "a derivative along another axis, as in div(v, -1, others={(x, y): E.x})"
            )
        if term.fields:
            raise ValueError(f"{what} has another field beside that of several positions")
        if isinstance(pde.sources, str):
            raise ValueError(
                f"sources is {pde.sources!r}, and {what} would need the field of the exact "
                "solution; give the sources as functions"
            )


def check_electric_axes(
    electric: Electric,
    axes: Sequence[Axis],
    periodic: Sequence[bool],
    curved: Sequence[Axis],
) -> None:
    """Refuse an electric field that is not one of some of the axes, with ValueError.

    ``periodic`` says which positions are periodic, ``curved`` are the axes with a volume element.
    """
    text, positions = electric.text(), electric.positions
    for axis in positions:
        if axis not in axes:
            raise ValueError(f"{text}: {axis} is not among the axes {', '.join(map(str, axes))}")
        if axis in curved:
            raise ValueError(
                f"{text} is along {axis.name!r}, which has a volume element; Poisson's equation "
                "is solved in Cartesian coordinates only"
            )
    for _, moment in electric.moments:
        named = [axis for axis, _ in moment.powers]
        if set(named) != set(axes) - set(positions) or len(axes) != len(named) + len(positions):
            others = ", ".join(axis.name for axis in axes if axis not in positions)
            raise ValueError(
                f"{text}: {moment.text()} is no function of the positions; expected a moment over "
                f"all other axes, which are {others or 'none'}"
            )
    for axis, own, ends in zip(positions, periodic, electric.potential, strict=True):
        if own and ends != (0.0, 0.0):
            raise ValueError(f"{text} has a potential along {axis.name!r}, which is periodic")
    if all(periodic) and electric.background is not None:
        raise ValueError(
            f"{text} has periodic positions only, so that the whole has to be neutral; expected "
            "background='mean'"
        )


def check_fields_at_points(pde: Statement) -> None:
    """Refuse Poisson's equations of pointwise functions that do not fit the ends of their axis."""
    for term in pde.pointwise:
        for _, field in term.function.fields:
            for node in nodes_of(field):
                if isinstance(node, Poisson):
                    _check_poisson(node, pde)


def _check_derivatives(term: Term, axis: Axis, what: str) -> None:
    """Refuse a derivative along the axis of a field, unless it stands alone with the field."""
    along = [factor for factor in term.factors if factor.axis == axis]
    derivatives = [factor for factor in term.factors if factor.kind != "mass"]
    acting = [factor for factor in derivatives if factor.axis == axis]
    if acting and (len(along) > 1 or len(derivatives) > 1):
        raise ValueError(
            f"{what}, and {acting[0].kind} acts along {axis.name!r} beside other factors. A field "
            "may be the coefficient of a first derivative along its axis, as in "
            f"div({axis.name}, E), if nothing else acts along that axis and the term has no other "
            "derivative; second derivatives with a field along their axis are not possible yet. It "
            f"may multiply derivatives along other axes, as in div(v, -1, others={{{axis.name}: "
            f"E}}), or stand in a term without derivative along its axis, as mass({axis.name}, E)"
        )


def _check_poisson(node: Poisson, pde: Statement) -> None:
    text = node.text()
    if node.axis in pde.volume:
        raise ValueError(
            f"{text} is along {node.axis.name!r}, which has a volume element; Poisson's equation "
            "is solved in Cartesian coordinates only"
        )
    if pde.boundary[node.axis][0].kind != "periodic":
        return
    if node.background is not None or node.potential is not None:
        raise ValueError(
            f"{text} is along {node.axis.name!r}, which is periodic: E has the same value at both "
            "ends only if the whole is neutral and no potential drops; expected "
            "background='mean' and no potential"
        )


def check_field(
    field: FieldExpression,
    axes: Sequence[Axis],
    axis: Axis | None = None,
    what: str = "the field",
) -> Axis:
    """Return the axis, among those of the state, that a field is a function of.

    ``axis`` is given for a field that has neither moments nor Poisson's equation, ``what`` names
    the field in texts. Raises TypeError if it is not a field; ValueError if its moments integrate
    over an axis that is not among the axes, leave another number of axes than one, or parts of it
    are functions of different axes.
    """
    if not isinstance(field, FieldExpression):
        raise TypeError(
            f"{what} is {type(field).__name__}; expected one made of Moment, Poisson and arithmetic"
        )
    found: list[Axis] = []
    for node in nodes_of(field):
        if isinstance(node, Moment):
            found.append(_left_by(node, axes, what))
        elif isinstance(node, Poisson):
            if node.axis not in axes:
                raise ValueError(f"{what}: {node.text()} is along {node.axis}, not an axis")
            found.append(node.axis)
    if not found and axis is None:
        raise ValueError(f"{what} has no moment, so that it does not depend on the state")
    others = [own for own in found if own != found[0]]
    if others:
        raise ValueError(
            f"{what} has parts that are functions of {found[0].name!r} and of {others[0].name!r}; "
            "expected one coordinate"
        )
    return found[0] if found else axis  # type: ignore[return-value]


def _left_by(moment: Moment, axes: Sequence[Axis], what: str) -> Axis:
    """Return the axis that a moment leaves."""
    named = [axis for axis, _ in moment.powers]
    for axis in named:
        if axis not in axes:
            raise ValueError(
                f"{what}: {moment.text()} names {axis}, which is not among the axes "
                f"{', '.join(map(str, axes))}"
            )
    left = [axis for axis in axes if axis not in named]
    if len(left) == 1:
        return left[0]
    if not left:
        raise ValueError(
            f"{what}: {moment.text()} integrates over all axes; expected a function of one "
            "coordinate, so leave out its axis"
        )
    names = ", ".join(axis.name for axis in left)
    given = ", ".join(f"{axis.name}: {power}" for axis, power in moment.powers)
    raise ValueError(
        f"{what}: {moment.text()} is a function of {names}; expected one coordinate. A moment "
        "integrates over the axes that it names, and no others: name all velocities, as in "
        f"Moment({{{given}, {left[-1].name}: 0}}). Of the fields of several positions there "
        f"is that of Poisson's equation, Electric([{names}], …)"
    )
