"""The process that parses files of unknown origin.

libhdf5 can crash, hang or use up the memory on a malicious file. So such files are read in this
process, which has limits on processor time and memory. `batchkron.storage.reader` starts it and
keeps it for further files. It reads requests from standard input until that is closed, which also
happens when the process that started it dies; the messages are described in
`batchkron.storage.reader_messages`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any, BinaryIO

if __name__ == "__main__":
    # This empty package replaces batchkron's own __init__, which would load the compiled kernels
    # and SciPy; reading a file needs neither.
    _package = types.ModuleType("batchkron")
    _package.__path__ = [str(Path(__file__).resolve().parent.parent)]
    sys.modules["batchkron"] = _package

from batchkron.errors import ProblemFileError
from batchkron.storage.document import Document
from batchkron.storage.foreign import MAX_OBJECTS, read_foreign
from batchkron.storage.guarded_reader import read_attributes_guarded, read_guarded
from batchkron.storage.inspection import Limits
from batchkron.storage.reader_messages import (
    array_bytes,
    decode_header,
    document_header,
    encode_header,
)

_SPARE_BYTES = 256 << 20  # memory allowed beyond the content: libhdf5's own buffers
_WORKING_COPIES = 3  # of the content: the arrays, and temporary copies for hashing and sending


def main() -> None:
    """Answer requests until standard input is closed."""
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    # what a library prints must not get into the messages; and nothing may be written to a disk
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks handles Ctrl-C
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM, signal.SIGPROF))

    def fill(buffer: memoryview) -> None:
        if len(buffer) and incoming.readinto(buffer) != len(buffer):
            raise EOFError

    send(outgoing, {"ready": True})
    while True:
        try:
            request = decode_header(fill)
        except EOFError:
            return
        send(outgoing, {"began": time.process_time()})
        # These timers end this process even if libhdf5 hangs and the process that asked has died.
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        signal.setitimer(signal.ITIMER_REAL, request["stop_seconds"])
        _limit_memory(0)
        answer(outgoing, request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def answer(outgoing: BinaryIO, request: dict[str, Any]) -> None:
    """Read the file of a request and send its content, or the error.

    ``outgoing`` (binary file).
    ``request``: path; expected, the format or None; want, "document" (all content), "check" (all is
      read, only the attributes are sent), "attributes" (only they are read) or "foreign" (objects
      of another program's file); names, of the objects in a foreign file; content_bytes, the limit
      on the content; seconds, the limit on processor time; stop_seconds, that on wall-clock time.
    """

    def reaches(place: str) -> None:
        send(outgoing, {"reaches": place})

    path = request["path"]
    try:
        if request["want"] == "attributes":
            document = Document(read_attributes_guarded(path), {})
        elif request["want"] == "foreign":
            limits = Limits(request["content_bytes"], MAX_OBJECTS)
            document = read_foreign(path, limits, request["names"], _limit_memory, reaches)
        else:
            limits = Limits(request["content_bytes"])
            document = read_guarded(path, limits, request["expected"], _limit_memory, reaches)
            if request["want"] == "check":
                document = Document(document.attributes, {})
    except MemoryError:
        send(outgoing, {"error": f"{path}: reading needs more memory than the file's size allows"})
    except (ProblemFileError, OSError) as error:
        send(outgoing, {"error": str(error)})
    else:
        outgoing.write(encode_header(document_header(document)))
        for piece in array_bytes(document):
            outgoing.write(piece)
        outgoing.flush()


def send(outgoing: BinaryIO, header: dict[str, Any]) -> None:
    """Send a message without arrays."""
    outgoing.write(encode_header(header))
    outgoing.flush()


def _limit_memory(content_bytes: int) -> None:
    """Limit memory to what the process has now, the copies of the content, and a reserve."""
    if sys.platform != "linux":
        return  # other systems do not enforce RLIMIT_AS
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    allowed = pages * resource.getpagesize() + _SPARE_BYTES + _WORKING_COPIES * content_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        allowed = min(allowed, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


if __name__ == "__main__":
    main()
