"""The graph of a batch list as steps of sweeps, which backends have plans for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from batchkron.operators.couplings import Ids, narrow
from batchkron.operators.factored_list.graph import Edges, Graph, first_alike, graph_of
from batchkron.operators.factored_list.sorting import stable_order
from batchkron.operators.factored_list.words import (
    Letters,
    Words,
    letters_of,
    new_weights,
    words_of,
)
from batchkron.spec.kron import Array, BatchSpec
from batchkron.spec.sweeps import SweepList, SweepPart, SweepStep, SweepVector

__all__ = ["FactoredList", "factored", "listing_of"]

# Share of all products' partial products that are different from each other: from here on a list
# has next to no structure. Chosen by hand.
_SINGLE_USES = 0.7


_Matrices: TypeAlias = tuple[int, Ids, Ids, Ids | None]
"""The matrices of a part: mode, starts, ids, weights. Matrix i is Σ_j w_weights[j] A_ids[j] over j
from ``starts[i]`` to ``starts[i + 1] - 1``. Without weights all w are 1."""


def _values(matrices: _Matrices, spec: BatchSpec, weights: Array) -> Array:
    """Return the matrices (systems * count, n, n); id ``count_k`` is the identity."""
    mode, starts, ids, numbers = matrices
    pool = spec.pools[mode]
    size = pool.shape[-1]
    if ids.max(initial=0) == pool.shape[1]:
        eye = np.broadcast_to(np.eye(size, dtype=spec.dtype), (len(pool), 1, size, size))
        pool = np.concatenate([pool, eye], axis=1)
    found = pool[:, ids]
    with np.errstate(over="ignore", invalid="ignore"):  # as kernels: inf and NaN, no warning
        if numbers is not None and not (weights == 1).all():
            found = found * weights[:, numbers, None, None]
        if len(ids) >= len(starts):  # some are sums
            found = np.add.reduceat(found, starts[:-1], axis=1)
    found = np.broadcast_to(found, (spec.systems, *found.shape[1:]))
    return np.ascontiguousarray(found).reshape(-1, size, size)


class FactoredList(NamedTuple):
    """A batch list as the sum of groups of products, each with its steps.

    A step computes the partial products of one layer, or adds to y. The groups are computed one
    after another, and their partial products take the same memory.

    ``groups``: the steps of each group.
    ``matrices`` (tuple of tuple of _Matrices): the matrices of each part of each step of each
      group, in their order.
    ``letters``: what the steps took the list's matrices and weights for.
    ``graphs``: what the steps of each group were made of.
    """

    groups: tuple[SweepList, ...]
    matrices: tuple[tuple[_Matrices, ...], ...]
    letters: Letters
    graphs: tuple[Graph, ...]

    @property
    def blocks_between(self) -> int:
        """Number of blocks of partial products that are needed at the same time."""
        return max(sum(vector.blocks for vector in sweeps.vectors[2:]) for sweeps in self.groups)

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-adds of all steps, for one vector x."""
        return sum(sweeps.multiply_adds for sweeps in self.groups)

    def without_steps(self) -> FactoredList:
        """Return what `matrices_of` and `listing_of` need."""
        return self._replace(groups=())

    def graphs_alone(self) -> FactoredList:
        """Return what `listing_of` needs."""
        return self._replace(groups=(), matrices=())

    def matrices_of(self, spec: BatchSpec) -> list[Array] | None:
        """Return the matrices of all parts for a list of the same indices, with any values.

        None if the steps are wrong for these: a skipped matrix is not a multiple of the identity
        any more, or products whose weights were equal have different ones.
        """
        weights = new_weights(spec, self.letters)
        if weights is None:
            return None
        return [_values(one, spec, weights) for group in self.matrices for one in group]


def factored(spec: BatchSpec, max_blocks: int, only_if_shared: bool = False) -> FactoredList | None:
    """Return the steps that compute a batch list with square factors.

    With ``only_if_shared`` return None if most partial products have a single use, before most of
    the work. No group has more than ``max_blocks`` blocks of partial products at the same time,
    unless it is one product.
    """
    letters = letters_of(spec)
    words = words_of(spec, letters)
    partial = int(words.lengths.sum(dtype=np.int64)) - len(words.lengths)
    graph = graph_of(words, spec.num_inputs)
    count = sum(graph.counts)
    if only_if_shared and count > _SINGLE_USES * partial:
        return None
    del words
    if count * spec.systems <= max_blocks:
        return listing_of(spec, letters, [graph])
    del graph
    words = words_of(spec, letters)  # again, since a graph takes their letters
    parts = words.in_parts(-(-count * spec.systems // max(1, max_blocks)))
    return listing_of(spec, letters, list(_limited(parts, spec, max_blocks)))


def _limited(parts: Iterable[Words], spec: BatchSpec, max_blocks: int) -> Iterator[Graph]:
    """Yield graphs of parts of a list, which are halved until their partial products are few."""
    for words in parts:
        (copy,) = words.in_parts(1)
        graph = graph_of(copy, spec.num_inputs)
        if sum(graph.counts) * spec.systems <= max_blocks or len(words.inputs) < 2:
            yield graph
        else:
            yield from _limited(words.in_parts(2), spec, max_blocks)


def listing_of(spec: BatchSpec, letters: Letters, graphs: Sequence[Graph]) -> FactoredList:
    """Return the steps of graphs whose sum computes a batch list."""
    made = [_Steps(spec, letters, graph) for graph in graphs]
    groups = tuple(one.sweeps() for one in made)  # this finds the matrices
    matrices = tuple(tuple(one.matrices) for one in made)
    return FactoredList(groups, matrices, letters, tuple(graphs))


class _Steps:
    """Makes steps of a graph: one for each layer, and the last for y."""

    def __init__(self, spec: BatchSpec, letters: Letters, graph: Graph) -> None:
        self._spec, self._letters, self._graph = spec, letters, graph
        self._counts = (spec.num_inputs, *graph.counts)
        self.matrices: list[_Matrices] = []
        modes = np.arange(len(spec.pools), dtype=np.int8)
        self._modes = np.append(np.repeat(modes, np.diff(letters.starts)), modes[-1])

    def sweeps(self) -> SweepList:
        """Return all steps; the matrices of their parts are in ``matrices`` then."""
        spec, systems = self._spec, self._spec.systems
        steps = []
        for k, edges in enumerate(self._graph.inner):
            parts = self._parts(k, edges, self._counts[k + 1])
            steps.append(SweepStep(k + 2, False, tuple(parts)))
        last = [
            self._parts(k, edges, spec.num_outputs) for k, edges in enumerate(self._graph.ending)
        ]
        if any(last):
            steps.append(SweepStep(1, False, tuple(part for parts in last for part in parts)))
        vectors = [SweepVector(0, systems * n) for n in (spec.num_inputs, spec.num_outputs)]
        start = 0
        for count in self._graph.counts:
            vectors.append(SweepVector(start, systems * count))
            start += systems * count
        sizes = tuple(pool.shape[-1] for pool in spec.pools)
        return SweepList(sizes, sizes, tuple(vectors), tuple(steps), spec.dtype)

    def _parts(self, layer: int, edges: Edges, targets: int) -> list[SweepPart]:
        """Return the parts of a step that read a layer: one for each mode with edges."""
        modes = self._modes[edges.letters]
        parts = []
        for mode in np.flatnonzero(np.bincount(modes)):
            own = edges if (modes == mode).all() else edges.where(modes == mode)
            parts.append(self._part(int(mode), layer, own, targets))
        return parts

    def _part(self, mode: int, layer: int, edges: Edges, targets: int) -> SweepPart:
        """Return the part with these edges; several with the same ends become one."""
        edges = edges.where(stable_order(edges.targets, 32))
        opens = np.ones(len(edges.targets), np.bool_)
        opens[1:] = edges.targets[1:] != edges.targets[:-1]
        opens[1:] |= edges.sources[1:] != edges.sources[:-1]
        heads = np.flatnonzero(opens)
        # The matrices of each pair of ends, and which pairs have the same ones.
        numbers = np.cumsum(opens, dtype=np.int32) - np.int32(1)
        sets = Edges(numbers, np.zeros_like(numbers), edges.letters, edges.weights)
        first = first_alike(len(heads), [sets])
        is_first = first == np.arange(len(heads))
        kept = np.flatnonzero(is_first[numbers])
        starts = np.flatnonzero(opens[kept])
        ids = edges.letters[kept] - int(self._letters.starts[mode])
        weights = None if edges.weights is None else narrow(edges.weights[kept])
        self.matrices.append((mode, np.append(starts, len(kept)), ids, weights))
        counts = np.bincount(edges.targets[heads], minlength=targets)
        part = SweepPart(
            0 if layer == 0 else layer + 1,
            mode,
            len(starts),
            narrow(np.append(0, np.cumsum(counts))),
            narrow((np.cumsum(is_first) - 1)[first]),
            edges.sources[heads],
        )
        return _for_systems(part, self._spec.systems, self._counts[layer])


def _for_systems(part: SweepPart, systems: int, sources: int) -> SweepPart:
    """Return a part for many systems, whose vectors and matrices lie one behind the other."""
    if systems == 1:
        return part
    every = np.arange(systems)[:, None]
    starts = (part.starts[:-1] + every * len(part.ids)).reshape(-1)
    return SweepPart(
        part.source,
        part.mode,
        part.matrices * systems,
        narrow(np.append(starts, systems * len(part.ids))),
        narrow((part.ids + every * part.matrices).reshape(-1)),
        narrow((part.children + every * sources).reshape(-1)),
    )
