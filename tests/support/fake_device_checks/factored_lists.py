"""Batch lists with factored plans: values, updates, results with another number of blocks."""

import cupy
import numpy as np
import pytest
from dense_oracle import DTYPES, dense_batch, random_array

import batchkron as bk
from batchkron.backends.cuda.kernel_family import without
from fake_device_checks.common import close, on_device


def factored_lists():
    """Products as of dense matrices, with the kernels that take any modes."""
    rng = np.random.default_rng(11)
    with without("segmented.staged"):
        for dtype in DTYPES:
            for sizes, outputs in (((3,), 4), ((2, 3), 3), ((2, 1, 2), 5)):
                check_list(rng, dtype, sizes, outputs)


def check_list(rng, dtype, sizes, outputs):
    """A list with identities, before and after an update that changes equal weights."""
    pools = [random_array(rng, (4, n, n), dtype) for n in sizes]
    for pool in pools:
        pool[1] = np.eye(pool.shape[-1])
    ids = rng.integers(0, 4, (30, len(sizes)))
    inputs, targets = rng.integers(0, 4, 30), rng.integers(0, outputs, 30)
    counts = {"num_inputs": 4, "num_outputs": outputs}
    host = bk.BatchedKron(pools, ids, inputs, targets, **counts).plan("factored")
    op = host.to("cuda")
    assert "plan: factored" in op.describe()
    others = [2 * pool for pool in pools]
    for pool in others:
        pool[1] = np.eye(pool.shape[-1])
    for values in (pools, others):
        if values is others:
            op.update(pools=values, weights=random_array(rng, 30, dtype))
        weights = host._spec.weights[0]
        matrix, _ = dense_batch(values, ids, inputs, targets, weights, 4, outputs)
        matrix = matrix.astype(dtype)
        compare(rng, op, matrix, dtype)
        compare(rng, op.T, matrix.T, dtype)
    if outputs != 4:
        x = on_device(np.ones(op._input_shape, dtype))
        with pytest.raises(ValueError, match="out has shape"):
            op.apply(x, out=cupy.empty(x.shape, dtype))


def compare(rng, op, matrix, dtype):
    """Products of one vector, flat and in blocks, of several, and added ones."""
    columns = matrix.shape[1]
    shape, target = op._input_shape, op._output_shape
    for lead in ((), (2,)):
        x = random_array(rng, (*lead, *shape), dtype)
        expected = (x.reshape(*lead, columns) @ matrix.T).reshape(*lead, *target)
        out = cupy.empty((*lead, *target), dtype)
        assert op.apply(on_device(x), out=out) is out
        close(out, expected)
        y = random_array(rng, expected.shape, dtype)
        close(op.accumulate(on_device(x), on_device(y), alpha=2), y + 2 * expected)
    many = random_array(rng, (columns, 3), dtype)
    close(op.matmat(on_device(many)), matrix @ many)
    close(op.matvec(on_device(many[:, 0].copy())), matrix @ many[:, 0])
