"""Pointwise terms in a problem's file: formulas of the state, and the terms that act on them.

These terms are written after the others, in the same datasets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.errors import ProblemFileError
from batchkron.storage import Document
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import array_of, check_range, texts_of

from ..discretization.parts import OperatorTerm, PointwiseOperator
from ..statement.axis import Axis
from ..statement.functions import function_of_axes
from .content import ProblemContent
from .electric import own_terms
from .functions import check_function_count, formula_or_values

__all__ = ["all_terms", "encode_pointwise", "split_pointwise"]

_FORMULA, _EXTRA, _LINEAR, _OF_TERM = (
    f"pointwise/{name}" for name in ("formula", "extra", "linear", "of_term")
)


def all_terms(content: ProblemContent) -> list[OperatorTerm]:
    """Return the terms of a problem, after them those that act on each pointwise function.

    Before these are those that electric fields multiply; last are those that act on the state
    before each of them.
    """
    outer = [term for own in content.pointwise for term in own.terms]
    return [*own_terms(content), *outer, *(term for own in content.pointwise for term in own.inner)]


def encode_pointwise(content: ProblemContent) -> dict[str, Value]:
    """Return the datasets of pointwise terms, none without them."""
    operators = content.pointwise
    if not operators:
        return {}
    check_function_count(_FORMULA, len(operators))
    counts = [len(own_terms(content)), *(len(operator.terms) for operator in operators)]
    counts += [len(operator.inner) for operator in operators]
    texts = (formula_or_values(operator.function, content.t0) for operator in operators)
    return {
        _FORMULA: tuple(texts),
        _EXTRA: np.array([operator.extra for operator in operators], dtype=np.int64),
        _LINEAR: np.array([operator.linear for operator in operators], dtype=np.int64),
        _OF_TERM: np.repeat(np.arange(-1, 2 * len(operators), dtype=np.int64), counts),
    }


def split_pointwise(
    document: Document, terms: Sequence[OperatorTerm], axes: Sequence[Axis]
) -> tuple[tuple[OperatorTerm, ...], tuple[PointwiseOperator, ...]]:
    """Return the terms of a document that act on f, and those that act on functions of it."""
    if _FORMULA not in document.datasets:
        return tuple(terms), ()
    texts, owner = texts_of(document, _FORMULA), array_of(document, _OF_TERM)
    check_function_count(_FORMULA, len(texts))
    check_range(_OF_TERM, owner, -1, 2 * len(texts))
    if (np.diff(owner) < 0).any():
        raise ProblemFileError(f"dataset '{_OF_TERM}' does not ascend")
    members: list[list[OperatorTerm]] = [[] for _ in range(1 + 2 * len(texts))]
    for term, k in zip(terms, owner.tolist(), strict=True):
        members[k + 1].append(term)
    found = []
    extra, linear = (array_of(document, path).tolist() for path in (_EXTRA, _LINEAR))
    check_range(_LINEAR, array_of(document, _LINEAR), 0, 2)
    for k, text in enumerate(texts):
        with refusing("the pointwise terms"):
            name = f"{_FORMULA}[{k}]"
            function = function_of_axes(name, text, axes, in_time=True, state=True)
            own, inner = members[k + 1], members[k + 1 + len(texts)]
            if any(term.has_fields for term in (*own, *inner)):
                raise ValueError(f"a term of {name} has a field")
            known = tuple(own), extra[k], bool(linear[k]), tuple(inner)
            found.append(PointwiseOperator(function, *known))
    return tuple(members[0]), tuple(found)
