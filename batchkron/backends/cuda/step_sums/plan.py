"""Tables of numbers on a device, and sums of vectors with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    ready_stream,
)
from batchkron.backends.cuda.runtime.launch import Launch
from batchkron.backends.cuda.step_sums.kernel import (
    ADDRESSES,
    step_sum_arguments,
    step_sum_program,
)
from batchkron.spec.kron import Array

_THREADS = 256  # threads of a thread block; chosen by hand
_SHARED = 8 * (_THREADS // 32 + 2)  # bytes of shared memory, of `room` in the kernel
_ELEMENTS = 4  # that a thread has at once, in the kernel
_BLOCKS_PER_PROCESSOR = 8  # largest number of thread blocks per multiprocessor; chosen by hand


class StepTable:
    """Numbers of some steps, and what these write; its sums work on the current stream.

    The steps of a row are those since `begin`: each of them does the same passes, of which the last
    one ends it. The host writes a row before the step that takes it is launched, and nothing waits
    but `read`.
    """

    max_vectors = 16  # of one sum, all of whose addresses are arguments of the kernel

    def __init__(self, steps: int, width: int, columns: int) -> None:
        self._device, self._steps = current_device(), steps
        with device_errors():
            self._rows = cupy.zeros((steps, width))
            self._results = cupy.zeros((steps, columns))
            self._step = cupy.zeros(1, np.int64)
            self._ended = cupy.zeros(1, np.uint32)
            self._most = _BLOCKS_PER_PROCESSOR * device_limits(self._device).multiprocessors
            self._partial = cupy.zeros(self._most)
            self._host_rows = _pinned((steps, width))
            self._host_results = _pinned((steps, columns))

    def begin(self) -> None:
        """Go back to the first row."""
        self._step.data.memset_async(0, self._step.nbytes, cupy.cuda.get_current_stream())

    def write(self, first: int, rows: Array) -> None:
        """Copy numbers (k, n <= width) to rows from ``first`` on.

        Rows that steps have not read yet stay as they are: a row is written once after `begin`, and
        `read` comes before the next `begin`.
        """
        count, width = rows.shape
        own = self._host_rows[first : first + count]
        own[:, :width] = rows
        target = self._rows[first : first + count]
        stream = cupy.cuda.get_current_stream()
        target.data.copy_from_host_async(own.ctypes.data, own.nbytes, stream)

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

        Parameters
        ----------
        first : int
            The place of the first number in a row.
        vectors : sequence of ndarray, shape (N,)
            Contiguous and real, of one dtype; at most ``max_vectors``.
        out : ndarray, shape (N,), or None
            None if only the sum of squares is wanted.
        result : int
            The column of the results to which the sum of squares goes; none if it is negative.
        ends : bool
            Whether a step ends with it.
        """
        like = vectors[0]
        kernel = load_kernel(step_sum_program(like.dtype, _THREADS, len(vectors)), self._device)
        arguments = np.zeros(1, step_sum_arguments(len(vectors)))
        for name, value in (
            ("count", like.size), ("width", self._rows.shape[1]), ("first", first),
            ("columns", self._results.shape[1]), ("result", result), ("ends", ends),
        ):  # fmt: skip
            arguments[name] = value
        blocks = max(1, min(self._most, -(-like.size // (_ELEMENTS * _THREADS))))
        count = len(vectors) + len(ADDRESSES)
        launch = Launch(kernel, (blocks, 1), _THREADS, _SHARED, arguments, count)
        own = self._rows, self._step, self._results, self._partial, self._ended
        addresses = (
            *(vector.data.ptr for vector in vectors),
            0 if out is None else out.data.ptr,
            *(array.data.ptr for array in own),
        )
        device = self._device
        return lambda: launch(ready_stream(device), addresses, b"")

    def read(self, count: int) -> Array:
        """Wait for the device, and return the results (count, columns) of the steps since `begin`.

        They are valid until the next call.
        """
        found: Array = self._host_results[:count]
        self._results[:count].get(out=found)
        return found


def _pinned(shape: tuple[int, int]) -> Any:
    """Return an array of float64 to and from which a device copies fast."""
    size = shape[0] * shape[1]
    memory = cupy.cuda.alloc_pinned_memory(8 * max(size, 1))
    return np.frombuffer(memory, np.float64, size).reshape(shape)
