"""Batch lists with factored plans on the device."""

import numpy as np
import pytest
from dense_oracle import batch_bound, dense_batch, random_array

import batchkron as bk
from batchkron.problems import SparseGrid

pytestmark = pytest.mark.gpu

SIZES = [(3,), (2, 3), (4, 4), (1, 3, 2), (3, 3, 3), (2, 1, 3, 1, 2), (2,) * 6, (9, 5)]


def random_list(rng, sizes, dtype, outputs, lead=()):
    """Forty products of few matrices, with identities, multiples of them, and few weights."""
    pools = [random_array(rng, (*lead, 4, n, n), dtype) for n in sizes]
    for pool in pools:
        pool[..., 1, :, :] = np.eye(pool.shape[-1])
        pool[..., 2, :, :] = 3 * np.eye(pool.shape[-1])
    ids = rng.integers(0, 4, (40, len(sizes)))
    source, target = rng.integers(0, 4, 40), rng.integers(0, outputs, 40)
    return pools, ids, source, target, rng.integers(1, 4, (*lead, 40)).astype(dtype)


def operator_of(batch, outputs):
    *lists, weights = batch
    op = bk.BatchedKron(*lists, weights=weights, num_inputs=4, num_outputs=outputs)
    return op.plan("factored")


@pytest.mark.parametrize("outputs", [3, 4, 7])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_equal_dense_ones(cupy, poisoned_on_device, rng, dtype, sizes, outputs):
    batch = random_list(rng, sizes, dtype, outputs)
    pools, ids, source, target, weights = batch
    op = operator_of(batch, outputs).to("cuda")
    assert "plan: factored" in op.describe()
    for values in (weights, random_array(rng, 40, dtype)):  # equal weights become different
        op.update(weights=values)
        matrix, magnitude = dense_batch(pools, ids, source, target, values, 4, outputs)
        for one, dense, sizes_of in (
            (op, matrix, magnitude),
            (op.T, matrix.T, magnitude.T),
            (op.H, matrix.conj().T, magnitude.T),
        ):
            x = random_array(rng, (2, *one._input_shape), dtype)
            out = poisoned_on_device((2, *one._output_shape), dtype)
            for _ in range(2):  # the second call finds what the first one prepared
                one.apply(cupy.asarray(x), out=out)
            many = random_array(rng, (one.shape[1], 3), dtype)
            product = one.matmat(cupy.asarray(many)).get()
            start = cupy.asarray(random_array(rng, out.shape, dtype))
            before = start.get()
            after = one.accumulate(cupy.asarray(x), start, alpha=2).get()
            for k in range(2):
                bound = batch_bound(sizes_of, x[k].ravel(), pools, 50)
                expected = dense @ x[k].ravel()
                assert (np.abs(out.get()[k].ravel() - expected) <= bound).all()
                error = np.abs(after[k].ravel() - before[k].ravel() - 2 * expected)
                eps = 100 * np.finfo(dtype).eps * np.abs(before[k].ravel())
                assert (error <= 2 * bound + eps).all()
            for k in range(3):
                bound = batch_bound(sizes_of, many[:, k], pools, 50)
                assert (np.abs(product[:, k] - dense @ many[:, k]) <= bound).all()


def test_many_systems(cupy, rng, dtype):
    batch = random_list(rng, (2, 3), dtype, 5, lead=(2, 3))
    op = operator_of(batch, 5)
    x = random_array(rng, (2, 2, 3, 4, 6), dtype)
    expected = op.apply(x)
    result = op.to("cuda").apply(cupy.asarray(x)).get()
    scale = 1000 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=scale)


@pytest.mark.parametrize("levels", [[6, 6], [4, 4, 4], [3, 3, 3, 3]], ids=str)
def test_all_pairs_of_a_grid(cupy, rng, dtype, levels):
    """Many edges of a node; the same bits in each run."""
    cells, wide = SparseGrid.sparse(levels).cells, 2 ** levels[0]
    target, source = np.divmod(np.arange(len(cells) ** 2), len(cells))
    pool = random_array(rng, (wide**2, 3, 3), dtype)
    op = bk.BatchedKron(pool, cells[target] * wide + cells[source], source, target)
    device = op.plan("auto").to("cuda")
    assert "plan: factored" in device.describe()
    x = random_array(rng, op._input_shape, dtype)
    expected = op.apply(x)
    first = device.apply(cupy.asarray(x)).get()
    scale = 2000 * np.finfo(dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(first, expected, rtol=0, atol=scale)
    for _ in range(3):
        np.testing.assert_array_equal(device.apply(cupy.asarray(x)).get(), first)


def test_a_graph_sees_updates_that_keep_the_structure(cupy, rng):
    batch = random_list(rng, (3, 3), np.float64, 4)
    op = operator_of(batch, 4).to("cuda")
    x = cupy.asarray(rng.standard_normal((4, 9)))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        out = op.apply(x)  # its workspace for this stream
        stream.begin_capture()
        op.apply(x, out=out)
        graph = stream.end_capture()
    op.update(weights=2 * batch[4])
    out.fill(np.nan)
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(out.get(), op.apply(x).get())
