"""Results that are kept until what they were computed from is replaced."""

import numpy as np
import pytest

from batchkron.operators.kept import Kept


def test_equal_arrays_that_are_others_are_computed_again():
    kept, calls = Kept(), []
    first, second = np.eye(2), np.eye(3)

    def compute():
        calls.append(len(calls))
        return calls[-1]

    assert [kept.get((first, second), compute) for _ in range(3)] == [0, 0, 0]
    assert kept.get([first, second], compute) == 0
    assert kept.get((first, second.copy()), compute) == 1
    assert kept.get((first,), compute) == 2
    assert kept.get((first, None), compute) == 3
    assert kept.get((first, None), compute, key=2.0) == 4
    assert kept.get((first, None), compute, key=2 + 0j) == 4
    assert kept.get((first, None), compute, key=(2.0,)) == 5


def test_a_failure_keeps_what_was_known():
    kept, one = Kept(), np.eye(1)
    assert kept.get((one,), lambda: "known") == "known"

    def fail():
        raise np.linalg.LinAlgError("singular")

    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        kept.get((one.copy(),), fail)
    assert kept.get((one,), fail) == "known"
