"""Multiply-adds and estimated times of a batch list, product by product and factored."""

from __future__ import annotations

import numpy as np

from batchkron.operators.couplings import Ids
from batchkron.operators.factored_list.program import FactoredList
from batchkron.operators.factored_list.sorting import stable_order
from batchkron.spec.kron import BatchSpec
from batchkron.spec.sweeps import SweepList

__all__ = ["direct_multiply_adds", "pays"]

# Times in nanoseconds on one thread of a Xeon with AVX-512 that other work kept busy, fitted to
# random lists of one to six modes of 2 to 4 and to lists of sparse grids. A multiply-add is one of
# float64; float32 takes half of it.
#
# Product by product: of a multiply-add, a product, and an element that a product adds. Blocks of at
# most one vector go side by side, at the cost of nothing but arithmetic; so do products without
# identities, while their intermediate results stay in the L1 cache.
_ALONGSIDE = 0.03, 1.0, 0.0
_LARGE_ALONGSIDE = 0.05, 1.0, 0.0
_WITH_IDENTITIES = 0.06, 5.0, 0.05
_LARGE_WITH_IDENTITIES = 0.08, 5.0, 0.06
_COMPLEX = 0.17, 10.0, 0.0
_VECTOR, _LARGE = 64, 2048  # bytes of a block
# Factored: of a multiply-add, and of an edge.
_FACTORED, _FACTORED_COMPLEX = (0.05, 2.0), (0.5, 5.0)
# Both: of reading a block that is not in the cache any more, and of each of its bytes.
_FETCH = 30.0, 0.1
_CACHE = 1 << 20  # bytes that stay in a processor's own cache between two uses of a block

# Estimates err by tens of percent: a factored plan has to be estimated below this share.
_SURELY_FASTER = 0.8


def direct_multiply_adds(spec: BatchSpec) -> int:
    """Return the multiply-adds of a list, product by product, for one vector."""
    total = 0
    for flags, ids, pool in zip(spec.identity, spec.factor_ids.T, spec.pools, strict=True):
        total += int(np.count_nonzero(~flags[ids])) * pool.shape[2]
    return total * spec.output_size * spec.systems


def pays(spec: BatchSpec, listing: FactoredList) -> bool:
    """Whether a factored list is surely faster than the list product by product."""
    factored = sum(_sweeps_time(sweeps) for sweeps in listing.groups)
    return factored < _SURELY_FASTER * _direct_time(spec)


def _direct_time(spec: BatchSpec) -> float:
    products, size = len(spec.inputs), spec.output_size * spec.dtype.itemsize
    is_full = np.ones(products, np.bool_)
    for flags, ids in zip(spec.identity, spec.factor_ids.T, strict=True):
        is_full &= ~flags[ids]
    share = np.count_nonzero(is_full) / max(1, products)
    full, others = _ALONGSIDE, _WITH_IDENTITIES
    if size > _LARGE:
        full, others = _LARGE_ALONGSIDE, _LARGE_WITH_IDENTITIES
    if size <= _VECTOR:
        others = full
    if spec.dtype.kind == "c":
        full = others = _COMPLEX
    each, product, element = (
        share * one + (1 - share) * other for one, other in zip(full, others, strict=True)
    )
    late = _late_reads(spec.inputs[stable_order(spec.outputs, 32)], spec.num_inputs, size)
    return (
        _relative_width(spec) * each * direct_multiply_adds(spec)
        + products * spec.systems * (product + element * spec.output_size)
        + late * spec.systems * (_FETCH[0] + _FETCH[1] * size)
    )


def _sweeps_time(sweeps: SweepList) -> float:
    each, edge = _FACTORED_COMPLEX if sweeps.dtype.kind == "c" else _FACTORED
    size = sweeps.block_size * sweeps.dtype.itemsize
    late = 0
    for step in sweeps.steps:
        for source in {part.source for part in step.parts}:
            parts = [part for part in step.parts if part.source == source]
            children = np.concatenate([part.children for part in parts])
            targets = [np.repeat(np.arange(len(p.starts) - 1), np.diff(p.starts)) for p in parts]
            order = stable_order(np.concatenate(targets), 32)  # all edges of a target go together
            late += _late_reads(children[order], sweeps.vectors[source].blocks, size)
    return (
        _relative_width(sweeps) * each * sweeps.multiply_adds
        + edge * sweeps.num_edges
        + late * (_FETCH[0] + _FETCH[1] * size)
    )


def _relative_width(of: BatchSpec | SweepList) -> float:
    """Return the bytes of a real number over those of float64."""
    return np.finfo(of.dtype).bits / 64


def _late_reads(children: Ids, blocks: int, size: int) -> int:
    """Return how many reads of blocks come so long after the last one that it is not in the cache.

    ``children`` are the blocks that are read, in their order, of a vector of ``blocks`` blocks of
    ``size`` bytes. If it fits in the cache, no read is late.
    """
    held = _CACHE // size
    if blocks <= held or len(children) == 0:
        return 0
    places = stable_order(children, 32)
    again = np.diff(children[places]) == 0
    return len(children) - int(np.count_nonzero(again & (np.diff(places) <= held)))
