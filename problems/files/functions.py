"""Sources that are functions of all axes in a problem's file: the texts of formulas."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from batchkron.errors import ProblemFileError
from batchkron.storage import Document
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import texts_of

from ..discretization.parts import EdgeFunction
from ..statement.axis import Axis
from ..statement.functions import FunctionOfAxes, function_of_axes

__all__ = ["decode_functions", "encode_functions", "fingerprints", "refuse_edge_functions"]

_PATH = "sources/functions"
_MAX_FUNCTIONS = 64  # of one problem; each is computed at all points of the grid
_SAMPLES = 64  # points and times at which a callable is identified


def encode_functions(functions: Sequence[FunctionOfAxes]) -> dict[str, Value]:
    """Return the dataset of the formulas; none without functions. Callables are refused."""
    if len(functions) > _MAX_FUNCTIONS:
        raise ValueError(
            f"the problem has {len(functions)} sources that are functions; a file holds at most "
            f"{_MAX_FUNCTIONS}"
        )
    for function in functions:
        if function.text is None:
            raise TypeError(
                f"{_named(function)}, which problem files do not hold; give it as the text of a "
                "formula, such as 'sin(x * y) * exp(-t)', or as a Separable or a sum of them"
            )
    texts = tuple(str(function.text) for function in functions)
    return {_PATH: texts} if texts else {}


def refuse_edge_functions(edges: Sequence[EdgeFunction]) -> None:
    """Refuse boundary data that are callables, with TypeError."""
    for edge in edges:
        raise TypeError(
            f"{_named(edge.function)}, which problem files do not hold; give the data as a "
            "Separable or a sum of them"
        )


def _named(function: FunctionOfAxes) -> str:
    kind = getattr(function.function, "__qualname__", type(function.function).__name__)
    return f"{function.name} is the Python function {kind}"


def decode_functions(document: Document, axes: Sequence[Axis]) -> tuple[FunctionOfAxes, ...]:
    """Return the sources of a document that are functions."""
    if _PATH not in document.datasets:
        return ()
    texts = texts_of(document, _PATH)
    if len(texts) > _MAX_FUNCTIONS:
        raise ProblemFileError(
            f"dataset '{_PATH}' has {len(texts)} functions; expected at most {_MAX_FUNCTIONS}"
        )
    found = []
    for number, text in enumerate(texts):
        with refusing(f"dataset '{_PATH}'"):
            found.append(function_of_axes(f"sources[{number}]", text, axes, in_time=True))
    return tuple(found)


def fingerprints(functions: Sequence[FunctionOfAxes], t0: float) -> dict[str, Value]:
    """Return the dataset by which a problem's hash tells its functions apart."""
    texts = tuple(_fingerprint(own, t0) if own.text is None else own.text for own in functions)
    return {_PATH: texts} if texts else {}


def _fingerprint(function: FunctionOfAxes, t0: float) -> str:
    """Return a text of a callable's values at points and times that are always the same."""
    shares = np.random.default_rng(7).uniform(size=(len(function.axes) + 1, _SAMPLES))
    points = [
        axis.lower + axis.length * own for axis, own in zip(function.axes, shares, strict=False)
    ]
    times = [t0, *(t0 + float(share) for share in shares[-1, :3])] if function.in_time else [t0]
    values = np.array([function(*points, t) for t in times])
    return f"a Python function, values {hashlib.sha256(values.tobytes()).hexdigest()}"
