"""Blocks that are entries of one vector: the operator is one that was built with them."""

import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array

import batchkron as bk
from batchkron.problems import SparseGrid
from batchkron.problems.discretization.matrices.mode_operator import connected

LEVELS = {1: 4, 2: 4, 3: 3, 5: 2}


def operator_of(rng, level, n, dtype=np.float64):
    rows, columns = np.nonzero(connected(level, "volume"))
    blocks = random_array(rng, (len(rows), n, n), dtype)
    return SimpleNamespace(rows=rows, columns=columns, blocks=blocks)


def case(rng, modes, n, dtype=np.float64):
    """Terms of a fixed operator and a changing one; places of that one in a longer vector."""
    level = LEVELS[modes]
    fixed, changing = (operator_of(rng, level, n, dtype) for _ in range(2))
    terms = [[changing] + [fixed] * (modes - 1)]
    if modes > 1:  # with one mode the sweep would be the sum of both terms
        terms.append([fixed] * (modes - 1) + [None])
    places = rng.permutation(changing.blocks.size + 50)[: changing.blocks.size]
    grid = SparseGrid.sparse([level] * modes)
    return grid, terms, changing, places.reshape(changing.blocks.shape)


def built(grid, terms, n, scale, changing=None, blocks=None):
    new = SimpleNamespace(rows=changing.rows, columns=changing.columns, blocks=blocks)
    own = [[new if mode is changing else mode for mode in term] for term in terms]
    return bk.SparseGridOperator(grid, own, n, coefficients=scale)


@pytest.mark.parametrize(
    ("modes", "n", "backend"),
    [(1, 1, "cpu"), (1, 7, "cpu"), (2, 3, "cpu"), (2, 7, "cpu"), (3, 3, "cpu"), (3, 1, "cpu"),
     (5, 2, "cpu"), (2, 2, "reference")],
)  # fmt: skip
def test_values_replace_blocks(rng, modes, n, backend):
    grid, terms, changing, places = case(rng, modes, n)
    with bk.backends.using(backend):
        scale = [-0.5, 2.0][: len(terms)]
        operator = bk.SparseGridOperator(grid, terms, n, coefficients=scale)
        before = operator.to_dense()
        linked = operator.link({0: places}, changing.blocks.size + 50)
        assert linked.values.dtype == np.float64
        assert not linked.values.any()
        np.testing.assert_array_equal(operator.to_dense(), before)
        for _ in range(3):
            linked.values[:] = rng.uniform(0.5, 1.5, linked.values.size)
            linked.update()
            other = built(grid, terms, n, scale, changing, linked.values[places])
            x = random_array(rng, (2, *operator._input_shape), np.float64)
            np.testing.assert_allclose(operator.apply(x), other.apply(x), rtol=1e-13, atol=1e-12)
            # several vectors at once, for which matrices have another layout
            several = random_array(rng, (operator.shape[1], 3), np.float64)
            np.testing.assert_allclose(operator @ several, other @ several, rtol=1e-13, atol=1e-12)
        assert operator.validate(5).ok


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(rng, dtype):
    grid, terms, changing, places = case(rng, 2, 2, dtype)
    operator = bk.SparseGridOperator(grid, terms, 2)
    linked = operator.link({0: places}, places.size + 50)
    linked.values[:] = random_array(rng, linked.values.shape, dtype)
    linked.update()
    other = built(grid, terms, 2, None, changing, linked.values[places])
    x = random_array(rng, operator._input_shape, dtype)
    bound = 200 * np.finfo(dtype).eps * np.abs(other.apply(x)).max()
    np.testing.assert_allclose(operator.apply(x), other.apply(x), atol=bound)


def test_relatives_and_copies_have_the_new_values(rng):
    grid, terms, changing, places = case(rng, 2, 3)
    operator = bk.SparseGridOperator(grid, terms, 3)
    linked = operator.link({0: places}, places.size + 50)
    linked.values[:] = rng.uniform(0.5, 1.5, linked.values.size)
    linked.update()
    late = operator.T.to_dense()  # made after an update
    linked.values[:] = rng.uniform(0.5, 1.5, linked.values.size)
    linked.update()
    other = built(grid, terms, 3, None, changing, linked.values[places]).to_dense()
    assert not np.allclose(late, other.T)
    for made, expected in (
        (operator, other),
        (operator.T, other.T),
        (pickle.loads(pickle.dumps(operator)), other),
        (operator.on_grid(grid), other),
    ):
        np.testing.assert_allclose(made.to_dense(), expected, atol=1e-13)
    diagonal = operator.diagonal()
    np.testing.assert_allclose(diagonal, other.diagonal(), atol=1e-13)


def test_update_and_a_second_link_take_over(rng):
    grid, terms, _, places = case(rng, 2, 2)
    operator = bk.SparseGridOperator(grid, terms, 2)
    linked = operator.link({0: places}, places.size + 50)
    linked.values[:] = 1.0
    linked.update()
    blocks = [rng.uniform(0.5, 1.5, matrix.blocks.shape) for matrix in operator._spec.matrices]
    operator.update(blocks)
    other = bk.SparseGridOperator(grid, terms, 2)
    other.update(blocks)
    np.testing.assert_array_equal(operator.to_dense(), other.to_dense())
    again = operator.link({1: np.arange(blocks[1].size).reshape(blocks[1].shape)}, blocks[1].size)
    again.values[:] = rng.uniform(0.5, 1.5, again.values.size)
    again.update()
    other.update([blocks[0], again.values.reshape(blocks[1].shape)])
    np.testing.assert_allclose(operator.to_dense(), other.to_dense(), atol=1e-13)


def test_products_in_other_threads_use_old_or_new_values(rng):
    grid, terms, _, places = case(rng, 3, 3)
    operator = bk.SparseGridOperator(grid, terms[:1], 3)
    linked = operator.link({0: places}, places.size + 50)
    x = random_array(rng, operator._input_shape, np.float64)
    linked.values[:] = 1.0
    linked.update()
    once, wrong, done = operator.apply(x), [], threading.Event()

    def multiply():
        while not done.is_set():
            y = operator.apply(x)
            factor = np.vdot(y, once) / np.vdot(once, once)
            if not (np.allclose(y, factor * once, atol=1e-9) and np.isclose(factor % 1, 0.0)):
                wrong.append(factor)

    threads = [threading.Thread(target=multiply) for _ in range(2)]
    for thread in threads:
        thread.start()
    for value in range(300):
        linked.values[:] = 1.0 + value % 2
        linked.update()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_cannot_be_linked_is_refused(rng):
    grid, terms, changing, places = case(rng, 2, 2)
    operator = bk.SparseGridOperator(grid, terms, 2)
    with pytest.raises(ValueError, match="places has the 1-D operator 2; the operator has 2"):
        operator.link({2: places}, places.size + 50)
    with pytest.raises(ValueError, match=r"places\[0\] has shape"):
        operator.link({0: places[1:]}, places.size + 50)
    with pytest.raises(ValueError, match="dtype float64"):
        operator.link({0: places + 0.5}, places.size + 50)
    with pytest.raises(IndexError, match=r"places\[0\] is not from 0 to 9"):
        operator.link({0: places}, 10)
    fixed = terms[0][1]
    summed = bk.SparseGridOperator(grid, [[changing, None], [fixed, None]], 2)
    with pytest.raises(ValueError, match="the sum of a linked 1-D operator and another one"):
        summed.link({0: places}, places.size + 50)
