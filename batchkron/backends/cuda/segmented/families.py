"""The families of kernels that sum over edges: the one table that choosing loops over.

Where both take a table, the first one was faster (docs/developer/gpu-kernels.md).
"""

from __future__ import annotations

from batchkron.backends.cuda.segmented.general import General
from batchkron.backends.cuda.segmented.kernel import SumsFamily
from batchkron.backends.cuda.segmented.staged import Staged

FAMILIES: tuple[SumsFamily, ...] = (Staged(), General())
