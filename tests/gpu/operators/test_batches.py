"""BatchedKron on the device against the reference, entry by entry."""

from dataclasses import replace

import numpy as np
import pytest
from dense_oracle import random_array, sizes

import batchkron as bk
from batchkron.backends.cuda.kernel_family import without

pytestmark = pytest.mark.gpu

SHAPES = [
    [(1, 1)],
    [(4, 4)],
    [(2, 2), (2, 2)],
    [(8, 8), (8, 8)],
    [(3, 2), (2, 4)],
    [(3, 3)] * 3,
    [(2, 5), (1, 3), (3, 1)],
    [(4, 4)] * 4,
    [(2, 2)] * 6,
    [(40, 30)],
    [(2, 2)] * 13,
]


def random_batch(rng, shapes, dtype, products=60, num_inputs=7, num_outputs=5, systems=()):
    """A batch list with identities among its matrices where these are square."""
    pools = [random_array(rng, (*systems, 6, *shape), dtype) for shape in shapes]
    for pool, (rows, columns) in zip(pools, shapes, strict=True):
        if rows == columns:
            pool[..., 0, :, :] = np.eye(rows)
    ids = rng.integers(0, 6, (products, len(shapes)))
    ids[:2] = 0
    lists = ids, rng.integers(0, num_inputs, products), rng.integers(0, num_outputs, products)
    weights = random_array(rng, (*systems, products), dtype)
    counts = {"num_inputs": num_inputs, "num_outputs": num_outputs}
    return pools, lists, {"weights": weights, **counts}


def tolerance(dtype, expected):
    return {"rtol": 0, "atol": 2000 * np.finfo(dtype).eps * np.abs(expected).max(initial=1)}


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("accumulation", ["atomic", "owner", "auto"])
def test_apply_and_accumulate_equal_the_reference(
    cupy, poisoned_on_device, rng, dtype, shapes, accumulation
):
    products = 60 if len(shapes) < 10 else 12
    pools, lists, options = random_batch(rng, shapes, dtype, products)
    with bk.backends.using("reference"):
        reference = bk.BatchedKron(pools, *lists, **options)
    op = bk.BatchedKron(pools, *lists, accumulation=accumulation, **options).to("cuda")
    x = random_array(rng, (2, op.num_inputs, reference._spec.input_size), dtype)
    expected = reference.apply(x)
    out = poisoned_on_device(expected.shape, dtype)
    assert op.apply(cupy.asarray(x), out=out) is out
    np.testing.assert_allclose(out.get(), expected, **tolerance(dtype, expected))
    y = random_array(rng, expected.shape, dtype)
    target = cupy.asarray(y)
    assert op.accumulate(cupy.asarray(x), target) is target
    np.testing.assert_allclose(target.get(), y + expected, **tolerance(dtype, expected))
    assert op.validate(samples=2).ok


@pytest.mark.parametrize("shapes", SHAPES[:9], ids=str)
def test_lists_that_fill_the_device(cupy, poisoned_on_device, rng, dtype, shapes):
    """The kernel of lists that fill the device, on a list that slices would take."""
    pools, lists, options = random_batch(rng, shapes, dtype, products=400)
    op = bk.BatchedKron(pools, *lists, **options)
    x = random_array(rng, (2, 7, op._spec.input_size), dtype)
    expected = op.apply(x)
    out = poisoned_on_device(expected.shape, dtype)
    with without("batch.slices"):
        result = op.to("cuda").apply(cupy.asarray(x), out=out).get()
    np.testing.assert_allclose(result, expected, **tolerance(dtype, expected))


UNITS = [  # sizes, or rows and columns, of lists in float64
    (8, 8),
    (8, 8, 8),
    (2, 8, 8),
    (4, 8, 8, 8),
    (4,) * 4,
    (4,) * 5,
    (2,) + (4,) * 5,
    (4,) * 6,
    (7, 7),
    (7, 7, 7),
    (2, 3, 9, 10),
    (11, 16),
    (8, 16, 12),
    (12, 12, 12),
    (16, 16, 16),
    ((12, 10), (9, 14)),
    ((3, 16), (7, 9)),
]
SINGLE_UNITS = [(8, 8), (7, 7, 7), (11, 16), (12, 16, 12), (16, 16, 16), ((12, 10), (9, 14))]


@pytest.fixture
def on_matrix_units(cupy, monkeypatch):
    """Works of the matrix-unit kernels that are used; lists are cut as for one multiprocessor."""
    from batchkron.backends.cuda.batch import plan as batch
    from batchkron.backends.cuda.batch.matrix_units import MATRIX_UNITS
    from batchkron.backends.cuda.batch.unit_slices import UNIT_SLICES

    limits, used = batch.device_limits, []
    monkeypatch.setattr(
        batch, "device_limits", lambda number: replace(limits(number), multiprocessors=1)
    )

    def noted(make):
        def kernel(shape, device):
            found = make(shape, device)
            if found is not None:
                used.append(found.work)
            return found

        return kernel

    for family in (MATRIX_UNITS, UNIT_SLICES):
        monkeypatch.setattr(family, "kernel", noted(family.kernel))
    return used


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [*((sizes, np.float64) for sizes in UNITS), *((sizes, np.float32) for sizes in SINGLE_UNITS)],
    ids=str,
)
@pytest.mark.parametrize(("products", "num_outputs"), [(60, 41), (400, 5), (150, 11)])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_on_matrix_units(
    cupy, poisoned_on_device, rng, on_matrix_units, sizes, dtype, products, num_outputs, weighted
):
    """Lists of few products and of many, outputs with none, two vectors, a call that adds."""
    shapes = [n if isinstance(n, tuple) else (n, n) for n in sizes]
    pools = [random_array(rng, (5, *shape), dtype) for shape in shapes]
    ids = rng.integers(0, 5, (products, len(sizes)))
    outputs = rng.integers(1, num_outputs, products)
    lists = ids, rng.integers(0, 6, products), outputs
    options = {"weights": random_array(rng, products, dtype)} if weighted else {}
    op = bk.BatchedKron(pools, *lists, num_inputs=6, num_outputs=num_outputs, **options)
    device = op.to("cuda")
    x = random_array(rng, (2, 6, op._spec.input_size), dtype)
    expected = op.apply(x)
    out = poisoned_on_device(expected.shape, dtype)
    result = device.apply(cupy.asarray(x), out=out).get()
    assert len(on_matrix_units) == 1
    np.testing.assert_allclose(result, expected, **tolerance(dtype, expected))
    np.testing.assert_array_equal(result[:, 0], 0)
    np.testing.assert_array_equal(device.apply(cupy.asarray(x)).get(), result)
    y = random_array(rng, expected.shape, dtype)
    added = device.accumulate(cupy.asarray(x), cupy.asarray(y)).get()
    np.testing.assert_allclose(added, y + expected, **tolerance(dtype, expected))
    X = np.ascontiguousarray(x.reshape(2, -1).T)
    columns = (device @ cupy.asarray(X)).get()
    np.testing.assert_allclose(columns, op @ X, **tolerance(dtype, expected))
    weights = options.get("weights", np.ones(products, dtype))
    op.update([2 * pool for pool in pools], weights)
    device.update([2 * pool for pool in pools], weights)
    again = device.apply(cupy.asarray(x), out=out).get()
    np.testing.assert_allclose(again, op.apply(x), **tolerance(dtype, 2**6 * expected))


@pytest.mark.parametrize("sizes", [(8, 8), (4,) * 5, (4,) * 6, (7, 7), (12, 12, 12)], ids=str)
def test_systems_and_long_ids_on_matrix_units(cupy, rng, on_matrix_units, sizes):
    products, num_outputs, count = 150, 9, 70_000
    pools = [rng.standard_normal((2, 3, n, n)) for n in sizes]
    pools[0] = rng.standard_normal((2, count, *pools[0].shape[2:]))
    ids = rng.integers(0, 3, (products, len(sizes)))
    ids[::3, 0] = rng.integers(count // 2, count, len(ids[::3]))
    ids[0, 0] = count - 1
    lists = ids, rng.integers(0, 6, products), rng.integers(0, num_outputs, products)
    counts = {"num_inputs": 6, "num_outputs": num_outputs}
    weights = rng.standard_normal((2, products))
    op = bk.BatchedKron(pools, *lists, weights=weights, **counts)
    x = rng.standard_normal((3, 2, 6, op._spec.input_size))
    expected = op.apply(x)
    result = op.to("cuda").apply(cupy.asarray(x)).get()
    assert [work.short_ids for work in on_matrix_units] == [False]
    np.testing.assert_allclose(result, expected, **tolerance(np.float64, expected))


def test_nan_and_infinity_on_matrix_units_leave_no_trace(cupy, rng, on_matrix_units):
    """NaN stays in its output. Identities pass an infinity on alone, by another kernel."""
    pool = rng.standard_normal((3, 8, 8))
    outputs = np.arange(60) % 20
    inputs = np.where(outputs == 4, 5, np.arange(60) % 5)
    op = bk.BatchedKron(pool, rng.integers(0, 3, (60, 2)), inputs, outputs).to("cuda")
    x = rng.standard_normal((6, 64))
    clean = op.apply(cupy.asarray(x)).get()
    x[5, 2] = np.nan
    dirty = op.apply(cupy.asarray(x)).get()
    assert len(on_matrix_units) == 1
    assert np.isnan(dirty[4]).all()
    np.testing.assert_array_equal(np.delete(dirty, 4, 0), np.delete(clean, 4, 0))
    pool[1] = np.eye(8)
    ids = np.tile([[1, 0]], (60, 1))
    op = bk.BatchedKron(pool, ids, inputs, outputs).to("cuda")
    assert len(on_matrix_units) == 1
    x[5, 2] = np.inf
    passed = op.apply(cupy.asarray(x)).get().reshape(20, 8, 8)
    assert np.isinf(passed[4, 0]).all()
    assert np.isfinite(passed[4, 1:]).all()


@pytest.mark.parametrize("count", [1, 2, 5, 33, 100])
@pytest.mark.parametrize("products", [9, 60])
def test_many_vectors_at_once(cupy, rng, dtype, count, products):
    """Vectors are read where they are; for a list of more products they are transposed first."""
    pools, lists, options = random_batch(rng, [(3, 3), (2, 4)], dtype, products)
    op = bk.BatchedKron(pools, *lists, **options)
    X = random_array(rng, (op.shape[1], count), dtype)
    expected = op @ X
    device = op.to("cuda")
    several = (device + 2 * device) @ cupy.asarray(X)  # the second one adds
    np.testing.assert_allclose(several.get(), 3 * expected, **tolerance(dtype, 3 * expected))
    np.testing.assert_allclose(
        (device @ cupy.asarray(X)).get(), expected, **tolerance(dtype, expected)
    )
    columns = cupy.asarray(np.ascontiguousarray(X.T)).T
    np.testing.assert_allclose((device @ columns).get(), expected, **tolerance(dtype, expected))


@pytest.mark.parametrize("shapes", [[(4, 4)], [(3, 3)] * 3, [(2, 2)] * 6, [(3, 3)] * 6], ids=str)
@pytest.mark.parametrize("skew", [False, True])
@pytest.mark.parametrize("identities", [False, True])
def test_few_outputs_whose_products_are_shared(
    cupy, poisoned_on_device, rng, dtype, shapes, skew, identities
):
    """Many threads share an output's products; with ``skew`` one output has most products."""
    pools = [random_array(rng, (9, *shape), dtype) for shape in shapes]
    if identities:
        for pool in pools:
            pool[4] = np.eye(pool.shape[1])
    products = 500
    ids = rng.integers(0, 9, (products, len(shapes)))
    inputs = rng.integers(0, 30, products)
    outputs = rng.permutation(np.arange(products) % 6)
    if skew:
        outputs = np.where(rng.random(products) < 0.9, 2, rng.integers(0, 40, products))
    outputs[7] = 1
    num_outputs = 41 if skew else 7
    inputs[(outputs != 1) & (inputs == 5)] = 6
    inputs[outputs == 1] = 5
    weights = random_array(rng, products, dtype)
    options = {"num_inputs": 30, "num_outputs": num_outputs, "weights": weights}
    op = bk.BatchedKron(pools, ids, inputs, outputs, **options)
    device = op.to("cuda")
    x = random_array(rng, (30, op._spec.input_size), dtype)
    expected = op.apply(x)
    out = poisoned_on_device(expected.shape, dtype)
    result = device.apply(cupy.asarray(x), out=out).get()
    np.testing.assert_allclose(result, expected, **tolerance(dtype, expected))
    np.testing.assert_array_equal(device.apply(cupy.asarray(x)).get(), result)
    x[5] = np.nan
    other = device.apply(cupy.asarray(x)).get()
    assert np.isnan(other[1]).any()
    np.testing.assert_array_equal(np.delete(other, 1, 0), np.delete(result, 1, 0))


def test_several_systems(cupy, rng, dtype):
    pools, lists, options = random_batch(rng, [(3, 3), (2, 2)], dtype, systems=(2, 3))
    op = bk.BatchedKron(pools, *lists, **options)
    x = random_array(rng, (4, 2, 3, 7, 6), dtype)
    expected = op.apply(x)
    np.testing.assert_allclose(
        op.to("cuda").apply(cupy.asarray(x)).get(), expected, **tolerance(dtype, expected)
    )


def test_a_larger_list(cupy, rng):
    """Many thread blocks, more outputs than fit at once."""
    pools, lists, options = random_batch(
        rng, [(4, 4)] * 3, np.float64, products=200_000, num_inputs=3000, num_outputs=3000
    )
    op = bk.BatchedKron(pools, *lists, **options)
    x = rng.standard_normal((3000, 64))
    expected = op.apply(x)
    for accumulation in ("owner", "atomic"):
        device = bk.BatchedKron(pools, *lists, accumulation=accumulation, **options).to("cuda")
        result = device.apply(cupy.asarray(x)).get()
        np.testing.assert_allclose(result, expected, **tolerance(np.float64, expected))


@pytest.mark.parametrize("accumulation", ["atomic", "owner"])
def test_blocks_beyond_shared_memory(cupy, rng, accumulation):
    pools, lists, options = random_batch(rng, [(30, 20), (40, 50)], np.float64, products=30)
    op = bk.BatchedKron(pools, *lists, accumulation=accumulation, **options)
    x = rng.standard_normal((7, 1000))
    expected = op.apply(x)
    result = op.to("cuda").apply(cupy.asarray(x)).get()
    np.testing.assert_allclose(result, expected, **tolerance(np.float64, expected))
    x = rng.standard_normal((op.shape[1], 40))
    expected = op @ x
    result = (op.to("cuda") @ cupy.asarray(x)).get()
    np.testing.assert_allclose(result, expected, **tolerance(np.float64, expected))


def test_an_empty_batch(cupy, poisoned_on_device, rng):
    op = bk.BatchedKron(
        np.ones((1, 2, 2)), np.zeros((0, 2), int), [], [], num_inputs=3, num_outputs=2
    ).to("cuda")
    x = cupy.asarray(rng.standard_normal((3, 4)))
    assert not op.apply(x, out=poisoned_on_device((2, 4), float)).get().any()
    y = rng.standard_normal((2, 4))
    np.testing.assert_array_equal(op.accumulate(x, cupy.asarray(y)).get(), y)


def test_outputs_without_products_are_overwritten(cupy, poisoned_on_device):
    for accumulation in ("owner", "atomic"):
        op = bk.BatchedKron(
            np.full((1, 2, 2), 2.0), [[0]], [0], [3], num_outputs=5, accumulation=accumulation
        ).to("cuda")
        out = op.apply(cupy.ones((1, 2)), out=poisoned_on_device((5, 2), float)).get()
        np.testing.assert_array_equal(out[[0, 1, 2, 4]], 0)
        np.testing.assert_array_equal(out[3], 4)


def test_nan_leaves_no_trace(cupy, rng):
    pools = rng.standard_normal((3, 3, 3))
    op = bk.BatchedKron(pools, rng.integers(0, 3, (9, 2)), range(9), range(9)).to("cuda")
    x = rng.standard_normal((9, 9))
    clean = op.apply(cupy.asarray(x)).get()
    dirty = x.copy()
    dirty[4, 2] = np.nan
    result = op.apply(cupy.asarray(dirty)).get()
    assert np.isnan(result[4]).all()
    np.testing.assert_array_equal(np.delete(result, 4, 0), np.delete(clean, 4, 0))
    np.testing.assert_array_equal(op.apply(cupy.asarray(x)).get(), clean)


@pytest.mark.parametrize(
    "shapes", [[(4, 4)], [(3, 2), (2, 5)], [(4, 4)] * 3, [(3, 3)] * 5], ids=str
)
def test_lists_that_are_used_once(cupy, rng, dtype, shapes):
    """In one launch, eager and captured, with numbers of 32 and 64 bits."""
    rows, columns = sizes(shapes)
    pools = [random_array(rng, (9, *shape), dtype) for shape in shapes]
    for products, number in ((1, "i4"), (700, "i8"), (5000, "i4")):
        ids = rng.integers(0, 9, (products, len(shapes))).astype(number)
        lists = rng.integers(0, 11, (2, products)).astype(number)
        x, y = (random_array(rng, (2, 11, n), dtype) for n in (columns, rows))
        weights = random_array(rng, products, dtype)
        expected = bk.batched_kron(pools, ids, x, *lists, y.copy(), weights=weights)
        scale = 1000 * np.finfo(dtype).eps * np.abs(expected).max()
        given = [[*map(cupy.asarray, pools)], *map(cupy.asarray, (ids, x, *lists))]
        target, factor = cupy.asarray(y), cupy.asarray(weights)
        assert bk.batched_kron(*given, target, weights=factor) is target
        np.testing.assert_allclose(target.get(), expected, rtol=0, atol=scale)
        stream = cupy.cuda.Stream(non_blocking=True)
        target = cupy.asarray(y)
        cupy.cuda.Device().synchronize()
        with stream:
            stream.begin_capture()
            bk.batched_kron(*given, target, weights=factor)
            graph = stream.end_capture()
            graph.launch(stream)
        stream.synchronize()
        np.testing.assert_allclose(target.get(), expected, rtol=0, atol=scale)


def test_numbers_out_of_range_are_named_by_the_next_call(cupy, rng):
    pool, ids = cupy.asarray(rng.standard_normal((4, 3, 3))), cupy.zeros((8, 2), np.int64)
    x, y, lists = cupy.ones((2, 9)), cupy.zeros((2, 9)), cupy.zeros(8, np.int64)
    ids[5, 0] = 4
    bk.batched_kron(pool, ids, x, lists, lists, y)
    cupy.cuda.Device().synchronize()
    with pytest.raises(IndexError, match="product 5"):
        bk.batched_kron(pool, ids, x, lists, lists, y)
    ids[5, 0] = 0
    bk.batched_kron(pool, ids, x, lists, lists, y)
    cupy.cuda.Device().synchronize()
    block = np.kron(pool[0].get(), pool[0].get()) @ np.ones(9)
    np.testing.assert_allclose(y[0].get(), 15 * block, rtol=1e-12)


def test_unusual_arguments_of_lists_that_are_used_once(cupy, rng):
    """Strided y, other numbers, lists of Python: by a plan."""
    pool, ids = rng.standard_normal((4, 3, 3)), rng.integers(0, 4, (8, 2))
    lists, x, y = (
        rng.integers(0, 2, (2, 8)),
        rng.standard_normal((2, 9)),
        rng.standard_normal((2, 9)),
    )
    expected = bk.batched_kron(pool, ids, x, *lists, y.copy())
    given = [cupy.asarray(pool), cupy.asarray(ids), cupy.asarray(x), *map(cupy.asarray, lists)]
    strided = cupy.zeros((2, 18))[:, ::2]
    strided[...] = cupy.asarray(y)
    bk.batched_kron(*given, strided)
    np.testing.assert_allclose(strided.get(), expected, rtol=1e-12)
    target = cupy.asarray(y)
    bk.batched_kron(given[0], ids.tolist(), given[2], *map(list, lists), target)
    np.testing.assert_allclose(target.get(), expected, rtol=1e-12)
