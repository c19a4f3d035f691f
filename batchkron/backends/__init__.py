"""The places where work runs, and the choice between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from batchkron.backends import _native, cpu, reference
from batchkron.backends.protocol import Backend, BatchPlan, KronPlan, KronProduct

__all__ = [
    "Backend",
    "BatchPlan",
    "KronPlan",
    "KronProduct",
    "backend",
    "get_num_threads",
    "instruction_set",
    "set_num_threads",
    "using",
]

_BACKENDS: dict[str, Backend] = {cpu.name: cpu, reference.name: reference}
_chosen: ContextVar[Backend] = ContextVar("backend", default=_BACKENDS["cpu"])


def backend() -> Backend:
    """Return the backend for arrays on the CPU: the compiled one, or what `using` names."""
    return _chosen.get()


@contextmanager
def using(name: str) -> Iterator[None]:
    """Run the calls and build the operators of a ``with`` block on the backend ``name``.

    Parameters
    ----------
    name : str
        "cpu", or "reference" for the slow and obvious one.

    Raises
    ------
    ValueError
        If there is no such backend.

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> with bk.backends.using("reference"):
    ...     bk.gekmm([np.eye(2), np.ones((2, 2))], np.arange(4.0))
    array([1., 1., 5., 5.])
    """
    if name not in _BACKENDS:
        raise ValueError(f"backend {name!r} is unknown; expected one of {', '.join(_BACKENDS)}")
    token = _chosen.set(_BACKENDS[name])
    try:
        yield
    finally:
        _chosen.reset(token)


def set_num_threads(count: int) -> None:
    """Set how many threads the kernels may use from now on.

    Results do not depend on it, to the last bit. Without effect in a child process that was forked
    after threads were used: it has one.

    Parameters
    ----------
    count : int
        At least 1.

    Raises
    ------
    TypeError, ValueError
        If it is not a positive integer.
    """
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
        raise TypeError(f"count is {count!r}; expected an integer, at least 1")
    if not 1 <= count <= 4096:
        raise ValueError(f"count is {count}; expected 1 to 4096 threads")
    _native.set_num_threads(int(count))


def get_num_threads() -> int:
    """Return how many threads the kernels may use; at first OpenMP's default."""
    return _native.get_num_threads()


def instruction_set() -> str:
    """Return the instruction set of the kernels in use: "baseline", "avx2" or "avx512".

    The best that the processor has, or what the environment variable ``BATCHKRON_ISA`` names.
    """
    return _native.instruction_set()
