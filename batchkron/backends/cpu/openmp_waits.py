"""How long the core's idle OpenMP threads spin before they sleep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# The environment variable of libgomp for the number of polls before a waiting thread sleeps;
# 3000 polls take about 50 µs.
_SPIN_VARIABLE, _SPIN_COUNT = "GOMP_SPINCOUNT", "3000"
# If the user has set one of these variables (or one with a device suffix), nothing is changed.
_USER_VARIABLES = (_SPIN_VARIABLE, "OMP_WAIT_POLICY")


@contextmanager
def short_openmp_spin() -> Iterator[None]:
    """Make an OpenMP library that is loaded inside this context spin only briefly.

    By default its threads spin for milliseconds after each product, on processors that threads of
    other libraries need: SciPy's ``cg`` with a batchkron operator took six times as long, because
    its inner products run on OpenBLAS's threads. Settings of the user take precedence, and the
    environment is restored at the end.
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
