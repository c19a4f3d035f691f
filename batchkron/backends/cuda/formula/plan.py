"""Formulas at points, compiled for one device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchkron.backends.cuda.formula.kernel import formula_arguments, formula_program
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch
from batchkron.spec.formula import FormulaSpec

__all__ = ["FormulaValues"]

_THREADS = 256  # threads of a thread block; chosen by hand
_BLOCKS_PER_PROCESSOR = 8  # largest number of thread blocks per multiprocessor; chosen by hand


class FormulaValues:
    """The values of a formula, one kernel on one device; it is compiled at once."""

    def __init__(self, spec: FormulaSpec) -> None:
        self._spec, self._device = spec, current_device()
        with device_errors():
            self._kernel = load_kernel(formula_program(spec, _THREADS), self._device)
        self._launches: BoundedCache[int, Launch] = BoundedCache()

    def __call__(
        self, variables: Sequence[DeviceArray], numbers: DeviceArray, out: DeviceArray
    ) -> None:
        """Overwrite ``out`` (count,) with the values for arrays (count,) and numbers, of float64.

        All are contiguous; ``out`` may be one of the variables.
        """
        check_device(self._device, *variables, numbers, out)
        if out.size:
            with device_errors():
                addresses = *(one.data.ptr for one in variables), out.data.ptr, numbers.data.ptr
                self._launch(out.size)(ready_stream(self._device), addresses, b"")

    def _launch(self, count: int) -> Launch:
        known = self._launches.get(count)
        if known is None:
            arguments = np.zeros(1, formula_arguments(self._spec.variables))
            arguments["count"] = count
            maximum = _BLOCKS_PER_PROCESSOR * device_limits(self._device).multiprocessors
            blocks = min(maximum, -(-count // _THREADS))
            pointers = self._spec.variables + 2
            known = Launch(self._kernel, (blocks, 1), _THREADS, 0, arguments, pointers)
            self._launches[count] = known
        return known
