"""What tuning has found, in one small file: the kernels' knobs of each device, shape and dtype.

The file lies in the folder of compiled kernels, which is this user's alone, and is opened with the
same care. A file that somebody else owns or may write to, and an entry that is damaged, of another
version, or made for other device templates, is as good as none: a plan then goes by the rule. What
an entry says is checked against the device before anything is compiled from it.
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
_LOCK = "tuning.lock"
_MAX_ENTRIES = 4096  # shapes in a store; the latest are kept; chosen by hand
_MAX_FILE_BYTES = 8 << 20  # of a store that is read; chosen by hand
_LOCK_SECONDS = 10.0  # a writer holds the lock for milliseconds; one that was stopped, for ever
_NUMBERS = ("rule_microseconds", "microseconds")


@dataclass(frozen=True, slots=True)
class Entry:
    """What was found for a shape: plain data that names the choice, and the times in µs."""

    choice: Any
    rule_microseconds: float
    microseconds: float


def kept_entry(key: str) -> Entry | None:
    """Return what was found for a shape, None if nothing was, or nothing that holds here.

    Parameters
    ----------
    key : str
        Device, shape, dtype and batchkron's version in words.
    """
    try:
        private_folder(create=False)
        path = tuning_path()
        status = path.lstat()
    except (OSError, RuntimeError):
        return None
    state = str(path), status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns
    return _entry(_entries_of(*state).get(key))


def keep_entry(key: str, entry: Entry) -> None:
    """Write what was found for a shape; entries of other writers stay.

    Raises
    ------
    OSError
        If the file cannot be written; PermissionError if the folder is not this user's alone.
    RuntimeError
        If the user has no home.
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
    """Return a hash of the text of all device templates."""
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
    """Keep other writers out; where there is no lock to be had, the last one wins."""
    with ExitStack() as stack:
        with suppress(OSError):
            descriptor = open_private(folder / _LOCK, os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, descriptor)
            _lock(descriptor)
        yield


def _lock(descriptor: int) -> None:
    """Wait for a lock, but not for ever.

    Raises
    ------
    OSError
        If the file system has no locks, or somebody does not let go of it.
    """
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
    """Return the entries of the file in one state of it, read once."""
    return _read(Path(path))


def _read(path: Path) -> dict[str, Any]:
    """Return all entries as they were written, the oldest first; none if the file is not sound."""
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
    """Return an entry that holds for these templates."""
    if not isinstance(data, dict) or data.get("templates") != templates_hash():
        return None
    times = [data.get(name) for name in _NUMBERS]
    sound = all(isinstance(time, float | int) and 0 < time < math.inf for time in times)
    if not sound or "choice" not in data:
        return None
    return Entry(data["choice"], *map(float, times))  # type: ignore[arg-type]
