"""Messages between a process and its reader process: JSON headers and the bytes of arrays.

A message is a header, one JSON object, preceded by its length (8 bytes, little-endian). The reader
process sends ``{"ready": true}`` once, when it has started. Its answer to a request is the messages

- ``{"began": SECONDS}``, the processor time that it has used for everything before;
- ``{"reaches": PLACE}``, any number of times, before each place that is read;
- either ``{"error": TEXT}`` or ``{"attributes": {...}, "datasets": [...]}``; the latter is followed
  by the bytes of the numeric datasets in the order of the list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from batchkron.storage.document import (
    NUMERIC_KINDS,
    Attribute,
    Document,
    Value,
    value_kind,
    value_shape,
)

LENGTH_BYTES = 8
"""Size of the length that precedes each header."""


def encode_header(header: Mapping[str, Any]) -> bytes:
    """Return a message's header as bytes, its length first."""
    encoded = json.dumps(header, allow_nan=False).encode()
    return len(encoded).to_bytes(LENGTH_BYTES, "little") + encoded


def decode_header(read: Callable[[memoryview], None]) -> dict[str, Any]:
    """Read a message's header with a function that fills a buffer."""
    length = bytearray(LENGTH_BYTES)
    read(memoryview(length))
    encoded = bytearray(int.from_bytes(length, "little"))
    read(memoryview(encoded))
    header: dict[str, Any] = json.loads(encoded)
    return header


def document_header(document: Document) -> dict[str, Any]:
    """Return the header that precedes the bytes of a document's arrays."""
    datasets = [
        {
            "path": path,
            "kind": value_kind(value),
            "shape": value_shape(value),
            "texts": value if isinstance(value, tuple) else None,
        }
        for path, value in document.datasets.items()
    ]
    return {"attributes": dict(document.attributes), "datasets": datasets}


def array_bytes(document: Document) -> list[memoryview]:
    """Return the bytes of the numeric datasets, in the header's order, without copies."""
    return [
        np.ascontiguousarray(value).data.cast("B")
        for value in document.datasets.values()
        if not isinstance(value, tuple) and value.size
    ]


def read_document(
    header: Mapping[str, Any], read: Callable[[memoryview], None], limit: int
) -> Document:
    """Build a document from its header and the bytes of the arrays that follow it.

    `read` fills a buffer with the next bytes.

    Raises `ValueError` if the arrays would take more than `limit` bytes.
    """
    attributes: dict[str, Attribute] = header["attributes"]
    datasets: dict[str, Value] = {}
    for entry in header["datasets"]:
        if entry["kind"] == "text":
            datasets[entry["path"]] = tuple(entry["texts"])
            continue
        shape = tuple(entry["shape"])
        kind = NUMERIC_KINDS[entry["kind"]]
        limit -= math.prod(shape) * kind.itemsize
        if limit < 0:
            raise ValueError("the reader process sent more than the limit")
        array = np.empty(shape, dtype=kind)
        if array.size:
            read(array.data.cast("B"))
        array.flags.writeable = False
        datasets[entry["path"]] = array
    return Document(attributes, datasets)
