"""Launches of kernels whose arguments are known but for addresses and scalars."""

from __future__ import annotations

from typing import Any

from batchkron.backends.cuda.kernel import THREADS, Kernel
from batchkron.backends.cuda.runtime.device import current_device, device_limits, load_kernel
from batchkron.backends.cuda.runtime.launch import Launch
from batchkron.backends.cuda.runtime.program import Program
from batchkron.spec.kron import Array

BLOCKS_PER_PROCESSOR = 8
"""Most of these thread blocks for each multiprocessor; chosen by hand."""


def launch_of(
    kernel: Kernel,
    device: int,
    addresses: int,
    scalars: str = "",
    grid: tuple[int, int] | tuple[int, int, int] | None = None,
    code: Any = None,
    **values: Any,
) -> Launch:
    """Return the launch of a kernel with these values of its arguments.

    ``addresses`` and ``scalars`` are those of `Launch`; ``grid`` by default that of the kernel;
    ``code`` is the loaded kernel if it is not that of its program.
    """
    how, arguments = kernel.launch, kernel.arguments.copy() if values else kernel.arguments
    for name, value in values.items():
        arguments[name] = value
    code = code or load_kernel(kernel.program, device)
    grid = grid or (how.blocks, how.down)
    return Launch(code, grid, how.threads, how.shared_bytes, arguments, addresses, scalars)


def elements_launch(
    program: Program,
    turns: int,
    arguments: Array,
    addresses: int,
    scalars: str = "",
    shared_bytes: int = 0,
    per_processor: int = BLOCKS_PER_PROCESSOR,
) -> Launch:
    """Return the launch of a kernel of elements, whose threads share so many turns of its loop."""
    device = current_device()
    most = per_processor * device_limits(device).multiprocessors
    blocks, code = max(1, min(most, -(-turns // THREADS))), load_kernel(program, device)
    return Launch(code, (blocks, 1), THREADS, shared_bytes, arguments, addresses, scalars)
