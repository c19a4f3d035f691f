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
    """The sum of parts.

    Attributes
    ----------
    dtype : numpy.dtype
    count : int
        Elements of the sums.
    parts : int
    """

    dtype: np.dtype[Any]
    count: int
    parts: int

    threads = 256
    """Threads of a thread block; chosen by hand."""

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
        sizes = self.threads, self.shares
        expression = template_type("gram_total", SCALARS[self.dtype], *sizes)
        return Program("cuda/gram/total.cuh", expression)

    def arguments(self) -> Array:
        """Return the kernel's arguments, without addresses: of the parts, then of the sums."""
        arguments = np.zeros(1, total_arguments())
        arguments["count"], arguments["blocks"] = self.count, self.parts
        return arguments


@cache
def total_arguments() -> np.dtype[Any]:
    """Return the layout of the C++ struct GramTotalArguments."""
    return np.dtype([*pointer_fields("parts", "sums"), *size_fields("count", "blocks")], align=True)
