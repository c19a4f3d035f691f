"""Validation of `batchkron.SegmentedModeMultiply`: every index is checked once, when it is built.

It computes y[i] = Σ_e A_e ·_mode x[children[e]], a sum over the edges e of each node i of a graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.arrays import as_array
from batchkron.spec.batch import MAX_BLOCKS, index_array
from batchkron.spec.kron import Array, compute_dtype, ready


@dataclass(frozen=True, slots=True)
class SegmentedSpec:
    """A validated list of edges, in the compressed sparse row format (CSR).

    Node i has the edges ``starts[i]`` to ``starts[i + 1] - 1``; edge e multiplies the middle axis
    of block ``children[e]`` of x, (before, Q, behind), by ``matrices[factor_ids[e]]``, (P, Q).
    x has ``num_inputs`` blocks.
    """

    matrices: Array
    starts: NDArray[np.int64]
    factor_ids: NDArray[np.int64]
    children: NDArray[np.int64]
    before: int
    behind: int
    num_inputs: int
    dtype: np.dtype[Any]

    @property
    def input_shape(self) -> tuple[int, int]:
        """Shape of x: (input blocks, elements of an input block)."""
        return self.num_inputs, self.before * self.matrices.shape[2] * self.behind

    @property
    def output_shape(self) -> tuple[int, int]:
        """Shape of y: (nodes, elements of an output block)."""
        return len(self.starts) - 1, self.before * self.matrices.shape[1] * self.behind


def segmented_spec(
    matrices: ArrayLike,
    starts: ArrayLike,
    factor_ids: ArrayLike,
    children: ArrayLike,
    *,
    before: int,
    behind: int,
    num_inputs: int | None,
) -> SegmentedSpec:
    """Validate a list of edges and copy it.

    Raises `ValueError`, `TypeError`, `IndexError` as `batchkron.SegmentedModeMultiply` documents.
    """
    array = as_array(matrices, "matrices")
    if array.ndim != 3:
        raise ValueError(f"matrices has shape {array.shape}; expected (count, rows, columns)")
    dtype = compute_dtype(array)
    rows, ids = index_array(starts, "starts", 1), index_array(factor_ids, "factor_ids", 1)
    edges = index_array(children, "children", 1)
    if len(edges) != len(ids):
        raise ValueError(
            f"children has {len(edges)} entries; expected one per factor id, {len(ids)}"
        )
    _check_starts(rows, len(ids))
    _check_size(before, "before")
    _check_size(behind, "behind")
    if num_inputs is None:
        num_inputs = int(edges.max()) + 1 if len(edges) else 0
    _check_size(num_inputs, "num_inputs")
    _check_range(ids, len(array), "factor_ids")
    _check_range(edges, num_inputs, "children")
    return SegmentedSpec(
        np.array(ready(array, dtype)), rows, ids, edges, before, behind, num_inputs, dtype
    )


def _check_starts(starts: NDArray[np.int64], edges: int) -> None:
    """Check that the starts rise from 0 to the number of edges, so that each edge has a node."""
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != edges:
        raise ValueError(f"starts must begin with 0 and end with the number of edges, {edges}")
    falling = np.diff(starts) < 0
    if falling.any():
        node = int(np.argmax(falling))
        raise ValueError(
            f"starts[{node + 1}] is {starts[node + 1]}, less than starts[{node}], {starts[node]}"
        )


def _check_size(value: int, name: str) -> None:
    """Check that a value of the user is an integer from 0 to the largest number of blocks."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r}; expected an integer")
    if not 0 <= value <= MAX_BLOCKS:
        raise ValueError(f"{name} is {value}; expected 0 to {MAX_BLOCKS}")


def _check_range(indices: NDArray[np.int64], count: int, name: str) -> None:
    """Raise IndexError for the first index that is out of range."""
    wrong = (indices < 0) | (indices >= count)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise IndexError(f"{name}[{at}] is {indices[at]}; expected 0 to {count - 1}")
