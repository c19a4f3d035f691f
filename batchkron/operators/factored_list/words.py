"""Products as words: the order in which each product's factors are applied.

A letter is a matrix of a pool that is not skipped; a product's word consists of its letters in the
order in which they multiply x. Words that begin alike share the multiplies with these letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.couplings import Ids
from batchkron.operators.factored_list.sorting import lexicographic_order
from batchkron.spec.kron import Array, BatchSpec

__all__ = ["Letters", "Words", "letters_of", "letters_with", "new_weights", "words_of"]

# Turns of a mode in a product, two bits each.
_UNUSED, _FIRST, _BETWEEN, _LAST = range(4)


class Letters(NamedTuple):
    """The matrices of all pools, numbered through, and what remains of products without them.

    ``starts`` (ndarray of int64, (modes + 1,)): letter ``starts[k] + i`` is matrix i of pool k.
      Another letter, ``starts[-1]``, is the identity of the last mode, for products that have no
      other letter.
    ``skipped`` (tuple of ndarray of bool, each (count_k,)): the matrices that are multiples of the
      identity, which are no letters of words.
    ``weights`` (ndarray of int32, (products,)): the number of each product's weight, times its
      multiples of the identity, among the values.
    ``values`` (ndarray, (systems or 1, distinct weights)): the distinct weights.
    """

    starts: NDArray[np.int64]
    skipped: tuple[NDArray[np.bool_], ...]
    weights: Ids
    values: Array


class Words(NamedTuple):
    """The products as words, sorted by their inputs, letters, weights and outputs.

    ``inputs``, ``outputs``, ``weights`` (ndarray of int32, (products,)): blocks of x and y, and
      numbers of weights.
    ``lengths`` (ndarray of int8, (products,)): numbers of letters, at least 1.
    ``letters`` (list of ndarray of int32, (products,)): letter k of each word; -1 behind its end.
    """

    inputs: Ids
    outputs: Ids
    weights: Ids
    lengths: NDArray[np.int8]
    letters: list[Ids]

    def in_parts(self, count: int) -> list[Words]:
        """Return neighbouring words as ``count`` parts of about equal size, none of them empty."""
        size = len(self.inputs)
        cuts = np.linspace(0, size, min(count, max(1, size)) + 1).astype(np.int64)
        parts = []
        for own in map(slice, cuts[:-1], cuts[1:]):
            longest = self.lengths[own].max(initial=1)
            letters = [one[own] for one in self.letters[:longest]]
            ends, weights = (self.inputs[own], self.outputs[own]), self.weights[own]
            parts.append(Words(*ends, weights, self.lengths[own], letters))
        return parts


def letters_of(spec: BatchSpec) -> Letters:
    """Return the letters of a list, and the weights with the factors that are skipped."""
    multiples = [_multiples(pool) for pool in spec.pools]
    # An identity that is no declared one: the list was made with skip_identities=False.
    declared = not any(
        (found & (pool[:, :, 0, 0] == 1).all(axis=0) & ~flags).any()
        for found, pool, flags in zip(multiples, spec.pools, spec.identity, strict=True)
    )
    skipped = tuple(found & declared for found in multiples)
    numbers, values = _distinct(_total_weights(spec, skipped))
    counts = [pool.shape[1] for pool in spec.pools]
    return Letters(np.cumsum([0, *counts]), skipped, numbers, values)


def letters_with(spec: BatchSpec, used: Sequence[NDArray[np.bool_]], numbers: Ids) -> Letters:
    """Return the letters of a list of which a plan is known: what it uses, and weights' numbers.

    Raises `ValueError` if products with the same number have different weights.
    """
    skipped = tuple(_multiples(pool) & ~own for pool, own in zip(spec.pools, used, strict=True))
    total = _total_weights(spec, skipped)
    values = _by_number(total, numbers, int(numbers.max(initial=0)) + 1)
    found = values[:, numbers]
    is_equal = (found == total) | (np.isnan(found) & np.isnan(total))
    wrong = np.flatnonzero(~is_equal.all(axis=0))
    if len(wrong):
        raise ValueError(
            f"weights holds {numbers[wrong[0]]} at [{wrong[0]}], and another product with this "
            "number has another weight, with its multiples of the identity"
        )
    counts = [pool.shape[1] for pool in spec.pools]
    return Letters(np.cumsum([0, *counts]), skipped, numbers, values)


def new_weights(spec: BatchSpec, letters: Letters) -> Array | None:
    """Return the values of the weights of a list with other matrices and weights.

    None if a skipped matrix is not a multiple of the identity any more, or if products whose
    weights were equal have different ones.
    """
    for flags, pool in zip(letters.skipped, spec.pools, strict=True):
        if (flags & ~_multiples(pool)).any():
            return None
    total = _total_weights(spec, letters.skipped)
    values = _by_number(total, letters.weights, letters.values.shape[1])
    return values if np.array_equal(values[:, letters.weights], total, equal_nan=True) else None


def _by_number(total: Array, numbers: Ids, count: int) -> Array:
    """Return the weights of ``count`` numbers: for each that of one product with it."""
    values = np.zeros((len(total), count), total.dtype)
    values[:, numbers] = total
    return values


def _total_weights(spec: BatchSpec, skipped: Sequence[NDArray[np.bool_]]) -> Array:
    """Return the weights times the multiples of the identity, (systems or 1, products)."""
    total = spec.weights
    for flags, pool, ids in zip(skipped, spec.pools, spec.factor_ids.T, strict=True):
        scales = np.where(flags, pool[:, :, 0, 0], 1)
        if (scales != 1).any():
            with np.errstate(over="ignore", invalid="ignore"):
                total = total * scales[:, ids]
    return total


def _multiples(pool: Array) -> NDArray[np.bool_]:
    """Return which matrices are finite, nonzero multiples of the identity in all systems."""
    scales = pool[:, :, :1, :1]
    eye = np.eye(pool.shape[-1], dtype=bool)
    is_multiple = (pool == np.where(eye, scales, 0)).all(axis=(0, 2, 3))
    is_multiple &= ((scales != 0) & np.isfinite(scales)).all(axis=(0, 2, 3))
    return np.asarray(is_multiple)


def _distinct(weights: Array) -> tuple[Ids, Array]:
    """Return the numbers (products,) and values (systems, distinct) of weights' columns."""
    count = weights.shape[1]
    if count == 0 or (weights == weights[:, :1]).all():
        return np.zeros(count, np.int32), weights[:, :1]
    if len(weights) == 1:
        values, numbers = np.unique(weights[0], return_inverse=True)
        return numbers.astype(np.int32), values[None]
    values, numbers = np.unique(weights, axis=1, return_inverse=True)
    return numbers.reshape(-1).astype(np.int32), values


def words_of(spec: BatchSpec, letters: Letters) -> Words:
    """Return the words of a list, sorted.

    On a hierarchical grid, a partial product is shared by many products if it is on the grid, too.
    So a product first applies the factors that lead from a fine cell to a coarser one, and last
    those that lead from a coarser one to a fine cell; the others between are in the order of the
    modes. Lists know no levels, but a cell of a mode is the finer the fewer blocks have it: it is
    fine where these are fewer than the square root of the most that any has, in two dimensions
    above half of the highest level. All pairs of a 2-D grid of level 8 so have 15.9 times fewer
    multiply-adds than product by product. No other order has 16.3 times fewer: this is the bound
    of a linear program, where a product that goes through a node shares all of its edges.
    """
    modes = len(spec.pools)
    used = [~flags[ids] for flags, ids in zip(letters.skipped, spec.factor_ids.T, strict=True)]
    several = np.flatnonzero(np.sum(used, axis=0, dtype=np.int8) > 1)
    code: NDArray[Any] = np.zeros(len(spec.inputs), np.int64 if modes > 15 else np.int32)
    for k, ids in enumerate(spec.factor_ids.T):
        turns = np.full(len(letters.skipped[k]), _BETWEEN, np.int8)
        if len(several):
            chosen = several[used[k][several]]
            turns = _turns(spec, ids[chosen], chosen, len(turns))
        code |= np.where(used[k], turns[ids], _UNUSED).astype(code.dtype) << 2 * k
    del used, several
    codes, kinds = _kinds(code)
    del code
    orders = [_order(one, modes) for one in codes]
    table = np.full((len(orders), max(map(len, orders), default=1)), -1, np.int8)
    for row, order in zip(table, orders, strict=True):
        row[: len(order)] = order
    return _sorted_words(spec, letters, table, kinds)


def _kinds(code: NDArray[Any]) -> tuple[list[int], NDArray[Any]]:
    """Return the distinct codes, ascending, and each product's number among them."""
    largest = int(code.max(initial=0))
    if largest > max(1 << 16, len(code)):
        codes, kinds = np.unique(code, return_inverse=True)
    else:
        codes = np.flatnonzero(np.bincount(code, minlength=largest + 1))
        table = np.zeros(largest + 1, np.int32)
        table[codes] = np.arange(len(codes))
        kinds = table[code]
    return [int(one) for one in codes], kinds


def _turns(
    spec: BatchSpec, ids: NDArray[np.int64], products: NDArray[np.int64], count: int
) -> NDArray[np.int8]:
    """Return for each matrix of a mode whether it goes first, last, or between."""
    read = _distinct_pairs(ids, spec.inputs[products], count, spec.num_inputs)
    written = _distinct_pairs(ids, spec.outputs[products], count, spec.num_outputs)
    turns = np.full(count, _BETWEEN, np.int8)
    turns[(written > read) & (read**2 < read.max(initial=0))] = _FIRST
    turns[(written < read) & (written**2 < written.max(initial=0))] = _LAST
    return turns


def _distinct_pairs(
    ids: NDArray[np.int64], blocks: NDArray[np.int64], count: int, num_blocks: int
) -> NDArray[np.int64]:
    """Return for each id the number of distinct blocks that it occurs with."""
    if count * num_blocks <= 16 * len(ids):  # the table is smaller than what sorting takes
        table = np.zeros(count * num_blocks, np.bool_)
        table[ids * num_blocks + blocks] = True
        return np.asarray(np.count_nonzero(table.reshape(count, num_blocks), axis=1))
    pairs = ids * num_blocks + blocks
    pairs.sort()
    opens = np.ones(len(pairs), np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=opens[1:])
    counts: NDArray[np.int64] = np.bincount(pairs[opens] // num_blocks, minlength=count)
    return counts


def _order(code: int, modes: int) -> list[int]:
    """Return the order of the modes of products with this code, as in `words_of`."""
    turns = [code >> (2 * k) & 3 for k in range(modes)]
    first, between, last = (
        [k for k, turn in enumerate(turns) if turn == wanted]
        for wanted in (_FIRST, _BETWEEN, _LAST)
    )
    return [*first, *between, *reversed(last)] or [modes]


def _sorted_words(
    spec: BatchSpec, letters: Letters, table: NDArray[np.int8], kinds: NDArray[Any]
) -> Words:
    """Return the words whose modes are in the order ``table[kinds]``."""
    modes, longest = len(spec.pools), table.shape[1]
    flat, starts = spec.factor_ids.reshape(-1), letters.starts.astype(np.int32)
    columns: list[NDArray[Any]] = [spec.inputs.astype(np.int32)]
    for k in range(longest):
        own = table[:, k][kinds]
        places = np.arange(len(kinds)) * modes
        places += np.clip(own, 0, modes - 1)
        column = flat[places].astype(np.int32)
        del places
        column += starts[np.maximum(own, 0)]
        column[own < 0] = -1  # behind the end of the word
        column[own == modes] = starts[-1]
        columns.append(column)
    lengths = (table >= 0).sum(axis=1).astype(np.int8)[kinds]
    columns += [letters.weights, spec.outputs.astype(np.int32)]
    order = lexicographic_order(columns)
    for i in range(len(columns)):  # one by one, to save memory
        columns[i] = columns[i][order]
    return Words(columns[0], columns[-1], columns[-2], lengths[order], columns[1:-2])
