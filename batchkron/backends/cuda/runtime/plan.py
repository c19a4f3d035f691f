"""What plans of linear maps on a device have in common: the ways to call them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.device import DeviceArray, check_device, device_errors
from batchkron.backends.cuda.runtime.launch import FastPath


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
