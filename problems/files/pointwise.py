"""Pointwise terms in a problem's file: formulas of the state, and the terms that act on them.

These terms are written after the others, in the same datasets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage import Document, strict_json
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import array_of, check_range, texts_of

from ..discretization.parts import FieldAtPoints, OperatorTerm, PointwiseOperator
from ..statement.axis import Axis
from ..statement.field_axes import check_field
from ..statement.functions import FunctionOfAxes, function_of_axes
from .content import ProblemContent
from .edges import edge_terms
from .electric import own_terms
from .fields import FormulaReader, formula_of
from .functions import check_function_count, formula_or_values

__all__ = ["all_terms", "encode_pointwise", "split_pointwise"]

_FORMULA, _EXTRA, _LINEAR, _OF_TERM = (
    f"pointwise/{name}" for name in ("formula", "extra", "linear", "of_term")
)
# Those that only some problems have.
_SPEED, _DERIVATIVE, _GROWS, _FIELDS, _SAMPLES = (
    f"pointwise/{name}" for name in ("speed", "derivative", "grows", "fields", "samples")
)


def all_terms(content: ProblemContent) -> list[OperatorTerm]:
    """Return the terms of a problem, after them those that act on each pointwise function.

    Before these are those that electric fields multiply; after them those that act on the state
    before each of them, the damping of each, and last those of boundary data.
    """
    operators = content.pointwise
    parts = [[own.terms for own in operators], [own.inner for own in operators]]
    if has_damping(operators):
        parts.append([own.damping for own in operators])
    at_points = (term for part in parts for own in part for term in own)
    return [*own_terms(content), *at_points, *edge_terms(content)]


def has_damping(operators: Sequence[PointwiseOperator]) -> bool:
    """Whether one has a damping that follows the state; files of others lack its datasets."""
    return any(own.speed is not None for own in operators)


def encode_pointwise(content: ProblemContent) -> dict[str, Value]:
    """Return the datasets of pointwise terms, none without them."""
    operators = content.pointwise
    if not operators:
        return {}
    counts = [len(own_terms(content)), *(len(operator.terms) for operator in operators)]
    counts += [len(operator.inner) for operator in operators]
    if has_damping(operators):
        counts += [len(operator.damping) for operator in operators]
    counts.append(len(content.edge_functions))
    functions = [operator.function for operator in operators]

    def texts(given: Sequence[FunctionOfAxes | None]) -> tuple[str, ...]:
        return tuple("" if own is None else formula_or_values(own, content.t0) for own in given)

    more: dict[str, Value] = {}
    for path, name in ((_SPEED, "speed"), (_DERIVATIVE, "derivative")):
        if any(getattr(own, name) is not None for own in operators):
            more[path] = texts([getattr(own, name) for own in operators])
    if any(own.grows for own in operators):
        more[_GROWS] = np.array([own.grows for own in operators], dtype=np.int64)
    return {
        _FORMULA: texts(functions),
        _EXTRA: np.array([operator.extra for operator in operators], dtype=np.int64),
        _LINEAR: np.array([operator.linear for operator in operators], dtype=np.int64),
        _OF_TERM: np.repeat(np.arange(-1, len(counts) - 1, dtype=np.int64), counts),
        **more,
        **_encode_fields(operators),
    }


def _encode_fields(operators: Sequence[PointwiseOperator]) -> dict[str, Value]:
    """Return the datasets of the fields that functions take, none without them."""
    samples: list[NDArray[np.float64]] = [np.zeros(0)]
    texts = [
        strict_json.dumps(
            {
                "of": k,
                "name": own.name,
                "axis": own.axis.name,
                "formula": formula_of(own.field, samples),
            }
        )
        for k, operator in enumerate(operators)
        for own in operator.fields
    ]
    if not texts:
        return {}
    return {_FIELDS: tuple(texts), _SAMPLES: np.concatenate(samples)}


def split_pointwise(
    document: Document,
    terms: Sequence[OperatorTerm],
    axes: Sequence[Axis],
    levels: Sequence[int],
    degrees: Sequence[int],
) -> tuple[tuple[OperatorTerm, ...], tuple[PointwiseOperator, ...]]:
    """Return the terms of a document that act on f, and those that act on functions of it."""
    if _FORMULA not in document.datasets:
        return tuple(terms), ()
    texts, owners = texts_of(document, _FORMULA), array_of(document, _OF_TERM)
    count, times = len(texts), 3 if _SPEED in document.datasets else 2
    check_function_count(_FORMULA, count)
    check_range(_OF_TERM, owners, -1, times * count + 1)
    owner = owners[: len(terms)]
    if (np.diff(owners) < 0).any() or (owner == times * count).any():
        raise ProblemFileError(f"dataset '{_OF_TERM}' does not ascend")
    members: list[list[OperatorTerm]] = [[] for _ in range(1 + 3 * count)]
    for term, k in zip(terms, owner.tolist(), strict=True):
        members[k + 1].append(term)
    extra, linear, grows = (_numbers(document, path, count) for path in (_EXTRA, _LINEAR, _GROWS))
    none = ("",) * count
    speeds, derivatives = (
        texts_of(document, path) if path in document.datasets else none
        for path in (_SPEED, _DERIVATIVE)
    )
    kinds = ((_FORMULA, texts), (_SPEED, speeds), (_DERIVATIVE, derivatives))
    fields = _decode_fields(document, axes, levels, degrees, count)
    found = []
    for k in range(count):
        with refusing("the pointwise terms"):
            names = [own.name for own in fields[k]]
            function, speed, derivative = (
                function_of_axes(
                    f"{path}[{k}]", own[k], axes, in_time=True, state=True, fields=names
                )
                if own[k]
                else None
                for path, own in kinds
            )
            if function is None:
                raise ValueError(f"{_FORMULA}[{k}] is empty")
            outer, inner, damping = (members[1 + k + part * count] for part in range(3))
            if any(term.has_fields for term in (*outer, *inner, *damping)):
                raise ValueError(f"a term of {_FORMULA}[{k}] has a field")
            known = tuple(outer), extra[k], bool(linear[k]), tuple(inner), speed, tuple(damping)
            at_points = derivative, tuple(fields[k]), bool(grows[k])
            found.append(PointwiseOperator(function, *known, *at_points))
    return tuple(members[0]), tuple(found)


def _numbers(document: Document, path: str, count: int) -> list[int]:
    """Return the numbers of a dataset, each 0 or 1 but for the degrees; 0 without the dataset."""
    if path not in document.datasets:
        return [0] * count
    if path != _EXTRA:
        check_range(path, array_of(document, path), 0, 2)
    return array_of(document, path).tolist()  # type: ignore[no-any-return]


def _decode_fields(
    document: Document,
    axes: Sequence[Axis],
    levels: Sequence[int],
    degrees: Sequence[int],
    count: int,
) -> list[list[FieldAtPoints]]:
    """Return the fields of each function."""
    found: list[list[FieldAtPoints]] = [[] for _ in range(count)]
    if _FIELDS not in document.datasets:
        return found
    texts = texts_of(document, _FIELDS)
    check_function_count(_FIELDS, len(texts))
    known = {axis.name: k for k, axis in enumerate(axes)}
    for number, text in enumerate(texts):
        with refusing(f"dataset '{_FIELDS}'[{number}]"):
            entry = strict_json.loads(text)
            if not isinstance(entry, dict) or set(entry) != {"of", "name", "axis", "formula"}:
                raise ValueError("expected an object of of, name, axis and formula")
            if type(entry["of"]) is not int or not 0 <= entry["of"] < count:
                raise ValueError(f"of is {entry['of']!r}; expected 0 … {count - 1}")
            if entry["axis"] not in known or not isinstance(entry["name"], str):
                raise ValueError(f"axis is {entry['axis']!r}, name {entry['name']!r}")
            k = known[entry["axis"]]
            reader = FormulaReader(axes, axes[k], levels[k], degrees[k], document, _SAMPLES)
            field = reader.read(entry["formula"])
            if check_field(field, axes, axes[k]) != axes[k]:
                raise ValueError(f"it is not a function of {axes[k].name!r}")
            found[entry["of"]].append(FieldAtPoints(entry["name"], axes[k], field))
    return found
