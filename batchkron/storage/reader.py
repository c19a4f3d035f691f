"""Reading batchkron's files: in this process, or in a reader process if their origin is unknown.

"The family" are the three formats of batchkron's own files (see `batchkron.storage.formats`).
"""

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

# Limits on the reader process. Reading takes at most _PROCESSOR_SECONDS plus one second per
# _BYTES_PER_SECOND bytes of the file, in processor time. The limit in wall-clock time is far
# longer, because a slow disk or a busy machine is no fault of the file.
_STARTUP_TIMEOUT = 300.0  # wall-clock, to start: h5py may be loaded over a slow network
_PROCESSOR_SECONDS = 4.0  # processor time allowed for a file of any size
_BYTES_PER_SECOND = 20e6  # bytes of the file that allow one second of processor time more
_TIMEOUT = 300.0  # wall-clock, allowed for a file of any size
_TIMEOUT_PER_SECOND = 20.0  # wall-clock, for each second of processor time over the first ones
_EXIT_TIMEOUT = 4.0  # wall-clock, in which a process that has closed its output must end
_REFUSALS_PER_PROCESS = 256  # then restart it: libhdf5 does not free all memory after an error

_PROGRAM = Path(__file__).with_name("reader_process.py")
# environment variables that could make libhdf5 load code or open files in another way
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
        malicious file can neither crash nor hang this process, nor use up its memory; content
        that takes more memory than the file is long is limited, see
        `batchkron.storage.content_limits.content_limit`. True reads in this process, for files of
        a known origin.

    Returns
    -------
    Document
        Checked against the hash that the file declares; its arrays are read-only.

    Raises
    ------
    ProblemFileError
        If any check of the file fails; the text names the offending dataset.
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
        Names of objects in the root group; ``*`` stands for any characters. Other objects are not
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
        As of `read_file`.

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
    """Return the format of a file of the family, without reading its datasets.

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
    """The one reader process of this process: started when first needed, restarted after a crash.

    ``_answers`` and ``_refusals`` count the files that the running process has answered for, and
    those of them that it refused. ``_deadline`` is the time (`time.monotonic`) until which it may
    send.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._registered = False
        self._answers = self._refusals = 0
        self._deadline = 0.0
        self._used = 0.0  # seconds of processor time that a process spent on the file it died of

    def ask(
        self, path: str, expected: str | None, want: str, names: Sequence[str] = ()
    ) -> Document:
        """Send a request to read a file and return the answer; other threads wait.

        ``want`` is "document", "check", "attributes" or "foreign", as
        `batchkron.storage.reader_process.answer` documents; ``names`` is for "foreign" only.
        """
        with open_regular(path) as stream:
            status = os.fstat(stream.fileno())
        seconds = _PROCESSOR_SECONDS + status.st_size / _BYTES_PER_SECOND
        request = {
            "path": path,
            "expected": expected,
            "want": want,
            "names": list(names),
            "content_bytes": content_limit(status.st_size, solid_bytes(status)),
            "seconds": seconds,
            "stop_seconds": _TIMEOUT + _TIMEOUT_PER_SECOND * (seconds - _PROCESSOR_SECONDS),
        }
        with self._lock:
            is_fresh = self._answers == 0
            try:
                answer = self._exchange(request)
            except _ReaderDiedError:
                if is_fresh:
                    raise
                # An earlier file may have damaged the process's memory, so try once more in a new
                # process; the time allowed is that of both tries together.
                request["seconds"] = max(1e-3, seconds - self._used)
                request["stop_seconds"] = max(1e-3, self._deadline - time.monotonic())
                answer = self._exchange(request)
        if isinstance(answer, str):
            raise ProblemFileError(answer)
        return answer

    def _exchange(self, request: Mapping[str, Any]) -> Document | str:
        """Send a request; return the document, or as a string what is wrong with the file."""
        try:
            self._send(encode_header(request))
            self._deadline = time.monotonic() + request["stop_seconds"]
            answer = self._receive(request)
        except BaseException:
            self.stop()  # part of a message may be left in the pipe, so it cannot be used again
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
            "HDF5_PLUGIN_PRELOAD": "::",  # tells libhdf5 to load no plugins
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path if p),
        }
        try:
            # A new program and not a fork, in which locks held by other threads would stay locked
            # forever. A process group of its own, so that Ctrl-C does not reach it.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                bufsize=0,
                process_group=0,
            )
            self._deadline = time.monotonic() + _STARTUP_TIMEOUT
            decode_header(self._fill)
        except (OSError, EOFError) as error:
            fault = "it ended at once"
            if isinstance(error, TimeoutError):
                fault = f"it is not ready after {_STARTUP_TIMEOUT:.3g} s"
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
        """Read messages until the answer is complete; explain a timeout or the process's death.

        SIGPROF ends the process when its processor time is used up, SIGALRM when its wall-clock
        time is; the deadline of this side is treated as SIGALRM.
        """
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
        """Wait for the process to end; return the cause and its total processor time in seconds.

        The cause is a signal's name or "exit status N".
        """
        process = self._process
        assert process is not None
        give_up = time.monotonic() + _EXIT_TIMEOUT
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
            # no status is to be had if this process ignores SIGCHLD
            process.returncode = 0
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
        """In the child of a fork, give up the parent's reader process and make a new lock.

        The lock may have been held by a thread of the parent, which the child does not have.
        """
        self._lock = threading.Lock()
        self._answers = self._refusals = 0
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # it is the parent's child, which only the parent can wait for
            _close_pipes(process)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        _pipe(stream).close()


_READER = _Reader()
