"""What plans on a device share: kernels bound to arrays, and the ways to call a linear map."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    device_errors,
    load_kernel,
)
from batchkron.backends.cuda.runtime.launch import FastPath, Launch


def bound(
    kernel: Kernel,
    device: int,
    addresses: int,
    scalars: str = "",
    grid: tuple[int, ...] = (),
    code: Any = None,
    **values: Any,
) -> Launch:
    """Return the launch of a kernel with these values of its arguments.

    ``addresses`` and ``scalars`` are those of `Launch`; ``grid`` by default that of the kernel;
    ``code`` is the loaded kernel if it is not that of its program.
    """
    how, arguments = kernel.launch, kernel.arguments.copy()
    for name, value in values.items():
        arguments[name] = value
    code = code or load_kernel(kernel.program, device)
    grid = grid or (how.blocks, how.down)
    return Launch(code, grid, how.threads, how.shared_bytes, arguments, addresses, scalars)


class LinearPlan(FastPath, ABC):
    """A linear map of vectors on one device, y = alpha A x or y += alpha A x.

    Vectors are (outer, …, inner): a call has ``outer`` groups of ``inner`` vectors, which are
    neighbours in memory. ``given`` and ``result`` are the shapes of x and y between these axes.
    With ``systems``, the axes of x end in them and ``given``; ``outer`` counts them, too.
    """

    def __init__(
        self,
        device: int,
        dtype: np.dtype[Any],
        given: tuple[int, ...],
        result: tuple[int, ...],
        systems: tuple[int, ...] = (),
    ) -> None:
        super().__init__(device)
        self._dtype, self._systems = dtype, systems
        self._given, self._result = given, result

    is_zero = False  # whether all results are zero

    @abstractmethod
    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Launch what `run` does, for non-empty vectors given by the addresses x and y."""

    def run(
        self,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        """Map x (outer, …, inner) to alpha A x, added to y or overwriting it."""
        check_device(self._device, x, y)
        with device_errors():
            if y.size and x.size and not self.is_zero:
                self._start(x.data.ptr, y.data.ptr, outer, inner, alpha, accumulate)
            elif y.size and not accumulate:
                y.data.memset_async(0, y.nbytes)

    def _fast_path(self, x: DeviceArray, out: DeviceArray) -> Callable[[int, int], None] | None:
        """Accept vectors (…, *systems, *given), and without systems one that is flat, (N,)."""
        given, result = (*self._systems, *self._given), (*self._systems, *self._result)
        lead = x.shape[: -len(given)]
        blocks = x.shape == (*lead, *given) and out.shape == (*lead, *result)
        flat = x.shape == (math.prod(given),) and out.shape == (math.prod(result),)
        fits = blocks or (flat and not self._systems)
        if self.is_zero or x.dtype != self._dtype or not fits:
            return None
        outer = x.size // math.prod(self._given)
        return lambda source, target: self._start(source, target, outer, 1, 1, False)
