"""What a loader does besides its answer: files it opens, memory it takes."""

import contextlib
import ctypes
import os
import resource
import struct
from pathlib import Path

_OPENED_OR_READ = 0x20 | 0x1  # IN_OPEN | IN_ACCESS
_EVENT = struct.Struct("iIII")


class Traps:
    """Files outside a folder that no loader may open, and whether one was opened.

    The kernel reports (inotify) every process that opens one of them. It does not report other
    files: that the reader opens nothing else at all is not known from this.
    """

    def __init__(self, work, outside, sound):
        self._outside = outside
        self._relative = os.path.relpath(outside, work)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._events = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._events < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        for name, content in (("sound.h5", sound), ("secret.txt", b"secret"), ("raw.bin", b"")):
            (outside / name).write_bytes(content)
        if self._libc.inotify_add_watch(self._events, bytes(outside), _OPENED_OR_READ) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")
        self.sprung()

    def name_of(self, name, rng):
        """The name of a trap: absolute, or relative to the damaged file."""
        return str((self._outside, Path(self._relative))[rng.integers(2)] / name)

    def write(self, name, content):
        (self._outside / name).write_bytes(content)

    def sprung(self):
        """Names of the traps that were opened or read since the last call."""
        found = set()
        while True:
            try:
                events = os.read(self._events, 1 << 16)
            except BlockingIOError:
                return found
            while events:
                _, _, _, length = _EVENT.unpack_from(events)
                name = events[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
                found.add(name.decode() or "the folder")
                events = events[_EVENT.size + length :]

    def close(self):
        os.close(self._events)


def memory_of(pid):
    """Address space (VmPeak) and memory (VmHWM) that a process has had at most, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    table = dict(line.split(":", 1) for line in lines)
    return {name: int(table[name].split()[0]) << 10 for name in ("VmPeak", "VmHWM", "VmSize")}


def forget_peak():
    """Set the peak (VmHWM) of this process to the memory that it has now."""
    Path("/proc/self/clear_refs").write_text("5")


def limit_of(pid):
    """The address space that a process may have, in bytes."""
    return resource.prlimit(pid, resource.RLIMIT_AS)[0]


@contextlib.contextmanager
def limited_memory(more):
    """Let this process have only so many bytes more than it has: then MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    allowed = memory_of("self")["VmSize"] + more
    resource.setrlimit(resource.RLIMIT_AS, (allowed, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
