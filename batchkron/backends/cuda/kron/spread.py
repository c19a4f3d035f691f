"""Products whose last kernel writes its results to the memory of several owners.

These may be other devices, whose memory is mapped here: then nothing is packed, sent or unpacked.
The contract is that of ``SpreadArguments`` in ``csrc/cuda/kron/arguments.cuh``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Kernel, record
from batchkron.backends.cuda.kron.fibres.family import Fibres
from batchkron.backends.cuda.kron.kernel import kron_arguments
from batchkron.backends.cuda.runtime.arguments import struct
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.protocol import Owners
from batchkron.spec.kron import Array

MAX_OWNERS = 64  # chosen by hand: 512 bytes of a kernel's arguments, of which there are 4096
_MAX_VECTORS = 1 << 31  # their numbers have 32 bits in the kernel
_WORD = 16  # bytes


def spread_kernel(kernel: Kernel, owners: int, device: DeviceLimits) -> Kernel | None:
    """Return the kernel that spreads its results; None unless it ends with the first mode."""
    family, run = kernel.family, kernel.work
    if not isinstance(family, Fibres) or not 0 < owners <= MAX_OWNERS or run.L >= _MAX_VECTORS:
        return None
    if run.first or run.outputs[0] % owners or kernel.variant.slices > 1:
        return None
    return family.kernel(run, kernel.variant, device, owners)


def spread_arguments(
    kernel: Kernel, owners: Owners, addresses: tuple[int, ...], inner: int, alpha: complex
) -> Array | None:
    """Return the arguments of a kernel of `spread_kernel`, without x and factors.

    ``addresses``: of their arrays; ``inner``: the elements of a row of the whole product, of which
    the kernel may multiply the first modes only. None where the rows of the kernel's results are
    several of the product, and lie apart.
    """
    run = kernel.work
    if inner != run.R and owners.row != inner:
        return None
    row = owners.row if inner == run.R else run.R
    steps = (run.R, owners.vector, owners.slice, row)
    places = (*addresses, *(step * run.dtype.itemsize for step in steps))
    return record(
        _layout(run.dtype, len(run.inputs), len(addresses)),
        L=run.L,
        R=run.R,
        alpha=alpha,
        to=[addresses],
        group=owners.group,
        vector=owners.vector,
        slice=owners.slice,
        row=row,
        aligned=not any(place % _WORD for place in places),
    )


@cache
def _layout(dtype: np.dtype[Any], modes: int, owners: int) -> np.dtype[Any]:
    """Return the layout of the C++ struct SpreadArguments."""
    base = kron_arguments(dtype, modes)
    known = [(name, base[name]) for name in base.names or ()]
    return struct(*known, f"*to[{owners}] group vector slice row aligned")
