"""Explicit Kronecker products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.device import (
    DeviceArray,
    Workspaces,
    check_device,
    cupy,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    matrix_factor,
    ready_stream,
)
from batchkron.backends.cuda.launch import Launch
from batchkron.backends.device_arguments import explicit_arguments, segments_arguments
from batchkron.backends.device_explicit import (
    WORD_BYTES,
    DeviceMatrix,
    ExplicitKnobs,
    SegmentCut,
    explicit_cut,
    explicit_steps,
)
from batchkron.backends.device_programs import explicit_program, segments_program

_MOST_KEPT = 64 << 20  # bytes of workspace; a call that needs more has its own
_ADDRESSES = 3  # of the matrices and of the result

# Of all products: no object stands for one, and a graph may be replayed until the process ends.
_workspaces = Workspaces()


def kron(factors: Sequence[DeviceArray], out: DeviceArray) -> None:
    """Write the explicit Kronecker product of matrices of one dtype to ``out``, C-contiguous.

    Raises
    ------
    RuntimeError
        If the stream captures a graph and there are more than two factors: these may be copies,
        which would be freed while the graph still reads them.
    """
    device = current_device()
    check_device(device, *factors, out)
    if out.size == 0:
        return
    if len(factors) > 2 and cupy.cuda.get_current_stream().is_capturing():
        raise RuntimeError(
            "the product of more than two matrices is captured where nothing has to be copied: "
            "make the factors and out contiguous, of one dtype, before the capture"
        )
    with device_errors():
        if len(factors) == 1:
            out[...] = factors[0]
            return
        matrices = tuple(map(_layout, factors))
        chain = _chain(matrices, out.data.ptr % WORD_BYTES, out.dtype, device)
        chain.run([factor.data.ptr for factor in factors], out.data.ptr)


class _Chain:
    """The launches that write the product of two or more matrices.

    Results between lie in the workspace of the stream. Threads may share a chain.
    """

    def __init__(
        self, matrices: Sequence[DeviceMatrix], out: int, dtype: np.dtype[Any], device: int
    ) -> None:
        """Take the place in a word where the result begins, as an address."""
        shapes = [(matrix.rows, matrix.columns) for matrix in matrices]
        steps, self._bytes = explicit_steps(shapes, dtype.itemsize)
        known, launches = list(matrices), []
        for step in steps:
            target = out if step is steps[-1] else 0
            launch = _launch(known[step.left], known[step.right], target, dtype, device, None)
            launches.append((launch, step.left, step.right))
            known.append(DeviceMatrix(0, step.rows, step.columns, step.columns, 1))
        *self._between, self._last = launches
        self._offsets = [step.offset for step in steps[:-1]]
        self._device = device

    def run(self, addresses: list[int], out: int) -> None:
        """Write the product of the matrices at these addresses to the address ``out``."""
        stream = ready_stream(self._device)
        if self._between:
            begin, _memory = _workspace(self._bytes)
            places = addresses.copy()
            for (launch, left, right), offset in zip(self._between, self._offsets, strict=True):
                target = begin + offset
                launch(stream, (places[left], places[right], target), b"")
                places.append(target)
            addresses = places
        launch, left, right = self._last
        launch(stream, (addresses[left], addresses[right], out), b"")


def _workspace(size: int) -> tuple[int, Any]:
    """Return the address of memory for the current stream, and what owns it until a call ends.

    Raises
    ------
    RuntimeError
        If the stream captures a graph and no earlier call has left it as much.
    """
    if size > _MOST_KEPT:
        if cupy.cuda.get_current_stream().is_capturing():
            raise RuntimeError(
                f"the product needs {size >> 20} MiB for products of some of its factors, more "
                f"than is kept for graphs ({_MOST_KEPT >> 20} MiB); multiply all but two of the "
                f"matrices before the capture"
            )
        memory = cupy.cuda.alloc(size)
        return int(memory.ptr), memory
    try:
        return _workspaces.pointer(size), None
    except RuntimeError as error:
        if not cupy.cuda.get_current_stream().is_capturing():
            raise
        raise RuntimeError(
            "the product of more than two matrices needs workspace, which cannot be allocated "
            "while a graph is captured; call kron once with the same shapes, on this stream and in "
            "this thread, before the capture"
        ) from error


def write_product(
    a: DeviceArray,
    b: DeviceArray,
    out: DeviceArray,
    device: int,
    knobs: ExplicitKnobs | None = None,
) -> None:
    """Write a ⊗ b to ``out``, which is not empty."""
    addresses = a.data.ptr, b.data.ptr, out.data.ptr
    place = out.data.ptr % WORD_BYTES
    launch = _launch(_layout(a), _layout(b), place, out.dtype, device, knobs)
    launch(ready_stream(device), addresses, b"")


@lru_cache(maxsize=256)
def _chain(
    matrices: tuple[DeviceMatrix, ...], out: int, dtype: np.dtype[Any], device: int
) -> _Chain:
    """Return the launches for matrices of these layouts, and where in a word the result begins."""
    return _Chain(matrices, out, dtype, device)


@lru_cache(maxsize=1024)
def _launch(
    a: DeviceMatrix,
    b: DeviceMatrix,
    out: int,
    dtype: np.dtype[np.generic],
    device: int,
    knobs: ExplicitKnobs | None,
) -> Launch:
    """Return the launch for two matrices of these layouts; a call brings three addresses.

    Where in a word the result begins is all that matters of addresses.
    """
    cut = explicit_cut(a, b, out, dtype, device_limits(device), knobs)
    if isinstance(cut, SegmentCut):
        program, layout = segments_program(dtype, cut.kernel), segments_arguments()
    else:
        program, layout = explicit_program(dtype, cut.kernel), explicit_arguments()
    arguments = np.zeros(1, layout)
    for key, matrix in (("a", cut.a), ("b", cut.b)):
        arguments[key] = matrix.rows, matrix.columns, matrix.row, matrix.column
    for name in (layout.names or ())[_ADDRESSES:]:
        if name not in ("a", "b"):
            arguments[name] = getattr(cut, name)
    kernel = load_kernel(program, device)
    return Launch(kernel, cut.grid, cut.kernel.threads, 0, arguments, _ADDRESSES)


def _layout(matrix: DeviceArray) -> DeviceMatrix:
    """Return a matrix of any strides without its address."""
    _, _, _, row, column = matrix_factor(matrix)
    rows, columns = matrix.shape
    return DeviceMatrix(0, rows, columns, row, column)
