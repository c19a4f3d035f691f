"""What an HDF5 file holds, found and checked without reading any dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from h5py import h5a, h5d, h5g, h5l, h5o, h5s, h5t, h5z

from batchkron.errors import ProblemFileError
from batchkron.storage.content_limits import value_memory_bytes
from batchkron.storage.document import MAX_PADDED_BYTES, MAX_TEXTS, check_name
from batchkron.storage.file_errors import translated

# what a file of batchkron may use of HDF5: filters, storage layouts, numeric types
_FILTERS = (h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32)
_LAYOUTS = {h5d.COMPACT: "compact", h5d.CONTIGUOUS: "contiguous", h5d.CHUNKED: "chunked"}
_NUMBERS = {"int64": h5t.STD_I64LE, "float32": h5t.IEEE_F32LE, "float64": h5t.IEEE_F64LE}
_MAX_DIMENSIONS = 8  # of a dataset; HDF5 itself allows 32
_MAX_CHUNKS = 1 << 20  # of a dataset; chunks of 1 MiB hold 1 TiB, the limit of all content
_MAX_COMPRESSION_RATIO = 1100  # deflate cannot exceed 1032


@dataclass(frozen=True)
class Limits:
    """How large the content of a file may be.

    ``content_bytes``: size of all datasets together in memory, in bytes; computed from the declared
      shapes before any dataset is read.
    ``objects``: number of groups and datasets.
    ``depth``: levels of groups, the root group included.
    """

    content_bytes: int
    objects: int = 256
    depth: int = 4


@dataclass(frozen=True)
class DatasetEntry:
    """One dataset that has been checked and may be read.

    ``path``: path without the leading slash.
    ``identifier``: the open dataset.
    ``kind``: "float32", "float64", "int64" or "text".
    ``item_bytes``: size of one element in the file.
    """

    path: str
    identifier: Any
    kind: str
    shape: tuple[int, ...]
    item_bytes: int

    @property
    def declared_bytes(self) -> int:
        """Size of all elements as the file declares it, before compression."""
        return math.prod(self.shape) * self.item_bytes

    @property
    def memory_bytes(self) -> int:
        """Size of the dataset in memory when it is read."""
        return value_memory_bytes(self.kind, self.shape, self.item_bytes)

    @property
    def layout(self) -> int:
        """How the dataset is stored: h5d.COMPACT, h5d.CONTIGUOUS, h5d.CHUNKED or another one."""
        return int(self.identifier.get_create_plist().get_layout())

    @property
    def filters(self) -> list[int]:
        """HDF5's numbers of the filters that the elements pass."""
        properties = self.identifier.get_create_plist()
        return [int(properties.get_filter(i)[0]) for i in range(properties.get_nfilters())]


class Walk:
    """State of a walk through a file's groups: the limits, and which objects it has met.

    ``path``: the file's name for messages.
    """

    def __init__(self, path: str, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.count = 0  # objects met so far
        self.seen: set[int] = set()  # their addresses

    def refuse(self, place: str, fault: str) -> ProblemFileError:
        """Return, not raise, the error "FILE: PLACE FAULT"."""
        return ProblemFileError(f"{self.path}: {place} {fault}")


def inspect_datasets(path: str, file: Any, limits: Limits, file_bytes: int) -> list[DatasetEntry]:
    """List all datasets of an open file, sorted by path, each checked.

    ``path``: the file's name for messages.
    ``file_bytes``: the file's size on disk.

    Raises `ProblemFileError` for anything but groups and plain datasets that exactly one hard link
    leads to; for attributes below the root group, storage outside the file, virtual datasets,
    filters other than gzip, shuffle and Fletcher-32, and sizes above the limits or above what the
    file can hold.
    """
    walk = Walk(path, limits)
    root = h5g.open(file.id, b"/")
    walk.seen.add(h5o.get_info(root).addr)
    entries = sorted(_datasets(walk, root, "", 1), key=lambda entry: entry.path)
    total = 0
    stored = 0
    for entry in entries:
        with translated(path, f"dataset '{entry.path}'"):
            stored += _check_storage(walk, entry)
        total += entry.memory_bytes
        if total > limits.content_bytes:
            raise walk.refuse(
                f"dataset '{entry.path}'",
                f"of {entry.declared_bytes} bytes takes the content beyond the limit of "
                f"{limits.content_bytes} bytes; pass trusted=True if you know where the file "
                f"comes from",
            )
        if stored > file_bytes:
            raise walk.refuse(f"dataset '{entry.path}'", "declares more storage than the file has")
    return entries


def type_kind(datatype: Any) -> str:
    """Name an HDF5 datatype: the kind of a permitted one, or a description of any other.

    Result: "float32", "float64", "int64" or "text"; any other string describes a type that files
    may not use.
    """
    if datatype.committed():
        return "a named datatype"
    for kind, expected in _NUMBERS.items():
        if datatype.equal(expected):
            return kind
    if isinstance(datatype, h5t.TypeStringID):
        if datatype.is_variable_str():
            return "variable-length string"
        return "space-padded string" if datatype.get_strpad() == h5t.STR_SPACEPAD else "text"
    names = {
        h5t.INTEGER: "another integer",
        h5t.FLOAT: "another floating-point number",
        h5t.REFERENCE: "object reference",
        h5t.VLEN: "variable-length array",
        h5t.COMPOUND: "compound",
        h5t.ENUM: "enumeration",
        h5t.OPAQUE: "opaque",
        h5t.BITFIELD: "bit field",
        h5t.ARRAY: "array",
    }
    return names.get(datatype.get_class(), "unknown")


def _datasets(walk: Walk, group: Any, prefix: str, depth: int) -> Iterator[DatasetEntry]:
    """Yield all datasets of a group and its subgroups, following hard links only.

    ``prefix`` is the group's path with a slash at its end, "" for the root group; ``depth`` its
    level, 1 for the root group.
    """
    place = f"group '/{prefix.rstrip('/')}'"
    if depth > walk.limits.depth:
        raise walk.refuse(place, f"is nested deeper than {walk.limits.depth} levels")
    if prefix and h5a.get_num_attrs(group):
        raise walk.refuse(place, "has attributes; only the root group may have some")
    count = group.get_num_objs()
    walk.count += count
    if walk.count > walk.limits.objects:
        raise walk.refuse(place, f"takes the file beyond {walk.limits.objects} objects")
    for index in range(count):
        encoded = group.get_objname_by_idx(index)
        path = prefix + encoded.decode("utf-8", "replace")
        try:
            check_name(path, "object")
        except ValueError as error:
            raise walk.refuse(place, f"holds a bad name: {error}") from None
        with translated(walk.path, f"object '{path}'"):
            is_group = check_link(walk, group, encoded, path) == h5o.TYPE_GROUP
            found = h5g.open(group, encoded) if is_group else _entry(walk, group, encoded, path)
        if is_group:
            yield from _datasets(walk, found, f"{path}/", depth + 1)
        else:
            yield found


def check_link(walk: Walk, group: Any, encoded: bytes, path: str) -> int:
    """Refuse all but a hard link to a group or dataset not met before; return the object's type.

    ``encoded``: the link's name.
    ``path``: the object's path, for the message.

    Result: h5o.TYPE_GROUP or h5o.TYPE_DATASET. Raises `ProblemFileError`: the text names the
    object.
    """
    place = f"object '{path}'"
    link = group.links.get_info(encoded).type
    if link != h5l.TYPE_HARD:
        name = {h5l.TYPE_SOFT: "a soft link", h5l.TYPE_EXTERNAL: "an external link"}
        raise walk.refuse(
            place, f"is {name.get(link, 'a user-defined link')}; only hard links may be"
        )
    info = h5o.get_info(group, encoded)
    if info.addr in walk.seen or info.rc != 1:
        raise walk.refuse(place, "is linked more than once, under two names or in a cycle")
    walk.seen.add(info.addr)
    if info.type not in (h5o.TYPE_GROUP, h5o.TYPE_DATASET):
        raise walk.refuse(place, "is neither a group nor a dataset")
    return int(info.type)


def _entry(walk: Walk, group: Any, encoded: bytes, path: str) -> DatasetEntry:
    """Open a dataset and check its datatype and dataspace."""
    place = f"dataset '{path}'"
    identifier = h5d.open(group, encoded)
    if h5a.get_num_attrs(identifier):
        raise walk.refuse(place, "has attributes; only the root group may have some")
    datatype = identifier.get_type()
    kind = type_kind(datatype)
    if kind != "text" and kind not in _NUMBERS:
        raise walk.refuse(
            place,
            f"has type {kind}; expected int64, float32 or float64 (little-endian) or a "
            f"fixed-length string",
        )
    space = identifier.get_space()
    if space.get_simple_extent_type() != h5s.SIMPLE:
        raise walk.refuse(place, "is a scalar or null; expected at least one dimension")
    shape = tuple(int(length) for length in space.get_simple_extent_dims())
    if not 1 <= len(shape) <= _MAX_DIMENSIONS:
        raise walk.refuse(place, f"has {len(shape)} dimensions; expected 1 to {_MAX_DIMENSIONS}")
    if kind == "text" and (len(shape) != 1 or shape[0] > MAX_TEXTS):
        raise walk.refuse(
            place, f"has shape {shape}; texts have one dimension of at most {MAX_TEXTS}"
        )
    entry = DatasetEntry(path, identifier, kind, shape, int(datatype.get_size()))
    if kind == "text" and entry.declared_bytes > MAX_PADDED_BYTES:
        raise walk.refuse(
            place,
            f"declares {entry.declared_bytes} bytes of text; expected at most {MAX_PADDED_BYTES}",
        )
    return entry


def _check_storage(walk: Walk, entry: DatasetEntry) -> int:
    """Check how a dataset is stored; return the number of bytes that it takes in the file."""
    check_layout(walk, entry)
    if not entry.declared_bytes:
        return 0
    if entry.layout != h5d.CHUNKED or h5z.FILTER_FLETCHER32 not in entry.filters:
        raise walk.refuse(
            f"dataset '{entry.path}'",
            f"is {_LAYOUTS[entry.layout]} without checksums; expected chunks with Fletcher-32",
        )
    return check_chunks(walk, entry)


def check_layout(walk: Walk, entry: DatasetEntry) -> None:
    """Refuse virtual datasets, storage outside the file, and foreign or repeated filters.

    Raises `ProblemFileError`: the text names the dataset.
    """
    place = f"dataset '{entry.path}'"
    if entry.layout not in _LAYOUTS:
        raise walk.refuse(place, "is a virtual dataset, whose data lie in other files")
    if entry.identifier.get_create_plist().get_external_count():
        raise walk.refuse(place, "has external storage, outside this file")
    filters = entry.filters
    for code in filters:
        if code not in _FILTERS or filters.count(code) > 1:
            raise walk.refuse(
                place,
                f"passes HDF5 filter {code}; expected gzip, shuffle and Fletcher-32, each at "
                f"most once",
            )


def check_chunks(walk: Walk, entry: DatasetEntry) -> int:
    """Check that all chunks exist and that their bytes suffice for the size that is declared.

    Otherwise a missing chunk would be read as zeros, and a few bytes could declare a huge dataset.

    ``entry``: a chunked dataset.

    Result: bytes that it takes in the file. Raises `ProblemFileError`: the text names the dataset.
    """
    place = f"dataset '{entry.path}'"
    chunks = entry.identifier.get_create_plist().get_chunk()
    compressed = h5z.FILTER_DEFLATE in entry.filters
    if any(chunk > length for chunk, length in zip(chunks, entry.shape, strict=True)):
        raise walk.refuse(place, f"of shape {entry.shape} has larger chunks, {tuple(chunks)}")
    stored = int(entry.identifier.get_storage_size())
    if entry.declared_bytes > stored * (_MAX_COMPRESSION_RATIO if compressed else 1):
        raise walk.refuse(
            place,
            f"declares {entry.declared_bytes} bytes in shape {entry.shape}, but only {stored} "
            f"bytes are stored in the file",
        )
    counts = [-(-n // chunk) for n, chunk in zip(entry.shape, chunks, strict=True)]
    expected = math.prod(counts)
    if expected > _MAX_CHUNKS:
        raise walk.refuse(place, f"has {expected} chunks; expected at most {_MAX_CHUNKS}")
    found = int(entry.identifier.get_num_chunks())
    if found != expected:
        raise walk.refuse(place, f"has {found} of its {expected} chunks, the others are missing")
    return stored
