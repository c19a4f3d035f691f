"""How a new checkpoint replaces the last one, which is kept as "PATH.previous" if undamaged.

A checkpoint is called sound if it can be read and passes all checks.
"""

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

_MAX_KNOWN = 256  # sound files that are remembered; when there are more, all are forgotten

_sound: dict[str, _Identity] = {}  # real path of a sound file → its identity


def rotate(partial: Path, target: Path) -> None:
    """Put a new checkpoint in place of the last, which becomes the previous one if sound.

    A file that this process has written or read, and that has not changed since, is known to be
    sound. Any other file is first read whole, in the reader process: a damaged file must not
    replace a previous checkpoint that may be sound.

    ``partial``: the new checkpoint, written and synced.
    ``target``: the last one; it may be missing.
    """
    # Set the modification time in nanoseconds. The system's own times advance in steps of
    # milliseconds, so that a later change of the file within one step would go unnoticed.
    now = time.time_ns()
    with contextlib.suppress(OSError):
        os.utime(partial, ns=(now, now))
    with contextlib.suppress(FileNotFoundError):  # another process may have just removed it
        if _is_sound(target):
            os.replace(target, previous_path(target))
    written = file_identity(partial)
    os.replace(partial, target)
    found = file_identity(target)
    # Another process may have put its own file there meanwhile. The last entry, the time of the
    # last status change, is left out because the rename itself changes it.
    if written is not None and found is not None and found[:-1] == written[:-1]:
        note_sound(target, found)


def note_sound(path: str | os.PathLike[str], identity: _Identity | None) -> None:
    """Remember that a file is a sound checkpoint until it changes.

    ``identity``: `file_identity` from before the file was read, or after it was written; None
      remembers nothing.
    """
    if len(_sound) >= _MAX_KNOWN:
        _sound.clear()
    if identity is not None:
        _sound[os.path.realpath(path)] = identity


def file_identity(path: str | os.PathLike[str]) -> _Identity | None:
    """Return numbers that differ after any change of a file; None if there is no such file.

    Result: device, inode, size in bytes, and the times (ns) of the last change of content and
    status.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


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
        return True  # no reader process, so the file cannot be examined; most are sound
    return True
