"""Explicit Kronecker products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.device import (
    DeviceArray,
    check_device,
    cupy,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    matrix_factor,
)
from batchkron.backends.device_arguments import explicit_arguments, segments_arguments
from batchkron.backends.device_explicit import (
    WORD_BYTES,
    DeviceMatrix,
    ExplicitKnobs,
    SegmentCut,
    balanced_split,
    explicit_cut,
)
from batchkron.backends.device_programs import explicit_program, segments_program
from batchkron.spec import Array


def kron(factors: Sequence[DeviceArray], out: DeviceArray) -> None:
    """Write the explicit Kronecker product of matrices of one dtype to ``out``, C-contiguous.

    All but the last product are small: the factors are split where both parts are.

    Raises
    ------
    RuntimeError
        If the stream captures a graph and there are more than two factors: products of some of
        them would be freed while the graph still writes to them.
    """
    device = current_device()
    check_device(device, *factors, out)
    if out.size == 0:
        return
    if len(factors) > 2 and cupy.cuda.get_current_stream().is_capturing():
        raise RuntimeError(
            "the product of more than two matrices needs memory of its own, which a captured graph "
            "cannot have; multiply all but two of them before the capture"
        )
    with device_errors():
        if len(factors) == 1:
            out[...] = factors[0]
            return
        left, right = _parts(list(factors), device)
        write_product(left, right, out, device)


def _parts(factors: list[DeviceArray], device: int) -> tuple[DeviceArray, DeviceArray]:
    """Return the two matrices whose product is that of all factors."""
    split = balanced_split([factor.size for factor in factors])
    left, right = (_product(part, device) for part in (factors[:split], factors[split:]))
    return left, right


def _product(factors: list[DeviceArray], device: int) -> DeviceArray:
    """Return the product of some factors, the only one itself."""
    if len(factors) == 1:
        return factors[0]
    left, right = _parts(factors, device)
    shape = (left.shape[0] * right.shape[0], left.shape[1] * right.shape[1])
    product = cupy.empty(shape, left.dtype)
    write_product(left, right, product, device)
    return product


def write_product(
    a: DeviceArray,
    b: DeviceArray,
    out: DeviceArray,
    device: int,
    knobs: ExplicitKnobs | None = None,
) -> None:
    """Write a ⊗ b to ``out``, which is not empty."""
    matrices = _matrix(a), _matrix(b)
    shapes = [replace(matrix, data=0) for matrix in matrices]
    kernel, grid, threads, template = _planned(
        *shapes, out.data.ptr % WORD_BYTES, out.dtype, device, knobs
    )
    arguments = template.copy()
    for key, matrix in zip("ab", matrices, strict=True):
        arguments[key]["data"] = matrix.data
    arguments["out"] = out.data.ptr
    # as plain bytes: CuPy describes every field of a structure again in each launch
    kernel(grid, (threads,), (arguments.view(f"V{arguments.itemsize}"),))


@lru_cache(maxsize=1024)
def _planned(
    a: DeviceMatrix,
    b: DeviceMatrix,
    out: int,
    dtype: np.dtype[np.generic],
    device: int,
    knobs: ExplicitKnobs | None,
) -> tuple[Any, tuple[int, int], int, Array]:
    """Return kernel, grid, threads, and the arguments but for addresses.

    Where in a word the result begins is all that matters of addresses.
    """
    cut = explicit_cut(a, b, out, dtype, device_limits(device), knobs)
    if isinstance(cut, SegmentCut):
        program, layout = segments_program(dtype, cut.kernel), segments_arguments()
    else:
        program, layout = explicit_program(dtype, cut.kernel), explicit_arguments()
    arguments = np.zeros(1, layout)
    for key, matrix in (("a", cut.a), ("b", cut.b)):
        arguments[key] = matrix.data, matrix.rows, matrix.columns, matrix.row, matrix.column
    for name in layout.fields or ():
        if name not in ("a", "b", "out"):
            arguments[name] = getattr(cut, name)
    return load_kernel(program, device), cut.grid, cut.kernel.threads, arguments


def _matrix(matrix: DeviceArray) -> DeviceMatrix:
    pointer, _, _, row, column = matrix_factor(matrix)
    rows, columns = matrix.shape
    return DeviceMatrix(pointer, rows, columns, row, column)
