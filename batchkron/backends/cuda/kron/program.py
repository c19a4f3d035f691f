"""All kernels of a Kron-Matmul, loaded, and their launches one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.runtime.arguments import FACTOR
from batchkron.backends.cuda.runtime.launch import ADDRESS_BYTES, Launch, LaunchStep, Place

# Alignment of intermediate results in bytes, the same as CuPy's of arrays: kernels then copy whole
# words and cache lines.
_ALIGNMENT = 256

Strides = Sequence[tuple[int, int]]  # of each factor: elements between rows, between columns
Load = Callable[[Kernel], Any]  # returns the compiled kernel as a CuPy function


class KronProgram:
    """All kernels of a Kron-Matmul in their order, and the same as CuPy functions."""

    def __init__(self, kernels: Sequence[Kernel], load: Load) -> None:
        self.kernels, self._functions = tuple(kernels), tuple(map(load, kernels))

    @property
    def _buffers(self) -> int:
        """Number of intermediate results that exist at the same time."""
        return min(2, len(self.kernels) - 1)

    @property
    def _intermediate(self) -> int:
        """Bytes of the largest intermediate result, a multiple of `_ALIGNMENT`."""
        sizes = (one.work.results * one.work.itemsize for one in self.kernels[:-1])
        return -(-max(sizes, default=0) // _ALIGNMENT) * _ALIGNMENT

    @property
    def bytes(self) -> int:
        """Bytes of workspace of a run: intermediate results, then buffers of kernels."""
        own = max(kernel.launch.workspace for kernel in self.kernels)
        return self._buffers * self._intermediate + own

    def steps(
        self,
        strides: Strides,
        x: Place,
        results: Sequence[Place],
        memory: Place,
        factors: Sequence[Place],
    ) -> list[LaunchStep]:
        """Return the launches for factors with these strides; scalars are 1 and 0.

        ``results``: the places of y and, if there is one, of what is added to it; ``memory``: that
        of the workspace.
        """
        size, found = self._intermediate, []
        own, last = memory.plus(self._buffers * size), len(self.kernels) - 1
        for number, (kernel, function) in enumerate(
            zip(self.kernels, self._functions, strict=True)
        ):
            targets = results if number == last else [memory.plus(number % 2 * size)]
            found.append(_step(kernel, function, strides, (x, *targets), own, factors))
            x = targets[0]
        return found


def _step(
    kernel: Kernel,
    function: Any,
    strides: Strides,
    vectors: Sequence[Place],
    workspace: Place,
    factors: Sequence[Place],
) -> LaunchStep:
    """Return a kernel's launch; ``vectors``: the places of x, y and of what is added, if any."""
    arguments, shape = kernel.arguments.copy(), kernel.launch
    in_steps = "steps" in (arguments.dtype.names or ())  # of the general kernel
    record = arguments["steps"] if in_steps else arguments
    record["factors"] = [(0, 0, 0, *strides[mode]) for mode in kernel.modes]
    places = {ADDRESS_BYTES * k: place for k, place in enumerate(vectors)}
    addresses = 3  # of x, y, previous
    if in_steps:
        places[ADDRESS_BYTES * addresses] = workspace
        addresses += 1
    first = record["factors"].ctypes.data - arguments.ctypes.data
    for k, mode in enumerate(kernel.modes):
        places[first + k * FACTOR.itemsize] = factors[mode]
    grid, memory = (shape.blocks, 1), shape.shared_bytes
    launch = Launch(function, grid, shape.threads, memory, arguments, addresses, "alpha")
    return LaunchStep(launch, places)
