"""The graphs of a batch list as tables, as files hold them, and whether these compute a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Ids, narrow
from batchkron.operators.factored_list.graph import Edges, Graph
from batchkron.operators.factored_list.program import FactoredList
from batchkron.operators.factored_list.words import Letters, letters_with
from batchkron.spec.kron import BatchSpec

__all__ = ["StoredPlan", "graphs_from", "stored_plan", "wrong_output"]

_Values = NDArray[np.uint64]

_PRIME = np.uint64(2**31 - 1)  # products of two residues fit into 64 bits
_ROUNDS = 2
_HALF = np.uint64(16)  # bits


class StoredPlan(NamedTuple):
    """The graphs of the groups of a factored plan.

    The nodes of a group are numbered through: the input blocks, then the partial products of one
    factor, of two, …, up to one less than the longest product has.

    ``groups`` (ndarray of int64, (groups, 2 + layers)): rows of ``partial`` and of ``results`` that
      each group has, and its number of partial products of 1, 2, … factors.
    ``partial`` (ndarray of int64, (edges, 4)): rows (target, source, mode, matrix): node ``target``
      is a sum, with the summand matrix times node ``source``, one layer before.
    ``results`` (ndarray of int64, (edges, 5)): rows (output, source, mode, matrix, weight): this
      output block has the summand weight times matrix times node ``source``; mode -1 is no matrix.
    ``weights`` (ndarray of int64, (products,)): the number of each product's weight; in ``results``
      stand these numbers.
    """

    groups: NDArray[np.int64]
    partial: NDArray[np.int64]
    results: NDArray[np.int64]
    weights: NDArray[np.int64]


def stored_plan(listing: FactoredList, num_inputs: int) -> StoredPlan:
    """Return the graphs of a factored list as tables."""
    layers = max(len(graph.counts) for graph in listing.graphs)
    groups, partial, results = [], [np.empty((0, 4), np.int64)], [np.empty((0, 5), np.int64)]
    for graph in listing.graphs:
        own = _tables(graph, listing.letters, num_inputs)
        partial.append(own[0])
        results.append(own[1])
        groups.append([*map(len, own), *graph.counts, *[0] * (layers - len(graph.counts))])
    weights = listing.letters.weights.astype(np.int64)
    return StoredPlan(
        np.array(groups, np.int64), np.concatenate(partial), np.concatenate(results), weights
    )


def _tables(
    graph: Graph, letters: Letters, num_inputs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of a group in both tables."""
    begins = _begins(num_inputs, graph.counts)
    partial = [
        _rows(edges, begins[k], letters, edges.targets + begins[k + 1])
        for k, edges in enumerate(graph.inner)
    ]
    results = [
        np.column_stack([_rows(edges, begins[k], letters, edges.targets), _weights(edges)])
        for k, edges in enumerate(graph.ending)
    ]
    return (
        np.concatenate([np.empty((0, 4), np.int64), *partial]),
        np.concatenate([np.empty((0, 5), np.int64), *results]),
    )


def _begins(num_inputs: int, counts: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the first node of each layer, and the number of all nodes."""
    return np.cumsum([0, num_inputs, *counts])


def _rows(edges: Edges, begin: int, letters: Letters, targets: Ids) -> NDArray[np.int64]:
    mode = np.searchsorted(letters.starts, edges.letters, "right") - 1
    is_matrix = mode < len(letters.starts) - 1
    matrix = np.where(is_matrix, edges.letters - letters.starts[mode], 0)
    rows = [targets, edges.sources + begin, np.where(is_matrix, mode, -1), matrix]
    return np.column_stack(rows).astype(np.int64)


def _weights(edges: Edges) -> Ids:
    return np.zeros(len(edges.sources), np.int64) if edges.weights is None else edges.weights


def graphs_from(stored: StoredPlan, spec: BatchSpec) -> tuple[Letters, list[Graph]]:
    """Return the letters and the graphs of tables whose numbers are in range.

    Raises `ValueError` if an edge does not lead to the next layer, a partial product is the sum of
    nothing, or products with the same number of a weight have different ones.
    """
    starts = np.cumsum([0, *(pool.shape[1] for pool in spec.pools)])
    graphs, stops = [], np.zeros(2, np.int64)
    for group in stored.groups:
        begins, stops = stops, stops + group[:2]
        partial, results = (
            stored.partial[begins[0] : stops[0]],
            stored.results[begins[1] : stops[1]],
        )
        counts = tuple(np.trim_zeros(group[2:], "b").tolist())
        graphs.append(_graph(counts, partial, results, starts, spec.num_inputs))
    return letters_with(spec, _used(graphs, starts), narrow(stored.weights)), graphs


def _graph(
    counts: tuple[int, ...],
    partial: NDArray[np.int64],
    results: NDArray[np.int64],
    starts: NDArray[np.int64],
    num_inputs: int,
) -> Graph:
    begins = _begins(num_inputs, counts)
    target, source, mode, matrix = partial.T
    layer = np.searchsorted(begins, target, "right") - 1
    wrong = np.flatnonzero(np.searchsorted(begins, source, "right") != layer)
    if len(wrong):
        raise ValueError(
            f"a row of partial leads from {source[wrong[0]]} to {target[wrong[0]]}; expected a "
            "source with one factor less than the target"
        )
    missing = np.flatnonzero(np.bincount(target, minlength=begins[-1])[begins[1] :] == 0)
    if len(missing):
        raise ValueError(f"partial product {begins[1] + missing[0]} is the target of no edge")
    letter = starts[mode] + matrix
    inner = []
    for k in range(len(counts)):
        own = layer == k + 1
        sources, targets = source[own] - begins[k], target[own] - begins[k + 1]
        inner.append(Edges(narrow(sources), narrow(targets), narrow(letter[own]), None))
    output, source, mode, matrix, weight = results.T
    layer = np.searchsorted(begins, source, "right") - 1
    letter = np.where(mode < 0, starts[-1], starts[mode] + matrix)
    ending = []
    for k in range(len(counts) + 1):
        own = layer == k
        ends = (source[own] - begins[k], output[own], letter[own], weight[own])
        ending.append(Edges(*map(narrow, ends)))
    return Graph(counts, tuple(inner), tuple(ending))


def _used(graphs: Sequence[Graph], starts: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """Return which matrices of each mode are on an edge."""
    used = np.zeros(starts[-1] + 1, np.bool_)
    for graph in graphs:
        for edges in (*graph.inner, *graph.ending):
            used[edges.letters] = True
    return np.split(used[:-1], starts[1:-1])


def wrong_output(spec: BatchSpec, letters: Letters, graphs: Sequence[Graph]) -> int | None:
    """Return an output block for which graphs do not add up a list's products, None if they do.

    Both are compared as polynomials in the blocks of x, the matrices and the weights, which commute
    here: at random numbers modulo a prime p, twice. Graphs of other products pass with a
    probability of at most ((modes + 2) / p)² < 3e-16 (lemma of Schwartz and Zippel). This takes a
    few operations for each factor and edge, while planning sorts them.
    """
    rng = np.random.default_rng()
    for _ in range(_ROUNDS):
        drawn = [
            rng.integers(1, int(_PRIME), count, np.uint64)
            for count in (spec.num_inputs, letters.starts[-1] + 1, letters.values.shape[1])
        ]
        drawn[1][-1] = 1  # the identity
        expected = _of_products(spec, letters, *drawn)
        found = np.zeros_like(expected)
        for graph in graphs:
            found = (found + _of_graph(spec.num_outputs, graph, *drawn)) % _PRIME
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            return int(wrong[0])
    return None


def _of_products(
    spec: BatchSpec, letters: Letters, inputs: _Values, matrices: _Values, weights: _Values
) -> _Values:
    """Return the output blocks of a list, product by product."""
    found = inputs[spec.inputs] * weights[letters.weights] % _PRIME
    for start, skipped, ids in zip(
        letters.starts, letters.skipped, spec.factor_ids.T, strict=False
    ):
        found *= np.where(skipped, 1, matrices[start : start + len(skipped)])[ids]
        found %= _PRIME
    return _sums(found, spec.outputs, spec.num_outputs)


def _of_graph(
    outputs: int, graph: Graph, inputs: _Values, matrices: _Values, weights: _Values
) -> _Values:
    """Return the output blocks of a graph."""
    nodes, result = inputs, np.zeros(outputs, np.uint64)
    for k, ending in enumerate(graph.ending):
        found = nodes[ending.sources] * matrices[ending.letters] % _PRIME
        found = found * weights[ending.weights] % _PRIME
        result += _sums(found, ending.targets, outputs)
        if k < len(graph.inner):
            edges = graph.inner[k]
            found = nodes[edges.sources] * matrices[edges.letters] % _PRIME
            nodes = _sums(found, edges.targets, graph.counts[k])
    return result % _PRIME


def _sums(values: _Values, places: Ids, count: int) -> _Values:
    """Return sums modulo p by places; halves of the numbers, so that sums of doubles are exact."""
    halves = (values & np.uint64(0xFFFF), values >> _HALF)
    low, high = (np.bincount(places, one, count).astype(np.uint64) for one in halves)
    return (low + (high % _PRIME << _HALF)) % _PRIME
