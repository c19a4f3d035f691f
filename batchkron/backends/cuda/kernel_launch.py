"""The launch of a kernel whose arguments are known but for addresses and scalars."""

from __future__ import annotations

from typing import Any

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.runtime.device import load_kernel
from batchkron.backends.cuda.runtime.launch import Launch


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
