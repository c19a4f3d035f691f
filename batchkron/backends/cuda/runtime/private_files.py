"""Files of this user alone: opened without trusting what their path has become.

What lies in the folder of kernels decides what runs on the device. So a file there is opened by a
descriptor that follows no symbolic link and waits for nobody, and is looked at through it: it has
to be a regular file that this user owns and nobody else may write to.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

_SAFE_OPEN_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))


def check_private(status: os.stat_result, path: Path) -> None:
    """Refuse a file or folder that another user owns or may write to.

    Raises
    ------
    PermissionError
    """
    if sys.platform == "win32":
        return
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} is not private to this user")


def open_private(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file of this user alone; return its descriptor.

    Parameters
    ----------
    path : Path
    flags : int
        As of `os.open`; a file that is created is readable by this user alone.

    Raises
    ------
    OSError
        If it cannot be opened, or is a symbolic link, a pipe, a folder or a device;
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
    """Return what is in a file of this user alone.

    Raises
    ------
    OSError
        As `open_private`, or if it has more than ``largest`` bytes.
    """
    with os.fdopen(open_private(path), "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(f"{path} has more than {largest} bytes")
    return content


def write_private(path: Path, content: bytes) -> None:
    """Write a file for this user alone; other processes see all of it or nothing.

    What was at the path, a symbolic link or a pipe as well, is replaced and not opened.

    Raises
    ------
    OSError
        If it cannot be written; what was there before stays.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            file.write(content)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
