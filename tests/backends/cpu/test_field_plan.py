"""The plan of fields in the core: what it refuses, before it reads anything."""

import numpy as np
import pytest

from batchkron.backends import backend

ONE = {
    # two unknowns, one channel on one cell with one function and one point
    "unknowns": 2,
    "starts": np.array([0, 2]),
    "columns": np.array([1, 0]),
    "weights": np.array([2.0, 3.0]),
    "mix": np.array([[10.0]]),
    "kept": np.array([[1.0]]),
    "levels": [(1, np.array([[[0.5]]]))],
    "offsets": np.array([[0.25]]),
    "known": np.array([[4.0]]),
    "code": np.array([[2, 0, 1], [4, 2, 0]]),
    "projection": np.zeros((0, 0)),
    "fields": np.array([2, 3]),
    "signs": np.array([1.0, 1.0]),
    "lowest": np.array([-np.inf, -np.inf]),
    "outer": np.array([[7.0]]),
    "coarsen": np.zeros((2, 4)),
    "upward": np.zeros((0, 1, 0)),
}


def write(u, **changes):
    plan = backend().fast_path("field_plan")(**{**ONE, **changes})
    heap, ancestors = np.full((1, 2, 4), np.nan), np.zeros((0, 2, 0))
    return plan.write(np.array(u), heap, ancestors), heap[0, :, 0]


def test_by_hand():
    done, blocks = write([5.0, 6.0])
    channel = 10.0 * (2.0 * 6.0 + 3.0 * 5.0) * 0.5 + 0.25
    assert done
    np.testing.assert_allclose(blocks, [7.0 * 4.0 * channel, 7.0 * 4.0], rtol=1e-15)
    code = np.array([[0, 0, 1], [1, 0, 1]])
    np.testing.assert_allclose(
        write([5.0, 6.0], code=code)[1], [7.0 * (channel + 4.0), 7.0 * (channel - 4.0)], rtol=1e-15
    )
    code = np.array([[3, 1, 0], [5, 0, 0]])
    np.testing.assert_allclose(
        write([5.0, 6.0], code=code, projection=np.array([[2.0]]))[1],
        [7.0 * (4.0 / channel), 14.0 * channel],
        rtol=1e-15,
    )


@pytest.mark.parametrize("u", [[-5.0, -6.0], [np.nan, 1.0]])
def test_divisors_that_are_not_positive(u):
    done, blocks = write(u)
    assert not done
    assert np.isnan(blocks).all()


@pytest.mark.parametrize(
    "change",
    [
        {"columns": np.array([2, 0])},
        {"columns": np.array([-1, 0])},
        {"starts": np.array([0, 3])},
        {"starts": np.array([2, 0])},
        {"starts": np.array([0, 1, 2])},
        {"weights": np.array([2.0])},
        {"mix": np.array([10.0])},
        {"kept": np.array([[1.0, 1.0]])},
        {"levels": []},
        {"levels": [(2, np.array([[[0.5]]]))]},
        {"levels": [(1, np.array([[[0.5], [0.5]]]))]},
        {"levels": [(1, np.array([[[0.5, 0.5]]]))]},
        {"levels": [(1, np.ones((2, 1, 1)))]},
        {"offsets": np.zeros((1, 2))},
        {"known": np.zeros((1, 0))},
        {"code": np.array([[2, 0, 1], [4, 2, 4]])},
        {"code": np.array([[2, 2, 1], [4, 2, 0]])},
        {"code": np.array([[2, 0, -1], [4, 2, 0]])},
        {"code": np.array([[6, 0, 1], [4, 2, 0]])},
        {"code": np.array([[5, 0, 1], [4, 2, 0]])},
        {"projection": np.zeros((1, 2))},
        {"code": np.array([[5, 0, 0], [4, 2, 0]]), "projection": np.eye(2)},
        {"fields": np.array([2, 4])},
        {"fields": np.array([-1, 0])},
        {"signs": np.array([1.0])},
        {"outer": np.ones((1, 4))},
        {"outer": np.ones((0, 1))},
        {"coarsen": np.zeros((2, 3))},
        {"upward": np.zeros((1, 1, 1))},
        {"upward": np.zeros((0, 0))},
    ],
)
def test_refusals(change):
    with pytest.raises(ValueError, match="internal error"):
        write([5.0, 6.0], **change)


def test_refusals_of_a_call():
    plan = backend().fast_path("field_plan")(**ONE)
    heap, ancestors = np.zeros((1, 2, 4)), np.zeros((0, 2, 0))
    with pytest.raises(ValueError, match="u must be"):
        plan.write(np.zeros(3), heap, ancestors)
    with pytest.raises(ValueError, match=r"heap must be|writeable"):
        plan.write(np.zeros(2), heap[:, :1].copy(), ancestors)
    heap.flags.writeable = False
    with pytest.raises(ValueError, match=r"heap must be|writeable"):
        plan.write(np.zeros(2), heap, ancestors)
