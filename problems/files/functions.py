"""Functions of all axes in a problem's file: the texts of formulas. Callables are refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage import Document
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import texts_of

from ..statement.axis import Axis
from ..statement.functions import FunctionOfAxes, function_of_axes
from ..statement.pointwise_terms import FLUX_AT_END
from .content import ProblemContent

__all__ = [
    "FUNCTION_DATASETS",
    "check_function_count",
    "decode_functions",
    "encode_functions",
    "formula_or_values",
    "refuse_callables",
]

Values = NDArray[np.float64]

_PATH = "sources/functions"
FUNCTION_DATASETS = (_PATH, "edges/formula", "pointwise/formula", "pointwise/fields")
"""The datasets of which each element is a function."""

_MAX_FUNCTIONS = 64  # of one kind in a problem; each is computed at all points of the grid
_SAMPLES = 64  # points at which a callable is identified
# Sizes of states of both signs, for a callable that is not defined at some between 0 and 1.
_OTHER_SIZES = (1.0, 30.0, 1e3)


def refuse_callables(content: ProblemContent) -> None:
    """Refuse a problem with sources, boundary data or terms that are Python functions."""
    plain = (
        "give it as the text of a formula, such as 'sin(x * y) * exp(-t)', or as a Separable or a "
        "sum of them"
    )
    advice = [plain] * len(content.source_functions)
    advice += [
        "give F and the data as formulas or numbers" if edge.function.name == FLUX_AT_END else plain
        for edge in content.edge_functions
    ]
    at_points = [function for own in content.pointwise for function in own.functions]
    advice += ["give it as the text of a formula, such as 'f * (1 - f)'"] * len(at_points)
    functions = [
        *content.source_functions,
        *(edge.function for edge in content.edge_functions),
        *at_points,
    ]
    for function, instead in zip(functions, advice, strict=True):
        if function.text is None:
            kind = getattr(function.function, "__qualname__", type(function.function).__name__)
            raise TypeError(
                f"{function.name} is the Python function {kind}, which problem files do not hold; "
                f"{instead}"
            )


def encode_functions(content: ProblemContent) -> dict[str, Value]:
    """Return the dataset of sources that are functions; none without them."""
    texts = tuple(formula_or_values(own, content.t0) for own in content.source_functions)
    return {_PATH: texts} if texts else {}


def decode_functions(document: Document, axes: Sequence[Axis]) -> tuple[FunctionOfAxes, ...]:
    """Return the sources of a document that are functions."""
    if _PATH not in document.datasets:
        return ()
    texts = texts_of(document, _PATH)
    found = []
    with refusing("the sources"):
        check_function_count(_PATH, len(texts))
        for number, text in enumerate(texts):
            name = f"{_PATH}[{number}]"
            found.append(function_of_axes(name, text, axes, in_time=True))
    return tuple(found)


def check_function_count(path: str, count: int) -> None:
    """Refuse more functions than a file may have, with ProblemFileError."""
    if count > _MAX_FUNCTIONS:
        raise ProblemFileError(
            f"dataset '{path}' has {count} functions; expected at most {_MAX_FUNCTIONS}"
        )


def formula_or_values(function: FunctionOfAxes, t0: float) -> str:
    """Return the text of a formula; of a callable a hash of values, which tells it apart.

    They are those at points and times that are always the same, for the hash of a problem. Where
    the callable is not defined at all of them, each has a call of its own, at more states, and NaN
    stands for those at which it is not defined.
    """
    if function.text is not None:
        return function.text
    shares = np.random.default_rng(7).uniform(size=(len(function.axes) + 1, _SAMPLES))
    points = [
        axis.lower + axis.length * own for axis, own in zip(function.axes, shares, strict=False)
    ]
    fields = {name: np.roll(shares[-1], k + 1) for k, name in enumerate(function.fields)}
    times = [t0, *(t0 + float(share) for share in shares[-1, :3])] if function.in_time else [t0]

    def at(f: Values, points: list[Values], t: float, fields: dict[str, Values]) -> Values:
        return function.of_state(f, points, t, fields) if function.state else function(*points, t)

    try:
        values = np.array([at(shares[-1], points, t, fields) for t in times])
    except Exception:  # whatever a user's function raises
        states = [shares[-1]]
        if function.state:
            states += [size * (2.0 * shares[-1] - 1.0) for size in _OTHER_SIZES]
        values = np.array([_one_by_one(at, f, points, t, fields) for f in states for t in times])
    return f"a Python function, values {hashlib.sha256(values.tobytes()).hexdigest()}"


def _one_by_one(
    at: Callable[..., Values],
    f: Values,
    points: Sequence[Values],
    t: float,
    fields: Mapping[str, Values],
) -> Values:
    """Return values at single points, NaN where a function is not defined.

    Fields have the size of the state.
    """
    found = np.full(f.size, np.nan)
    size = float(abs(f).max())
    for k in range(f.size):
        one = slice(k, k + 1)
        given = {name: size * own[one] for name, own in fields.items()}
        with suppress(Exception):
            found[k] = at(f[one], [own[one] for own in points], t, given)[0]
    return found
