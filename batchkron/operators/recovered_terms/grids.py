"""The cells that the blocks of a batch list are: by a hint, or guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array

from batchkron.operators.couplings import Ids, levels_of
from batchkron.operators.grid_cells import cells_of_levels, count_cells_of_levels
from batchkron.operators.recovered_terms.products import multiples
from batchkron.spec.kron import BatchSpec

__all__ = ["grid_cells", "possible_grids"]

MAX_LEVEL = 30
"""The largest level of 1-D cells, so that the number of a pair of them fits into int64."""

_KINDS: tuple[Literal["sparse", "full"], ...] = ("sparse", "full")
_MIN_FULLNESS = 0.1  # of a grid that is guessed from products; chosen by hand


def grid_cells(spec: BatchSpec, levels: int | Sequence[int] | None, cells: ArrayLike | None) -> Ids:
    """Return the multi-indices of a list's blocks, by a hint of the user's.

    That is the largest level of each mode, of the sparse or the full grid that has as many cells as
    the list has blocks; or the multi-indices (num_blocks, modes) themselves.
    """
    modes, blocks = len(spec.pools), spec.num_outputs
    if (levels is None) == (cells is None):
        raise ValueError("give levels or cells, and not both")
    if cells is not None:
        found = np.asarray(cells)
        if found.shape != (blocks, modes):
            raise ValueError(
                f"cells has shape {found.shape}; expected ({blocks}, {modes}), the 1-D cell of "
                "each block in each mode"
            )
        if found.dtype.kind not in "iu":
            raise TypeError(f"cells has dtype {found.dtype}; expected integers")
        if found.size and not 0 <= found.min() <= found.max() < 1 << MAX_LEVEL:
            raise ValueError(f"cells has entries outside 0 … 2^{MAX_LEVEL} - 1")
        if len(np.unique(found, axis=0)) < blocks:
            raise ValueError("cells has equal rows; expected another cell for each block")
        return found.astype(np.int64)
    wanted = _checked_levels(levels, modes)
    for kind in _KINDS:
        if count_cells_of_levels(kind, wanted) == blocks:
            return cells_of_levels(kind, wanted)
    counts = [count_cells_of_levels(kind, wanted) for kind in _KINDS]
    raise ValueError(
        f"levels is {levels}; the sparse grid of these has {counts[0]} cells and the full one "
        f"{counts[1]}, but the list has {blocks} blocks. Give cells, the 1-D cells of each block"
    )


def _checked_levels(levels: Any, modes: int) -> tuple[int, ...]:
    """Return one level per mode."""
    given = list(levels) if isinstance(levels, (Sequence, np.ndarray)) else [levels] * modes
    for level in given:
        if isinstance(level, bool) or not isinstance(level, (int, np.integer)):
            raise TypeError(f"levels is {levels!r}; expected an integer, or one for each mode")
    if len(given) != modes or not all(0 <= level <= MAX_LEVEL for level in given):
        raise ValueError(
            f"levels is {levels!r}; expected one level for each of {modes} modes, 0 … {MAX_LEVEL}"
        )
    return tuple(map(int, given))


def possible_grids(spec: BatchSpec) -> Iterator[Ids]:
    """Yield cells that the blocks of a list may be, (num_blocks, modes).

    First the sparse and the full grid of equal levels with as many cells as there are blocks. Then
    what follows from the products whose factor of a mode is a multiple of the identity: their two
    blocks have the same 1-D cell in that mode. If this makes all blocks different, the 1-D cells of
    a mode are numbered so that those with many blocks come first, as cells of low levels have more.
    A set that is far from a grid, such as the diagonal of one, is left out: it has terms, too, but
    full grids in which it is would be large.
    """
    modes, blocks = len(spec.pools), spec.num_outputs
    if blocks == 1:
        yield np.zeros((1, modes), np.int64)
        return
    for kind in _KINDS[: 1 + (modes > 1)]:  # one mode has one grid of a level
        level = 0
        while count_cells_of_levels(kind, (level,) * modes) < blocks:
            level += 1
        if count_cells_of_levels(kind, (level,) * modes) == blocks:
            yield cells_of_levels(kind, (level,) * modes)
    cells = np.stack([_cells_along(spec, mode) for mode in range(modes)], axis=1)
    if len(np.unique(cells, axis=0)) == blocks and _fullness(cells) >= _MIN_FULLNESS:
        yield cells


def _fullness(cells: Ids) -> float:
    """Return the share of a set of cells among all cells of its levels, (l_1, …, l_d) together."""
    levels = np.unique(levels_of(cells), axis=0)
    counts = np.ldexp(1.0, np.maximum(levels - 1, 0).sum(axis=1))
    return len(cells) / float(counts.sum())


def _cells_along(spec: BatchSpec, mode: int) -> Ids:
    """Return the 1-D cells of all blocks in a mode, as far as products tell which are equal."""
    from scipy.sparse.csgraph import connected_components  # 4 % of the time to import batchkron

    kept = (spec.weights[0] != 0) & (spec.inputs != spec.outputs)
    for k, (pool, ids) in enumerate(zip(spec.pools, spec.factor_ids.T, strict=True)):
        flags = pool[0].any(axis=(1, 2))
        if k == mode:
            flags = multiples(pool[0], only_ones=False) != 0
        kept &= flags[ids]
    edges = np.ones(np.count_nonzero(kept), np.int8)
    shape = (spec.num_outputs,) * 2
    graph = coo_array((edges, (spec.outputs[kept], spec.inputs[kept])), shape=shape)
    labels = connected_components(graph, directed=False)[1]
    counts = np.bincount(labels)
    numbers = np.empty(len(counts), np.int64)
    numbers[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    found: Ids = numbers[labels]
    return found
