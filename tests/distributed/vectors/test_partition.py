"""Parts of vectors: nearly equal, of whole slices of as many modes as fit."""

import math

import numpy as np
import pytest

from batchkron.distributed.vectors.partition import even_bounds, mode_bounds, whole_modes


@pytest.mark.parametrize("count", [0, 1, 7, 12, 60])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 13])
def test_parts_are_nearly_equal_multiples(count, parts):
    for unit in (1, 2, 3, 6):
        bounds = even_bounds(count * unit, parts, unit)
        assert (bounds[0], bounds[-1], len(bounds)) == (0, count * unit, parts + 1)
        lengths = np.diff(bounds)
        assert set(lengths % unit) <= {0}
        assert lengths.max() - lengths.min() in (0, unit)


@pytest.mark.parametrize("base", [2, 3, 4, 8])
@pytest.mark.parametrize("modes", [2, 3, 5])
def test_powers_are_whole_as_often_as_the_paper_says(base, modes):
    """floor(log_P TG_K), where the parts are equal."""
    for exponent in range(modes):
        parts = base**exponent
        assert whole_modes([base] * modes, parts) == modes - exponent


def test_uneven_slices_are_made_smaller():
    assert whole_modes([4, 4, 4, 4], 2) == 3
    assert whole_modes([4, 4, 4, 4], 3) == 2  # 16 slices: 6, 5, 5; not 4 slices: 2, 1, 1
    assert whole_modes([10, 10], 4) == 1  # 10 slices: 3, 3, 2, 2
    assert whole_modes([3, 5], 2) == 1  # 3 slices, 2 and 1: there is no better way
    assert whole_modes([2, 7], 5) == 1  # some ranks have nothing


def test_parts_hold_the_last_modes_whole(rng):
    for _ in range(100):
        sizes = rng.integers(1, 8, rng.integers(1, 6)).tolist()
        parts = int(rng.integers(1, 8))
        whole = whole_modes(sizes, parts)
        assert 1 <= whole <= len(sizes)
        slice_size = math.prod(sizes[len(sizes) - whole :])
        assert set(np.array(mode_bounds(sizes, parts)) % slice_size) == {0}


def test_empty_vectors():
    assert whole_modes([3, 0, 2], 4) == 3
    assert mode_bounds([3, 0, 2], 4) == (0, 0, 0, 0, 0)
