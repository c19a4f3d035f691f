"""How much content a file may have: what it may inflate to, and what fits into the memory."""

from __future__ import annotations

import contextlib
import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from batchkron.storage.document import Document, value_kind, value_shape

MAX_CONTENT_BYTES = 1 << 40
"""The most that any file may hold, one of known origin included."""

_MAX_INFLATED_BYTES = 4 << 30  # that compressed datasets may grow to
_SMALL_CONTENT_BYTES = 256 << 20  # allowed however small the file is
_CONTENT_PER_FILE_BYTE = 64  # sound files reach about 10, all zeros compressed 1000
_COPIES = 2  # of the content while it is read: in the reader process and in the caller
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system
_TEXT_OVERHEAD = 128  # bytes of Python's per text
_GIB = 1 << 30


def content_limit(file_bytes: int, solid: int | None = None) -> int:
    """Return how many bytes of content a file of unknown origin may declare.

    A short file must not ask for much memory: 64 times its length and 256 MiB more, at most 4 GiB.
    What a file holds byte for byte is no such trick. So a long file may declare as much as it is
    long, and 256 MiB more, if that fits into the memory. Holes do not count for that.

    Parameters
    ----------
    file_bytes : int
        The file's length.
    solid : int, optional
        Its `solid_bytes`; by default there are no holes in it.

    Returns
    -------
    int
    """
    inflated = _inflated_limit(file_bytes)
    stored = _stored_limit(file_bytes if solid is None else solid)
    return inflated if stored <= inflated else max(inflated, min(stored, readable_bytes()))


def solid_bytes(status: os.stat_result) -> int:
    """Return a file's length, or less where most of it is holes, which take no place on a disk.

    Parameters
    ----------
    status : os.stat_result

    Returns
    -------
    int
        At most 64 times what the file takes on the disk: file systems compress as well.
    """
    return min(status.st_size, status.st_blocks * _BLOCK_BYTES * _CONTENT_PER_FILE_BYTE)


def readable_bytes() -> int:
    """Return how much content of one file this machine can read."""
    return min(memory_bytes() // _COPIES, MAX_CONTENT_BYTES)


def memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, or a limit below it."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_group_limits()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min(limits if soft == resource.RLIM_INFINITY else [*limits, soft])


def value_memory_bytes(kind: str, shape: tuple[int, ...], item_bytes: int) -> int:
    """Return what a dataset takes in memory when it is read.

    Parameters
    ----------
    kind : str
        "float32", "float64", "int64" or "text".
    shape : tuple of int
    item_bytes : int
        Size of one element; all texts of a dataset are as long as the longest.

    Returns
    -------
    int
    """
    count = math.prod(shape)
    if kind == "text":
        return count * (2 * item_bytes + _TEXT_OVERHEAD)
    return count * item_bytes


def content_bytes(document: Document) -> int:
    """Return what a document's file will declare as its content, in bytes."""
    total = 0
    for value in document.datasets.values():
        if isinstance(value, tuple):
            item_bytes = max([1, *(len(text.encode()) for text in value)])
        else:
            item_bytes = value.itemsize
        total += value_memory_bytes(value_kind(value), value_shape(value), item_bytes)
    return total


def check_loadable(content: int, file_bytes: int) -> None:
    """Refuse to write a file that no reader of files of unknown origin would take.

    Parameters
    ----------
    content : int
        `content_bytes` of its document.
    file_bytes : int
        The file's length.

    Raises
    ------
    ValueError
        If the content is beyond all limits that do not depend on the machine.
    """
    limit = max(_inflated_limit(file_bytes), _stored_limit(file_bytes))
    if content > limit:
        raise ValueError(
            f"the content has {content} bytes, in a file of {file_bytes} bytes, which could not be "
            f"read back: expected at most {limit} bytes of content"
        )


def unreadable_state(unknowns: int) -> str | None:
    """Say why a file of a state could not be read back on this machine, None if it could.

    Parameters
    ----------
    unknowns : int
        Length of the state; files hold float64.

    Returns
    -------
    str or None
        A clause: "a state of … could not be read back …".
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
    """Yield the limits of the control groups around this process, such as a batch job's."""
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
