"""torch.compile with a time limit: first in a process that can be stopped.

What Inductor compiles there is in its cache on the disk, from which the benchmark's own process
takes it. A process is kept from one graph to the next; after one that takes too long it is ended,
with the compilers that it has started.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

MAX_START_SECONDS = 180.0  # of a process: it imports torch, and opens the device
MAX_END_SECONDS = 10.0  # of one that has nothing to do

Task = tuple[int, tuple[int, ...], str]  # rows, sizes of square factors, dtype


def operands(task: Task, device: str) -> tuple[Any, list[Any], Any]:
    """Return random x, factors and a gradient of the product, with gradients of x and factors."""
    count, sizes, dtype = task
    torch.manual_seed(0)
    made: dict[str, Any] = {"dtype": getattr(torch, dtype), "device": device}
    x = torch.randn(count, math.prod(sizes), **made, requires_grad=True)
    factors = [(torch.randn(n, n, **made) / math.sqrt(n)).requires_grad_() for n in sizes]
    return x, factors, torch.randn(count, math.prod(sizes), **made)


def compiled(function: Any, backend: str) -> Any:
    """Return a function under torch.compile, for one shape at a time."""
    return torch.compile(function, backend=backend, dynamic=False)


class LimitedCompiler:
    """Compiles chains of products and their gradients, each in a limited time.

    Parameters
    ----------
    device : str
        "cpu" or "cuda".
    backend : str
        Of torch.compile.
    seconds : float
        The limit for one chain.
    """

    def __init__(self, device: str, backend: str, seconds: float) -> None:
        self._device, self._backend, self._seconds = device, backend, seconds
        self._process: Any = None
        self._connection: Any = None

    def failure(self, task: Task) -> str:
        """Compile; return why that was not possible, "" if it was."""
        try:
            if self._process is None:
                self._start()
            self._connection.send(task)
            if self._connection.poll(self._seconds):
                return str(self._connection.recv())
        except (EOFError, OSError) as error:
            self.stop()
            return f"the process that compiles has ended ({type(error).__name__})"
        self.stop(busy=True)
        return f"took over {self._seconds:g} s to compile"

    def _start(self) -> None:
        self._connection, there = multiprocessing.Pipe()
        # not by multiprocessing: with its module "__mp_main__" the keys of the cache are others
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from benchmarks.torch_compiling import work; "
            f"work({there.fileno()}, {self._device!r}, {self._backend!r})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[there.fileno()], start_new_session=True
        )
        there.close()
        if not self._connection.poll(MAX_START_SECONDS):
            raise OSError("it did not begin")
        self._connection.recv()

    def stop(self, *, busy: bool = False) -> None:
        """End the process, and those that it has started."""
        if self._process is None:
            return
        self._connection.close()  # it ends by itself, if it waits
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if busy else MAX_END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = self._connection = None


def work(file: int, device: str, backend: str) -> None:
    """Compile what comes by a connection, and say "", or what went wrong."""
    from benchmarks.torch_layers import chain, with_gradients  # which imports this module

    warnings.simplefilter("ignore")
    connection = Connection(file)
    if device == "cuda":
        torch.cuda.init()
    connection.send("ready")
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            torch.compiler.reset()
            with_gradients(compiled(chain, backend), *operands(task, device))
            if device == "cuda":
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
        except Exception as error:
            connection.send(f"{type(error).__name__}: {first_line(error)}")
        else:
            connection.send("")


def first_line(error: Exception) -> str:
    """Return the beginning of an error's text."""
    lines: Sequence[str] = str(error).strip().splitlines()
    return lines[0][:100] if lines else ""
