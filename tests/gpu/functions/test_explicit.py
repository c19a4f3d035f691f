"""Explicit products on CuPy arrays: every cut of two, chains of several, streams and graphs."""

import threading
from functools import partial, reduce
from importlib import import_module

import numpy as np
import pytest
from dense_oracle import dense_kron, factors_of, random_array, sizes

import batchkron as bk
from batchkron.backends.cuda.explicit.bands import BANDS, BandVariant
from batchkron.backends.cuda.explicit.kernel import explicit_steps
from batchkron.backends.cuda.explicit.tiles import TILES, TileVariant

pytestmark = pytest.mark.gpu


def explicit_module():
    """What writes products out on a device."""
    return import_module("batchkron.backends.cuda.explicit.plan")


@pytest.mark.parametrize(
    "shapes",
    [[(3, 4)], [(1, 1), (1, 1)], [(3, 2), (2, 5)], [(64, 3), (5, 70)], [(2, 3), (3, 2), (4, 5)]],
)
def test_kron_equals_dense(cupy, poisoned_on_device, rng, dtype, shapes):
    host, factors = factors_of(cupy, rng, shapes, dtype)
    expected = dense_kron(*host)
    out = poisoned_on_device(expected.shape, dtype)
    assert bk.kron(factors, out=out) is out
    np.testing.assert_allclose(out.get(), expected, rtol=20 * np.finfo(dtype).eps)
    swapped = bk.kron(*[factor.T for factor in factors])
    np.testing.assert_allclose(swapped.get(), expected.T, rtol=20 * np.finfo(dtype).eps)


EXPLICIT = [
    ((5000, 1), (1, 1)),
    ((1, 5000), (2, 1)),
    ((700, 3), (1, 2)),
    ((40, 41), (2, 2)),
    ((90, 7), (3, 3)),
    ((33, 30), (31, 31)),
    ((7, 6), (65, 65)),
    ((5, 4), (127, 129)),
    ((3, 3), (200, 331)),
    ((2, 40_000), (3, 3)),
    ((1, 300), (5, 260)),
    ((3000, 1), (3, 7)),
    ((1, 1), (700, 3)),
    ((64, 8), (4, 64)),
]


def at_offset(cupy, shape, dtype, offset):
    """A poisoned array ``offset`` bytes after an aligned address, and all of the memory."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = cupy.asarray(np.full(size + 192, 255, np.uint8))
    begin = -memory.data.ptr % 128 + offset
    return memory[begin : begin + size].view(dtype).reshape(shape), memory, begin


def check_explicit(result, a, b):
    """Real entries are exact: each is a single multiplication."""
    expected = np.kron(a, b)
    if result.dtype.kind == "f":
        np.testing.assert_array_equal(result, expected)
    else:
        bound = 4 * np.finfo(result.dtype).eps * np.kron(np.abs(a), np.abs(b))
        assert (np.abs(result - expected) <= bound).all()


@pytest.mark.parametrize("shapes", EXPLICIT, ids=str)
@pytest.mark.parametrize("offset", [0, 4, 8, 12])
def test_kron_of_any_shape_at_any_address(cupy, rng, dtype, shapes, offset):
    part = np.dtype(dtype).itemsize // (2 if np.dtype(dtype).kind == "c" else 1)
    if offset % part:
        pytest.skip("no array of this dtype begins there")
    (a, b), given = factors_of(cupy, rng, shapes, dtype)
    out, memory, begin = at_offset(cupy, sizes(shapes), dtype, offset)
    assert bk.kron(*given, out=out) is out
    check_explicit(out.get(), a, b)
    guards = memory.get()
    assert (guards[:begin] == 255).all()
    assert (guards[begin + out.nbytes :] == 255).all()


@pytest.mark.parametrize("shapes", EXPLICIT, ids=str)
@pytest.mark.parametrize(
    ("family", "variant"),
    [
        (BANDS, BandVariant()),
        (TILES, TileVariant(run=2048, total=8192)),
    ],
    ids=["bands", "tiles"],
)
def test_kron_of_strided_factors(cupy, poisoned_on_device, rng, dtype, shapes, family, variant):
    write_product = explicit_module().write_product
    views = [lambda m: m[::2, ::-3], lambda m: m[::-2, ::3].T]
    wide = [random_array(rng, (2 * p, 3 * q), dtype) for p, q in (shapes[0], shapes[1][::-1])]
    a, b = (view(matrix) for view, matrix in zip(views, wide, strict=True))
    given = [view(cupy.asarray(matrix)) for view, matrix in zip(views, wide, strict=True)]
    out = poisoned_on_device(sizes(shapes), dtype)
    write_product(*given, out, 0, family, variant)
    check_explicit(out.get(), a, b)


@pytest.mark.parametrize("shapes", EXPLICIT[3:9], ids=str)
@pytest.mark.parametrize(
    "variant",
    [
        BandVariant(threads=32, words=2, batch=2, repeats=4, streaming=False),
        BandVariant(threads=128, words=4, batch=1, repeats=1),
        BandVariant(words=1, batch=3, repeats=1000),
    ],
    ids=str,
)
def test_every_cut_gives_the_same(cupy, poisoned_on_device, rng, dtype, shapes, variant):
    write_product = explicit_module().write_product
    (a, b), given = factors_of(cupy, rng, shapes, dtype)
    out = poisoned_on_device(sizes(shapes), dtype)
    write_product(*given, out, 0, BANDS, variant)
    check_explicit(out.get(), a, b)


LONG = [  # rows of the result have a kilobyte and more, and begin anywhere in a line
    ((40, 4099), (2, 2)),
    ((33, 5461), (3, 3)),
    ((70, 2341), (7, 7)),
    ((101, 501), (33, 33)),
    ((3, 3), (9, 2001)),
    ((2, 3), (5, 20_001)),
    ((1, 1), (4, 9_999)),
]


@pytest.mark.parametrize("shapes", LONG, ids=str)
@pytest.mark.parametrize("offset", [0, 16, 40])
@pytest.mark.parametrize(
    ("family", "variant"),
    [
        (BANDS, BandVariant()),
        (BANDS, BandVariant(lines=False)),
        (TILES, TileVariant()),
        (TILES, TileVariant(128, 1 << 12, 1 << 14, streaming=False)),
    ],
    ids=["lines", "words", "tiles", "small tiles"],
)
def test_rows_that_are_no_whole_lines(cupy, rng, dtype, shapes, offset, family, variant):
    write_product = explicit_module().write_product
    (a, b), given = factors_of(cupy, rng, shapes, dtype)
    out, memory, begin = at_offset(cupy, sizes(shapes), dtype, offset)
    write_product(*given, out, 0, family, variant)
    check_explicit(out.get(), a, b)
    guards = memory.get()
    assert (guards[:begin] == 255).all()
    assert (guards[begin + out.nbytes :] == 255).all()


@pytest.mark.parametrize(
    "shapes",
    [[(3, 2), (1, 5), (7, 3)], [(2, 3)] * 5, [(1, 1), (31, 17), (2, 2), (3, 5)], [(2, 2)] * 10],
    ids=str,
)
def test_kron_of_several_factors(cupy, poisoned_on_device, rng, dtype, shapes):
    host, factors = factors_of(cupy, rng, shapes, dtype)
    expected = dense_kron(*host)
    out = poisoned_on_device(expected.shape, dtype)
    bk.kron(*factors, out=out)
    bound = 4 * len(shapes) * np.finfo(dtype).eps * dense_kron(*map(np.abs, host))
    assert (np.abs(out.get() - expected) <= bound).all()


def test_kron_keeps_the_sign_of_zero(cupy):
    a, b = cupy.asarray([[-1.0, 2.0]]), cupy.asarray([[0.0, 3.0, -0.0]])
    np.testing.assert_array_equal(
        np.signbit(bk.kron(a, b).get()), [[True, True, False, False, False, True]]
    )


CHAINS = [
    [(3, 4)],
    [(8, 8)] * 2,
    [(3, 2), (1, 5), (7, 3)],
    [(6, 6)] * 4,
    [(3, 9), (2, 7), (4, 5), (1, 6)],
    [(3, 40), (2, 3), (4, 11)],
    [(4, 8)] * 3 + [(2, 3)] * 3,
    [(2, 3), (5, 1), (1, 1), (4, 4), (3, 2)],
]


def integers(rng, shape, dtype):
    """Matrices whose products are exact."""
    values = rng.integers(1, 8, shape) * rng.choice([-1, 1], shape)
    if dtype.kind == "c":
        values = values + 1j * rng.integers(1, 8, shape)
    return values.astype(dtype)


@pytest.mark.parametrize("shapes", CHAINS, ids=str)
def test_chains_are_exact(cupy, poisoned_on_device, rng, dtype, shapes):
    host = [integers(rng, shape, dtype) for shape in shapes]
    factors = [cupy.asarray(factor) for factor in host]
    expected = reduce(np.kron, host)
    out = poisoned_on_device(expected.shape, dtype)
    for _ in range(2):
        assert bk.kron(*factors, out=out) is out
        np.testing.assert_array_equal(out.get(), expected)
        result = bk.kron(factors)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result.get(), expected)
        out.fill(np.nan)


@pytest.mark.parametrize("shapes", CHAINS[1:], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_chains_round_as_products_of_two_do(cupy, rng, dtype, shapes):
    host, factors = factors_of(cupy, rng, shapes, dtype)
    known = list(host)
    for left, right in explicit_steps(shapes, np.dtype(dtype).itemsize)[0]:
        known.append(np.kron(known[left], known[right]))
    np.testing.assert_array_equal(bk.kron(*factors).get(), known[-1])
    backwards = [factor[::-1, ::-1] for factor in factors]
    np.testing.assert_array_equal(bk.kron(*backwards).get(), known[-1][::-1, ::-1])


def test_what_is_remembered_is_not_planned_again(cupy, rng, monkeypatch):
    from batchkron.backends.cuda.runtime.launch import LaunchSequence

    host, factors = factors_of(cupy, rng, [(5, 3), (2, 2), (3, 4), (2, 3)], np.float64)
    out = bk.kron(*factors)
    launch, count = LaunchSequence.__call__, []

    def refuse(*arguments):
        raise AssertionError("planned again")

    def counted(*arguments):
        count.append(1)
        launch(*arguments)

    for name in ("_checked_kron", "_learn", "_chain", "_launch"):
        monkeypatch.setattr(explicit_module(), name, refuse)
    monkeypatch.setattr(LaunchSequence, "__call__", counted)
    factors[1] *= 2
    out.fill(np.nan)
    bk.kron(factors, out=out)
    assert len(count) == 1
    expected = 2 * dense_kron(*host)
    np.testing.assert_allclose(out.get(), expected, rtol=1e-14)
    np.testing.assert_allclose(bk.kron(*factors).get(), expected, rtol=1e-14)


@pytest.mark.parametrize("count", [2, 3])
def test_what_does_not_fit_is_refused_after_what_does(cupy, rng, count):
    host, factors = factors_of(cupy, rng, [(3, 3)] * count, np.float64)
    expected = dense_kron(*host)
    memory = cupy.zeros(expected.size + 4)
    out = memory[: expected.size].reshape(expected.shape)
    bk.kron(*factors, out=out)
    inside = memory[expected.size - 5 :].reshape(3, 3)  # its first five elements are out's last
    for given, wrong, error, text in [
        ([*factors[:-1], inside], out, ValueError, "out overlaps an input"),
        (factors, out.astype(np.float32), TypeError, "out has dtype float32"),
        (factors, out[:1], ValueError, "out has shape"),
        (factors, out.get(), TypeError, "out is a ndarray; expected a CuPy array"),
        ([host[0], *factors[1:]], out, TypeError, r"factors\[0\] is an array on the CPU"),
        ([factors[0][0], *factors[1:]], out, ValueError, r"factors\[0\] has shape"),
    ]:
        with pytest.raises(error, match=text):
            bk.kron(*given, out=wrong)
    np.testing.assert_allclose(out.get(), expected, rtol=1e-14)
    turned = cupy.empty(expected.shape, order="F")
    assert bk.kron(*factors, out=turned) is turned
    np.testing.assert_allclose(turned.get(), expected, rtol=1e-14)
    mixed = bk.kron(*factors[:-1], factors[-1].astype(np.complex64))
    assert mixed.dtype == "complex128"
    np.testing.assert_allclose(mixed.get(), expected, rtol=1e-6)
    empty = bk.kron(*factors, cupy.ones((0, 2)))
    assert empty.shape == (0, 2 * 3**count)


def test_streams_at_once(cupy, rng):
    """Each stream has a workspace: in a common one, each would read the other's products."""
    cases = [factors_of(cupy, rng, [(3, 5), (8, 8), (5, 3), (4, 8)], np.float64) for _ in range(2)]
    outs = [cupy.empty(dense_kron(*host).shape) for host, _ in cases]
    cupy.cuda.Device().synchronize()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in cases]
    for _ in range(50):
        for stream, (_, factors), out in zip(streams, cases, outs, strict=True):
            with stream:
                bk.kron(*factors, out=out)
    for stream in streams:
        stream.synchronize()
    for (host, _), out in zip(cases, outs, strict=True):
        np.testing.assert_allclose(out.get(), dense_kron(*host), rtol=1e-14)


def test_threads_at_once(cupy, rng):
    cases = [factors_of(cupy, rng, [(3, 5), (6, 8), (5, 3)], np.float64) for _ in range(4)]
    results = [None] * len(cases)
    cupy.cuda.Device().synchronize()

    def work(k):
        for _ in range(20):
            results[k] = bk.kron(cases[k][1])
        results[k] = results[k].get()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (host, _), result in zip(cases, results, strict=True):
        np.testing.assert_allclose(result, dense_kron(*host), rtol=1e-14)


@pytest.mark.parametrize("shapes", CHAINS[1:], ids=str)
def test_graphs_see_new_factors(cupy, captured, rng, shapes):
    """Graphs also share no workspace with eager products that run at the same time."""
    _, factors = factors_of(cupy, rng, shapes, np.float64)
    others_on_host, others = factors_of(cupy, rng, shapes, np.float64)
    out, beside = cupy.empty(sizes(shapes)), cupy.empty(sizes(shapes))
    stream, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    graph = captured(stream, lambda: bk.kron(*factors, out=out))
    for _ in range(2):
        host = [random_array(rng, shape, np.float64) for shape in shapes]
        for factor, values in zip(factors, host, strict=True):
            factor.set(values)
        out.fill(np.nan)
        cupy.cuda.Device().synchronize()
        for _ in range(20):
            graph.launch(second)
            with stream:
                bk.kron(*others, out=beside)
        cupy.cuda.Device().synchronize()
        np.testing.assert_allclose(out.get(), dense_kron(*host), rtol=1e-14)
        np.testing.assert_allclose(beside.get(), dense_kron(*others_on_host), rtol=1e-14)


def test_a_capture_needs_no_earlier_call_on_its_stream(cupy, rng):
    host, factors = factors_of(cupy, rng, [(3, 4)] * 4, np.float64)
    out = bk.kron(*factors)  # on another stream
    out.fill(np.nan)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        bk.kron(*factors, out=out)
        graph = stream.end_capture()
        hoard = [cupy.full(5000, np.nan) for _ in range(8)]  # none is the graph's workspace
        bk.kron(*factors[::-1])
        graph.launch(stream)
    stream.synchronize()
    np.testing.assert_allclose(out.get(), dense_kron(*host), rtol=1e-14)
    assert all(cupy.isnan(one).all() for one in hoard)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_copies_are_not_captured(cupy, refuses_capture, rng, count):
    _, factors = factors_of(cupy, rng, [(3, 3)] * count, np.float64)
    out = cupy.empty((3**count,) * 2)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for given in ([factors[0].T, *factors[1:]], [factors[0].astype("i4"), *factors[1:]]):
        with stream:
            bk.kron(*given, out=out)
            stream.synchronize()
        call = partial(bk.kron, *given, out=out)
        refuses_capture(stream, call, "nothing has to be copied")


def test_out_of_memory_leaves_the_output_as_it_was(cupy, rng, monkeypatch):
    # of five factors, the product of two in the middle is written to workspace
    host, factors = factors_of(cupy, rng, [(3, 4)] * 5, np.float64)
    out = cupy.zeros((243, 1024))

    def refuse(size):
        raise cupy.cuda.memory.OutOfMemoryError(size, 0)

    with monkeypatch.context() as patch:
        patch.setattr(cupy.cuda, "alloc", refuse)
        with pytest.raises(MemoryError):
            bk.kron(*factors, out=out)
    assert not out.get().any()
    bk.kron(*factors, out=out)
    np.testing.assert_allclose(out.get(), dense_kron(*host), rtol=1e-14)
