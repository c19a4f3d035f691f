"""From a batch list to its Kronecker terms on a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from batchkron.operators.couplings import Ids
from batchkron.operators.kronecker_terms import KroneckerTerm, KroneckerTerms
from batchkron.operators.recovered_terms.factors import FoundBlocks, diagonal_factors, term_factors
from batchkron.operators.recovered_terms.grids import possible_grids
from batchkron.operators.recovered_terms.grouping import MAX_TERMS, groupings
from batchkron.operators.recovered_terms.products import (
    Products,
    TermsNotFoundError,
    has_other_multiples,
    multiples,
)
from batchkron.spec.kron import BatchSpec

__all__ = ["TermsNotFoundError", "recovered_terms"]

_MAX_GUESSED = 32  # terms on a grid that is guessed; more show that it is another one; by hand


def recovered_terms(spec: BatchSpec, cells: Ids | None = None) -> KroneckerTerms:
    """Return the Kronecker terms whose sum is a batch list, exactly or up to rounding.

    ``cells`` has the multi-index of each block; by default those of `possible_grids` are tried.
    Raises TermsNotFoundError if there are no terms, or more than 256, or than 32 without ``cells``.
    """
    _check(spec)
    fault: TermsNotFoundError | None = None
    most = _MAX_GUESSED if cells is None else MAX_TERMS
    for grid in possible_grids(spec) if cells is None else (cells,):
        for only_ones in (False, True):
            if only_ones and not has_other_multiples([pool[0] for pool in spec.pools]):
                continue
            try:
                if len(grid) == 1 and spec.num_outputs == 1:
                    return _on_one_block(spec)
                return _on_grid(Products(spec, grid, only_ones=only_ones), most)
            except TermsNotFoundError as error:
                fault = fault or error
    if fault is not None and (cells is not None or spec.num_outputs == 1):
        raise fault
    reason = "its blocks are no grid that could be guessed" if fault is None else fault
    raise TermsNotFoundError(
        f"{reason}; recover_terms(levels=…) or recover_terms(cells=…) of the list says which grid "
        f"its {spec.num_outputs} blocks are"
    )


def _check(spec: BatchSpec) -> None:
    """Raise if a list is not one system of finite square products on one set of blocks."""
    if spec.batch_shape:
        raise TermsNotFoundError("it has several systems")
    is_square = all(pool.shape[2] == pool.shape[3] > 0 for pool in spec.pools)
    if not is_square or spec.num_inputs != spec.num_outputs or not spec.num_outputs:
        raise TermsNotFoundError("its products are not square, or its inputs not its outputs")
    named = {f"pools[{k}]": pool for k, pool in enumerate(spec.pools)}
    for name, values in {**named, "weights": spec.weights}.items():
        wrong = np.argwhere(~np.isfinite(values[0]))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise TermsNotFoundError(
                f"{name} holds {values[0][place]} at {list(place)}, and values have to be finite"
            )


def _on_grid(products: Products, most: int) -> KroneckerTerms:
    """Return the terms on the cells of a grid, unless there are more than ``most``."""
    sizes = tuple(pool.shape[-1] for pool in products.pools)
    known: list[list[FoundBlocks]] = [[] for _ in sizes]  # a factor of several terms is one object
    terms: list[KroneckerTerm] = []

    def add(coefficient: Any, factors: dict[int, FoundBlocks]) -> None:
        if len(terms) == most:
            raise TermsNotFoundError(f"it has more than {most} terms")
        own: list[Any] = [None] * len(sizes)
        for mode, factor in factors.items():
            own[mode] = next((one for one in known[mode] if one.equals(factor)), factor)
            if own[mode] is factor:
                known[mode].append(factor)
        terms.append(KroneckerTerm(coefficient, tuple(own)))

    for modes, chosen in products.of_each_kind():
        if modes:
            for factors in _terms_of_kind(products, chosen, modes):
                add(1.0, factors)
            continue
        whole, diagonals = diagonal_factors(products, chosen)
        if whole != 0:
            add(whole, {})
        for mode, factor in diagonals.items():
            add(1.0, {mode: factor})
    return KroneckerTerms(sizes, tuple(terms), products.cells)


def _terms_of_kind(
    products: Products, chosen: Ids, modes: tuple[int, ...]
) -> list[dict[int, FoundBlocks]]:
    """Return the factors of all terms of products that act on the same modes."""
    found = []
    ways = groupings(products, chosen, modes)
    groups = next(ways)
    while True:
        left, fault = [], None
        for group in groups:
            try:
                found.append(term_factors(products, group, modes))
            except TermsNotFoundError as error:
                left.append(group)
                fault = error
        if fault is None:
            return found
        try:
            groups = ways.send(np.sort(np.concatenate(left)))
        except StopIteration:
            raise fault from None


def _on_one_block(spec: BatchSpec) -> KroneckerTerms:
    """Return the terms of a list with one block: products on a whole tensor product."""
    sizes = tuple(pool.shape[-1] for pool in spec.pools)
    pools = [pool[0].astype(np.result_type(pool, np.float64)) for pool in spec.pools]
    scalars = [multiples(pool, only_ones=False) for pool in pools]
    collected: dict[tuple[int, ...], Any] = {}
    for ids, weight in zip(spec.factor_ids, spec.weights[0], strict=True):
        key = []
        for mode, number in enumerate(ids.tolist()):
            idle = scalars[mode][number] != 0
            weight = weight * scalars[mode][number] if idle else weight
            key.append(-1 if idle else number)
        collected[tuple(key)] = collected.get(tuple(key), 0.0) + weight
        if len(collected) > MAX_TERMS:
            raise TermsNotFoundError(f"it has more than {MAX_TERMS} terms")
    views = [list(pool) for pool in pools]  # a matrix of several terms is one object
    terms = tuple(
        KroneckerTerm(
            weight, tuple(None if i < 0 else own[i] for i, own in zip(key, views, strict=True))
        )
        for key, weight in collected.items()
    )
    return KroneckerTerms(sizes, terms)
