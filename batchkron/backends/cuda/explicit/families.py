"""The table of kernel families that write a ⊗ b."""

from __future__ import annotations

from batchkron.backends.cuda.explicit.bands import Bands
from batchkron.backends.cuda.explicit.kernel import ProductFamily
from batchkron.backends.cuda.explicit.tiles import Tiles

FAMILIES: tuple[ProductFamily, ...] = (Bands(), Tiles())
