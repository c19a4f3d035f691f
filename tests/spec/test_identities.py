"""Identities among factors: how they are stored, found, and taken off a product."""

import math
import pickle

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array

from batchkron.spec.identities import (
    identity_matrix,
    is_identity,
    merged_identities,
    multiple_of_identity,
    runs_between_identities,
)


@pytest.mark.parametrize("size", [0, 1, 2, 7])
@pytest.mark.parametrize("dtype", DTYPES)
def test_identity_matrix(dtype, size):
    matrix = identity_matrix(size, dtype)
    assert matrix.dtype == dtype
    np.testing.assert_array_equal(matrix, np.eye(size))
    assert is_identity(matrix) == is_identity(matrix.T) == (size > 0)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(matrix)), np.eye(size))
    if size:
        with pytest.raises(ValueError, match="read-only"):
            matrix[0, 0] = 2


def test_a_large_identity_takes_little_memory():
    matrix = identity_matrix(2**20, "float64")
    assert is_identity(matrix)
    assert matrix[2**20 - 1, 2**20 - 1] == 1
    assert matrix.trace() == 2**20


def test_what_is_no_stored_identity():
    window = np.lib.stride_tricks.sliding_window_view
    for vector in ([0, 2, 0], [1, 1, 0], [0, 1, 3], [0, np.nan, 0]):
        assert not is_identity(window(np.array(vector, float), 2)[::-1])
    assert not is_identity(np.eye(2))  # whose values are not looked at
    assert not is_identity(window(np.eye(1, 4, 1)[0], 3)[::-1])
    assert is_identity(np.ones((1, 1)))
    assert not is_identity(np.full((1, 1), 2.0))
    assert not is_identity("I")


def test_multiples_of_identities(rng, dtype):
    for scale in (1, -2.5, 1e-30):
        matrix = (scale * np.eye(5)).astype(dtype)
        assert multiple_of_identity(matrix) == matrix[0, 0]
        for place in ((0, 3), (2, 1), (4, 4)):
            for value in (0.5, np.nan):
                other = matrix.copy()
                other[place] = value
                assert multiple_of_identity(other) is None
    nothing = [np.zeros((2, 2)), np.diag([np.inf, np.inf]), np.eye(2, 3), np.eye(0), np.ones(3)]
    for matrix in [*nothing, random_array(rng, (3, 3), dtype), np.eye(2)[None]]:
        assert multiple_of_identity(matrix) is None


def test_identities_at_the_ends_are_taken_off():
    A, B = np.ones((2, 3)), np.ones((4, 1))
    assert merged_identities([A]) == (1, [A], 1)
    assert merged_identities([2, 3, A, 5, 7]) == (6, [A], 35)
    before, kept, behind = merged_identities([A, 2, 3, B, 1, A])
    assert (before, behind) == (1, 1)
    assert [one if isinstance(one, int) else id(one) for one in kept] == [id(A), 6, id(B), id(A)]
    assert merged_identities([2, 3]) == (1, [], 6)
    before, kept, behind = merged_identities([2**40, 2**40, A])  # of no array
    assert 2**60 < before < 2**63


def test_runs_between_identities(rng):
    for skipped in np.ndindex(*[2] * 5):
        inputs, outputs = rng.integers(1, 5, (2, 5)).tolist()
        outputs = [n if one else m for one, n, m in zip(skipped, inputs, outputs, strict=True)]
        sizes, done = list(inputs), []
        for low, high, before, behind in runs_between_identities(inputs, outputs, skipped):
            assert before == math.prod(sizes[:low])
            assert behind == math.prod(sizes[high:])
            sizes[low:high] = outputs[low:high]
            done += range(low, high)
        assert sorted(done) == [k for k in range(5) if not skipped[k]]
