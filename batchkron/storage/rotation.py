"""How a new checkpoint takes the place of the last one, which is kept if it is sound."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TypeAlias

from batchkron.errors import ProblemFileError
from batchkron.storage.checkpoint_paths import CHECKPOINT, previous_path
from batchkron.storage.reader import check_file

_Identity: TypeAlias = tuple[int, ...]

_MAX_KNOWN = 256  # files that are remembered; of others the content is read again

_sound: dict[str, _Identity] = {}


def rotate(partial: Path, target: Path) -> None:
    """Put a new checkpoint in place of the last, which becomes the previous one if sound.

    What this process has written or read, and nobody has changed since, is known to be sound. Any
    other file is read whole, in the reader process. One that is broken must not replace a previous
    one that may be sound.

    Parameters
    ----------
    partial : Path
        The new checkpoint, written and synced.
    target : Path
        The last one; it may be missing.
    """
    # A time in nanoseconds: the system's own have a grain of milliseconds, in which a change of
    # the file after this moment could hide.
    now = time.time_ns()
    with contextlib.suppress(OSError):
        os.utime(partial, ns=(now, now))
    with contextlib.suppress(FileNotFoundError):  # somebody has just removed it
        if _is_sound(target):
            os.replace(target, previous_path(target))
    written = file_identity(partial)
    os.replace(partial, target)
    found = file_identity(target)
    # another process may have put a file of its own there; the rename itself changes the status
    if written is not None and found is not None and found[:-1] == written[:-1]:
        note_sound(target, found)


def note_sound(path: str | os.PathLike[str], identity: _Identity | None) -> None:
    """Remember that a file is a sound checkpoint as long as it stays what it is.

    Parameters
    ----------
    path : path
    identity : tuple of int or None
        `file_identity` from before the file was read, or after it was written.
    """
    if len(_sound) >= _MAX_KNOWN:
        _sound.clear()
    if identity is not None:
        _sound[os.path.realpath(path)] = identity


def file_identity(path: str | os.PathLike[str]) -> _Identity | None:
    """Return what changes with any change of a file; None if there is no such file.

    Parameters
    ----------
    path : path

    Returns
    -------
    tuple of int or None
        Device, inode, size, and the times of the last change of content and of status.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _is_sound(target: Path) -> bool:
    identity = file_identity(target)
    if identity is None:
        return False
    if _sound.get(os.path.realpath(target)) == identity:
        return True
    try:
        check_file(target, CHECKPOINT)
    except ProblemFileError:
        return False
    except ChildProcessError:
        return True  # nobody can look; most files are sound
    return True
