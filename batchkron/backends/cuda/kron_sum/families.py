"""The families of kernels for Kronecker sums of many systems: the table that choosing loops over.

What none of them takes are products of a batch list.
"""

from __future__ import annotations

from batchkron.backends.cuda.kron_sum.systems import Systems

FAMILIES = (Systems(),)
