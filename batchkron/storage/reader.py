"""Reading files of the family: here, or in a reader process if nobody vouches for them."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from batchkron.errors import ProblemFileError
from batchkron.storage.content_limits import MAX_CONTENT_BYTES, content_limit, solid_bytes
from batchkron.storage.document import Attribute, Document
from batchkron.storage.foreign import MAX_OBJECTS, read_foreign
from batchkron.storage.guarded_reader import open_regular, read_attributes_guarded, read_guarded
from batchkron.storage.inspection import Limits
from batchkron.storage.reader_messages import decode_header, encode_header, read_document

_STARTUP_SECONDS = 300.0  # on the clock: h5py may come over a slow network
_SECONDS = 4.0  # processor time that reading a file of any size may take
_BYTES_PER_SECOND = 20e6  # of the file, each second's worth of which allows one second more
_STOP_SECONDS = 300.0  # on the clock, far more, since slow disks and busy machines are no fault
_STOP_PER_SECOND = 20.0  # seconds on the clock for each second of processor time beyond the first
_DEATH_SECONDS = 4.0  # that a process which has closed its output takes to end
_REFUSALS_PER_PROCESS = 256  # libhdf5 does not free everything after an error
_PROGRAM = Path(__file__).with_name("reader_process.py")
_PLUGIN_SETTINGS = ("HDF5_PLUGIN_PATH", "HDF5_VOL_CONNECTOR", "HDF5_DRIVER", "HDF5_DRIVER_CONFIG")


def read_file(
    path: str | os.PathLike[str], expected: str | None, *, trusted: bool = False
) -> Document:
    """Read a whole file of the family and close it.

    Parameters
    ----------
    path : path
    expected : str or None
        The format that the file must have ("batchkron-problem"); None accepts all of the family.
    trusted : bool
        False parses in a reader process with limits on processor time and memory, so that a
        crafted file can neither crash, hang nor fill this one; content that takes more memory
        than the file is long is limited, see `batchkron.storage.content_limits.content_limit`.
        True reads here, for files of a known origin.

    Returns
    -------
    Document
        Checked against the hash that the file declares; its arrays are read-only.

    Raises
    ------
    ProblemFileError
        If the file is not sound; the text names the offending dataset.
    OSError
        If it cannot be opened: FileNotFoundError, IsADirectoryError, PermissionError, …;
        ChildProcessError if the reader process does not start.
    """
    name = os.path.abspath(os.fsdecode(path))
    if trusted:
        return read_guarded(name, Limits(MAX_CONTENT_BYTES), expected)
    return _READER.ask(name, expected, "document")


def read_foreign_file(
    path: str | os.PathLike[str], names: Sequence[str], *, trusted: bool = False
) -> Document:
    """Read some objects of an HDF5 file that another program wrote, and close it.

    Parameters
    ----------
    path : path
    names : sequence of str
        Names of objects in the root group; ``*`` stands for any characters. Others are not
        looked at, and those that are missing are left out.
    trusted : bool
        As of `read_file`.

    Returns
    -------
    Document
        Without attributes; see `batchkron.storage.foreign.read_foreign`.

    Raises
    ------
    ProblemFileError, OSError
        As `read_file`.
    """
    name = os.path.abspath(os.fsdecode(path))
    if trusted:
        return read_foreign(name, Limits(MAX_CONTENT_BYTES, MAX_OBJECTS), names)
    return _READER.ask(name, None, "foreign", names)


def check_file(path: str | os.PathLike[str], expected: str | None) -> Mapping[str, Attribute]:
    """Check a file as `read_file` does, in the reader process, and return its attributes only.

    Parameters
    ----------
    path : path
    expected : str or None

    Returns
    -------
    mapping of str to (str, int or float)

    Raises
    ------
    ProblemFileError, OSError
        As `read_file`.
    """
    return _READER.ask(os.path.abspath(os.fsdecode(path)), expected, "check").attributes


def identify(path: str | os.PathLike[str], *, trusted: bool = False) -> str:
    """Return the format of a file of the family, without reading what it holds.

    Parameters
    ----------
    path : path
    trusted : bool
        As of `read_file`.

    Returns
    -------
    str
        "batchkron-problem", "batchkron-result" or "batchkron-checkpoint".

    Raises
    ------
    ProblemFileError
        If the file is none of these.
    OSError
        If it cannot be opened.
    """
    name = os.path.abspath(os.fsdecode(path))
    if trusted:
        return str(read_attributes_guarded(name)["format"])
    return str(_READER.ask(name, None, "attributes").attributes["format"])


class _ReaderDiedError(ProblemFileError):
    """The reader process ended while it read a file."""


class _Reader:
    """The reader process of this process: started when first needed, restarted after a crash."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._registered = False
        self._answers = self._refusals = 0
        self._deadline = 0.0
        self._used = 0.0  # processor time that the last process took for the file it died of

    def ask(
        self, path: str, expected: str | None, want: str, names: Sequence[str] = ()
    ) -> Document:
        """Have a file read; one request at a time."""
        with open_regular(path) as stream:
            status = os.fstat(stream.fileno())
        seconds = _SECONDS + status.st_size / _BYTES_PER_SECOND
        request = {
            "path": path,
            "expected": expected,
            "want": want,
            "names": list(names),
            "content_bytes": content_limit(status.st_size, solid_bytes(status)),
            "seconds": seconds,
            "stop_seconds": _STOP_SECONDS + _STOP_PER_SECOND * (seconds - _SECONDS),
        }
        with self._lock:
            is_fresh = self._answers == 0
            try:
                answer = self._exchange(request)
            except _ReaderDiedError:
                if is_fresh:
                    raise
                # an earlier file may have done the damage; the time allowed is for both tries
                request["seconds"] = max(1e-3, seconds - self._used)
                request["stop_seconds"] = max(1e-3, self._deadline - time.monotonic())
                answer = self._exchange(request)
        if isinstance(answer, str):
            raise ProblemFileError(answer)
        return answer

    def _exchange(self, request: Mapping[str, Any]) -> Document | str:
        """Return the document, or what is wrong with the file."""
        try:
            self._send(encode_header(request))
            self._deadline = time.monotonic() + request["stop_seconds"]
            answer = self._receive(request)
        except BaseException:
            self.stop()  # in the middle of a message nothing else can be asked
            raise
        self._answers += 1
        if isinstance(answer, str):
            self._refusals += 1
            if self._refusals == _REFUSALS_PER_PROCESS:
                self.stop()
        return answer

    def _send(self, message: bytes) -> None:
        """Send a request, to a new process if the present one has gone."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                _pipe(process.stdin).write(message)
                return
        self.stop()
        _pipe(self._start().stdin).write(message)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {k: v for k, v in os.environ.items() if k not in _PLUGIN_SETTINGS}
        environment |= {
            "HDF5_PLUGIN_PRELOAD": "::",  # HDF5's way to say: load no plugins
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p),
        }
        try:
            # a fresh program, never a fork: threads and their locks do not survive one; and a
            # group of its own, because Ctrl-C is for the process that asks
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                bufsize=0,
                process_group=0,
            )
            self._deadline = time.monotonic() + _STARTUP_SECONDS
            decode_header(self._fill)
        except (OSError, EOFError) as error:
            fault = "it ended at once"
            if isinstance(error, TimeoutError):
                fault = f"it is not ready after {_STARTUP_SECONDS:.3g} s"
            raise ChildProcessError(
                f"the process that reads files of unknown origin does not start, "
                f"{sys.executable or 'no Python executable'}: {str(error) or fault}; "
                f"pass trusted=True if you know where the file comes from"
            ) from error
        if not self._registered:
            self._registered = True
            atexit.register(self.stop)
            os.register_at_fork(after_in_child=self._forget)
        return self._process

    def _receive(self, request: Mapping[str, Any]) -> Document | str:
        path, place, began = request["path"], "the file", 0.0
        try:
            while True:
                header = decode_header(self._fill)
                began = header.get("began", began)
                if "reaches" in header:
                    place = header["reaches"]
                elif "error" in header:
                    return str(header["error"])
                elif "datasets" in header:
                    return read_document(header, self._fill, request["content_bytes"])
        except TimeoutError:
            cause = "SIGALRM"
        except EOFError:
            cause, used = self._end_of_process()
            self._used = max(0.0, used - began)
        if cause == "SIGPROF":
            raise ProblemFileError(
                f"{path}: reading {place} takes longer than a sound file of this size does: more "
                f"than {request['seconds']:.3g} s of processor time"
            )
        if cause == "SIGALRM":
            raise ProblemFileError(
                f"{path}: reading {place} was not done after {request['stop_seconds']:.3g} s on "
                f"the clock, though it may have taken little processor time: the disk or the "
                f"machine may be busy. Try again, or pass trusted=True if you know where the file "
                f"comes from"
            )
        raise _ReaderDiedError(
            f"{path}: {place} is damaged: reading it ended the reader process with {cause}"
        )

    def _fill(self, buffer: memoryview) -> None:
        """Fill a buffer with what the process sends, before the deadline."""
        assert self._process is not None
        descriptor = _pipe(self._process.stdout).fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while len(buffer):
            left = self._deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise TimeoutError
            count = os.readv(descriptor, [buffer])
            if count == 0:
                raise EOFError
            buffer = buffer[count:]

    def _end_of_process(self) -> tuple[str, float]:
        """Wait for the process to end; return the cause and its processor time in all."""
        process = self._process
        assert process is not None
        give_up = time.monotonic() + _DEATH_SECONDS
        used = 0.0
        try:
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() > give_up:
                    process.kill()
                time.sleep(1e-3)
            process.returncode = os.waitstatus_to_exitcode(status)
            used = usage.ru_utime + usage.ru_stime
        except ChildProcessError:
            process.returncode = 0  # nobody can know: this process ignores the ends of others
        with contextlib.suppress(ValueError):
            return signal.Signals(-process.returncode).name, used
        return f"exit status {process.returncode}", used

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        self._answers = self._refusals = 0
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)

    def _forget(self) -> None:
        """In the child of a fork: the process belongs to the parent, the lock to nobody."""
        self._lock = threading.Lock()
        self._answers = self._refusals = 0
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # not ours to wait for
            _close_pipes(process)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        _pipe(stream).close()


_READER = _Reader()
