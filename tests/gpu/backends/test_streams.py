"""Streams, threads and captured graphs: no two of them share memory."""

import threading

import numpy as np
import pytest
from dense_oracle import random_array

import batchkron as bk

pytestmark = pytest.mark.gpu

# two passes with an intermediate result in workspace
FACTORS = [(16, 16)] * 4


@pytest.fixture
def product(rng):
    return bk.KroneckerProduct([random_array(rng, shape, "float64") / 3 for shape in FACTORS])


def test_two_streams_on_one_operator(cupy, rng, product):
    device = product.to("cuda")
    x = rng.standard_normal((2, 64, product.shape[1]))
    expected = [product.apply(one) for one in x]
    given = [cupy.asarray(one) for one in x]
    outs = [cupy.empty_like(one) for one in given]
    cupy.cuda.Device().synchronize()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in given]
    for _ in range(10):
        for stream, one, out in zip(streams, given, outs, strict=True):
            with stream:
                device.apply(one, out=out)
    for stream in streams:
        stream.synchronize()
    for out, one in zip(outs, expected, strict=True):
        np.testing.assert_allclose(out.get(), one, rtol=0, atol=1e-12 * np.abs(one).max())


def test_threads_on_one_operator(cupy, rng, product):
    device = product.to("cuda")
    x = rng.standard_normal((4, 16, product.shape[1]))
    expected = [product.apply(one) for one in x]
    results = [None] * len(x)

    def work(k):
        given = cupy.asarray(x[k])
        for _ in range(5):
            results[k] = device.apply(given).get()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(x))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result, one in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, one, rtol=0, atol=1e-12 * np.abs(one).max())


def test_a_captured_graph_replays_beside_eager_calls(cupy, captured, rng, product):
    device = product.to("cuda")
    x, other = (cupy.asarray(rng.standard_normal((64, product.shape[1]))) for _ in range(2))
    out = cupy.empty_like(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: device.apply(x, out=out))
    expected, beside = product.apply(x.get()), product.apply(other.get())
    second = cupy.cuda.Stream(non_blocking=True)
    out.fill(np.nan)
    cupy.cuda.Device().synchronize()
    for _ in range(5):
        graph.launch(second)
        with stream:
            eager = device.apply(other)
    cupy.cuda.Device().synchronize()
    scale = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=scale)
    np.testing.assert_allclose(eager.get(), beside, rtol=0, atol=scale)


def test_a_captured_batch_follows_an_update(cupy, captured, rng):
    pool = rng.standard_normal((4, 3, 3))
    op = bk.BatchedKron(pool, rng.integers(0, 4, (50, 2)), [0] * 50, range(50)).to("cuda")
    x = cupy.asarray(rng.standard_normal((1, 9)))
    out = cupy.empty((50, 9))
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: op.apply(x, out=out))
    op.update(2 * pool)
    out.fill(np.nan)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    np.testing.assert_allclose(out.get(), op.to("cpu").apply(x.get()), rtol=1e-12)


@pytest.mark.parametrize(
    ("size", "given"), [(61, "complex64"), (129, "float32"), (101, "float64")], ids=str
)
def test_results_between_passes_begin_at_whole_lines(cupy, rng, monkeypatch, size, given):
    """Up to three passes over an odd number of elements; in chains of operators as well."""
    from batchkron.backends.cuda.runtime.launch import ADDRESS_BYTES, LaunchSequence

    prepare, launch, addresses = LaunchSequence.__init__, LaunchSequence.__call__, []

    def keep(self, steps, count):
        self.vectors = [(one.places[0], one.places[ADDRESS_BYTES]) for one in steps]
        prepare(self, steps, count)

    def record(self, stream, given, scalars):
        for pair in self.vectors:
            addresses.append([given[place.number] + place.offset for place in pair])
        launch(self, stream, given, scalars)

    monkeypatch.setattr(LaunchSequence, "__init__", keep)
    monkeypatch.setattr(LaunchSequence, "__call__", record)
    factors = [random_array(rng, (size, size), given) / size for _ in range(3)]
    op = bk.KroneckerProduct(factors)
    same = bk.KroneckerProduct([np.ones((1, 1)), *factors])  # does not merge with op
    x = random_array(rng, op.shape[1], given)
    result = op.to("cuda") @ cupy.asarray(x)
    passes = len(addresses)
    cube = (op @ same @ op).to("cuda") @ cupy.asarray(x)
    assert len(addresses) >= 4 * passes > 4
    assert not any(address % 256 for pair in addresses for address in pair)
    expected = op @ x
    for found, right in ((result, expected), (cube, op @ (op @ expected))):
        scale = 1000 * np.finfo(given).eps * np.abs(right).max()
        np.testing.assert_allclose(found.get(), right, rtol=0, atol=scale)


def test_a_capture_without_workspace_says_what_to_do(cupy, refuses_capture, rng, product):
    device = product.to("cuda")
    x = cupy.asarray(rng.standard_normal((64, product.shape[1])))
    out = cupy.empty_like(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    device.apply(x, out=out)  # on another stream
    text = "apply the same operator once on this stream"
    refuses_capture(stream, lambda: device.apply(x, out=out), text)


def test_out_of_memory_leaves_the_output_as_it_was(cupy, rng, product, monkeypatch):
    device = product.to("cuda")
    x = cupy.asarray(rng.standard_normal((64, product.shape[1])))
    out = cupy.asarray(rng.standard_normal(x.shape))
    before = out.get()

    def refuse(size):
        raise cupy.cuda.memory.OutOfMemoryError(size, 0)

    monkeypatch.setattr(cupy.cuda, "alloc", refuse)
    with pytest.raises(MemoryError):
        device.apply(x, out=out)
    np.testing.assert_array_equal(out.get(), before)
    monkeypatch.undo()
    expected = product.apply(x.get())
    device.apply(x, out=out)
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_sums_leave_the_output_as_it_was_without_memory(cupy, rng, product, monkeypatch):
    x = rng.standard_normal(product.shape[1])
    total = bk.Identity(product.shape[1]) + 2 * product @ product
    out = cupy.asarray(x)
    given = cupy.asarray(x)
    batched = [cupy.asarray(rng.standard_normal((2, 20_000, 2)))]
    y = cupy.ones((2, 20_000, 3))

    def refuse(size):
        raise cupy.cuda.memory.OutOfMemoryError(size, 0)

    monkeypatch.setattr(cupy.cuda, "alloc", refuse)
    with pytest.raises(MemoryError):
        total.to("cuda").matvec(given, out=out)
    np.testing.assert_array_equal(out.get(), x)
    with pytest.raises(MemoryError):
        bk.gekmm(batched, cupy.ones((2, 2, 3)), beta=2, y=y, out=y)
    np.testing.assert_array_equal(y.get(), np.ones(y.shape))


def test_a_graph_keeps_its_workspace_whatever_comes_after(cupy, captured, rng, product):
    device = product.to("cuda")
    x = cupy.asarray(rng.standard_normal((8, product.shape[1])))
    out = cupy.empty_like(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: device.apply(x, out=out))
    with stream:
        for count in range(1, 70):  # more shapes than an operator keeps plans for
            device.apply(x[:1].repeat(count, axis=0))
        hoard = [cupy.full(x.size, np.nan) for _ in range(8)]
    out.fill(np.nan)
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = product.apply(x.get())
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert all(cupy.isnan(one).all() for one in hoard)
    doubled = [2 * factor for factor in product.factors]
    device.update(doubled)
    graph.launch(stream)
    stream.synchronize()
    changed = bk.KroneckerProduct(doubled).apply(x.get())
    np.testing.assert_allclose(out.get(), changed, rtol=0, atol=1e-12 * np.abs(changed).max())


def test_an_update_waits_for_work_on_other_streams(cupy, rng, product):
    device = product.to("cuda")
    x = cupy.asarray(rng.standard_normal((256, product.shape[1])))
    out = cupy.empty_like(x)
    stream = cupy.cuda.Stream(non_blocking=True)
    old = [factor.copy() for factor in product.factors]
    with stream:
        device.apply(x, out=out)
        for _ in range(20):
            device.apply(x, out=out)
    device.update([3 * factor for factor in old])
    stream.synchronize()
    expected = bk.KroneckerProduct(old).apply(x.get())
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=1e-12 * np.abs(expected).max())
