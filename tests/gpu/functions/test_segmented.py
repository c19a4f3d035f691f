"""Segmented mode multiplies on the device against the reference, entry by entry."""

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk

pytestmark = pytest.mark.gpu

# (before, Q, P, behind): for groups of a part of a warp and of several, and for cut-off tiles
SIZES = [
    *[(before, n, n, behind) for n in (1, 2, 3) for before, behind in ((1, 1), (n, 1), (1, n * n))],
    *[(before, n, n, 8 // before) for n in (4, 5, 6, 7, 8) for before in (1, 2, 8)],
    (27, 3, 3, 9),
    (16, 4, 4, 64),
    (2, 2, 7, 5),
    (3, 7, 2, 19),
    (1, 9, 11, 3),
    (5, 13, 12, 1),
    (1, 33, 40, 2),
    (300, 5, 5, 1),
]


def random_edges(rng, count, nodes, inputs, maximum=6):
    """Edges of ``nodes`` nodes, the first of which has none."""
    degrees = rng.integers(0, maximum, nodes)
    degrees[0] = 0
    starts = np.concatenate([[0], np.cumsum(degrees)])
    return starts, rng.integers(0, count, starts[-1]), rng.integers(0, inputs, starts[-1])


def build(rng, sizes, dtype, count=4, nodes=7, inputs=6, maximum=6):
    """The map on the CPU, its arguments, and a vector."""
    before, columns, rows, behind = sizes
    matrices = random_array(rng, (count, rows, columns), dtype)
    arguments = matrices, *random_edges(rng, count, nodes, inputs, maximum)
    sizes = {"before": before, "behind": behind, "num_inputs": inputs}
    op = bk.SegmentedModeMultiply(*arguments, **sizes)
    with bk.backends.using("reference"):
        reference = bk.SegmentedModeMultiply(*arguments, **sizes)
    return op, reference, random_array(rng, op.input_shape, dtype)


def tolerance(dtype, expected):
    return {"rtol": 0, "atol": 2000 * np.finfo(dtype).eps * np.abs(expected).max(initial=1)}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_apply_and_accumulate_equal_the_reference(cupy, poisoned_on_device, rng, dtype, sizes):
    op, reference, x = build(rng, sizes, dtype)
    device, given = op.to("cuda"), cupy.asarray(x)
    expected = reference.apply(x)
    out = poisoned_on_device(expected.shape, dtype)
    assert device.apply(given, out=out) is out
    np.testing.assert_allclose(out.get(), expected, **tolerance(dtype, expected))
    np.testing.assert_allclose(out.get(), op.apply(x), **tolerance(dtype, expected))
    y = random_array(rng, expected.shape, dtype)
    target = cupy.asarray(y)
    assert device.accumulate(given, target, alpha=-0.5) is target
    np.testing.assert_allclose(target.get(), y - 0.5 * expected, **tolerance(dtype, expected))


@pytest.mark.parametrize("nodes", [300, 60_000])
@pytest.mark.parametrize(
    "sizes",
    [(1, 3, 3, 3), (1, 1, 1, 1), (9, 3, 3, 1), (8, 4, 4, 16), (2, 2, 7, 5), (27, 3, 3, 27)],
    ids=str,
)
def test_nodes_of_many_edges(cupy, poisoned_on_device, rng, dtype, sizes, nodes):
    """Nodes that up to 16 groups share, beside nodes that have a group each."""
    before, columns, rows, behind = sizes
    degrees = rng.integers(0, 9, nodes)
    degrees[rng.permutation(nodes)[:90]] = rng.integers(9, 700, 90)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    matrices = random_array(rng, (4, rows, columns), dtype)
    ids, children = rng.integers(0, 4, starts[-1]), rng.integers(0, 40, starts[-1])
    numbers = {"before": before, "behind": behind, "num_inputs": 40}
    op = bk.SegmentedModeMultiply(matrices, starts, ids, children, **numbers)
    x = random_array(rng, op.input_shape, dtype)
    expected = op.apply(x)
    device = op.to("cuda")
    (table,) = device._plan._tables
    assert len(table.classes) > 4
    out = device.apply(cupy.asarray(x), out=poisoned_on_device(expected.shape, dtype))
    np.testing.assert_allclose(out.get(), expected, **tolerance(dtype, expected))
    y = random_array(rng, expected.shape, dtype)
    result = device.accumulate(cupy.asarray(x), cupy.asarray(y)).get()
    np.testing.assert_allclose(result, y + expected, **tolerance(dtype, expected))


@pytest.mark.parametrize("sizes", [(40_000, 2, 3, 1), (1, 3, 2, 50_000), (30, 40, 50, 20)], ids=str)
def test_blocks_beyond_shared_memory(cupy, poisoned_on_device, rng, dtype, sizes):
    op, _, x = build(rng, sizes, dtype, nodes=3, inputs=2)
    expected = op.apply(x)
    device = op.to("cuda")
    assert not device._plan._kernel(1, 1).variant.in_shared
    out = device.apply(cupy.asarray(x), out=poisoned_on_device(expected.shape, dtype))
    np.testing.assert_allclose(out.get(), expected, **tolerance(dtype, expected))
    y = random_array(rng, expected.shape, dtype)
    result = device.accumulate(cupy.asarray(x), cupy.asarray(y), alpha=2).get()
    np.testing.assert_allclose(result, y + 2 * expected, **tolerance(dtype, expected))


def test_more_nodes_than_fit_at_once(cupy, rng):
    op, _, x = build(rng, (3, 3, 3, 3), np.float64, nodes=30_000, inputs=9000)
    expected = op.apply(x)
    result = op.to("cuda").apply(cupy.asarray(x)).get()
    np.testing.assert_allclose(result, expected, **tolerance(np.float64, expected))


def test_new_matrices_reach_captured_graphs(cupy, captured, rng, dtype):
    op, _, x = build(rng, (3, 4, 2, 5), dtype)
    device, given = op.to("cuda"), cupy.asarray(x)
    out, stream = cupy.empty(device.output_shape, dtype), cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: device.apply(given, out=out))
    matrices = random_array(rng, (4, 2, 4), dtype)
    for one in (op, device):
        one.update(matrices)
    out.fill(np.nan)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = op.apply(x)
    np.testing.assert_allclose(out.get(), expected, **tolerance(dtype, expected))
    np.testing.assert_array_equal(device.to("cpu").apply(x), expected)


def test_views_and_strides(cupy, rng, dtype):
    op, _, x = build(rng, (3, 4, 2, 5), dtype)
    device, expected = op.to("cuda"), op.apply(x)
    given = cupy.empty(x.size + 1, dtype)[1:].reshape(x.shape)
    given[...] = cupy.asarray(x)
    wide = cupy.full((len(expected), 2 * expected.shape[1]), np.nan, dtype)
    out = wide[:, ::2]
    assert device.apply(given, out=out) is out
    np.testing.assert_allclose(out.get(), expected, **tolerance(dtype, expected))
    assert bool(cupy.isnan(wide[:, 1::2]).all())


def test_empty(cupy, poisoned_on_device):
    none = bk.SegmentedModeMultiply(np.ones((1, 2, 2)), [0, 0, 0], [], [], before=2, behind=3)
    device = none.to("cuda")
    out = device.apply(cupy.ones((0, 12)), out=poisoned_on_device((2, 12), float))
    assert not out.get().any()
    flat = bk.SegmentedModeMultiply(np.ones((1, 2, 0)), [0, 1], [0], [0], before=2, behind=1)
    y = flat.to("cuda").accumulate(cupy.ones((1, 0)), cupy.ones((1, 4)))
    assert (y.get() == 1).all()


def test_arrays_of_the_host_are_refused(cupy, rng):
    op, _, x = build(rng, (3, 4, 2, 5), np.float64)
    device = op.to("cuda")
    assert device.to("cuda") is device
    with pytest.raises(TypeError, match="x is an array on the CPU"):
        device.apply(x)
    with pytest.raises(TypeError, match="out is a ndarray; expected a CuPy array"):
        device.apply(cupy.asarray(x), out=np.empty(op.output_shape))


def test_nodes_without_edges_are_left_alone_but_by_infinity(cupy):
    op = bk.SegmentedModeMultiply(np.ones((1, 3, 3)), [0, 0, 1], [0], [0], before=1, behind=1)
    y = op.to("cuda").accumulate(cupy.ones((1, 3)), cupy.ones((2, 3)), alpha=2.0)
    assert (y.get() == [[1.0] * 3, [7.0] * 3]).all()
    y = op.to("cuda").accumulate(cupy.ones((1, 3)), y, alpha=np.inf).get()
    assert np.isnan(y[0]).all()  # as in NumPy
    assert np.isinf(y[1]).all()
