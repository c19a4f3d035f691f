"""Functions on plain arrays take a fast path, which graphs capture with the workspace it needs."""

import threading

import numpy as np
import pytest
from dense_oracle import dense_kron, factors_of, random_array, sizes
from refused_multiplies import refused_multiplies

import batchkron as bk
from batchkron.backends.cuda.kernel_family import without

pytestmark = pytest.mark.gpu

# two passes with an intermediate result in workspace
TWO_PASSES = [(16, 16)] * 4
SHAPES = [[(3, 4)], [(8, 8)] * 2, [(5, 3), (2, 7)], [(2, 2)] * 8, TWO_PASSES, [(3, 90), (90, 3)]]


@pytest.fixture
def only_fast(cupy, monkeypatch):
    """Makes every other way to compute a product fail."""
    from batchkron.backends.cuda.batch import gemm
    from batchkron.backends.cuda.kron import plan

    def refuse(*arguments):
        raise AssertionError("not on the fast path")

    monkeypatch.setattr(plan.KronPlan, "run", refuse)
    monkeypatch.setattr(gemm, "batched_gemm", refuse)


def close(result, expected):
    scale = 1000 * np.finfo(expected.dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(result.get(), expected, rtol=0, atol=scale)


def calls(cupy, rng, shapes, dtype):
    """gemkm and gekmm with their arguments on the host and on the device."""
    host, factors = factors_of(cupy, rng, shapes, dtype)
    rows, columns = sizes(shapes)
    for lead in ((), (2,), (2, 3)):
        x = random_array(rng, (*lead, rows), dtype)
        yield bk.gemkm, (x, host), (cupy.asarray(x), factors)
    for shape in ((columns,), (columns, 5), (2, columns, 3)):
        x = random_array(rng, shape, dtype)
        yield bk.gekmm, (host, x), (factors, cupy.asarray(x))


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_products_equal_the_cpu(cupy, only_fast, rng, dtype, poisoned_on_device, shapes):
    for function, host, device in calls(cupy, rng, shapes, dtype):
        expected = function(*host)
        y = random_array(rng, expected.shape, dtype)
        for _ in range(2):
            close(function(*device), expected)
            out = poisoned_on_device(expected.shape, dtype)
            assert function(*device, out=out) is out
            close(out, expected)
            close(function(*device, alpha=-2.5), -2.5 * expected)
            close(function(*device, beta=2, y=cupy.asarray(y)), expected + 2 * y)
            previous = cupy.asarray(y)
            assert function(*device, alpha=3, beta=-1, y=previous, out=previous) is previous
            close(previous, 3 * expected - y)


@pytest.mark.parametrize("precision", [None, "tf32", "tf32x3"])
def test_the_same_kernels_as_of_other_calls(cupy, rng, precision):
    """A tuple of flags does not take the fast path."""
    _, factors = factors_of(cupy, rng, [(16, 16)] * 3, np.float32)
    x = cupy.asarray(random_array(rng, (64, 16**3), np.float32))
    result = bk.gemkm(x, factors, precision=precision)
    other = bk.gemkm(x, factors, precision=precision, conj=(False,) * 3)
    np.testing.assert_array_equal(result.get(), other.get())


def test_other_factors_are_not_mixed_up(cupy, only_fast, rng):
    host, factors = factors_of(cupy, rng, [(4, 4)] * 3, np.float64)
    x = random_array(rng, (5, 16), np.float64)
    given = cupy.asarray(x)
    for _ in range(2):
        for i, j in ((0, 1), (1, 0), (2, 1), (0, 0)):
            close(bk.gemkm(given, [factors[i], factors[j]]), bk.gemkm(x, [host[i], host[j]]))
    before = bk.gemkm(x, host[:2])
    factors[0] *= 2
    close(bk.gemkm(given, factors[:2]), 2 * before)
    with without("kron.registers"):
        close(bk.gemkm(given, factors[:2]), 2 * before)


def test_what_does_not_fit_is_refused_after_what_does(cupy, rng):
    refused_multiplies(cupy, rng)


def test_streams_at_once(cupy, only_fast, rng):
    host, factors = factors_of(cupy, rng, TWO_PASSES, np.float64)
    x = rng.standard_normal((2, 64, 16**4))
    given = [cupy.asarray(one) for one in x]
    outs = [cupy.empty_like(one) for one in given]
    bk.gemkm(given[0], [2 * factor for factor in factors])  # compiles
    cupy.cuda.Device().synchronize()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in given]
    for _ in range(10):
        for stream, one, out in zip(streams, given, outs, strict=True):
            with stream:
                bk.gemkm(one, factors, out=out)
    for stream in streams:
        stream.synchronize()
    for one, out in zip(x, outs, strict=True):
        close(out, bk.gemkm(one, host))


def test_threads_at_once(cupy, only_fast, rng):
    host, factors = factors_of(cupy, rng, TWO_PASSES, np.float64)
    x = rng.standard_normal((4, 16, 16**4))
    results = [None] * len(x)
    cupy.cuda.Device().synchronize()

    def work(k):
        given = cupy.asarray(x[k])
        for _ in range(10):
            results[k] = bk.gemkm(given, factors)
        results[k] = results[k].get()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(x))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, result in zip(x, results, strict=True):
        expected = bk.gemkm(one, host)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def recorded(cupy, stream, call):
    """The graph of a call, without an earlier one on the stream."""
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        call()
        return stream.end_capture()


def test_graphs_of_several_passes_keep_their_workspace(cupy, only_fast, rng):
    """Two graphs of one stream run at once, beside eager calls, and see new factors."""
    host, factors = factors_of(cupy, rng, TWO_PASSES, np.float64)
    given = [cupy.asarray(rng.standard_normal((32, 16**4))) for _ in range(3)]
    outs = [cupy.empty_like(one) for one in given]
    bk.gemkm(given[2], factors, out=outs[2])  # compiles, on another stream
    stream, *others = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))

    def record(k):
        return recorded(cupy, stream, lambda: bk.gemkm(given[k], factors, out=outs[k]))

    graphs = [record(k) for k in range(2)]
    with stream:
        hoard = [cupy.full(outs[0].size, np.nan) for _ in range(4)]
    for scale in (1, 2):
        factors[0].set(scale * host[0])
        for out in outs:
            out.fill(np.nan)
        cupy.cuda.Device().synchronize()
        for _ in range(10):
            for graph, other in zip(graphs, others, strict=True):
                graph.launch(other)
            with stream:
                bk.gemkm(given[2], factors, out=outs[2])
        cupy.cuda.Device().synchronize()
        for one, out in zip(given, outs, strict=True):
            close(out, scale * bk.gemkm(one.get(), host))
        assert all(cupy.isnan(one).all() for one in hoard)


def test_a_graph_of_all_functions(cupy, captured, only_fast, rng):
    _, factors = factors_of(cupy, rng, [(6, 6)] * 4, np.float64)
    a, b = (rng.standard_normal((7, 5, 5)) for _ in range(2))
    x, given = rng.standard_normal((64, 6**4)), [cupy.asarray(one) for one in (a, b)]
    vectors, results = cupy.asarray(x), {}

    def call():
        results["kron"] = bk.kron(*factors)
        results["gemkm"] = bk.gemkm(vectors, factors)
        results["gekmm"] = bk.gekmm(factors, results["kron"])
        results["gemm"] = bk.batched_gemm(*given)
        results["sum"] = bk.batched_gemm(results["gemm"], given[1], alpha=2, transpose_b=True)

    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, call)
    for result in results.values():
        result.fill(np.nan)
    other, _ = factors_of(cupy, rng, [(6, 6)] * 4, np.float64)
    for factor, values in zip(factors, other, strict=True):
        factor.set(values)
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(3):  # other calls on the stream of the capture
            bk.kron(*factors[::-1])
            bk.gemkm(vectors, factors[::-1])
            bk.batched_gemm(given[1], given[0])
            graph.launch(stream)
    stream.synchronize()
    dense = dense_kron(*other)
    close(results["kron"], dense)
    close(results["gemkm"], x @ dense)
    close(results["gekmm"], dense @ dense)
    close(results["gemm"], a @ b)
    close(results["sum"], 2 * a @ b @ b.swapaxes(1, 2))


def test_other_calls_of_several_passes_say_what_to_do(cupy, refuses_capture, rng):
    _, factors = factors_of(cupy, rng, TWO_PASSES, np.float64)
    x, out = cupy.asarray(rng.standard_normal((8, 16**4))), cupy.empty((8, 16**4))
    a = cupy.asarray(rng.standard_normal((4, 3, 3)))
    bk.gemkm(x, factors, transpose=True, out=out)
    bk.batched_gemm(a, a, a_ids=[0, 1], b_ids=[1, 2])
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    text = "contiguous arrays of one dtype, transpose=False"
    refuses_capture(stream, lambda: bk.gemkm(x, factors, transpose=True, out=out), text)
    text = "call batched_gemm once with the same shapes"
    refuses_capture(stream, lambda: bk.batched_gemm(a, a, a_ids=[0, 1], b_ids=[1, 2]), text)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 5), (17, 2, 33), (200, 200, 200)], ids=str)
@pytest.mark.parametrize("count", [1, 5, 5000])
def test_batched_gemm_equals_the_cpu(cupy, only_fast, rng, dtype, shape, count):
    m, k, n = shape
    if count * m * n > 10**6:
        count = 20
    a, b = random_array(rng, (count, m, k), dtype), random_array(rng, (count, k, n), dtype)
    expected = a @ b
    for transpose_b in (False, True):
        right = np.ascontiguousarray(b.swapaxes(1, 2)) if transpose_b else b
        given = cupy.asarray(a), cupy.asarray(right)
        for _ in range(2):
            close(bk.batched_gemm(*given, transpose_b=transpose_b), expected)
            close(bk.batched_gemm(*given, alpha=-2.5, transpose_b=transpose_b), -2.5 * expected)


def test_batched_gemm_has_the_bits_of_other_calls(cupy, rng, dtype):
    a, b = (cupy.asarray(random_array(rng, (9, 7, 7), dtype)) for _ in range(2))
    listed = bk.batched_gemm(a, b, alpha=1.5, c_ids=range(9))
    np.testing.assert_array_equal(bk.batched_gemm(a, b, alpha=1.5).get(), listed.get())
