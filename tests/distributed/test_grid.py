"""The grid of ranks is chosen by estimated work and traffic."""

import numpy as np
import pytest

import batchkron as bk
from batchkron.distributed import distribute, simulate


def chosen_grid(factors, ranks, rows, **options):
    whole = bk.KroneckerProduct(factors)
    return simulate(ranks, lambda comm: distribute(whole, comm, rows=rows, **options).ranks.grid)[0]


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_with_vectors_enough_nothing_is_exchanged(ranks):
    factors = [np.ones((16, 16))] * 3
    for rows in (ranks, 5 * ranks):
        assert chosen_grid(factors, ranks, rows) == (ranks, 1)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_one_long_vector_is_spread_over_all_ranks(ranks):
    assert chosen_grid([np.ones((32, 32))] * 4, ranks, 1) == (1, ranks)


def test_a_few_long_vectors_are_spread_over_some():
    assert chosen_grid([np.ones((32, 32))] * 4, 8, 2) == (2, 4)
    assert chosen_grid([np.ones((32, 32))] * 4, 6, 3) == (3, 2)


def test_a_few_short_vectors_are_not_spread():
    """A message takes longer than a product."""
    assert chosen_grid([np.ones((2, 2))] * 4, 4, 3) == (4, 1)


def test_the_grid_may_be_given():
    whole = bk.KroneckerProduct([np.eye(4)] * 2)
    grids = simulate(4, lambda comm: distribute(whole, comm, [2, 2], rows=9).ranks.grid)
    assert grids == [(2, 2)] * 4
