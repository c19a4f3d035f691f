"""Reading some objects of HDF5 files that other programs wrote, checked before they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5o, h5s, h5t

from batchkron.errors import ProblemFileError
from batchkron.storage.document import MAX_ATTRIBUTE_BYTES, Document, Value, check_name
from batchkron.storage.file_errors import translated
from batchkron.storage.formats import LOADERS
from batchkron.storage.guarded_reader import (
    check_signature,
    decode_text,
    ignore,
    opened,
    read_numbers,
    refusing_names,
)
from batchkron.storage.inspection import (
    DatasetEntry,
    Limits,
    Walk,
    check_chunks,
    check_layout,
    check_link,
)

MAX_OBJECTS = 4096
"""How many members the root group, and each group that is read, may have."""

# the HDF5 types that are read, by the dtype that they are converted to
_NUMBERS = {"int64": (h5t.STD_I32LE, h5t.STD_I64LE), "float64": (h5t.IEEE_F32LE, h5t.IEEE_F64LE)}
_MAX_DIMENSIONS = 8  # of a dataset; HDF5 itself allows 32
_READ_ITEM_BYTES = 8  # an element once it is read: all become int64 or float64


def read_foreign(
    path: str,
    limits: Limits,
    names: Sequence[str],
    sized: Callable[[int], object] = ignore,
    reaches: Callable[[str], object] = ignore,
) -> Document:
    """Read some objects of an HDF5 file's root group in this process and close the file.

    ``names``: names of the objects; ``*`` stands for any characters. Other objects are not looked
      at, and those that are missing are left out.
    ``sized``, ``reaches``: as of `read_guarded`.

    Result: without attributes. Its datasets have the objects' names with underscores for spaces:
    int64 for integers of 32 and 64 bits, float64 for floating-point numbers of 32 and 64 bits, a
    text for a single string. A scalar has the shape (1,). A group reads as the texts of its
    members' names. The arrays are read-only. Raises `ProblemFileError` if the file is one of
    batchkron's own formats, or one of the objects is damaged, too large or of another kind; the
    text names it. `OSError` if the file cannot be opened.
    """
    datasets: dict[str, Value] = {}
    with opened(path, check_signature, reaches) as (file, size):
        _refuse_family(path, file)
        walk = Walk(path, limits)
        found = dict(_find(walk, h5g.open(file.id, b"/"), names))
        entries = {k: entry for k, entry in found.items() if isinstance(entry, DatasetEntry)}
        _check_sizes(walk, entries, size)
        sized(sum(map(_memory_bytes, entries.values())))
        for name, item in found.items():
            if isinstance(item, DatasetEntry):
                place = f"dataset '{item.path}'"
                reaches(place)
                with translated(path, place):
                    datasets[name] = _read_dataset(path, item)
            else:
                datasets[name] = item
    with refusing_names(path):
        return Document({}, datasets)


def _refuse_family(path: str, file: Any) -> None:
    """Refuse a file of one of batchkron's own formats, which have loaders of their own."""
    found = file.attrs.get("format")
    name = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
    if isinstance(name, str) and name in LOADERS:
        raise ProblemFileError(
            f"{path}: attribute 'format' is '{name}'; load this file with {LOADERS[name]}"
        )


def _find(
    walk: Walk, root: Any, names: Sequence[str]
) -> Iterator[tuple[str, DatasetEntry | tuple[str, ...]]]:
    """Yield each object asked for with its name: a dataset, not yet read, or a group's members.

    The name has underscores for spaces; a group's members are given by their names.
    """
    for encoded, name in _members(walk, root, "the root group"):
        if not any(fnmatchcase(name, pattern) for pattern in names):
            continue
        place = f"object '{name}'"
        key = name.replace(" ", "_")
        with translated(walk.path, place):
            check_name(key, "object")
            if check_link(walk, root, encoded, name) == h5o.TYPE_GROUP:
                members = _members(walk, h5g.open(root, encoded), f"group '{name}'")
                yield key, tuple(member for _, member in members)
            else:
                yield key, _entry(walk, root, encoded, name)


def _members(walk: Walk, group: Any, place: str) -> list[tuple[bytes, str]]:
    """List the names of a group's members, encoded and decoded."""
    count = int(group.get_num_objs())
    if count > walk.limits.objects:
        raise walk.refuse(place, f"has {count} members; expected at most {walk.limits.objects}")
    return [(name, decode_text(walk.path, f"a name in {place}", name)) for name in group]


def _entry(walk: Walk, root: Any, encoded: bytes, name: str) -> DatasetEntry:
    """Open a dataset and check its datatype, dataspace and layout."""
    place = f"dataset '{name}'"
    identifier = h5d.open(root, encoded)
    datatype = identifier.get_type()
    kind = _kind(datatype)
    if kind is None:
        raise walk.refuse(
            place,
            "has another type than integers or floating-point numbers of 32 or 64 bits "
            "(little-endian) and strings",
        )
    space = identifier.get_space()
    if space.get_simple_extent_type() not in (h5s.SIMPLE, h5s.SCALAR):
        raise walk.refuse(place, "is null; expected values")
    shape = tuple(int(length) for length in space.get_simple_extent_dims())
    if len(shape) > _MAX_DIMENSIONS or (kind == "text" and math.prod(shape) != 1):
        raise walk.refuse(
            place,
            f"has shape {shape}; expected at most {_MAX_DIMENSIONS} dimensions, and a single "
            f"string where there is text",
        )
    entry = DatasetEntry(name, identifier, kind, shape, int(datatype.get_size()))
    if kind == "text" and entry.item_bytes > MAX_ATTRIBUTE_BYTES:
        raise walk.refuse(place, f"is longer than {MAX_ATTRIBUTE_BYTES} bytes")
    check_layout(walk, entry)
    return entry


def _kind(datatype: Any) -> str | None:
    if datatype.committed():
        return None
    for kind, types in _NUMBERS.items():
        if any(datatype.equal(expected) for expected in types):
            return kind
    return "text" if isinstance(datatype, h5t.TypeStringID) else None


def _check_sizes(walk: Walk, entries: dict[str, DatasetEntry], file_bytes: int) -> None:
    """Before any dataset is read, refuse sizes above the limit or above what the file can hold."""
    total = stored = 0
    for entry in entries.values():
        place = f"dataset '{entry.path}'"
        total += _memory_bytes(entry)
        if total > walk.limits.content_bytes:
            raise walk.refuse(
                place,
                f"of {entry.declared_bytes} bytes takes the content beyond the limit of "
                f"{walk.limits.content_bytes} bytes; pass trusted=True if you know where the "
                f"file comes from",
            )
        with translated(walk.path, place):
            stored += _check_stored(walk, entry)
        if stored > file_bytes:
            raise walk.refuse(place, "declares more storage than the file has")


def _check_stored(walk: Walk, entry: DatasetEntry) -> int:
    """Check that all of a dataset is there; return the number of bytes that it takes."""
    if not entry.declared_bytes:
        return 0
    if entry.layout == h5d.CHUNKED:
        return check_chunks(walk, entry)
    stored = int(entry.identifier.get_storage_size())
    if stored < entry.declared_bytes:
        raise walk.refuse(
            f"dataset '{entry.path}'",
            f"declares {entry.declared_bytes} bytes, but {stored} are stored in the file",
        )
    return stored


def _memory_bytes(entry: DatasetEntry) -> int:
    if entry.kind == "text":
        return entry.memory_bytes
    return math.prod(entry.shape) * _READ_ITEM_BYTES


def _read_dataset(path: str, entry: DatasetEntry) -> Value:
    if entry.kind == "text":
        return (_read_text(path, entry),)
    return np.atleast_1d(read_numbers(entry))


def _read_text(path: str, entry: DatasetEntry) -> str:
    stored: Any = h5py.Dataset(entry.identifier)[()]
    text = stored if isinstance(stored, bytes) else np.asarray(stored).item()
    place = f"dataset '{entry.path}'"
    if not isinstance(text, bytes) or len(text) > MAX_ATTRIBUTE_BYTES:
        raise ProblemFileError(
            f"{path}: {place} is no string of at most {MAX_ATTRIBUTE_BYTES} bytes"
        )
    return decode_text(path, place, text)
