"""Memory that the core loses: a pytest plugin that looks for it, and a reader of its reports.

As a plugin it looks when a process with LeakSanitizer has ended its tests, before the interpreter
ends, which loses much by design. As a program it takes reports as arguments, prints the leaks of
memory that the core itself allocated, and then exits with 1.
"""

import ctypes
import gc
import re
import sys
from pathlib import Path

_ALLOCATORS = ("libasan.", "libstdc++.", "libc.")  # libraries that allocate for their callers


def pytest_unconfigure():
    """Let LeakSanitizer report what was lost so far."""
    gc.collect()
    ctypes.CDLL(None).__lsan_do_recoverable_leak_check()


def leaks_of_core(report):
    """Yield the leaks of a report that the core allocated."""
    for leak in re.split(r"\n(?=(?:Direct|Indirect) leak of )", report)[1:]:
        for library in re.findall(r"^ +#\d+ 0x[0-9a-f]+ +\((\S+)\+0x", leak, re.MULTILINE):
            name = Path(library).name
            if name.startswith(_ALLOCATORS):
                continue
            if name.startswith(("_core", "libbatchkron")):
                yield leak
            break


if __name__ == "__main__":
    found = [leak for path in sys.argv[1:] for leak in leaks_of_core(Path(path).read_text())]
    print(*found, sep="\n")
    sys.exit(bool(found))
