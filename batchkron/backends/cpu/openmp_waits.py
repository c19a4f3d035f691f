"""How long the core's idle threads wait in a loop before they leave their processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NAME, _TURNS = "GOMP_SPINCOUNT", "3000"  # of libgomp's loop: some 50 µs
_OF_THE_USER = (_NAME, "OMP_WAIT_POLICY")  # for the host, or for all devices, by a suffix


@contextmanager
def brief_waits() -> Iterator[None]:
    """Make an OpenMP library that is loaded in this context wait briefly.

    Its threads would else spin for milliseconds after each product, on processors that other
    libraries' threads want: SciPy's ``cg`` with an operator of ours, whose inner products OpenBLAS
    spreads over threads, took six times as long. What the environment says already counts, and
    nothing is left in it.
    """
    if any(value and name.startswith(_OF_THE_USER) for name, value in os.environ.items()):
        yield
        return
    os.environ[_NAME] = _TURNS
    try:
        yield
    finally:
        if os.environ.get(_NAME) == _TURNS:
            os.environ.pop(_NAME, None)
