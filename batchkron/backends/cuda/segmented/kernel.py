"""One kernel that sums over edges, and what all families of such kernels share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.segmented.edges import EdgeTable, SegmentMode
from batchkron.spec.kron import Array


@dataclass(frozen=True, slots=True)
class SumsShape:
    """What the launches of some tables of edges have in common.

    Attributes
    ----------
    modes : tuple of SegmentMode
        The distinct multiplies.
    dtype : dtype
    nodes : int
        Of the table with the most.
    children : int
        Blocks that edges read: those of x, and of the scratch memory.
    between : bool
        Whether children may be in the scratch memory.
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
    """One kernel that sums over edges: a family's variant for some tables.

    Attributes
    ----------
    family : SumsFamily
    shape : SumsShape
        What it is given.
    variant : Any
        The way to do it, of the family's ``variant_type``.
    tile : Any
        What the kernel is compiled for, in the family's own terms. All have ``block`` threads,
        ``width`` columns of the innermost axis that a team takes at a time, and ``pieces``, the
        thread blocks that share a node.
    """

    family: SumsFamily
    shape: SumsShape
    variant: Any
    tile: Any

    @property
    def slabs(self) -> int:
        """Sets of columns that are summed one beside the other."""
        width: int = self.tile.width
        return self.shape.outer * -(-self.shape.inner // width)

    def program(self) -> Program:
        """Return what is compiled."""
        return self.family.program(self)

    def launch(self, table: EdgeTable, device: DeviceLimits) -> tuple[LaunchShape, list[int]]:
        """Return how it is launched for a table, and how many nodes each number of teams shares."""
        return self.family.launch(self, table, device)

    def arrays(self, table: EdgeTable) -> dict[str, Array]:
        """Return a table as the kernel takes it."""
        return self.family.arrays(self, table)


class SumsFamily(ABC):
    """A `KernelFamily` whose work are sums over edges; a launch is for one table of these.

    There is no model of the time that tells families apart: the order of their table does, and
    estimates compare the variants of one family, in a unit of its own.
    """

    operation = "segmented"
    name: str
    variant_type: type[Any]

    @abstractmethod
    def accepts(self, shape: SumsShape, device: DeviceLimits) -> bool:
        """Whether there is a kernel for these sums at all."""

    @abstractmethod
    def variants(self, shape: SumsShape, device: DeviceLimits) -> Iterable[Any]:
        """Return the ways that are worth comparing by their estimates."""

    @abstractmethod
    def estimate(self, shape: SumsShape, variant: Any, device: DeviceLimits) -> float:
        """Return how long a node takes, in a unit of the family's; infinite if none fits."""

    @abstractmethod
    def kernel(self, shape: SumsShape, variant: Any, device: DeviceLimits) -> SumsKernel | None:
        """Return the kernel of a variant, None if it does not fit."""

    @abstractmethod
    def program(self, kernel: SumsKernel) -> Program:
        """Return what is compiled."""

    def launch(
        self, kernel: SumsKernel, table: EdgeTable, device: DeviceLimits
    ) -> tuple[LaunchShape, list[int]]:
        """Return how it is launched for a table, and how many nodes each number of teams shares."""
        tile = kernel.tile
        counts, blocks = tile.nodes_by_team_count(table, kernel.slabs, device)
        return LaunchShape(blocks, tile.block, 1, tile.shared_bytes), counts

    def arrays(self, kernel: SumsKernel, table: EdgeTable) -> dict[str, Array]:
        """Return a table as the kernel takes it."""
        return {"starts": table.starts, "edges": table.edges, "targets": table.targets}

    def fastest(self, shape: SumsShape, device: DeviceLimits) -> SumsKernel | None:
        """Return the kernel of the least estimate, None where it does not fit."""
        if not self.accepts(shape, device):
            return None
        variants = self.variants(shape, device)
        best = min(variants, key=lambda one: self.estimate(shape, one, device), default=None)
        return None if best is None else self.kernel(shape, best, device)
