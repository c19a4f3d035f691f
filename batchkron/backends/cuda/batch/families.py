"""The table of kernel families for batch lists, in order of preference.

Where two families can run a list, the earlier one was faster (docs/results/gpu-history.md).
"""

from __future__ import annotations

from batchkron.backends.cuda.batch.general import General
from batchkron.backends.cuda.batch.kernel import BatchFamily
from batchkron.backends.cuda.batch.matrix_units import MatrixUnits
from batchkron.backends.cuda.batch.registers.family import Registers
from batchkron.backends.cuda.batch.slices import Slices
from batchkron.backends.cuda.batch.unit_slices import UnitSlices
from batchkron.backends.cuda.batch.unsorted import Unsorted

FAMILIES: tuple[BatchFamily, ...] = (
    MatrixUnits(),
    UnitSlices(),
    Slices(),
    Registers(),
    Unsorted(),
    General(),
)
