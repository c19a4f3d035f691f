"""The content of one of batchkron's files, as plain values in memory, and its hash."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Attribute: TypeAlias = str | int | float
"""The value of an attribute."""

Value: TypeAlias = NDArray[Any] | tuple[str, ...]
"""The value of a dataset: numbers or texts."""

NUMERIC_KINDS: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {"float32": np.dtype("<f4"), "float64": np.dtype("<f8"), "int64": np.dtype("<i8")}
)
"""The numeric datasets that a file may hold; the other kind is "text"."""

PROVENANCE = "provenance/"
"""Datasets below this group say how and when a file was made; the hash leaves them out."""

HASH_ATTRIBUTE = "content_hash"
"""The root attribute that holds the hash of all other content."""

# Limits on texts. Reading them is slow, as each becomes a Python object, and so is parsing JSON: a
# small compressed file could hold so many that its reader is busy for a long time.
MAX_ATTRIBUTE_BYTES = 4096  # one attribute, as UTF-8
MAX_TEXTS = 1 << 16  # texts of one dataset
MAX_TEXT_BYTES = 16 << 20  # all texts of a file together, as UTF-8: 16 MiB
MAX_TEXT_SEPARATORS = 1 << 17  # commas and opening brackets of all texts: values of their JSON
MAX_PADDED_BYTES = 1 << 30  # one dataset of texts, each padded to the longest: 1 GiB

_PATH = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*\Z", re.ASCII)


@dataclass(frozen=True, eq=False)
class Document:
    """Attributes and datasets of one file, checked to be of the kinds that a file may hold.

    Parameters
    ----------
    attributes : mapping of str to (str, int or float)
        Attributes of the root group: short texts, int64 and finite float64 numbers.
    datasets : mapping of str to (ndarray or tuple of str)
        By path ("axes/lower"): arrays of at least one dimension, of finite float64, finite
        float32 or int64; or tuples of texts.

    Raises
    ------
    TypeError
        For a value of another kind.
    ValueError
        For a path, number or text that a file cannot hold.
    """

    attributes: Mapping[str, Attribute]
    datasets: Mapping[str, Value] = field(repr=False)

    def __post_init__(self) -> None:
        for name, attribute in self.attributes.items():
            check_name(name, "attribute")
            _check_attribute(name, attribute)
        for path, value in self.datasets.items():
            check_name(path, "dataset")
            check_value(path, value)
        _check_texts_together(self.datasets)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hexadecimal) of the content, written as a sequence of records.

        The records are first all attributes but `content_hash`, then all datasets outside
        `provenance/`, both sorted by name in ASCII order. A record is a header and the value's
        bytes. The header is UTF-8 text ended by a line feed: ``attribute NAME KIND`` or
        ``dataset PATH KIND SHAPE`` (SHAPE as in ``12x3``). The bytes are int64 and floats
        little-endian in C order, and for a text its length in bytes (little-endian int64) followed
        by its UTF-8 bytes.
        """
        digest = hashlib.sha256()
        for name in sorted(set(self.attributes) - {HASH_ATTRIBUTE}):
            attribute = self.attributes[name]
            digest.update(f"attribute {name} {_attribute_kind(attribute)}\n".encode())
            digest.update(_attribute_bytes(attribute))
        for path in sorted(self.datasets):
            if path.startswith(PROVENANCE):
                continue
            value = self.datasets[path]
            shape = "x".join(map(str, value_shape(value)))
            digest.update(f"dataset {path} {value_kind(value)} {shape}\n".encode())
            if isinstance(value, tuple):
                for text in value:
                    digest.update(_text_record(text))
            elif value.size:
                kind = NUMERIC_KINDS[value_kind(value)]
                digest.update(np.ascontiguousarray(value, dtype=kind).data.cast("B"))
        return digest.hexdigest()


def value_kind(value: Value) -> str:
    """Name the kind of a dataset: "float32", "float64", "int64" or "text"."""
    return "text" if isinstance(value, tuple) else value.dtype.name


def value_shape(value: Value) -> tuple[int, ...]:
    """Return the shape of a dataset; texts have one dimension."""
    return (len(value),) if isinstance(value, tuple) else value.shape


def check_name(name: str, what: str) -> None:
    """Refuse with ValueError a name that is not made of ASCII letters, digits, "_" and "/"."""
    if len(name) > 255 or not _PATH.match(name):
        raise ValueError(
            f"{what} {name[:255]!r}: names are made of at most 255 ASCII letters, digits and "
            f"underscores, groups parted by '/'"
        )


def check_value(path: str, value: Value) -> None:
    """Refuse a dataset that a file cannot hold.

    ``path``: the dataset's path, for the message.

    Raises `TypeError` for another kind of value. `ValueError` for numbers that are not finite, and
    for texts that are not UTF-8 or hold NUL.
    """
    if isinstance(value, tuple):
        for index, text in enumerate(value):
            _check_text(f"dataset '{path}', text {index}", text)
        _check_text_sizes(path, [len(text.encode()) for text in value])
        return
    if not isinstance(value, np.ndarray) or value.dtype.name not in NUMERIC_KINDS:
        found = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise TypeError(
            f"dataset '{path}' is {found}; a file holds arrays of {', '.join(NUMERIC_KINDS)} "
            f"and tuples of str"
        )
    if value.ndim == 0:
        raise ValueError(f"dataset '{path}' is a scalar; expected at least one dimension")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        first = np.unravel_index(int(np.argmin(np.isfinite(value))), value.shape)
        place = ", ".join(map(str, map(int, first)))
        raise ValueError(
            f"dataset '{path}' holds {value[first]!s} at [{place}]; every number must be finite"
        )


def _check_text_sizes(path: str, lengths: list[int]) -> None:
    """Refuse a dataset with so many texts, or such long ones, that reading it would take long.

    The file stores every text padded to the length of the longest.
    """
    if len(lengths) > MAX_TEXTS:
        raise ValueError(f"dataset '{path}' has {len(lengths)} texts; expected at most {MAX_TEXTS}")
    padded = max(lengths, default=0) * len(lengths)
    if padded > MAX_PADDED_BYTES:
        raise ValueError(
            f"dataset '{path}' has {padded} bytes of text when all are as long as the longest; "
            f"expected at most {MAX_PADDED_BYTES}"
        )


def _check_texts_together(datasets: Mapping[str, Value]) -> None:
    """Refuse texts whose total length, or number of JSON values, would take long to read."""
    size = signs = 0
    for path, value in datasets.items():
        if isinstance(value, tuple):
            size += sum(len(text.encode()) for text in value)
            signs += sum(text.count(sign) for text in value for sign in ",[{")
            if size > MAX_TEXT_BYTES:
                raise ValueError(
                    f"dataset '{path}' takes the texts of the file to {size} bytes of text; "
                    f"expected at most {MAX_TEXT_BYTES}"
                )
            if signs > MAX_TEXT_SEPARATORS:
                raise ValueError(
                    f"dataset '{path}' takes the texts of the file to {signs} commas and opening "
                    f"brackets; expected at most {MAX_TEXT_SEPARATORS}: tabulate functions of "
                    f"time at fewer points"
                )


def _check_attribute(name: str, attribute: Attribute) -> None:
    if isinstance(attribute, str):
        _check_text(f"attribute '{name}'", attribute)
        if len(attribute.encode()) > MAX_ATTRIBUTE_BYTES:
            raise ValueError(
                f"attribute '{name}' is longer than {MAX_ATTRIBUTE_BYTES} bytes; "
                f"store it as a dataset"
            )
    elif isinstance(attribute, bool) or not isinstance(attribute, int | float):
        raise TypeError(
            f"attribute '{name}' is {type(attribute).__name__}; expected str, int or float"
        )
    elif isinstance(attribute, int):
        if not -(2**63) <= attribute < 2**63:
            raise ValueError(f"attribute '{name}' is {attribute}, which does not fit into int64")
    elif not math.isfinite(attribute):
        raise ValueError(f"attribute '{name}' is {attribute!r}; every number must be finite")


def _check_text(place: str, text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{place} is {type(text).__name__}; expected str")
    if "\0" in text:
        raise ValueError(f"{place} holds the character NUL, which a text cannot store")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place} cannot be written as UTF-8: {error.reason}") from None


def _attribute_kind(attribute: Attribute) -> str:
    return {str: "text", int: "int64", float: "float64"}[type(attribute)]


def _attribute_bytes(attribute: Attribute) -> bytes:
    if isinstance(attribute, str):
        return _text_record(attribute)
    return np.array(attribute, dtype=NUMERIC_KINDS[_attribute_kind(attribute)]).tobytes()


def _text_record(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(8, "little") + encoded
