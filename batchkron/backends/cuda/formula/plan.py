"""Formulas at points, compiled for one device."""

from __future__ import annotations

from collections.abc import Sequence

from batchkron.backends.cuda.formula.kernel import formula_arguments, formula_program
from batchkron.backends.cuda.kernel import THREADS, record
from batchkron.backends.cuda.kernel_launch import elements_launch
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    check_device,
    current_device,
    device_errors,
    load_kernel,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch
from batchkron.spec.formula import FormulaSpec


class FormulaValues:
    """The values of a formula, one kernel on one device; it is compiled at once."""

    def __init__(self, spec: FormulaSpec) -> None:
        self._variables, self._device = spec.variables, current_device()
        self._program = formula_program(spec, THREADS)
        with device_errors():
            load_kernel(self._program, self._device)
        self._launches: BoundedCache[int, Launch] = BoundedCache(make=self._launch)

    def __call__(
        self, variables: Sequence[DeviceArray], numbers: DeviceArray, out: DeviceArray
    ) -> None:
        """Write values to ``out`` (count,), of float64 as all arrays, which are contiguous."""
        check_device(self._device, *variables, numbers, out)
        if out.size:
            with device_errors():
                addresses = *(one.data.ptr for one in variables), out.data.ptr, numbers.data.ptr
                self._launches[out.size](ready_stream(self._device), addresses, b"")

    def _launch(self, count: int) -> Launch:
        arguments = record(formula_arguments(self._variables), count=count)
        return elements_launch(self._program, count, arguments, self._variables + 2)
