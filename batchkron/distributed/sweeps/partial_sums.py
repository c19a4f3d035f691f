"""Sums that a rank computes for others, where they are fewer blocks than what they are sums of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from batchkron.distributed.sweeps.sweeps_plan import SweepsPlan, X, Y
from batchkron.operators.couplings import Ids
from batchkron.operators.sparse_grid.listing import identity_sum
from batchkron.spec.sweeps import SweepPart, SweepStep, SweepVector

__all__ = ["with_partial_sums"]

_NONE = -1  # in place of the number of a partial sum
# Rough figures of a device and its links, measured with continuity-6d on four H200s (2026-11); only
# their ratio matters.
_MULTIPLY_ADDS_PER_SECOND = 2.5e12
_BYTES_PER_SECOND = 3.3e11


def with_partial_sums(plan: SweepsPlan) -> SweepsPlan:
    """Return a plan in which ranks send sums of products with x where these are fewer blocks.

    A block of y on a coarse level has products with blocks of x on many finer ones. Of each pair of
    ranks, one sends the other either the blocks of x that it needs, or a sum of products for each
    block of y that has any. Those sums are one more vector, whose blocks belong to the ranks that
    compute them; y has the same sums in another order. For continuity-6d of level 9 on four ranks
    104 468 blocks are sent in place of 131 962, and the busiest rank sends 35 216 in place of
    44 064.
    """
    sweeps, sums = plan.sweeps, iter(plan.sums)
    listed = [(step, part, next(sums)) for step in sweeps.steps for part in step.parts]
    of_x = [part for step, part, _ in listed if (step.target, part.source) == (Y, X)]
    is_less = _sums_are_less(plan, of_x)
    # of each edge the rank that computes its sum, and the block of y, as one number
    keys = [
        _keys(plan, part, is_less)
        if (step.target, part.source) == (Y, X)
        else np.full(len(part.ids), _NONE)
        for step, part, _ in listed
    ]
    blocks = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]))
    blocks = blocks[blocks != _NONE]
    if not len(blocks):
        return plan
    owners, rows = np.divmod(blocks, len(plan.owners[Y]))
    new = len(sweeps.vectors)
    summed = [
        (_chosen(part, np.searchsorted(blocks, own), own != _NONE, len(blocks)), total)
        for (_, part, total), own in zip(listed, keys, strict=True)
        if (own != _NONE).any()
    ]
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(len(plan.owners[Y]) + 1))
    added = SweepPart(new, 0, 1, starts, np.zeros(len(order), np.int64), order)
    last = max(number for number, step in enumerate(sweeps.steps) if step.target == Y)
    steps = [SweepStep(new, False, tuple(part for part, _ in summed))]
    totals = [total for _, total in summed]
    left = zip(listed, keys, strict=True)
    for number, step in enumerate(sweeps.steps):
        kept = [
            (_chosen(part, _targets(part), own == _NONE, len(part.starts) - 1), total)
            for (_, part, total), own in islice(left, len(step.parts))
        ]
        if number == last:
            kept.append((added, identity_sum(sweeps.sizes[0])))
        steps.append(step._replace(parts=tuple(part for part, _ in kept)))
        totals += [total for _, total in kept]
    vectors = (*sweeps.vectors, SweepVector(0, len(blocks)))
    new_plan = SweepsPlan(
        sweeps._replace(vectors=vectors, steps=tuple(steps)),
        tuple(totals),
        (*plan.cells, plan.cells[Y][rows]),
        plan.bounds,
        (*plan.owners, owners),
    )
    return min(plan, new_plan, key=_seconds)


def _seconds(plan: SweepsPlan) -> float:
    """Return the estimated time of the busiest ranks' multiplies and messages."""
    dtype = plan.sweeps.dtype
    reals = 4 if dtype.kind == "c" else 1
    sent = max(plan.sent(rank) for rank in range(plan.parts)) * dtype.itemsize
    return reals * plan.multiply_adds / _MULTIPLY_ADDS_PER_SECOND + sent / _BYTES_PER_SECOND


def _targets(part: SweepPart) -> Ids:
    """Return the block that each edge of a part adds to."""
    return np.repeat(np.arange(len(part.starts) - 1), np.diff(part.starts))


def _chosen(part: SweepPart, targets: Ids, is_chosen: NDArray[np.bool_], blocks: int) -> SweepPart:
    """Return some edges of a part, which add to other blocks, of so many."""
    edges = np.flatnonzero(is_chosen)
    edges = edges[np.argsort(targets[edges], kind="stable")]
    starts = np.searchsorted(targets[edges], np.arange(blocks + 1))
    return part._replace(starts=starts, ids=part.ids[edges], children=part.children[edges])


def _sums_are_less(plan: SweepsPlan, of_x: Sequence[SweepPart]) -> NDArray[np.bool_]:
    """Return for the owners of x and of y whether there are fewer blocks of y than of x.

    Counted are the blocks that edges of ``of_x`` join; (parts, parts).
    """
    none = np.zeros(0, np.int64)
    children = np.concatenate([none, *(part.children for part in of_x)]).astype(np.int64)
    targets = np.concatenate([none, *map(_targets, of_x)])
    pairs = plan.owners[X][children] * plan.parts + plan.owners[Y][targets]
    counts = []
    for blocks, number in ((children, len(plan.owners[X])), (targets, len(plan.owners[Y]))):
        distinct = np.unique(pairs * number + blocks) // max(number, 1)
        counts.append(np.bincount(distinct, minlength=plan.parts**2))
    is_less = (counts[1] < counts[0]).reshape(plan.parts, plan.parts)
    np.fill_diagonal(is_less, False)
    return is_less


def _keys(plan: SweepsPlan, part: SweepPart, is_less: NDArray[np.bool_]) -> Ids:
    """Return for each edge its owner of x times the blocks of y, plus its block of y."""
    owners, targets = plan.owners[X][part.children], _targets(part)
    is_summed = is_less[owners, plan.owners[Y][targets]]
    return np.where(is_summed, owners * len(plan.owners[Y]) + targets, _NONE)
