"""How much content a file may have: what it may decompress to, and what fits into the memory.

A file's content is what its datasets take in memory when they are read. A small compressed file
can declare a huge content, so that reading a file of unknown origin needs a limit.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from batchkron.storage.document import Document, value_kind, value_shape

MAX_CONTENT_BYTES = 1 << 40
"""Limit on the content of every file, also of one of known origin: 1 TiB."""

_MAX_INFLATED_BYTES = 4 << 30  # limit on content that is larger than its file: 4 GiB
_SMALL_CONTENT_BYTES = 256 << 20  # content allowed however small the file is: 256 MiB
_CONTENT_PER_FILE_BYTE = 64  # real files decompress to about 10 times their size, zeros to 1000
_COPIES = 2  # of the content in memory while it is read: in the reader process and in the caller
_BLOCK_BYTES = 512  # the unit of st_blocks in stat, the same for every file system
_TEXT_OVERHEAD = 128  # bytes that Python's str object takes beside the characters, rounded up
_GIB = 1 << 30


def content_limit(file_bytes: int, solid: int | None = None) -> int:
    """Return how many bytes of content a file of unknown origin may declare.

    A small file must not make its reader take much memory: its content is limited to 64 times its
    length plus 256 MiB, at most 4 GiB. Content that the file really stores, byte for byte, cannot
    deceive. So a large file may declare its length plus 256 MiB, if that fits into the memory;
    there the length without holes counts.

    ``file_bytes``: the file's length.
    ``solid``: its length without holes, from `solid_bytes`; by default `file_bytes`.

    Returns the limit in bytes.
    """
    inflated = _inflated_limit(file_bytes)
    stored = _stored_limit(file_bytes if solid is None else solid)
    return inflated if stored <= inflated else max(inflated, min(stored, readable_bytes()))


def solid_bytes(status: os.stat_result) -> int:
    """Return a file's length, or less if the file is sparse: most of it holes, stored nowhere.

    ``status`` (os.stat_result): of the file.

    Returns the length in bytes, but at most 64 times what the file takes on the disk; a file system
    may compress, so that taking less than the length does not prove holes.
    """
    return min(status.st_size, status.st_blocks * _BLOCK_BYTES * _CONTENT_PER_FILE_BYTE)


def readable_bytes() -> int:
    """Return how many bytes of content one file may have to be read on this machine."""
    return min(memory_bytes() // _COPIES, MAX_CONTENT_BYTES)


def memory_bytes() -> int:
    """Return the bytes of memory that this process may use: the machine's, or a lower limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min(limits if soft == resource.RLIM_INFINITY else [*limits, soft])


def value_memory_bytes(kind: str, shape: tuple[int, ...], item_bytes: int) -> int:
    """Return how many bytes a dataset takes in memory when it is read.

    ``kind``: "float32", "float64", "int64" or "text".
    ``item_bytes``: size of one element; HDF5 pads all texts of a dataset to the longest.
    """
    count = math.prod(shape)
    if kind == "text":
        # each text is there twice, as the padded bytes and as a str
        return count * (2 * item_bytes + _TEXT_OVERHEAD)
    return count * item_bytes


def content_bytes(document: Document) -> int:
    """Return the content of a document's file, as its reader will count it, in bytes."""
    total = 0
    for value in document.datasets.values():
        if isinstance(value, tuple):
            item_bytes = max([1, *(len(text.encode()) for text in value)])
        else:
            item_bytes = value.itemsize
        total += value_memory_bytes(value_kind(value), value_shape(value), item_bytes)
    return total


def check_loadable(content: int, file_bytes: int) -> None:
    """Refuse to write a file whose content would exceed the limit of its reader on any machine.

    ``content``: `content_bytes` of its document.
    ``file_bytes``: the file's length.

    Raises `ValueError` if the content exceeds the limits on files of unknown origin, memory left
    aside.
    """
    limit = max(_inflated_limit(file_bytes), _stored_limit(file_bytes))
    if content > limit:
        raise ValueError(
            f"the content has {content} bytes, in a file of {file_bytes} bytes, which could not be "
            f"read back: expected at most {limit} bytes of content"
        )


def unreadable_state(unknowns: int) -> str | None:
    """Say why a file of a state could not be read back on this machine, None if it could.

    ``unknowns``: length of the state vector, which files hold in float64.

    Returns a clause: "a state of … could not be read back …".
    """
    size, limit = 8 * unknowns, readable_bytes()
    if size <= limit:
        return None
    return (
        f"a state of {unknowns} unknowns has {size / _GIB:.3g} GiB and could not be read back: "
        f"expected at most {limit / _GIB:.3g} GiB, for reading a file takes {_COPIES} times its "
        f"content, and {memory_bytes() / _GIB:.3g} GiB of memory may be used here"
    )


def _inflated_limit(file_bytes: int) -> int:
    return min(_MAX_INFLATED_BYTES, _SMALL_CONTENT_BYTES + _CONTENT_PER_FILE_BYTE * file_bytes)


def _stored_limit(file_bytes: int) -> int:
    return min(_SMALL_CONTENT_BYTES + file_bytes, MAX_CONTENT_BYTES)


def _group_limits() -> Iterator[int]:
    """Yield the memory limits (bytes) of this process's control groups, such as a batch job's.

    Groups are nested, and the limit of each outer one holds as well. Linux has two versions of
    them, with other folders and file names.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            version_1 = "memory" in controllers.split(",")
            if not version_1 and controllers:
                continue
            root = Path("/sys/fs/cgroup/memory" if version_1 else "/sys/fs/cgroup")
            name = "memory.limit_in_bytes" if version_1 else "memory.max"
            inner = root / group.lstrip("/")
            for folder in (inner, *inner.parents):
                with contextlib.suppress(OSError, ValueError):  # missing, or "max"
                    yield int((folder / name).read_text())
