"""Cache of compiled device kernels on disk, so that a second process need not compile them.

An entry's name is a hash of everything that determines the compiled code; the entry contains a hash
of the code. Entries are written under a temporary name and then renamed. If the folder exceeds
its limit, the entries that were not used for longest are removed. If the cache cannot be used or an
entry is damaged, the kernel is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from batchkron.backends.cuda.runtime.private_files import check_private, read_private, write_private
from batchkron.log import logger

_log = logger("cache")

_MAGIC = b"batchkron-kernel-1\n"  # first bytes of an entry: format and version
_SUFFIX = ".kernel"
_MAX_CACHE_BYTES = 256 << 20  # limit of the folder in bytes; chosen by hand
# Age in seconds from which a temporary file is taken for that of a process that died; chosen by
# hand.
_ABANDONED_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Machine code of one kernel (a cubin), and the kernel's mangled name in it."""

    name: str
    code: bytes


_records: dict[int, dict[str, bool]] = {}  # by their ids


@contextmanager
def recorded_kernels() -> Iterator[dict[str, bool]]:
    """Record the kernels that any thread requests from the cache, not those loaded before.

    A key is True if its kernel was compiled, False if it was found in the cache.
    """
    record: dict[str, bool] = {}
    _records[id(record)] = record
    try:
        yield record
    finally:
        del _records[id(record)]


def _note(key: str, is_new: bool) -> None:
    for record in tuple(_records.values()):
        record[key] = is_new or record.get(key, False)


def cache_folder() -> Path:
    """Return the cache's folder: ``BATCHKRON_CACHE_DIR``, or the platform's standard folder."""
    chosen = os.environ.get("BATCHKRON_CACHE_DIR")
    if chosen:
        return Path(chosen) / "kernels"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "batchkron" / "kernels"


def tuning_path() -> Path:
    """Return the file with the results of tuning, see `batchkron.backends.cuda.tuning.store`."""
    return cache_folder() / "tuning.json"


def is_tuned() -> bool:
    """Return whether this user has a file with results of tuning."""
    try:
        return _is_regular(tuning_path())
    except RuntimeError:
        return False


def cached_kernel(key: str, compile_kernel: Callable[[], CompiledKernel]) -> CompiledKernel:
    """Return the kernel of ``key`` (`program_key`) from the cache, or compile and store it."""
    try:
        folder = private_folder()
    except (OSError, RuntimeError) as error:
        _log.info("kernel %s is compiled, and not stored: %s", key[:16], error)
        _note(key, True)
        return compile_kernel()
    path = folder / (key + _SUFFIX)
    found = _read(path)
    _note(key, found is None)
    if found is not None:
        _log.debug("kernel %s (%s) is read from %s", key[:16], found.name, folder)
        return found
    began = time.perf_counter()
    found = compile_kernel()
    seconds = time.perf_counter() - began
    _log.info("kernel %s (%s) is compiled in %.2f s", key[:16], found.name, seconds)
    try:
        _write(path, found)
        _shrink(folder, _MAX_CACHE_BYTES)
    except OSError as error:
        _log.warning("kernel %s is not stored in %s: %s", key[:16], folder, error)
    return found


def is_kept(key: str) -> bool:
    """Return whether the cache has an entry for a key."""
    return _is_regular(cache_folder() / (key + _SUFFIX))


def _is_regular(path: Path) -> bool:
    """Whether a path is a regular file, and no symbolic link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def private_folder(*, create: bool = True) -> Path:
    """Return the cache's folder after checking that only this user can write to it.

    ``create``: create it if it is missing. Raises OSError if it is missing or cannot be created;
    PermissionError if another user owns it or may write to it: code from there runs on the device.
    Raises RuntimeError if the user's home folder is unknown.
    """
    folder = cache_folder()
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise PermissionError(f"{folder} is not private to this user")
    check_private(status, folder)
    return folder


def _read(path: Path) -> CompiledKernel | None:
    """Return an entry and update its time of use; None if it is missing or damaged."""
    try:
        content = read_private(path, _MAX_CACHE_BYTES)
    except OSError:
        return None
    head, payload = content[: len(_MAGIC)], content[len(_MAGIC) + 32 :]
    name, separator, code = payload.partition(b"\0")
    sound = head == _MAGIC and content[len(_MAGIC) :][:32] == _digest(path, payload)
    if not (sound and separator):
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):
        os.utime(path, follow_symlinks=False)
    return CompiledKernel(name.decode(), code)


def _digest(path: Path, payload: bytes) -> bytes:
    """Return the hash of an entry's name and content, so that a renamed entry is not accepted."""
    return hashlib.sha256(path.name.encode() + b"\0" + payload).digest()


def _write(path: Path, kernel: CompiledKernel) -> None:
    """Write an entry."""
    payload = kernel.name.encode() + b"\0" + kernel.code
    write_private(path, _MAGIC + _digest(path, payload) + payload)


def _shrink(folder: Path, largest: int) -> None:
    """Remove the entries that were not used for longest until ``largest`` bytes are left at most.

    Several processes may do this at the same time, so any file may vanish meanwhile.
    """
    entries = []
    for path in folder.iterdir():
        with suppress(OSError):
            status = path.stat()
            if path.suffix == ".part" and status.st_mtime < time.time() - _ABANDONED_SECONDS:
                path.unlink()
            elif path.suffix == _SUFFIX:
                entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= largest:
            break
        with suppress(OSError):
            path.unlink()
        total -= size
