"""The graph of partial products: words that begin alike or end alike share their multiplies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Ids, narrow
from batchkron.operators.factored_list.sorting import stable_order
from batchkron.operators.factored_list.words import Words

__all__ = ["Edges", "Graph", "first_alike", "graph_of"]


class Edges(NamedTuple):
    """Multiplies: node ``targets[e]`` gets matrix ``letters[e]``, times a weight, of a source.

    ``sources``, ``targets``, ``letters`` (ndarray of int32, (edges,)).
    ``weights`` (ndarray of int32, (edges,), or None): numbers of weights; None for the weight 1.
    """

    sources: Ids
    targets: Ids
    letters: Ids
    weights: Ids | None

    def where(self, kept: NDArray[Any]) -> Edges:
        """Return some of the edges, by a mask or by their numbers."""
        weights = None if self.weights is None else self.weights[kept]
        return Edges(self.sources[kept], self.targets[kept], self.letters[kept], weights)


class Graph(NamedTuple):
    """A graph in layers: x, partial products of one letter, of two, …; all have edges to y.

    ``counts``: number of nodes of each layer of partial products; layer 0, x, is not counted.
    ``inner``: from layer k to layer k + 1.
    ``ending``: from layer k to y.
    """

    counts: tuple[int, ...]
    inner: tuple[Edges, ...]
    ending: tuple[Edges, ...]


def graph_of(words: Words, num_inputs: int) -> Graph:
    """Return the smallest graph whose paths from x to y are the words.

    A node of layer k is first a distinct beginning of k letters (with their input). From the last
    layer to the first, nodes are merged from which the same edges go to the same nodes, as in a
    minimal acyclic automaton. They are found by a hash of these edges and then compared, so that a
    collision of hashes only costs a merge.
    """
    inner, ending, counts = _beginnings(words, num_inputs)
    merged_counts: list[int] = []
    for k in reversed(range(1, len(counts))):
        first = first_alike(counts[k], [inner[k], ending[k]])
        chosen = first == np.arange(counts[k])
        numbers = _count(chosen)
        for lists in (inner, ending):
            own = lists[k].where(chosen[lists[k].sources])
            lists[k] = own._replace(sources=numbers[own.sources])
        inner[k - 1] = inner[k - 1]._replace(targets=numbers[first[inner[k - 1].targets]])
        merged_counts.insert(0, int(np.count_nonzero(chosen)))
    return Graph(tuple(merged_counts), tuple(inner[:-1]), tuple(ending))


def _beginnings(words: Words, num_inputs: int) -> tuple[list[Edges], list[Edges], list[int]]:
    """Return the edges of the tree of beginnings: inner and ending ones of each layer, and sizes.

    Edges are sorted by source, and those of a source as the words are. To save memory, the letters
    are taken out of the words.
    """
    inner: list[Edges] = []
    ending: list[Edges] = []
    counts = [num_inputs]
    nodes = words.inputs  # of each word, its node in layer k
    changes = np.ones(len(nodes), np.bool_)  # whether a word has another beginning than the last
    np.not_equal(words.inputs[1:], words.inputs[:-1], out=changes[1:])
    for k in range(len(words.letters)):
        letters = words.letters.pop(0)
        ends = np.flatnonzero(words.lengths == k + 1)
        ending.append(Edges(nodes[ends], words.outputs[ends], letters[ends], words.weights[ends]))
        changes[1:] |= letters[1:] != letters[:-1]
        longer = words.lengths > k + 1
        opens = changes & longer
        opens[1:] |= longer[1:] & ~longer[:-1]
        heads = np.flatnonzero(opens)
        inner.append(Edges(nodes[heads], narrow(np.arange(len(heads))), letters[heads], None))
        nodes = _count(opens)
        counts.append(len(heads))
    return inner, ending, counts[:-1]


def _count(marks: NDArray[np.bool_]) -> Ids:
    """Return for each place the number of marks up to it, less one, as stored integers."""
    numbers: NDArray[Any] = np.cumsum(marks, dtype=np.int32)
    numbers -= 1
    return numbers


def first_alike(count: int, given: list[Edges]) -> Ids:
    """Return for each of ``count`` sources the first one with the same edges, of all given kinds.

    Edges are sorted by source, and those of a source in an order that equal sets of edges have.
    """
    starts = [_begins(edges, count) for edges in given]
    hashes = np.zeros(count, np.uint64)
    for number, (edges, begins) in enumerate(zip(given, starts, strict=True)):
        sums = np.zeros(len(edges.sources) + 1, np.uint64)
        np.cumsum(_mixed(edges, number), out=sums[1:])
        hashes += sums[begins[1:]]
        hashes -= sums[begins[:-1]]
        del sums  # here and below to save memory
    hashes >>= np.uint64(1)
    order = stable_order(hashes, 63)
    hashes = hashes[order]
    opens = np.ones(count, np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=opens[1:])
    del hashes
    first = np.empty(count, np.int64)
    first[order] = order[opens][_count(opens)]
    del order
    for edges, begins in zip(given, starts, strict=True):
        differs = _differing(edges, begins, first)
        first[differs] = differs
    return first


def _begins(edges: Edges, count: int) -> Ids:
    """Return where the edges of each of ``count`` sources begin; the last entry is their number."""
    begins = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(edges.sources, minlength=count), out=begins[1:])
    return begins


def _mixed(edges: Edges, number: int) -> NDArray[np.uint64]:
    """Return a hash of each edge without its source."""
    mixed: NDArray[np.uint64] = edges.letters.astype(np.uint64)
    mixed += np.uint64(number) << np.uint64(32)
    for part in (edges.targets, edges.weights):
        if part is not None:
            mixed *= np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
            np.add(mixed, part, out=mixed, dtype=np.uint64, casting="unsafe")
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _differing(edges: Edges, begins: Ids, first: Ids) -> Ids:
    """Return the nodes whose edges are not those of the node ``first`` that stands for them."""
    others = np.flatnonzero(first != np.arange(len(first)))
    sizes, matched = begins[others + 1] - begins[others], first[others]
    is_equal = begins[matched + 1] - begins[matched] == sizes
    differs = others[~is_equal]
    others, sizes, matched = others[is_equal], sizes[is_equal], matched[is_equal]
    shifted = np.repeat(begins[matched] - begins[others], sizes)
    places = np.arange(len(shifted))
    places += np.repeat(begins[others] - np.cumsum(sizes) + sizes, sizes)
    shifted += places
    wrong = np.zeros(len(places), np.bool_)
    for part in (edges.letters, edges.targets, edges.weights):
        if part is not None:
            wrong |= part[places] != part[shifted]
    return np.concatenate([differs, np.unique(edges.sources[places[wrong]])])
