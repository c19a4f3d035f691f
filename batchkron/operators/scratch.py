"""Scratch memory of composed operators: one workspace per thread, used like a stack."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from batchkron.spec import Array

_ALIGNMENT = 64


class _Stack(threading.local):
    """The calling thread's memory, and how much of it is in use."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)
        self.used = 0


_stack = _Stack()


@contextmanager
def scratch(elements: int, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Lend uninitialised memory for ``elements`` values within a ``with`` block.

    The memory is kept: a second use of the same size allocates nothing.
    """
    size = -(-elements * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    start = _stack.used
    if start + size > len(_stack.memory):
        # memory lent further out stays alive through its own views
        _stack.memory = np.empty(2 * start + size, np.uint8)
    _stack.used = start + size
    try:
        yield _stack.memory[start : start + elements * dtype.itemsize].view(dtype)
    finally:
        _stack.used = start
