"""Sizes of sums over edges, a kernel for them, and the base class of all such families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import KernelFamily, LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.segmented.edges import EdgeTable, SegmentMode
from batchkron.spec.kron import Array


@dataclass(frozen=True, slots=True)
class SumsShape:
    """What the launches for several tables of edges have in common.

    Attributes
    ----------
    modes : tuple of SegmentMode
        The distinct mode multiplies.
    dtype : dtype
    nodes : int
        Number of nodes (output blocks) of the largest table.
    children : int
        Number of input blocks: those of x and of the scratch memory.
    between : bool
        Whether children may lie in the scratch memory, which holds intermediate vectors.
    outer, inner : int
        Vectors (outer, …, inner) of a launch.
    """

    modes: tuple[SegmentMode, ...]
    dtype: np.dtype[Any]
    nodes: int
    children: int
    between: bool
    outer: int
    inner: int


@dataclass(frozen=True, slots=True)
class SumsKernel:
    """A kernel that sums over edges: a variant of a family for given tables.

    Attributes
    ----------
    family : SumsFamily
    shape : SumsShape
    variant : Any
        An instance of the family's ``variant_type``.
    tile : Any
        The family's tiling, from which template arguments and launch follow. Every one has
        ``block``, the threads of a thread block; ``width``, the columns of the innermost axis that
        a team computes at a time; and ``pieces``, the thread blocks that share a node.
    """

    family: SumsFamily
    shape: SumsShape
    variant: Any
    tile: Any

    @property
    def slabs(self) -> int:
        """Sets of up to ``width`` columns, which are computed independently."""
        width: int = self.tile.width
        return self.shape.outer * -(-self.shape.inner // width)

    def program(self) -> Program:
        """Return the program to compile."""
        return self.family.program(self)

    def launch(self, table: EdgeTable, device: DeviceLimits) -> tuple[LaunchShape, list[int]]:
        """Return the launch for a table, and how many nodes are shared by each number of teams."""
        return self.family.launch(self, table, device)

    def arrays(self, table: EdgeTable) -> dict[str, Array]:
        """Return a table in the kernel's layout."""
        return self.family.arrays(self, table)


class SumsFamily(KernelFamily[SumsShape, Any, SumsKernel]):
    """A `KernelFamily` for sums over edges; a launch computes one table.

    Estimates compare the variants of one family, in a unit of its own. Between families the order
    of their table decides.
    """

    operation = "segmented"

    def launch(
        self, kernel: SumsKernel, table: EdgeTable, device: DeviceLimits
    ) -> tuple[LaunchShape, list[int]]:
        """Return the launch for a table, and how many nodes are shared by each number of teams."""
        tile = kernel.tile
        counts, blocks = tile.nodes_by_team_count(table, kernel.slabs, device)
        return LaunchShape(blocks, tile.block, 1, tile.shared_bytes), counts

    def arrays(self, kernel: SumsKernel, table: EdgeTable) -> dict[str, Array]:
        """Return a table in the kernel's layout."""
        return {"starts": table.starts, "edges": table.edges, "targets": table.targets}

    def fastest(self, shape: SumsShape, device: DeviceLimits) -> SumsKernel | None:
        """Return the kernel with the smallest estimate, None if it does not fit."""
        if not self.accepts(shape, device):
            return None
        variants = self.variants(shape, device)
        best = min(variants, key=lambda one: self.estimate(shape, one, device), default=None)
        return None if best is None else self.kernel(shape, best, device)
