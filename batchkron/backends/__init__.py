"""Backends, the implementations for CPU and devices, and the choice between them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cpu.backend import CpuBackend
from batchkron.backends.cpu.environment import (
    checked_instruction_set,
    checked_num_threads,
    choose_num_threads,
    warn_of_missing_kernels,
)
from batchkron.backends.cuda.tuning.tuning import Tuning, tuned_plans, tuning_for
from batchkron.backends.host import HostBackend
from batchkron.backends.protocol import (
    Backend,
    BatchPlan,
    InterpolationPlan,
    KronPlan,
    KrylovBackend,
    Owners,
    Product,
    SumPlan,
    TriangularSum,
    own_apply,
    own_apply_last,
    own_spread,
    reserve,
)
from batchkron.backends.reference import ReferenceBackend

__all__ = [
    "Backend",
    "BatchPlan",
    "HostBackend",
    "InterpolationPlan",
    "KronPlan",
    "KrylovBackend",
    "Owners",
    "Product",
    "SumPlan",
    "TriangularSum",
    "Tuning",
    "backend",
    "backend_for",
    "backend_on",
    "building_on",
    "get_num_threads",
    "host_backend",
    "instruction_set",
    "krylov_backend",
    "own_apply",
    "own_apply_last",
    "own_spread",
    "reserve",
    "set_num_threads",
    "tuned_plans",
    "tuning_for",
    "using",
    "warn_of_missing_kernels",
]

_CPU = CpuBackend()
_HOSTS: dict[str, HostBackend] = {_CPU.name: _CPU, ReferenceBackend.name: ReferenceBackend()}
_host: ContextVar[HostBackend] = ContextVar("host", default=_CPU)  # set by `using`
_chosen: ContextVar[Backend] = ContextVar("backend", default=_CPU)  # by `using`, `building_on`


def backend() -> Backend:
    """Return the backend that operators are built on.

    The compiled one, or what `using` or `building_on` names.
    """
    return _chosen.get()


def host_backend() -> HostBackend:
    """Return the backend for arrays on the CPU: the compiled one, or what `using` names."""
    return _host.get()


@cache
def _cuda() -> Any:
    """Return the backend of CUDA devices, imported on first use."""
    return importlib.import_module("batchkron.backends.cuda.backend").CUDA


def backend_for(module: Any) -> Backend:
    """Return the backend for arrays of NumPy (see `backend`) or CuPy."""
    chosen: Backend = _chosen.get() if module is np else _cuda()
    return chosen


def krylov_backend(module: Any) -> KrylovBackend:
    """Return the backend whose compiled passes Krylov methods use on arrays of NumPy or CuPy.

    The reference backend has no passes of its own.
    """
    chosen: KrylovBackend = _CPU if module is np else _cuda()
    return chosen


def backend_on(device: str) -> Backend:
    """Return the backend of a device, "cpu" or "cuda".

    Raises
    ------
    ValueError
        If there is no such device.
    BackendUnavailableError
        If CuPy is not installed; the text says what to install.
    """
    if device == "cpu":
        return _CPU
    if device == "cuda":
        chosen: Backend = _cuda()
        return chosen
    raise ValueError(f"device is {device!r}; expected 'cpu' or 'cuda'")


@contextmanager
def building_on(chosen: Backend) -> Iterator[None]:
    """Build the operators of a ``with`` block for a backend."""
    token = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(token)


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
    if name not in _HOSTS:
        raise ValueError(f"backend {name!r} is unknown; expected one of {', '.join(_HOSTS)}")
    token = _host.set(_HOSTS[name])
    try:
        with building_on(_HOSTS[name]):
            yield
    finally:
        _host.reset(token)


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
    choose_num_threads(int(count))


def get_num_threads() -> int:
    """Return how many threads the kernels may use.

    At first what ``OMP_NUM_THREADS`` says (and at most ``OMP_THREAD_LIMIT``), or else one per
    processor that this process may use, also by the limit of its control group (a container's). If
    ``OMP_NUM_THREADS`` asks for more than 8 for each processor, it is one for each, with a warning.
    A call may take fewer: one that is short, one like others that were faster on half of them, or a
    quarter, or one lately, and one during which another thread's call has them.
    """
    return checked_num_threads()


def instruction_set() -> str:
    """Return the instruction set of the kernels in use: "baseline", "avx2" or "avx512".

    The best that the processor has, or what the environment variable ``BATCHKRON_ISA`` names.

    Raises
    ------
    BackendUnavailableError
        If ``BATCHKRON_ISA`` names one that there is not, or that the processor does not have.
    """
    return checked_instruction_set()
