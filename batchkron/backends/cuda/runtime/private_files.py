"""Files that only this user may write to, opened so that nobody can exchange them meanwhile.

Files in the cache of kernels determine what code runs on the device. So a file there is opened
without following symbolic links and without blocking, and is checked through the open descriptor:
it must be a regular file that this user owns and nobody else may write to.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

_SAFE_OPEN_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


def check_private(status: os.stat_result, path: Path) -> None:
    """Raise PermissionError if another user owns a file or folder, or may write to it."""
    if sys.platform == "win32":
        return
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} is not private to this user")


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file that only this user may write to; return its descriptor.

    ``flags``: flags of `os.open`; a file that is created is readable by this user only. Raises
    OSError if it cannot be opened, or is a symbolic link, a pipe, a folder or a device;
    PermissionError if another user owns it or may write to it.
    """
    descriptor = os.open(path, flags | _SAFE_OPEN_FLAGS, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        check_private(status, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: Path, largest: int) -> bytes:
    """Return a private file's content; OSError as `open_private`, or if it is larger."""
    with os.fdopen(open_private(path), "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(f"{path} has more than {largest} bytes")
    return content


def write_private(path: Path, content: bytes) -> None:
    """Write a file readable by this user only; other processes see all of it or nothing.

    Whatever is at the path, even a symbolic link or a pipe, is replaced without opening it.

    Raises OSError if it cannot be written; the old file then remains.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            file.write(content)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
