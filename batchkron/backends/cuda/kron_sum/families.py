"""The table of kernel families for Kronecker sums of many systems.

Sums without a kernel are evaluated as a batch list.
"""

from __future__ import annotations

from batchkron.backends.cuda.kron_sum.systems import Systems

FAMILIES = (Systems(),)
