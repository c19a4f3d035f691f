"""Describing a format's datasets and attributes, and checking a document against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage import strict_json
from batchkron.storage.document import (
    HASH_ATTRIBUTE,
    PROVENANCE,
    Attribute,
    Document,
    Value,
    value_kind,
    value_shape,
)

COMMON_ATTRIBUTES: Mapping[str, type] = {"format": str, "format_version": int, HASH_ATTRIBUTE: str}
"""The root attributes that files of every format have, with their types."""


@dataclass(frozen=True)
class Field:
    """One dataset of a format.

    Attributes
    ----------
    kind : str
        "float64", "float32", "int64" or "text".
    shape : tuple of (int or str)
        A number is the exact length; a name stands for any length, the same wherever the name
        occurs.
    group : str
        "" for a required dataset. Datasets with the same other name are optional together: all of
        them are present, or none.
    """

    kind: str
    shape: tuple[int | str, ...]
    group: str = ""


def check_attributes(
    document: Document, required: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> None:
    """Refuse missing, unknown or mistyped attributes.

    ``required``, ``optional`` (mapping of str to type): the type (str, int or float) of each
      attribute beside `COMMON_ATTRIBUTES`.

    Raises `ProblemFileError`: the text names the attribute.
    """
    expected = {**COMMON_ATTRIBUTES, **required, **(optional or {})}
    for name, attribute in document.attributes.items():
        if name not in expected:
            raise ProblemFileError(f"attribute '{name}' is not one of this format's")
        if type(attribute) is not expected[name]:
            raise ProblemFileError(
                f"attribute '{name}' is {type(attribute).__name__}; expected "
                f"{expected[name].__name__}"
            )
    for name in required:
        if name not in document.attributes:
            raise ProblemFileError(f"attribute '{name}' is missing")


def check_datasets(
    document: Document, fields: Mapping[str, Field], sizes: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Refuse missing and unknown datasets, and those of another kind or shape than expected.

    ``fields`` (mapping of str to Field): the datasets by path.
    ``sizes`` (mapping of str to int): lengths of names in the shapes that are known beforehand.

    Returns the length that each name in the shapes stands for. Raises `ProblemFileError`: the text
    names the dataset.
    """
    for path in document.datasets:
        if path not in fields:
            raise ProblemFileError(f"dataset '{path}' is not one of this format's")
    present = {fields[path].group for path in document.datasets}
    lengths = dict(sizes or {})
    for path, field in fields.items():
        if path in document.datasets:
            _check_dataset(path, document.datasets[path], field, lengths)
        elif not field.group or field.group in present:
            raise ProblemFileError(f"dataset '{path}' is missing")
    return lengths


def _check_dataset(path: str, value: Value, field: Field, lengths: dict[str, int]) -> None:
    kind, shape = value_kind(value), value_shape(value)
    if kind != field.kind:
        raise ProblemFileError(f"dataset '{path}' has type {kind}; expected {field.kind}")
    if len(shape) == len(field.shape):
        for name, length in zip(field.shape, shape, strict=True):
            if isinstance(name, str):
                lengths.setdefault(name, length)
        expected = tuple(lengths.get(n, -1) if isinstance(n, str) else n for n in field.shape)
        if shape == expected:
            return
        names = ", ".join(
            f"{n} = {e}" if isinstance(n, str) else str(n)
            for n, e in zip(field.shape, expected, strict=True)
        )
        raise ProblemFileError(f"dataset '{path}' has shape {shape}; expected ({names})")
    raise ProblemFileError(
        f"dataset '{path}' has {len(shape)} dimensions; expected {len(field.shape)}: "
        f"({', '.join(map(str, field.shape))})"
    )


def check_range(path: str, values: NDArray[np.int64], lower: int, stop: int) -> None:
    """Refuse indices outside lower … stop - 1.

    ``path``: the dataset's path, for the message.
    ``values`` (ndarray, int64, any shape).

    Raises `ProblemFileError`: the text names the dataset and the first index that is out of range.
    """
    wrong = np.argwhere((values < lower) | (values >= stop))
    if wrong.size:
        place = ", ".join(map(str, wrong[0].tolist()))
        raise ProblemFileError(
            f"dataset '{path}' holds {values[tuple(wrong[0])]} at [{place}]; expected "
            f"{lower} … {stop - 1}"
        )


def array_of(document: Document, path: str) -> NDArray[Any]:
    """Return a numeric dataset of a document that `check_datasets` has accepted."""
    value = document.datasets[path]
    assert isinstance(value, np.ndarray)
    return value


def texts_of(document: Document, path: str) -> tuple[str, ...]:
    """Return a dataset of texts of a document that `check_datasets` has accepted."""
    value = document.datasets[path]
    assert isinstance(value, tuple)
    return value


def json_of(document: Document, path: str, kind: type) -> Any:
    """Return the data of a dataset that holds one text of JSON.

    ``kind``: the type that the data must have: dict or list.

    Raises `ProblemFileError` if the text is not strict JSON or not of that kind.
    """
    try:
        data = strict_json.loads(texts_of(document, path)[0])
    except ValueError as error:
        raise ProblemFileError(f"dataset '{path}' is not strict JSON: {error}") from None
    if not isinstance(data, kind):
        raise ProblemFileError(
            f"dataset '{path}' holds JSON {type(data).__name__}; expected {kind.__name__}"
        )
    return data


def number_of(document: Document, name: str) -> float:
    """Return a numeric attribute of a document that `check_attributes` has accepted."""
    value: Attribute = document.attributes[name]
    assert not isinstance(value, str)
    return value


def provenance_paths(names: Iterable[str]) -> dict[str, Field]:
    """Return the fields of datasets of one text each below the group `provenance/`."""
    return {f"{PROVENANCE}{name}": Field("text", (1,)) for name in names}
