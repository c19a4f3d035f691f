"""Memory that the core loses: a pytest plugin that looks for it, and what reads the reports.

As a plugin it looks when a process with LeakSanitizer has ended its tests, before the interpreter
is taken down, since what that leaves behind by design would hide the rest. As a program it prints
those leaks of the reports that are its arguments that the core itself allocated, and then exits
with 1.
"""

import ctypes
import gc
import re
import sys
from pathlib import Path

_ALLOCATORS = ("libasan.", "libstdc++.", "libc.")  # libraries that allocate for their callers


def pytest_unconfigure():
    """Have what was lost written into a report."""
    gc.collect()
    ctypes.CDLL(None).__lsan_do_recoverable_leak_check()


def leaks_of_core(report):
    """Yield the leaks of a report whose allocation the core asked for."""
    for leak in re.split(r"\n(?=(?:Direct|Indirect) leak of )", report)[1:]:
        for library in re.findall(r"^ +#\d+ 0x[0-9a-f]+ +\((\S+)\+0x", leak, re.MULTILINE):
            name = Path(library).name
            if name.startswith(_ALLOCATORS):
                continue
            if name.startswith("_core"):
                yield leak
            break


if __name__ == "__main__":
    found = [leak for path in sys.argv[1:] for leak in leaks_of_core(Path(path).read_text())]
    print(*found, sep="\n")
    sys.exit(bool(found))
