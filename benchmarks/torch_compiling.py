"""A chain of torch's products, compiled in a limited time: first in a process of its own.

What Inductor compiles there is in its cache on the disk, from which the benchmark's own process
takes it.
"""

import math
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.shapes import chain

Task = tuple[int, tuple[int, ...], str]  # rows, sizes of square factors, dtype
READY = "ready"


def operands(task: Task, device: str) -> tuple[Any, list[Any], Any]:
    count, sizes, dtype = task
    torch.manual_seed(0)
    made: dict[str, Any] = {"dtype": getattr(torch, dtype), "device": device}
    x = torch.randn(count, math.prod(sizes), **made, requires_grad=True)
    factors = [(torch.randn(n, n, **made) / math.sqrt(n)).requires_grad_() for n in sizes]
    return x, factors, torch.randn(count, math.prod(sizes), **made)


def with_gradients(function: Any, x: Tensor, factors: Sequence[Tensor], g: Tensor) -> Any:
    """The product, and the gradients of x and all factors.

    Without its history: that of a call on another stream must not take part in a captured one.
    """
    y = function(x, factors)
    gradients = torch.autograd.grad(y, (x, *factors), g)
    return y.detach(), *gradients


def compiled(function: Any, backend: str) -> Any:
    return torch.compile(function, backend=backend, dynamic=False)


def failure(task: Task, device: str, backend: str, seconds: float) -> str:
    """Compile a chain and its gradients in a process; why that was not possible, or ""."""
    # not by multiprocessing: with its module "__mp_main__" the keys of the cache are others
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from benchmarks.torch_compiling import work; "
        f"work({task!r}, {device!r}, {backend!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    while (line := process.stdout.readline()) and line.strip() != READY:
        pass
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has started
        process.communicate()
        return f"took over {seconds:g} s to compile"
    if process.returncode:
        return f"the process that compiles has ended with status {process.returncode}"
    return said.strip().rpartition("\n")[2]


def work(task: Task, device: str, backend: str) -> None:
    warnings.simplefilter("ignore")
    given = operands(task, device)
    print(READY, flush=True)
    try:
        with_gradients(compiled(chain, backend), *given)
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        print(f"{type(error).__name__}: {text[:100]}")
