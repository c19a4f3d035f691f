"""What kernels that sum over edges are tested with: multiplies of a block's modes, and tables."""

import math

import numpy as np

from batchkron.backends.cuda.segmented.edges import SegmentMode, edge_list, edge_table


def block_modes(sizes):
    """The multiplies of a block along each of its modes."""
    return [
        SegmentMode(math.prod(sizes[:k]), n, n, math.prod(sizes[k + 1 :]))
        for k, n in enumerate(sizes)
    ]


def table_of(counts):
    """A table of nodes with so many edges each, all of one mode."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    none = np.zeros(starts[-1], np.int64)
    return edge_table([(0, len(counts))], [edge_list(0, 0, starts, none, none)], 1)
