"""The rule by which a problem's grid follows its solution, in its file: names and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from batchkron.errors import ProblemFileError
from batchkron.storage import Document, strict_json
from batchkron.storage.document import Value
from batchkron.storage.file_errors import refusing
from batchkron.storage.schema import json_of

from ..discretization.parts import AdaptSettings, check_adapt

__all__ = ["decode_adapt", "encode_adapt"]

_PATH = "adapt/rule"


def encode_adapt(adapt: AdaptSettings | None) -> dict[str, Value]:
    """Return the dataset of a rule; none without one."""
    return {} if adapt is None else {_PATH: (strict_json.dumps(asdict(adapt)),)}


def decode_adapt(document: Document, names: Sequence[str]) -> AdaptSettings | None:
    """Return the rule of a document, for axes of these names; None if it has none.

    Raises `ProblemFileError` if it is not of this form.
    """
    if _PATH not in document.datasets:
        return None
    row = json_of(document, _PATH, dict)
    parts = [entry.name for entry in fields(AdaptSettings)]
    if set(row) != set(parts):
        raise ProblemFileError(f"dataset '{_PATH}' is no object of {', '.join(parts)}")
    with refusing(f"dataset '{_PATH}'"):
        for name in ("max_level", "keep", "steps"):
            if not isinstance(row[name], list):
                raise TypeError(f"{name} is no list")
            row[name] = tuple(row[name])
        adapt = AdaptSettings(**row)
        check_adapt(adapt, names)
        return adapt
