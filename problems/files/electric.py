"""Electric fields of several positions in a problem's file, and the terms that they multiply.

These terms are written after the others, in the same datasets, and before those of pointwise
functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, cast

import numpy as np

from batchkron.errors import ProblemFileError
from batchkron.storage import Document, strict_json
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import array_of, check_range, texts_of

from ..discretization.fields.modes import FieldPart
from ..discretization.parts import ElectricOperator, OperatorTerm
from ..statement.axis import Axis
from ..statement.electric import Electric
from ..statement.fields import FieldExpression, Moment
from .content import ProblemContent

__all__ = ["encode_electric", "own_terms", "split_electric"]

_FIELD, _OF_TERM = "electric/field", "electric/of_term"
_MAX_OPERATORS = 64  # parts of components; each is computed from the whole state
_MAX_MOMENTS = 64  # of one density
_KEYS = {"positions", "moments", "background", "potential", "periodic", "component", "part"}


def own_terms(content: ProblemContent) -> list[OperatorTerm]:
    """Return the terms of a problem, after them those that each electric field multiplies."""
    return [*content.terms, *(term for own in content.electric for term in own.terms)]


def encode_electric(content: ProblemContent) -> dict[str, Value]:
    """Return the datasets of electric fields, none without them."""
    operators = content.electric
    if not operators:
        return {}
    if len(operators) > _MAX_OPERATORS:
        raise ValueError(f"the problem has {len(operators)} parts of electric fields; a file holds "
                         f"at most {_MAX_OPERATORS}")  # fmt: skip
    counts = [len(content.terms), *(len(own.terms) for own in operators)]
    return {
        _FIELD: tuple(strict_json.dumps(_row(own)) for own in operators),
        _OF_TERM: np.repeat(np.arange(-1, len(operators), dtype=np.int64), counts),
    }


def _row(own: ElectricOperator) -> dict[str, Any]:
    electric = own.electric
    return {
        "positions": [axis.name for axis in electric.positions],
        "moments": [
            [weight, [[axis.name, power] for axis, power in moment.powers]]
            for weight, moment in electric.moments
        ],
        "background": electric.background,
        "potential": [list(ends) for ends in electric.potential],
        "periodic": list(own.periodic),
        "component": own.number,
        "part": own.part,
    }


def split_electric(
    document: Document, terms: Sequence[OperatorTerm], axes: Sequence[Axis]
) -> tuple[tuple[OperatorTerm, ...], tuple[ElectricOperator, ...]]:
    """Return the terms of a document that act on f, and those that electric fields multiply."""
    if _FIELD not in document.datasets:
        return tuple(terms), ()
    texts, owner = texts_of(document, _FIELD), array_of(document, _OF_TERM)
    if len(texts) > _MAX_OPERATORS:
        raise ProblemFileError(
            f"dataset '{_FIELD}' has {len(texts)} entries; expected at most {_MAX_OPERATORS}"
        )
    check_range(_OF_TERM, owner, -1, len(texts))
    if owner.size != len(terms) or (np.diff(owner) < 0).any():
        raise ProblemFileError(
            f"dataset '{_OF_TERM}' has {owner.size} numbers; expected {len(terms)} that ascend"
        )
    members: list[list[OperatorTerm]] = [[] for _ in range(1 + len(texts))]
    for term, k in zip(terms, owner.tolist(), strict=True):
        members[k + 1].append(term)
    found = []
    for number, text in enumerate(texts):
        with refusing(f"dataset '{_FIELD}'[{number}]"):
            row = strict_json.loads(text)
            if not isinstance(row, dict) or set(row) != _KEYS:
                raise ValueError(f"it is no object of {', '.join(sorted(_KEYS))}")
            found.append(_operator(row, {axis.name: axis for axis in axes}, members[number + 1]))
    return tuple(members[0]), tuple(found)


def _operator(
    row: Mapping[str, Any], names: Mapping[str, Axis], terms: Sequence[OperatorTerm]
) -> ElectricOperator:
    """Return one operator; raises ValueError or TypeError where it is bad."""
    for key in ("positions", "moments", "potential", "periodic"):
        if not isinstance(row[key], list):
            raise TypeError(f"{key} is no list")
    positions = [_axis(name, names) for name in row["positions"]]
    if not 0 < len(row["moments"]) <= _MAX_MOMENTS:
        raise ValueError(f"it has {len(row['moments'])} moments; expected 1 to {_MAX_MOMENTS}")
    parts: list[FieldExpression] = []
    for weight, powers in row["moments"]:
        parts.append(weight * Moment({_axis(name, names): power for name, power in powers}))
    background = "mean" if row["background"] is None else row["background"]
    ends = [tuple(pair) for pair in row["potential"]]
    potential = dict(zip(positions, ends, strict=True))
    electric = Electric(positions, reduce(add, parts), background, potential=potential)  # type: ignore[arg-type]
    periodic = row["periodic"]
    if len(periodic) != len(positions) or not all(isinstance(own, bool) for own in periodic):
        raise ValueError("periodic does not say true or false of each position")
    number, part = row["component"], row["part"]
    if type(number) is not int or not 0 <= number < len(positions):
        raise ValueError(f"component is {number!r}; expected the number of a position")
    if type(part) is not int or part not in (-1, 0, 1):
        raise ValueError(f"part is {part!r}; expected -1, 0 or 1")
    return ElectricOperator(
        electric, number, cast("FieldPart", part), tuple(periodic), tuple(terms)
    )


def _axis(name: object, names: Mapping[str, Axis]) -> Axis:
    if not isinstance(name, str) or name not in names:
        raise ValueError(f"{name!r} is no axis; expected one of {', '.join(names)}")
    return names[name]
