"""The kernel families for batch lists, in order of preference.

Where two families can run a list, the earlier one was faster (docs/results/gpu-history.md).
"""

from __future__ import annotations

from batchkron.backends.cuda.batch.general import GENERAL
from batchkron.backends.cuda.batch.kernel import BatchShape
from batchkron.backends.cuda.batch.matrix_units import MATRIX_UNITS
from batchkron.backends.cuda.batch.registers import REGISTERS
from batchkron.backends.cuda.batch.slices import SLICES
from batchkron.backends.cuda.batch.unit_slices import UNIT_SLICES
from batchkron.backends.cuda.batch.unsorted import UNSORTED
from batchkron.backends.cuda.kernel import Kernel, first_kernel
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

FAMILIES = (MATRIX_UNITS, UNIT_SLICES, SLICES, REGISTERS, UNSORTED, GENERAL)


def fastest_kernel(shape: BatchShape, device: DeviceLimits) -> Kernel | None:
    """Return the kernel of the first family that has one for this list, None if none has."""
    return first_kernel(FAMILIES, shape, device)
