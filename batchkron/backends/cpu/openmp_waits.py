"""How long the core's idle threads wait in a loop before they leave their processor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# How often libgomp's waiting threads poll before they sleep: 3000 times take some 50 µs.
_SPIN_VARIABLE, _SPIN_COUNT = "GOMP_SPINCOUNT", "3000"
# If the user has set one of these (or one with a suffix for devices), nothing is changed.
_USER_VARIABLES = (_SPIN_VARIABLE, "OMP_WAIT_POLICY")


@contextmanager
def short_openmp_spin() -> Iterator[None]:
    """Make an OpenMP library that is loaded in this context wait briefly.

    Its threads would else spin for milliseconds after each product, on processors that other
    libraries' threads want: SciPy's ``cg`` with an operator of ours, whose inner products OpenBLAS
    spreads over threads, took six times as long. What the environment says already counts, and
    nothing is left in it.
    """
    if any(value and name.startswith(_USER_VARIABLES) for name, value in os.environ.items()):
        yield
        return
    os.environ[_SPIN_VARIABLE] = _SPIN_COUNT
    try:
        yield
    finally:
        if os.environ.get(_SPIN_VARIABLE) == _SPIN_COUNT:
            os.environ.pop(_SPIN_VARIABLE, None)
