"""Orders that sort long arrays of integers."""

import numpy as np
import pytest

from batchkron.operators.factored_list.sorting import lexicographic_order, stable_order


@pytest.mark.parametrize("bits", [1, 8, 31, 40])
@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_equal_keys_keep_their_order(rng, bits, count):
    keys = rng.integers(0, 2**bits, count)
    np.testing.assert_array_equal(stable_order(keys, bits), np.argsort(keys, kind="stable"))


def test_keys_without_room_are_sorted_by_their_highest_bits(rng):
    keys = rng.integers(0, 2**63, 1000)
    order = stable_order(keys, 63)
    np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    high = keys[order] >> 10
    assert (np.diff(high) >= 0).all()


@pytest.mark.parametrize("tops", [(3, 2, 4), (2**31 - 1,) * 3, (5, 2**30, 1, 2**30, 2**20, 3)])
def test_rows_are_sorted_by_their_first_column_first(rng, tops):
    columns = [rng.integers(-1, min(top, 4) if k % 2 else top, 500) for k, top in enumerate(tops)]
    columns[0] = columns[0] % 7 - 1
    order = lexicographic_order(columns)
    np.testing.assert_array_equal(order, np.lexsort(columns[::-1]))
