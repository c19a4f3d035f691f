"""A pytest plugin that looks for memory that was lost, when a process with LeakSanitizer ends its tests.

Before the interpreter is taken down, since what it leaves behind by design would hide the rest.
"""

import ctypes
import gc


def pytest_unconfigure():
    gc.collect()
    ctypes.CDLL(None).__lsan_do_recoverable_leak_check()
