"""A product with a Kronecker-sparse matrix, and the base class of all families of kernels."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from batchkron.backends.cuda.kernel import Kernel, LaunchShape, TimedFamily, record
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import DeviceLimits, round_up
from batchkron.backends.cuda.runtime.program import SCALARS, device_program

WORD = 16  # bytes that a thread reads or writes at once, at most

HALF_DTYPES = ("float16", "bfloat16")
"""Names of the dtypes that have 16 bits; their products are summed in float32."""

SPARSE_SCALARS = {
    **{np.dtype(kind).name: SCALARS[np.dtype(kind)] for kind in "fdFD"},
    "float16": "batchkron::Half",
    "bfloat16": "batchkron::Bfloat",
}
"""C++ types by the name of the dtype."""

Ending = Literal["none", "bias", "gelu", "gelu-tanh"]
"""What follows a product in its kernel: nothing, a bias, or a bias and an activation."""

_ENDINGS: dict[Ending, str] = {
    "bias": "batchkron::Ending::kBias",
    "gelu": "batchkron::Ending::kGelu",
    "gelu-tanh": "batchkron::Ending::kGeluTanh",
}

Stored = Literal["given", "blocks", "expanded", "whole"]
"""How the values of a matrix are stored.

They are (a, b, c, d), or (a, d, b, c) with padded rows, or a dense matrices (b d, c d), or the
whole matrix (a b d, a c d)."""


@dataclass(frozen=True, slots=True)
class SparseShape:
    """What to compute: y[o, i, k, j, r] = sum over l of values[i, k, l, j] x[o, i, l, j, r]."""

    # a, b, c, d: the matrix's pattern; none is zero
    a: int
    b: int
    c: int
    d: int
    # outer, inner: the vectors x (outer, a c d, inner) and y (outer, a b d, inner)
    outer: int
    inner: int
    dtype: str  # the dtype's name, of `SPARSE_SCALARS`
    products: int = 0  # TF32 multiply-adds for each one in float32: 0 for none, 1 or 3
    # bytes that the addresses of x and y are multiples of, a power of two up to `WORD`
    alignment: int = WORD

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return bytes_of(self.dtype)

    @property
    def pack(self) -> int:
        """Elements of x and y that may be accessed together at their aligned places, 1 or more."""
        return max(1, min(WORD, self.alignment) // self.itemsize)

    @property
    def columns(self) -> int:
        """Vectors, outer times inner."""
        return self.outer * self.inner

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the product."""
        return self.a * self.b * self.c * self.d * self.columns

    @property
    def bytes(self) -> int:
        """Bytes of x, y and the values."""
        entries = self.columns * (self.b + self.c) + self.b * self.c
        return self.itemsize * self.a * self.d * entries


def bytes_of(dtype: str) -> int:
    """Return the bytes of an element."""
    return 2 if dtype in HALF_DTYPES else np.dtype(dtype).itemsize


def sum_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of sums, and of alpha."""
    return np.dtype("float32" if dtype in HALF_DTYPES else dtype)


def common_pack(most: int, number: int) -> int:
    """Return the largest power of two that divides ``number``, at most ``most``, a power of two."""
    return math.gcd(most, number)


SparseLaunch = tuple[tuple[object, ...], LaunchShape, tuple[int, int]]


class SparseFamily(TimedFamily[SparseShape]):
    """A `TimedFamily` for y = A x; a tile is all that a variant is compiled for."""

    operation = "kron_sparse"
    stored: Stored = "given"
    """How the values must be stored."""

    @abstractmethod
    def tile(self, shape: SparseShape, variant: Any, device: DeviceLimits) -> Any:
        """Return what a variant is compiled for, None if it does not fit."""

    @abstractmethod
    def counts(self, shape: SparseShape, tile: Any, device: DeviceLimits) -> SimpleNamespace:
        """Count what a kernel does, for `seconds`."""

    @abstractmethod
    def launch(self, shape: SparseShape, tile: Any, device: DeviceLimits) -> SparseLaunch:
        """Return template arguments, launch, and the arguments ``tiles`` and ``together``."""

    def work(self, shape: SparseShape, variant: Any, device: DeviceLimits) -> Any:
        """Count what the kernel of a variant does; None if it does not fit."""
        tile = self.tile(shape, variant, device)
        return None if tile is None else self.counts(shape, tile, device)

    def kernel(self, shape: SparseShape, variant: Any, device: DeviceLimits) -> Kernel | None:
        """Return the kernel of a variant, None if it does not fit."""
        tile = self.tile(shape, variant, device)
        if tile is None:
            return None
        options, launch, (tiles, together) = self.launch(shape, tile, device)
        arguments = record(
            sparse_arguments(shape.dtype),
            **{name: getattr(shape, name) for name in ("outer", "a", "b", "c", "d", "inner")},
            row=stored_row(shape.c, shape.itemsize),
            tiles=tiles,
            together=together,
            alpha=1,
        )
        seconds = self.estimate(shape, variant, device)
        scalar, kernel = SPARSE_SCALARS[shape.dtype], f"kron_sparse_{self.name}"
        program = device_program(f"kron_sparse/{self.name}", kernel, scalar, *options)
        return Kernel(self, shape, variant, program, launch, arguments, seconds, tile=tile)


def with_ending(kernel: Kernel, ending: Ending) -> Kernel:
    """Return a kernel of a `SparseFamily` with an ending; then it does not accumulate."""
    if ending == "none":
        return kernel
    expression = f"{kernel.program.expression[:-1]}, {_ENDINGS[ending]}>"
    return replace(kernel, program=replace(kernel.program, expression=expression))


def stored_row(c: int, itemsize: int) -> int:
    """Return the elements of a row of values that are stored as "blocks": whole words."""
    return round_up(c, max(1, WORD // itemsize))


@cache
def sparse_arguments(dtype: str) -> np.dtype[Any]:
    """Return the layout of the C++ struct KronSparseArguments."""
    sizes = "outer a b c d inner row tiles together accumulate"
    return struct("*x *y *values *bias *before", sizes, ("alpha", sum_dtype(dtype)))
