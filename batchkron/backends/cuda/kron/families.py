"""The table of kernel families for Kron-Matmuls."""

from __future__ import annotations

from batchkron.backends.cuda.kron.fibres.family import Fibres
from batchkron.backends.cuda.kron.general import General
from batchkron.backends.cuda.kron.kernel import KronFamily
from batchkron.backends.cuda.kron.panels import Panels
from batchkron.backends.cuda.kron.registers.family import Registers
from batchkron.backends.cuda.kron.slices import Slices

FAMILIES: tuple[KronFamily, ...] = (Registers(), Fibres(), Slices(), Panels(), General())
FAMILY_OF = {family.name: family for family in FAMILIES}
