"""The 1-D matrices of a Kronecker term, from its products in a batch list, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from batchkron.operators.coupled_pairs import coupled_pairs
from batchkron.operators.couplings import Ids, row_range
from batchkron.operators.recovered_terms.grouping import ambiguous_modes
from batchkron.operators.recovered_terms.products import Products, TermsNotFoundError
from batchkron.spec.kron import Array

__all__ = ["FoundBlocks", "diagonal_factors", "term_factors"]

_CHUNK_BYTES = 1 << 26  # of matrices that are added up at once
_TOLERANCE = 32.0  # of sums that should agree, in roundings of their summands; chosen by hand
# Pairs of cells that are looked at before a grid is given up: relative to those of the term, and in
# any case; chosen by hand.
_MAX_SEARCH, _MIN_SEARCH = 8, 1 << 16


@dataclass(frozen=True, eq=False)
class FoundBlocks:
    """A 1-D operator, as `batchkron.operators.kronecker_terms.Blocks`; sorted by (row, column)."""

    keys: Ids
    width: int
    blocks: Array

    @cached_property
    def rows(self) -> Ids:
        """1-D index of the output cell of each block, (count,)."""
        return self.keys // self.width

    @cached_property
    def columns(self) -> Ids:
        """1-D index of the input cell of each block, (count,)."""
        return self.keys % self.width

    def row_range(self, rows: Ids, last_columns: Ids) -> tuple[Ids, Ids]:
        """Return where the blocks of rows, up to a last column in each, begin and end."""
        return row_range(self.keys, self.width, rows, last_columns)

    def equals(self, other: FoundBlocks) -> bool:
        """Return whether two operators have the same blocks."""
        return np.array_equal(self.keys, other.keys) and np.array_equal(self.blocks, other.blocks)


def term_factors(products: Products, group: Ids, modes: tuple[int, ...]) -> dict[int, FoundBlocks]:
    """Return the factors of a term, a group of products, for the modes in which it acts.

    Scalars are in one of them. Raises TermsNotFoundError if the term with these factors has other
    blocks than the list, or at other pairs of cells.
    """
    ambiguous = ambiguous_modes(products, group, modes)
    if len(ambiguous) > 1:
        raise TermsNotFoundError(
            f"the products that act on modes {modes} are several terms that cannot be told apart"
        )
    entries = {mode: products.entries(group, mode) for mode in modes}
    for mode in ambiguous or modes[::-1]:
        blocks = _summed(products, group, mode, entries[mode][1])
        if blocks is not None:
            break
    else:
        raise TermsNotFoundError(
            f"the products that act on modes {modes} differ where a Kronecker product would not"
        )
    found = {mode: FoundBlocks(entries[mode][0], products.width, blocks)}
    for other in modes:
        if other != mode:
            keys, numbers = entries[other]
            known = np.zeros(len(keys), np.int64)
            known[numbers] = products.ids[other][group]
            matrices = products.pools[other][known]
            found[other] = FoundBlocks(keys, products.width, matrices)
    _check_pairs(products, len(np.unique(products.pairs(group))), modes, found)
    return found


def _check_pairs(
    products: Products, count: int, modes: tuple[int, ...], found: dict[int, FoundBlocks]
) -> None:
    """Raise unless the grid has as many pairs of cells that a term couples as the list."""
    factors = [found.get(mode) for mode in range(products.cells.shape[1])]
    try:
        pairs = coupled_pairs(products.cells, factors, _MAX_SEARCH * count + _MIN_SEARCH)[0]
    except ValueError:
        pairs = np.zeros(0, np.int64)
    if len(pairs) != count:
        raise TermsNotFoundError(
            f"the products that act on modes {modes} are at some of the pairs of cells that a "
            "Kronecker product would couple, and not at others"
        )


def _summed(products: Products, group: Ids, mode: int, entries: Ids) -> Array | None:
    """Return Σ scalar · matrix over the products of a pair of blocks, for each pair of 1-D cells.

    ``entries`` are the pairs of 1-D cells of the products, by their numbers. None if the pairs of
    blocks of one pair of 1-D cells have different sums.
    """
    pairs = products.pairs(group)
    order = np.lexsort((pairs, entries))
    pairs, numbers = pairs[order], entries[order]
    starts = np.flatnonzero(np.concatenate(([True], pairs[1:] != pairs[:-1])))
    owner = numbers[starts]  # a pair of blocks has one pair of 1-D cells
    is_lead = np.concatenate(([True], owner[1:] != owner[:-1]))
    leads = np.flatnonzero(is_lead)
    scalars, ids = products.scalars[group][order], products.ids[mode][group][order]
    pool = products.pools[mode]
    if len(starts) == len(group):  # one product each: no sums
        lead = leads[owner]
        if (ids == ids[lead]).all() and (scalars == scalars[lead]).all():
            return np.asarray(scalars[leads, None, None] * pool[ids[leads]])
    norms = np.abs(pool).max(axis=(1, 2), initial=0.0)
    stops = np.append(starts[1:], len(group))
    blocks = np.zeros((len(leads), *pool.shape[1:]), pool.dtype)
    sizes = np.zeros(len(leads))
    step = max(1, _CHUNK_BYTES // max(1, pool[:1].nbytes))
    cuts = np.unique(np.searchsorted(starts, np.arange(0, len(group), step)))
    for first, last in zip(cuts, [*cuts[1:].tolist(), len(starts)], strict=True):
        inside = slice(starts[first], stops[last - 1])
        at = starts[first:last] - starts[first]
        parts = scalars[inside, None, None] * pool[ids[inside]]
        sums = np.add.reduceat(parts, at, axis=0)
        bounds = np.add.reduceat(np.abs(scalars[inside]) * norms[ids[inside]], at)
        own = owner[first:last]
        leading = np.flatnonzero(is_lead[first:last])
        blocks[own[leading]], sizes[own[leading]] = sums[leading], bounds[leading]
        allowed = np.maximum(bounds, sizes[own]) * (stops - starts)[first:last]
        wrong = np.abs(sums - blocks[own]).max(axis=(1, 2), initial=0.0)
        if (wrong > _TOLERANCE * products.rounding * allowed).any():
            return None
    return blocks


def diagonal_factors(products: Products, group: Ids) -> tuple[complex, dict[int, FoundBlocks]]:
    """Return c and D_k with c I + Σ_k D_k ⊗ I, of products that act on no mode; D_k is diagonal.

    Where the factors of a Kronecker sum have multiples of I as blocks of their diagonals, these
    cannot be told apart from the identity; in modes of size 1 they always are.

    Raises `TermsNotFoundError` if the products are no such sum, or the grid lacks the cells on its
    axes.
    """
    cells = products.cells
    values = np.zeros(len(cells), products.scalars.dtype)
    np.add.at(values, products.outputs[group], products.scalars[group])
    size = float(np.abs(values).max(initial=0.0))
    counts = np.bincount(products.outputs[group], minlength=len(cells)).max(initial=1)
    rounding = _TOLERANCE * products.rounding * size * float(counts)
    if np.abs(values - values[0]).max() <= rounding:
        return values[0], {}
    origin = cells.min(axis=0)
    away = cells != origin
    at_origin = np.flatnonzero(~away.any(axis=1))
    whole = values[at_origin[0]] if len(at_origin) else 0.0
    total = np.full(len(cells), whole, values.dtype)
    found = {}
    for mode in range(cells.shape[1]):
        on_axis = np.flatnonzero(~np.delete(away, mode, axis=1).any(axis=1))
        on_axis = on_axis[np.argsort(cells[on_axis, mode])]
        keys, places = np.unique(cells[:, mode], return_inverse=True)
        if not np.array_equal(cells[on_axis, mode], keys):
            raise TermsNotFoundError("identities differ from cell to cell")
        change = values[on_axis] - whole
        total += change[places.ravel()]
        n = products.pools[mode].shape[-1]
        blocks = change[:, None, None] * np.eye(n)
        found[mode] = FoundBlocks(keys * (products.width + 1), products.width, blocks)
    if np.abs(values - total).max() > rounding * len(found):
        raise TermsNotFoundError(
            "multiples of the identity differ from cell to cell, and not as a Kronecker sum does"
        )
    return whole, found
