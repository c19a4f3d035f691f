"""Reading HDF5 files of unknown origin: everything is checked before any dataset is read.

"The family" are the three formats of batchkron's own files (see `batchkron.storage.formats`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import h5py
import numpy as np
from h5py import h5a, h5g, h5s
from numpy.typing import NDArray

from batchkron.errors import ProblemFileError
from batchkron.storage.document import (
    HASH_ATTRIBUTE,
    MAX_ATTRIBUTE_BYTES,
    NUMERIC_KINDS,
    Attribute,
    Document,
    Value,
    check_name,
)
from batchkron.storage.file_errors import translated
from batchkron.storage.formats import FOREIGN_HINT, find_format_fault, may_lack_hash
from batchkron.storage.inspection import DatasetEntry, Limits, inspect_datasets, type_kind

SIGNATURE = b"\x89HDF\r\n\x1a\n"
"""The first bytes of every HDF5 file."""

_MAX_ATTRIBUTES = 64  # of the root group; far more than any of the formats has


def ignore(what: object) -> None:
    """Do nothing: the callback of a reader whom nobody watches."""


def open_regular(path: str) -> BinaryIO:
    """Open a regular file for reading; refuse anything else at once, also a pipe without a writer.

    Raises `OSError`: FileNotFoundError, PermissionError, …, as `open` does. `IsADirectoryError` for
    a folder. `ProblemFileError` for a pipe, device or socket.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "expected a file, this is a folder", path)
    raise ProblemFileError(f"{path}: not a regular file")


def read_guarded(
    path: str,
    limits: Limits,
    expected: str | None,
    sized: Callable[[int], object] = ignore,
    reaches: Callable[[str], object] = ignore,
) -> Document:
    """Read a whole file of the family in this process and close it.

    ``expected``: the format that the file must have; None accepts all of the family.
    ``sized``: called, before any dataset is read, with what all of them will take in memory, in
      bytes.
    ``reaches``: called with the description of a place ("dataset 'initial'") before that place is
      read.

    Result: its hash agrees with the one that the file declares; its arrays are read-only. Raises
    `ProblemFileError` if any check fails; the text names the offending place. `OSError` if it
    cannot be opened.
    """
    with opened(path, _check_superblock, reaches) as (file, size):
        attributes = _read_format(path, file, expected)
        entries = inspect_datasets(path, file, limits, size)
        sized(sum(entry.memory_bytes for entry in entries))
        datasets = {}
        for entry in entries:
            place = f"dataset '{entry.path}'"
            reaches(place)
            with translated(path, place):
                datasets[entry.path] = _read_dataset(path, entry)
        reaches("the end of the file")
    return _verified(path, attributes, datasets)


def read_attributes_guarded(path: str) -> dict[str, Attribute]:
    """Read the root attributes of any file of the family and nothing else.

    Result: neither the datasets nor the hash are checked. Raises `ProblemFileError` if the file is
    not of the family. `OSError` if it cannot be opened.
    """
    with opened(path, _check_superblock) as (file, _):
        return _read_format(path, file, None)


@contextlib.contextmanager
def opened(
    path: str,
    check: Callable[[str, BinaryIO, int], object],
    reaches: Callable[[str], object] = ignore,
) -> Iterator[tuple[Any, int]]:
    """Open an HDF5 file whose beginning passes a check; yield it as h5py's object, and its size."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        check(path, stream, size)
        reaches("the structure of the file")
        with translated(path, "the structure of the file"), h5py.File(stream, "r") as file:
            yield file, size


def check_signature(path: str, stream: BinaryIO, size: int) -> bytes:
    """Refuse a file that does not begin as an HDF5 file does; return its first 48 bytes.

    ``stream`` (binary file): positioned at the beginning, also afterwards.
    ``size``: size of the file in bytes.

    Raises `ProblemFileError` if the file is empty, shorter than 48 bytes or has no HDF5 signature.
    """
    head = stream.read(48)
    stream.seek(0)
    if not head:
        raise ProblemFileError(f"{path}: the file is empty")
    if not head.startswith(SIGNATURE):
        raise ProblemFileError(f"{path}: not an HDF5 file, the signature is missing")
    if len(head) < 48:
        raise ProblemFileError(f"{path}: the file is truncated, it has {size} bytes")
    return head


def _check_superblock(path: str, stream: BinaryIO, size: int) -> None:
    """Check the superblock, the first 48 bytes of an HDF5 file.

    Byte 8 is its version, bytes 9 and 10 the sizes of addresses and lengths, bytes 28 to 35 the
    end-of-file address (HDF5 File Format Specification, II.A, superblock versions 2 and 3).
    """
    head = check_signature(path, stream, size)
    version = head[8]
    if version not in (2, 3):
        raise ProblemFileError(
            f"{path}: HDF5 superblock version {version}; expected 2 or 3, whose metadata carry "
            f"checksums. Write the file with the library bounds of HDF5 1.10. {FOREIGN_HINT}"
        )
    if (head[9], head[10]) != (8, 8):
        raise ProblemFileError(f"{path}: the superblock declares other than 8-byte addresses")
    end = int.from_bytes(head[28:36], "little")
    if end > size:
        raise ProblemFileError(
            f"{path}: the file is truncated, the superblock declares {end} bytes, it has {size}"
        )


def _read_format(path: str, file: Any, expected: str | None) -> dict[str, Attribute]:
    root = h5g.open(file.id, b"/")
    count = h5a.get_num_attrs(root)
    if count > _MAX_ATTRIBUTES:
        raise ProblemFileError(
            f"{path}: the root group has {count} attributes; expected at most {_MAX_ATTRIBUTES}"
        )
    attributes = {}
    for index in range(count):
        identifier = h5a.open(root, index=index)
        name = decode_text(path, "an attribute's name", identifier.name)
        with refusing_names(path):
            check_name(name, "attribute")
        attributes[name] = _read_attribute(path, name, identifier)
    fault = find_format_fault(attributes, expected)
    if fault is not None:
        raise ProblemFileError(f"{path}: {fault}")
    return attributes


def _read_attribute(path: str, name: str, identifier: Any) -> Attribute:
    place = f"attribute '{name}'"
    datatype = identifier.get_type()
    kind = type_kind(datatype)
    if kind not in ("text", "int64", "float64"):
        raise ProblemFileError(
            f"{path}: {place} has type {kind}; expected int64, float64 or a fixed-length string"
        )
    if identifier.get_space().get_simple_extent_type() != h5s.SCALAR:
        raise ProblemFileError(f"{path}: {place} is not a scalar")
    if datatype.get_size() > MAX_ATTRIBUTE_BYTES:
        raise ProblemFileError(f"{path}: {place} is longer than {MAX_ATTRIBUTE_BYTES} bytes")
    if kind == "text":
        text = np.zeros((), dtype=f"S{datatype.get_size()}")
        identifier.read(text, mtype=datatype)
        return decode_text(path, place, text.item())
    number = np.zeros((), dtype=NUMERIC_KINDS[kind])
    identifier.read(number, mtype=datatype)
    if kind == "int64":
        return int(number)
    if not np.isfinite(number):
        raise ProblemFileError(f"{path}: {place} is {number}; every number must be finite")
    return float(number)


def _read_dataset(path: str, entry: DatasetEntry) -> Value:
    place = f"dataset '{entry.path}'"
    if entry.kind == "text":
        stored = np.zeros(entry.shape, dtype=f"S{entry.item_bytes}")
        if stored.size:
            entry.identifier.read(h5s.ALL, h5s.ALL, stored, mtype=entry.identifier.get_type())
        return tuple(decode_text(path, place, text) for text in stored.tolist())
    return read_numbers(entry)


def read_numbers(entry: DatasetEntry) -> NDArray[Any]:
    """Read a dataset of numbers that has been checked; the array is read-only."""
    array = np.empty(entry.shape, dtype=NUMERIC_KINDS[entry.kind])
    if array.size:
        entry.identifier.read(h5s.ALL, h5s.ALL, array)
    array.flags.writeable = False
    return array


def decode_text(path: str, place: str, text: bytes) -> str:
    """Decode UTF-8 without NUL; refuse anything else with ProblemFileError."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise ProblemFileError(f"{path}: {place} is not UTF-8") from None
    if "\0" in decoded:
        raise ProblemFileError(f"{path}: {place} holds the character NUL")
    return decoded


@contextlib.contextmanager
def refusing_names(path: str) -> Iterator[None]:
    """Turn the ValueError of a check of names or values into a ProblemFileError."""
    try:
        yield
    except ValueError as error:
        raise ProblemFileError(f"{path}: {error}") from None


def _verified(path: str, attributes: dict[str, Attribute], datasets: dict[str, Value]) -> Document:
    """Return the document after comparing its hash with the one that the file declares, if any."""
    with refusing_names(path):
        document = Document(attributes, datasets)
    declared = attributes.get(HASH_ATTRIBUTE)
    if declared is None and may_lack_hash(attributes):
        return document
    if declared != document.content_hash:
        raise ProblemFileError(
            f"{path}: attribute '{HASH_ATTRIBUTE}' is {declared!r}, but the content has the hash "
            f"'{document.content_hash}': the file was changed after it was written"
        )
    return document
