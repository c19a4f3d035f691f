"""The kernel that adds what thread blocks have summed up, ``csrc/cuda/gram/total.cuh``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.runtime.arguments import pointer_fields, size_fields
from batchkron.backends.cuda.runtime.program import SCALARS, Program, template_type
from batchkron.spec.kron import Array

_MIN_SHARES, _MAX_SHARES = 8, 64  # threads that add the parts of one sum; chosen by hand
_MIN_PARTS = 4  # that one of them adds; chosen by hand


@dataclass(frozen=True, slots=True)
class Total:
    """Sums of parts."""

    dtype: np.dtype[Any]
    counts: tuple[int, ...]  # elements of each result; a part has all of them, one after another
    parts: int

    threads = 256
    """Threads of a thread block; chosen by hand."""

    @property
    def count(self) -> int:
        """Elements of a part."""
        return sum(self.counts)

    @property
    def workspace(self) -> int:
        """Bytes of all parts."""
        return self.count * self.parts * self.dtype.itemsize

    @property
    def shares(self) -> int:
        """Threads that add the parts of one element, a power of two."""
        wanted = 1 << (self.parts // _MIN_PARTS).bit_length()
        return max(_MIN_SHARES, min(wanted // 2, _MAX_SHARES))

    @property
    def blocks(self) -> int:
        """Thread blocks."""
        return -(-self.count // (self.threads // self.shares))

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a thread block."""
        return self.threads * self.dtype.itemsize

    def program(self) -> Program:
        """Return the program to compile."""
        sizes = len(self.counts), self.threads, self.shares
        expression = template_type("gram_total", SCALARS[self.dtype], *sizes)
        return Program("cuda/gram/total.cuh", expression)

    def arguments(self) -> Array:
        """Return the kernel's arguments, without addresses: of the parts, then of each result."""
        arguments = np.zeros(1, total_arguments(len(self.counts)))
        arguments["count"], arguments["blocks"] = self.count, self.parts
        arguments["ends"] = np.cumsum(self.counts)
        return arguments


@cache
def total_arguments(results: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct GramTotalArguments."""
    sums, ends = ("sums", "u8", (results,)), ("ends", "i8", (results,))
    return np.dtype([*pointer_fields("parts"), sums, *size_fields("count", "blocks"), ends])
