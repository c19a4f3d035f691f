"""The store of tuning results: one file with the fastest parameters per device, shape and dtype.

The file lies in the cache folder of compiled kernels, which only this user may write to, and is
opened with the same checks. It is ignored if somebody else owns it or may write to it. An entry is
ignored if it is damaged, of another version, or made for other kernel templates; the plan is then
built by the rule, as without tuning. Entries are checked against the device's limits before use.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from batchkron.backends.cuda.runtime.kernel_cache import private_folder, tuning_path
from batchkron.backends.cuda.runtime.private_files import open_private, read_private, write_private
from batchkron.backends.cuda.runtime.program import device_sources

_FORMAT = "batchkron-tuning"
_FORMAT_VERSION = 1
_LOCK = "tuning.lock"  # file that writers lock
_MAX_ENTRIES = 4096  # largest number of entries; the latest are kept; chosen by hand
_MAX_FILE_BYTES = 8 << 20  # larger files are not read; chosen by hand
# Time to wait for the lock, in seconds: a writer holds it for milliseconds, but a suspended one
# holds it for ever. Chosen by hand.
_LOCK_SECONDS = 10.0
_NUMBERS = ("rule_microseconds", "microseconds")  # fields of an entry that are times in µs


@dataclass(frozen=True, slots=True)
class Entry:
    """The result for a shape: the choice as plain data; times of the rule and the choice in µs."""

    choice: Any
    rule_microseconds: float
    microseconds: float


def kept_entry(key: str) -> Entry | None:
    """Return the result of a key (device, shape, dtype, version), None without a current one."""
    try:
        private_folder(create=False)
        path = tuning_path()
        status = path.lstat()
    except (OSError, RuntimeError):
        return None
    state = str(path), status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns
    return _entry(_entries_of(*state).get(key))


def keep_entry(key: str, entry: Entry) -> None:
    """Store the result for a shape; entries that other processes wrote meanwhile remain.

    Raises OSError if the file cannot be written; PermissionError if others may write to the folder.
    Raises RuntimeError if the user's home folder is unknown.
    """
    with _locked(private_folder()):
        entries = dict(_read(tuning_path()))
        entries.pop(key, None)
        entries[key] = {
            "templates": templates_hash(),
            "choice": entry.choice,
            "rule_microseconds": entry.rule_microseconds,
            "microseconds": entry.microseconds,
        }
        pairs = list(entries.items())[-_MAX_ENTRIES:]
        document = {"format": _FORMAT, "format_version": _FORMAT_VERSION, "entries": pairs}
        write_private(tuning_path(), json.dumps(document, ensure_ascii=False).encode())


@lru_cache(maxsize=1)
def templates_hash() -> str:
    """Return a hash of the text of all kernel templates."""
    digest = hashlib.sha256()
    for name, text in sorted(device_sources().items()):
        for part in (name, text):
            encoded = part.encode()
            digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


@lru_cache(maxsize=1)
def tuned_version() -> str:
    """Return batchkron's version, which is a part of all keys."""
    return version("batchkron")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the store against other writers; if that is not possible, the last writer wins."""
    with ExitStack() as stack:
        with suppress(OSError):
            descriptor = open_private(folder / _LOCK, os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, descriptor)
            _lock(descriptor)
        yield


def _lock(descriptor: int) -> None:
    """Take the lock; OSError if there are none, or after `_LOCK_SECONDS`."""
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(2e-3)


@lru_cache(maxsize=2)
def _entries_of(path: str, *state: int) -> dict[str, Any]:
    """Return the file's entries, cached as long as ``state`` (from os.stat) is the same."""
    return _read(Path(path))


def _read(path: Path) -> dict[str, Any]:
    """Return all entries as written, the oldest first; an empty dict if the file is not valid."""
    try:
        document = json.loads(read_private(path, _MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        return {}
    pairs = document.get("entries")
    if document.get("format_version") != _FORMAT_VERSION or not isinstance(pairs, list):
        return {}
    return {
        pair[0]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
    }


def _entry(data: Any) -> Entry | None:
    """Return a written entry, None if it is damaged or made for other templates."""
    if not isinstance(data, dict) or data.get("templates") != templates_hash():
        return None
    times = [data.get(name) for name in _NUMBERS]
    sound = all(isinstance(time, float | int) and 0 < time < math.inf for time in times)
    if not sound or "choice" not in data:
        return None
    return Entry(data["choice"], *map(float, times))  # type: ignore[arg-type]
