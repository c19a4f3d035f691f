"""Tables of numbers on a device, and sums of vectors with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from batchkron.backends.cuda.kernel import THREADS, record
from batchkron.backends.cuda.kernel_launch import elements_launch
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    current_device,
    device_errors,
    device_limits,
    ready_stream,
)
from batchkron.backends.cuda.step_sums.kernel import (
    ADDRESSES,
    MAX_VECTORS,
    step_sum_arguments,
    step_sum_program,
)
from batchkron.spec.kron import Array

_SHARED = 8 * (THREADS // 32 + 2)  # bytes of shared memory, of `room` in the kernel
_ELEMENTS = 4  # that a thread has at once, in the kernel
# Thread blocks for each multiprocessor: as many as it holds at once, so that none is left alone at
# the end (H200: 8 took 1.25 times as long). The same for all sums, whose squares are added up in an
# order that depends on it: resumed runs repeat the bits.
_BLOCKS_PER_PROCESSOR = 6


class StepTable:
    """Numbers of some steps, and what these write; its sums work on the current stream.

    The steps of a row are those since `begin`: each of them does the same passes, of which the last
    one ends it. The host writes a row before the step that takes it is launched. Only `read` waits
    for steps, and `write` for the copies of earlier rows.
    """

    max_vectors = MAX_VECTORS

    def __init__(self, steps: int, width: int, columns: int) -> None:
        self._device, self._width, self._columns = current_device(), width, columns
        with device_errors():
            # the number of the row, and the rows: one copy may write both
            self._numbers = cupy.zeros(1 + steps * width)
            self._results = cupy.zeros(steps * columns)
            self._ended = cupy.zeros(1, np.uint32)
            multiprocessors = device_limits(self._device).multiprocessors
            self._partial = cupy.zeros(_BLOCKS_PER_PROCESSOR * multiprocessors)
            self._host_numbers = _pinned(1 + steps * width)
            self._host_results = _pinned(steps * columns)
            self._copied = cupy.cuda.Event(disable_timing=True)  # the last numbers
        self._is_copying = False  # whether numbers may not be on the device yet
        self._host_numbers[0] = 0.0  # the integer 0, too

    def begin(self, rows: Array | None = None) -> None:
        """Go back to the first row, and write rows from there on.

        This waits for copies of the numbers of steps before, of which nobody has read the results.
        """
        if self._is_copying and not cupy.cuda.get_current_stream().is_capturing():
            self._copied.synchronize()
        self._copy_numbers(0, 1 if rows is None else self._put(0, rows)[1])

    def write(self, first: int, rows: Array) -> None:
        """Copy numbers (k, n <= width) to rows from ``first`` on, each once after `begin`."""
        self._copy_numbers(*self._put(first, rows))

    def _put(self, first: int, rows: Array) -> tuple[int, int]:
        """Write rows to the host's numbers; return where these begin and end."""
        count, size = rows.shape
        begin = 1 + first * self._width
        end = begin + count * self._width
        self._host_numbers[begin:end].reshape(count, -1)[:, :size] = rows
        return begin, end

    def _copy_numbers(self, begin: int, end: int) -> None:
        at, stream = 8 * begin, cupy.cuda.get_current_stream()
        target, source = self._numbers.data + at, self._host_numbers.ctypes.data + at
        target.copy_from_host_async(source, 8 * (end - begin), stream)
        if not stream.is_capturing():  # by the user
            self._copied.record(stream)
            self._is_copying = True

    def sum_pass(
        self,
        first: int,
        vectors: Sequence[DeviceArray],
        out: DeviceArray | None,
        result: int = -1,
        *,
        ends: bool = False,
    ) -> Callable[[], None]:
        """Return what writes Σ row[first + k] vectors[k] to ``out``, which may be one of them.

        ``first``: the place of the first number in a row; ``vectors``: contiguous and real, of one
        dtype; at most ``max_vectors``; ``out``: none if only the sum of squares is wanted;
        ``result``: the column of the results to which the sum of squares goes; none if it is
        negative; ``ends``: whether a step ends with it.
        """
        like = vectors[0]
        program = step_sum_program(like.dtype, THREADS, len(vectors))
        sizes = {"count": like.size, "width": self._width, "columns": self._columns}
        layout, count = step_sum_arguments(len(vectors)), len(vectors) + len(ADDRESSES)
        arguments = record(layout, **sizes, first=first, result=result, ends=ends)
        turns = -(-like.size // _ELEMENTS)
        most = _BLOCKS_PER_PROCESSOR
        launch = elements_launch(program, turns, arguments, count, "", _SHARED, most)
        numbers, own = self._numbers.data.ptr, (self._results, self._partial, self._ended)
        addresses = (
            *(vector.data.ptr for vector in vectors),
            0 if out is None else out.data.ptr,
            numbers + 8,
            numbers,
            *(array.data.ptr for array in own),
        )
        device = self._device
        return lambda: launch(ready_stream(device), addresses, b"")

    def program(self, work: Sequence[Callable[[], object]]) -> None:
        """Return None: several steps are as many graphs."""

    def read(self, count: int) -> Array:
        """Wait; return the results (count, columns) since `begin`, valid until the next call."""
        with device_errors():
            stream = cupy.cuda.get_current_stream()
            size = count * self._columns
            own = self._host_results
            self._results.data.copy_to_host_async(own.ctypes.data, 8 * size, stream)
            stream.synchronize()
        self._is_copying = False
        return own[:size].reshape(count, -1)


def _pinned(size: int) -> Array:
    """Return an array of float64 to and from which a device copies fast."""
    memory = cupy.cuda.alloc_pinned_memory(8 * size)
    return np.frombuffer(memory, np.float64, size)
