"""What kernels that sum over edges compute, and what all of them have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Family, Kernel, record
from batchkron.backends.cuda.kernel_family import LaunchShape
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.segmented.edges import SegmentMode, segmented_arguments


@dataclass(frozen=True, slots=True)
class SumsShape:
    """What the launches for several tables of edges have in common."""

    modes: tuple[SegmentMode, ...]  # the distinct mode multiplies
    dtype: np.dtype[Any]
    nodes: int  # number of nodes (output blocks) of the largest table
    children: int  # number of input blocks: those of x and of the scratch memory
    # whether children may lie in the scratch memory, which holds intermediate vectors
    between: bool
    # outer, inner: vectors (outer, …, inner) of a launch
    outer: int
    inner: int


def sums_kernel(family: Family, shape: SumsShape, tiling: Any, program: Program) -> Kernel:
    """Return the kernel of a tiling, which is its variant.

    A tiling says how many thread blocks a table has (``nodes_by_group_count``), how many share a
    node (``pieces``), how the table is laid out (``arrays``), and how many columns of the innermost
    axis a thread group computes at a time (``width``).
    """
    launch = LaunchShape(0, tiling.block, 1, tiling.shared_bytes)
    arguments = record(segmented_arguments(shape.dtype), outer=shape.outer, inner=shape.inner)
    return Kernel(family, shape, tiling, program, launch, arguments)
