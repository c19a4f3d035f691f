"""The table of kernel families for Kronecker-sparse matrices; the least estimate decides."""

from __future__ import annotations

from batchkron.backends.cuda.kron_sparse.general import General
from batchkron.backends.cuda.kron_sparse.kernel import SparseFamily
from batchkron.backends.cuda.kron_sparse.registers import Registers
from batchkron.backends.cuda.kron_sparse.tiles.family import Tiles

FAMILIES: tuple[SparseFamily, ...] = (Tiles(), Registers(), General())
