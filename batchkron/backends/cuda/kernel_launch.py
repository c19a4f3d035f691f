"""The launch of a kernel whose arguments are known but for addresses and scalars."""

from __future__ import annotations

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.runtime.device import load_kernel
from batchkron.backends.cuda.runtime.launch import Launch


def launch_of(kernel: Kernel, device: int, addresses: int, scalars: str = "") -> Launch:
    """Return the launch of a kernel; ``addresses`` and ``scalars`` are those of `Launch`."""
    how, code = kernel.launch, load_kernel(kernel.program, device)
    grid = how.blocks, how.down
    return Launch(code, grid, how.threads, how.shared_bytes, kernel.arguments, addresses, scalars)
