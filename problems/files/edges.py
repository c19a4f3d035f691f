"""Boundary data that are formulas of all axes in a problem's file, and the vectors of their ends.

What acts on each along the other axes is a term, written after all others in the same datasets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.errors import ProblemFileError
from batchkron.storage import Document
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import array_of, check_range, texts_of

from ..discretization.parts import EdgeFunction, OperatorTerm
from ..statement.axis import Axis
from ..statement.functions import function_of_axes
from .content import ProblemContent
from .functions import check_function_count, formula_or_values

__all__ = ["edge_terms", "encode_edges", "split_edges"]

_FORMULA, _PLACE, _ALONG = (f"edges/{name}" for name in ("formula", "place", "along"))


def edge_terms(content: ProblemContent) -> list[OperatorTerm]:
    """Return what acts on each boundary datum that is a function, as terms."""
    return [
        OperatorTerm(edge.modes, edge.time, one_sided=edge.explicit)
        for edge in content.edge_functions
    ]


def encode_edges(content: ProblemContent) -> dict[str, Value]:
    """Return the datasets of boundary data that are functions; none without them."""
    edges = content.edge_functions
    if not edges:
        return {}
    places = [(edge.axis, edge.end == content.axes[edge.axis].upper) for edge in edges]
    return {
        _FORMULA: tuple(formula_or_values(edge.function, content.t0) for edge in edges),
        _PLACE: np.array(places, dtype=np.int64),
        _ALONG: np.concatenate([edge.along for edge in edges]),
    }


def split_edges(
    document: Document, terms: Sequence[OperatorTerm], axes: Sequence[Axis], sizes: Sequence[int]
) -> tuple[tuple[OperatorTerm, ...], tuple[EdgeFunction, ...]]:
    """Return a document's terms without those of boundary data, and these.

    ``sizes`` are the coefficients along each axis.
    """
    if _FORMULA not in document.datasets:
        return tuple(terms), ()
    texts, places = texts_of(document, _FORMULA), array_of(document, _PLACE)
    check_function_count(_FORMULA, len(texts))
    check_range(_PLACE, places[:, 0], 0, len(axes))
    check_range(_PLACE, places[:, 1], 0, 2)
    along, ends = array_of(document, _ALONG), np.cumsum([sizes[k] for k in places[:, 0]])
    if len(terms) < len(texts) or not ends.size or along.size != ends[-1]:
        raise ProblemFileError(
            f"dataset '{_FORMULA}' has {len(texts)} formulas, for which there are not as many "
            f"terms, or '{_ALONG}' has not as many numbers as their axes have coefficients"
        )
    first = len(terms) - len(texts)
    found = []
    vectors = np.split(along, ends[:-1])
    rows = zip(texts, places.tolist(), vectors, terms[first:], strict=True)
    for number, (text, (k, side), vector, term) in enumerate(rows):
        with refusing("the boundary data"):
            function = function_of_axes(f"{_FORMULA}[{number}]", text, axes, in_time=True)
            if term.has_fields or term.modes[k] is not None:
                raise ValueError(f"the term of {_FORMULA}[{number}] acts along its axis")
            end = axes[k].upper if side else axes[k].lower
            place = k, end, vector, function, term.fixed_modes
            found.append(EdgeFunction(*place, term.time, term.one_sided))
    return tuple(terms[:first]), tuple(found)
