"""The table of kernel families for sums over edges, in order of preference.

Where both can compute a sum, the earlier one was faster (docs/results/gpu-history.md).
"""

from __future__ import annotations

from batchkron.backends.cuda.segmented.general import General
from batchkron.backends.cuda.segmented.kernel import SumsFamily
from batchkron.backends.cuda.segmented.staged import Staged

FAMILIES: tuple[SumsFamily, ...] = (Staged(), General())
