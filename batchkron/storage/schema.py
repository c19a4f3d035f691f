"""What datasets and attributes a format has, and the check of a document against it."""

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


@dataclass(frozen=True)
class Field:
    """One dataset of a format.

    Attributes
    ----------
    kind : str
        "float64", "float32", "int64" or "text".
    shape : tuple of (int or str)
        A number is exact; a name stands for any length, the same wherever it occurs.
    group : str
        Fields of one group that is not empty are there all or not at all.
    """

    kind: str
    shape: tuple[int | str, ...]
    group: str = ""


def check_attributes(
    document: Document, required: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> None:
    """Refuse missing, unknown or mistyped attributes.

    Parameters
    ----------
    document : Document
    required, optional : mapping of str to type
        The types str, int or float of the attributes beside those common to all formats.

    Raises
    ------
    ProblemFileError
        The text names the attribute.
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
    """Refuse missing or unknown datasets, other kinds and shapes.

    Parameters
    ----------
    document : Document
    fields : mapping of str to Field
        The datasets by path.
    sizes : mapping of str to int, optional
        Lengths that are known beforehand.

    Returns
    -------
    dict
        The length that each name in the shapes stands for.

    Raises
    ------
    ProblemFileError
        The text names the dataset.
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

    Parameters
    ----------
    path : str
        The dataset.
    values : ndarray, int64
    lower, stop : int

    Raises
    ------
    ProblemFileError
        The text names the dataset and the first index that is out of range.
    """
    wrong = np.argwhere((values < lower) | (values >= stop))
    if wrong.size:
        place = ", ".join(map(str, wrong[0].tolist()))
        raise ProblemFileError(
            f"dataset '{path}' holds {values[tuple(wrong[0])]} at [{place}]; expected "
            f"{lower} … {stop - 1}"
        )


def array_of(document: Document, path: str) -> NDArray[Any]:
    """Return a numeric dataset that has been checked."""
    value = document.datasets[path]
    assert isinstance(value, np.ndarray)
    return value


def texts_of(document: Document, path: str) -> tuple[str, ...]:
    """Return a dataset of texts that has been checked."""
    value = document.datasets[path]
    assert isinstance(value, tuple)
    return value


def json_of(document: Document, path: str, kind: type) -> Any:
    """Return the JSON data of a dataset of one text.

    Parameters
    ----------
    document : Document
    path : str
    kind : type
        dict or list.

    Raises
    ------
    ProblemFileError
        If the text is not strict JSON or not of that kind.
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
    """Return a numeric attribute that has been checked."""
    value: Attribute = document.attributes[name]
    assert not isinstance(value, str)
    return value


def provenance_paths(names: Iterable[str]) -> dict[str, Field]:
    """Return the fields of texts below `provenance/`."""
    return {f"{PROVENANCE}{name}": Field("text", (1,)) for name in names}
