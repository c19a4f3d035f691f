"""Files that are either wholly written or not there at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

# what an error number means when a file is written, and what to do
_EXPLANATIONS = {
    errno.ENOSPC: "the disk is full; free some space or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another folder",
    errno.EFBIG: "the file would be larger than the limit on file sizes (ulimit -f)",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "no permission to write into this folder; choose another or change its mode",
    errno.EPERM: "no permission to write into this folder; choose another or change its mode",
    errno.EIO: "the device reports an input/output error",
    errno.ENOENT: "the folder does not exist; create it first",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.ENAMETOOLONG: "the file name is too long",
}
_PIECE = 1 << 24  # bytes that one call of write is given: 16 MiB, below the 2 GiB that Linux takes
_LONG_NAME = 200  # bytes; file systems allow 255, and a partial file's name is longer by 26


def write_file(
    path: str | os.PathLike[str],
    data: bytes | memoryview,
    *,
    overwrite: bool = False,
    publish: Callable[[Path, Path], None] | None = None,
) -> None:
    """Write a file so that at every instant the old or the new content is there, complete.

    The data go to a partial file in the same folder, readable by its owner alone. Its name is
    ".NAME.RANDOM.partial", where a NAME of more than 200 bytes is replaced by its hash. The partial
    file gets the mode that any new file would have (or that of the file it replaces), is synced to
    the disk and renamed; then the folder is synced. Partial files that killed processes left behind
    for the same name are removed.

    ``path``: the file; where it is a symbolic link, the file that it points to.
    ``data`` (bytes or memoryview of bytes): the whole content of the file.
    ``overwrite``: replace an existing file. Otherwise even a file that another process creates
      during the call is not replaced.
    ``publish``: called as ``publish(partial, target)`` to give the synced partial file its final
      name; by default a rename if `overwrite` is true, else `publish_exclusively`.

    Raises `FileExistsError` if the file exists and `overwrite` is false. `IsADirectoryError` if the
    path is a folder. `OSError` if the file cannot be written (disk full, read-only, no permission,
    …); what was there before is untouched and the partial file is removed.
    """
    target = Path(os.path.realpath(path))
    _check_target(target, overwrite)
    if publish is None:
        publish = os.replace if overwrite else publish_exclusively
    with _explained(target):
        remove_abandoned(target)
        partial, descriptor, mode = _create_partial(target)
        try:
            try:
                _write_all(descriptor, data)
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
                publish(partial, target)
            finally:
                os.close(descriptor)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                partial.unlink()
            raise
        sync_folder(target.parent)


def publish_exclusively(partial: Path, target: Path) -> None:
    """Give a file its final name unless that name is taken.

    ``partial``, ``target``: the present name and the final one, in one folder.

    Raises `FileExistsError` if the name is taken.
    """
    try:
        os.link(partial, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        # a file system without hard links, such as FAT
        if target.exists():
            raise _exists(target) from None
        os.rename(partial, target)
    else:
        partial.unlink()


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power failure, where the file system supports it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_abandoned(target: Path) -> None:
    """Remove the partial files that killed writers of this target left behind.

    A writer holds a lock (flock) on its partial file, which the system releases when the writer
    dies. So a partial file that can be locked here belongs to no living writer.
    """
    for partial in target.parent.glob(f".{_escaped(_short_name(target))}.*.partial"):
        with contextlib.suppress(OSError):
            descriptor = os.open(partial, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                partial.unlink()
            finally:
                os.close(descriptor)


def _short_name(target: Path) -> str:
    """Return the file's name, or its hash if a partial file's name made of it would be too long."""
    encoded = os.fsencode(target.name)
    return target.name if len(encoded) <= _LONG_NAME else hashlib.sha256(encoded).hexdigest()


def _escaped(name: str) -> str:
    """Return a glob pattern that matches exactly this name."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _create_partial(target: Path) -> tuple[Path, int, int]:
    """Create the partial file, locked and readable by its owner alone.

    Returns its path, its descriptor, and the mode to set when its content is complete.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        partial = target.with_name(f".{_short_name(target)}.{secrets.token_hex(8)}.partial")
        descriptor = os.open(partial, flags, 0o666)
        try:
            # the umask cannot be read without changing it; the mode of a new file shows its effect
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            os.fchmod(descriptor, 0o600)
            is_ours = _lock(descriptor)
            with contextlib.suppress(FileNotFoundError):
                mode = stat.S_IMODE(target.stat().st_mode)
            if is_ours and os.fstat(descriptor).st_nlink == 1:
                return partial, descriptor, mode
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                partial.unlink()
            raise
        # Before it was locked here, another writer took it for abandoned and removed it: try again.
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a partial file against `remove_abandoned`; return False if another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the file system has no locks, so that nobody else can have locked it
    return True


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    with memoryview(data) as view:
        position = 0
        while position < len(view):
            position += os.write(descriptor, view[position : position + _PIECE])


def _check_target(target: Path, overwrite: bool) -> None:
    try:
        mode = target.stat().st_mode
    except OSError:
        return  # the file is missing, as it should be; writing will report any other error
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(
            errno.EISDIR, "cannot write the file, the path is a folder", str(target)
        )
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "cannot write the file, it is not a regular one", str(target))
    if not overwrite:
        raise _exists(target)


def _exists(target: Path) -> FileExistsError:
    return FileExistsError(
        errno.EEXIST, "the file exists; pass overwrite=True to replace it", str(target)
    )


@contextlib.contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Add to an OSError what it means and what to do; its class and errno stay."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno not in _EXPLANATIONS:
            raise
        text = f"cannot write the file: {_EXPLANATIONS[error.errno]}"
        raise OSError(error.errno, text, str(target)) from error
