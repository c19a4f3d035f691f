"""Which products of a batch list belong to one Kronecker term."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from scipy.sparse import coo_array

from batchkron.operators.couplings import Ids
from batchkron.operators.recovered_terms.products import Products

__all__ = ["MAX_TERMS", "ambiguous_modes", "groupings"]

MAX_TERMS = 256  # of a list; with more, preconditioners take too long to build; chosen by hand
_MAX_RUNS = 16  # of ascending pairs of blocks, with more the products are in no order; by hand


def groupings(
    products: Products, chosen: Ids, modes: tuple[int, ...]
) -> Generator[list[Ids], Ids, None]:
    """Yield products that act on the same modes in groups, which may be terms, in several ways.

    What is sent back are the products of groups that were no terms, to be grouped otherwise.

    A node is a matrix of a mode at a pair of 1-D cells. Products that have a node in common belong
    to one term: terms are the connected components of the graph of products and nodes. Where they
    have a 1-D operator, or some of its blocks, in common, the order of the products may tell them
    apart: in a list that was made term by term, the pairs of blocks of each term ascend. Otherwise
    only those nodes count that occur once at most at each pair of blocks.
    """
    if len(modes) == 1:
        yield [chosen]
        return
    for link in (_by_nodes, _by_order, _by_own_nodes):
        labels = link(products, chosen, modes)
        count = int(labels.max(initial=-1)) + 1
        if count <= MAX_TERMS:
            order = np.argsort(labels, kind="stable")
            stops = np.cumsum(np.bincount(labels))[:-1]
            chosen = yield np.split(chosen[order], stops)


def ambiguous_modes(products: Products, group: Ids, modes: tuple[int, ...]) -> list[int]:
    """Return the modes in which a pair of 1-D cells has several matrices; none for one mode."""
    if len(modes) == 1:
        return []
    found = []
    for mode in modes:
        (keys, numbers), ids = products.entries(group, mode), products.ids[mode][group]
        known = np.zeros(len(keys), np.int64)
        known[numbers] = ids
        if (known[numbers] != ids).any():
            found.append(mode)
    return found


def _nodes(products: Products, part: Ids, mode: int) -> Ids:
    """Return the number of each product's node in a mode."""
    numbers = products.entries(part, mode)[1]
    keys = numbers * np.int64(len(products.pools[mode])) + products.ids[mode][part]
    return np.asarray(np.unique(keys, return_inverse=True)[1]).ravel()


def _by_nodes(products: Products, part: Ids, modes: tuple[int, ...]) -> Ids:
    every = np.arange(len(part))
    return _linked(len(part), [(every, _nodes(products, part, mode)) for mode in modes])


def _by_own_nodes(products: Products, part: Ids, modes: tuple[int, ...]) -> Ids:
    pairs = np.unique(products.pairs(part), return_inverse=True)[1].ravel()
    nodes = [_nodes(products, part, mode) for mode in modes]
    keys = pairs
    for own in nodes:
        keys = np.unique(keys * np.int64(own.max() + 1) + own, return_inverse=True)[1].ravel()
    once = np.unique(keys, return_index=True)[1]  # products that the list has twice count once
    links = []
    for own in nodes:
        order = once[np.lexsort((own[once], pairs[once]))]
        again = (np.diff(pairs[order]) == 0) & (np.diff(own[order]) == 0)
        shared = np.zeros(int(own.max()) + 1, bool)
        shared[own[order[1:][again]]] = True
        kept = np.flatnonzero(~shared[own])
        links.append((kept, own[kept]))
    return _linked(len(part), links)


def _by_order(products: Products, part: Ids, modes: tuple[int, ...]) -> Ids:
    inside = np.sort(part)
    outputs, inputs = products.outputs[inside], products.inputs[inside]
    size = np.int64(len(products.cells))
    labels = np.zeros(len(part), np.int64)
    for keys in (outputs * size + inputs, inputs * size + outputs):
        runs = np.concatenate(([0], np.cumsum(np.diff(keys) <= 0)))
        if runs[-1] < _MAX_RUNS:
            labels[np.searchsorted(part, inside, sorter=np.argsort(part))] = runs
            break
    return labels


def _linked(count: int, links: list[tuple[Ids, Ids]]) -> Ids:
    """Return the component of each product in the graph of products and nodes."""
    from scipy.sparse.csgraph import connected_components  # 4 % of the time to import batchkron

    rows, columns, size = [], [], count
    for own, nodes in links:
        rows.append(own)
        columns.append(size + nodes)
        size += int(nodes.max(initial=-1)) + 1
    row, column = np.concatenate(rows), np.concatenate(columns)
    graph = coo_array((np.ones(len(row), np.int8), (row, column)), shape=(size, size))
    labels = connected_components(graph, directed=False)[1][:count]
    return np.asarray(np.unique(labels, return_inverse=True)[1]).ravel()
