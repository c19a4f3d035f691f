"""The graph of a batch list as steps of sweeps, which backends have plans for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from batchkron.operators.couplings import Ids, narrow
from batchkron.operators.factored_list.graph import Edges, Graph, first_alike, graph_of
from batchkron.operators.factored_list.sorting import stable_order
from batchkron.operators.factored_list.words import Letters, letters_of, new_weights, words_of
from batchkron.spec.kron import Array, BatchSpec
from batchkron.spec.sweeps import SweepList, SweepPart, SweepStep, SweepVector

__all__ = ["FactoredList", "factored", "listing_of"]

# Share of all products' partial products that are different from each other: from here on a list
# has next to no structure. Chosen by hand.
_SINGLE_USES = 0.7


class _Matrices(NamedTuple):
    """The matrices of a part, of mode ``mode``: matrix i is Σ_j w_weights[j] A_ids[j].

    The sum is over j from ``starts[i]`` to ``starts[i + 1] - 1``. Without weights all w are 1.
    """

    mode: int
    starts: Ids
    ids: Ids
    weights: Ids | None

    def values(self, spec: BatchSpec, weights: Array) -> Array:
        """Return the matrices (systems * count, n, n); id ``count_k`` is the identity."""
        pool = spec.pools[self.mode]
        size = pool.shape[-1]
        if self.ids.max(initial=0) == pool.shape[1]:
            eye = np.broadcast_to(np.eye(size, dtype=spec.dtype), (len(pool), 1, size, size))
            pool = np.concatenate([pool, eye], axis=1)
        found = pool[:, self.ids]
        with np.errstate(over="ignore", invalid="ignore"):  # as kernels: inf and NaN, no warning
            if self.weights is not None and not (weights == 1).all():
                found = found * weights[:, self.weights, None, None]
            if len(self.ids) >= len(self.starts):  # some are sums
                found = np.add.reduceat(found, self.starts[:-1], axis=1)
        found = np.broadcast_to(found, (spec.systems, *found.shape[1:]))
        return np.ascontiguousarray(found).reshape(-1, size, size)


class FactoredList(NamedTuple):
    """A batch list as steps, each of which computes partial products of one layer, or y.

    Attributes
    ----------
    sweeps : SweepList
        The steps.
    matrices : tuple of _Matrices
        The matrices of each part of each step, in their order.
    letters : Letters
        What the steps took the list's matrices and weights for.
    graph : Graph
        What the steps were made of.
    """

    sweeps: SweepList
    matrices: tuple[_Matrices, ...]
    letters: Letters
    graph: Graph

    @property
    def blocks_between(self) -> int:
        """Number of blocks of partial products."""
        return sum(vector.blocks for vector in self.sweeps.vectors[2:])

    def without_steps(self) -> FactoredList:
        """Return what `matrices_of` and `listing_of` need."""
        return self._replace(sweeps=self.sweeps._replace(steps=()))

    def graph_alone(self) -> FactoredList:
        """Return what `listing_of` needs."""
        return self.without_steps()._replace(matrices=())

    def matrices_of(self, spec: BatchSpec) -> list[Array] | None:
        """Return the matrices of all parts for a list of the same indices, with any values.

        None if the steps are wrong for these: a skipped matrix is not a multiple of the identity
        any more, or products whose weights were equal have different ones.
        """
        weights = new_weights(spec, self.letters)
        if weights is None:
            return None
        return [one.values(spec, weights) for one in self.matrices]


def factored(spec: BatchSpec, only_if_shared: bool = False) -> FactoredList | None:
    """Return the steps that compute a batch list with square factors.

    With ``only_if_shared`` return None if most partial products have a single use, before most of
    the work.
    """
    letters = letters_of(spec)
    words = words_of(spec, letters)
    partial = int(words.lengths.sum(dtype=np.int64)) - len(words.lengths)
    graph = graph_of(words, spec.num_inputs)
    if only_if_shared and sum(graph.counts) > _SINGLE_USES * partial:
        return None
    del words
    return listing_of(spec, letters, graph)


def listing_of(spec: BatchSpec, letters: Letters, graph: Graph) -> FactoredList:
    """Return the steps of a graph that computes a batch list."""
    return _Steps(spec, letters, graph).listing()


class _Steps:
    """Makes steps of a graph: one for each layer, and the last for y."""

    def __init__(self, spec: BatchSpec, letters: Letters, graph: Graph) -> None:
        self._spec, self._letters, self._graph = spec, letters, graph
        self._counts = (spec.num_inputs, *graph.counts)
        self._matrices: list[_Matrices] = []
        modes = np.arange(len(spec.pools), dtype=np.int8)
        self._modes = np.append(np.repeat(modes, np.diff(letters.starts)), modes[-1])

    def listing(self) -> FactoredList:
        """Return all steps."""
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
        sweeps = SweepList(sizes, tuple(vectors), tuple(steps), spec.dtype)
        return FactoredList(sweeps, tuple(self._matrices), self._letters, self._graph)

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
        self._matrices.append(_Matrices(mode, np.append(starts, len(kept)), ids, weights))
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
