"""How long the core's idle threads wait in a loop before they leave their processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_TURNS = "3000"  # of libgomp's loop: some 50 µs
_OF_THE_USER = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}


@contextmanager
def brief_waits() -> Iterator[None]:
    """Make an OpenMP library that is loaded in this context wait briefly.

    Its threads would else spin for milliseconds after each product, on processors that other
    libraries' threads want: SciPy's ``cg`` with an operator of ours, whose inner products OpenBLAS
    spreads over threads, took six times as long. Whatever the environment says already counts, and
    it is as before afterwards.
    """
    if _OF_THE_USER & os.environ.keys():
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = _TURNS
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]
