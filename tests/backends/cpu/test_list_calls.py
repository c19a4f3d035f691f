"""Calls of lists and sweeps whose arrays need no conversion, and others."""

import numpy as np
import pytest
from dense_oracle import poisoned, random_array
from sweep_oracle import operator_of

import batchkron as bk
from batchkron.problems import SparseGrid


def direct_list(rng, dtype):
    """Three input blocks and two output blocks of six elements."""
    pools = [random_array(rng, (3, n, n), dtype) for n in (3, 2)]
    ids, inputs, outputs = rng.integers(0, 3, (20, 2)), *rng.integers(0, 2, (2, 20))
    return bk.BatchedKron(pools, ids, inputs, outputs, num_inputs=3, num_outputs=2)


def factored_list(rng, dtype):
    return direct_list(rng, dtype).plan("factored")


def sweeps(rng, dtype):
    operators = [operator_of(rng, 2, 2, "full") for _ in range(2)]
    return bk.SparseGridOperator(SparseGrid.sparse([2, 2]), [operators], 2).astype(dtype)


@pytest.fixture(params=[direct_list, factored_list, sweeps])
def op(request, rng, dtype):
    return request.param(rng, dtype)


def shapes(op):
    """Shapes of x and out: flat vectors and blocks, with axes before them."""
    rows, columns = op.shape
    yield (columns,), (rows,)
    yield (4, columns), (4, rows)
    for lead in ((), (4,), (2, 3)):
        yield lead + op._input_shape, lead + op._output_shape


def test_plain_arrays_take_the_fast_path(rng, dtype, op):
    matrix = op.to_dense()
    for given, made in shapes(op):
        x = random_array(rng, given, dtype)
        out = poisoned(made, dtype)
        assert op._apply_fast(x, out)
        again = poisoned(made, dtype)
        assert op.apply(x, out=again) is again
        np.testing.assert_array_equal(again, out)
        np.testing.assert_array_equal(op.apply(x), out)
        vectors = x.reshape(-1, op.shape[1])
        expected = (vectors @ matrix.T).reshape(made)
        bound = 1000 * np.finfo(dtype).eps * np.abs(expected).max()
        np.testing.assert_allclose(out, expected, rtol=0, atol=bound)
    with bk.backends.using("reference"):  # it has no such path
        assert bk.Identity(2)._apply_fast is None


def test_other_arrays_do_not(rng, dtype, op):
    """Nothing is written; what operators do with such arrays is as before."""
    swapped = np.dtype(dtype).newbyteorder()
    for given, made in shapes(op):
        x, out = random_array(rng, given, dtype), poisoned(made, dtype)
        readonly = poisoned(made, dtype)
        readonly.flags.writeable = False
        wide = np.repeat(x[..., None], 2, axis=-1)[..., 0]
        memory = np.zeros(x.size + out.size, dtype)
        inside = memory[: x.size].reshape(given), memory[x.size - 1 : -1].reshape(made)
        for source, target in (
            (x, readonly),
            (wide, out),
            (x.astype(swapped), out),
            (x, out.astype(swapped)),
            (x.tolist(), out),
            (x, poisoned((*made[:-1], made[-1] + 1), dtype)),
            (x, poisoned((2, *made), dtype)),
            (x[:0], out[:0]),
            inside,
        ):
            before = np.array(target, copy=True)
            assert op._apply_fast(source, target) is False
            np.testing.assert_array_equal(target, before)
        np.testing.assert_array_equal(op.apply(wide, out=out), op.apply(x))
        with pytest.raises(ValueError, match="read-only"):
            op.apply(x, out=readonly)
        with pytest.raises(ValueError, match="overlaps"):
            op.apply(inside[0], out=inside[1])


@pytest.mark.parametrize("make", [direct_list, factored_list])
def test_blocks_are_not_taken_for_other_blocks(rng, make):
    """Three blocks of six elements have as many as six blocks of three."""
    op = make(rng, np.float64)
    out = poisoned((2, 6), np.float64)
    assert op._apply_fast(rng.standard_normal((6, 3)), out) is False
    assert op._apply_fast(rng.standard_normal((3, 6)), poisoned((6, 2), np.float64)) is False
    assert op._apply_fast(rng.standard_normal((3, 6)), poisoned(12, np.float64)) is False


def test_lists_of_many_systems_have_no_fast_path(rng):
    pools = [rng.standard_normal((3, 4, 2, 2))] * 2
    op = bk.BatchedKron(pools, rng.integers(0, 4, (9, 2)), *rng.integers(0, 3, (2, 9)))
    assert op._apply_fast is None
    assert op.plan("factored")._apply_fast is None


@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
def test_products_that_are_not_square(rng, dtype, shape):
    pools = [random_array(rng, (3, *shape), dtype), random_array(rng, (3, 1, 4), dtype)]
    lists = rng.integers(0, 3, (20, 2)), *rng.integers(0, 2, (2, 20))
    op = bk.BatchedKron(pools, *lists, num_inputs=3, num_outputs=2)
    x, out = (
        random_array(rng, (5, *op._input_shape), dtype),
        poisoned((5, *op._output_shape), dtype),
    )
    assert op._apply_fast(x, out)
    expected = (x.reshape(5, -1) @ op.to_dense().T).reshape(out.shape)
    bound = 1000 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(out, expected, rtol=0, atol=bound)


def test_lists_without_products_write_zeros(rng):
    nothing = np.empty((0, 1), int), [], []
    op = bk.BatchedKron([np.ones((1, 2, 2))], *nothing, num_inputs=3, num_outputs=2)
    for one in (op, op.plan("factored")):
        out = poisoned(4, np.float64)
        assert one._apply_fast(np.ones(6), out)
        np.testing.assert_array_equal(out, np.zeros(4))


def test_bound_products_of_factored_lists_follow_updates(rng):
    op = factored_list(rng, np.float64)
    x, y = rng.standard_normal(18), poisoned(12, np.float64)
    multiply = op.bound(x, y)
    for weights in (np.full(20, 2.0), rng.standard_normal(20)):
        op.update(weights=weights)
        multiply()
        np.testing.assert_array_equal(y, op @ x)
