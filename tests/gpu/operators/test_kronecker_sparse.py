"""Kronecker-sparse matrices on the device: every family of kernels, both layouts, all dtypes."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
from dense_oracle import DTYPES, random_array
from kron_sparse_oracle import assert_product, dense_matrix
from transposed_products import always_transposed

import batchkron as bk
from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.kron_sparse.families import FAMILIES

pytestmark = pytest.mark.gpu

LAYOUTS = ["batch-first", "batch-last"]
ALL = ["float16", *DTYPES]
PATTERNS = [
    (1, 1, 1, 1),
    (1, 2, 2, 64),
    (32, 2, 2, 1),
    (4, 4, 4, 16),
    (3, 5, 7, 11),
    (1, 192, 48, 2),
    (2, 48, 192, 1),
    (6, 64, 64, 1),
    (1, 64, 64, 16),
    (2, 67, 53, 3),
    (2, 96, 40, 4),
    (1, 130, 66, 6),
    (1, 17, 129, 12),
    (2, 33, 31, 13),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_and_products_are_kronecker_sparse(cupy, rng, layout):
    A, B = (
        bk.KroneckerSparse(rng.standard_normal((2, 6, 6, 3)), layout=layout).to("cuda")
        for _ in range(2)
    )
    total, chain = A + B, A @ B
    assert isinstance(total, bk.KroneckerSparse)
    assert isinstance(chain, bk.KroneckerSparseChain)
    assert total.device == chain.device == "cuda"
    for _ in range(2):
        left, right = dense_matrix(A.values), dense_matrix(B.values)
        X = rng.standard_normal((36, 5))
        for op, dense in ((total, left + right), (chain, left @ right)):
            found = (op @ cupy.asarray(X)).get()
            np.testing.assert_allclose(found, dense @ X, rtol=0, atol=1e-12)
        A.update(rng.standard_normal((2, 6, 6, 3)))


def values_of(rng, pattern, dtype):
    wide = "float32" if dtype == "float16" else dtype
    return (random_array(rng, pattern, wide) / np.sqrt(max(1, pattern[2]))).astype(dtype)


def vectors(rng, count, size, dtype):
    wide = "float32" if dtype == "float16" else dtype
    return random_array(rng, (count, size), wide).astype(dtype)


def on_device(cupy, x, layout):
    """Vectors (count, N) as a layout wants them."""
    return cupy.asarray(x if layout == "batch-first" else np.ascontiguousarray(x.T))


def on_host(y, layout):
    return y.get() if layout == "batch-first" else y.get().T


def families_off(kept):
    names = [*(one.name for one in FAMILIES), "library"]
    return [f"kron_sparse.{name}" for name in names if name not in kept]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_products(cupy, rng, poisoned_on_device, pattern, dtype, layout):
    values = values_of(rng, pattern, dtype)
    op = bk.KroneckerSparse(values, layout=layout).to("cuda")
    assert (op.dtype, op.layout, op.device) == (np.dtype(dtype), layout, "cuda")
    rows, columns = op.shape
    for count in (1, 7, 64, 257):
        x, y = vectors(rng, count, columns, dtype), vectors(rng, count, rows, dtype)
        given, added = on_device(cupy, x, layout), on_device(cupy, y, layout)
        out = poisoned_on_device(added.shape, dtype)
        assert op.apply(given, out=out) is out
        assert_product(on_host(out, layout), values, x)
        assert op.accumulate(given, added, alpha=-0.5) is added
        assert_product(on_host(added, layout), values, x, y, -0.5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("family", ["tiles", "registers", "general"])
def test_every_family(cupy, rng, poisoned_on_device, family, dtype, layout):
    patterns = [(2, 4, 3, 8), (3, 2, 2, 1), (1, 3, 4, 5)] if family == "registers" else PATTERNS
    if family == "tiles" and np.dtype(dtype).kind == "c":
        pytest.skip("panels are for real numbers")
    for pattern in patterns:
        values = values_of(rng, pattern, dtype)
        op = bk.KroneckerSparse(values, layout=layout).to("cuda")
        x = vectors(rng, 45, op.shape[1], dtype)
        with without(*families_off([family])):
            out = poisoned_on_device(
                on_device(cupy, vectors(rng, 45, op.shape[0], dtype), layout).shape, dtype
            )
            op.apply(on_device(cupy, x, layout), out=out)
        assert_product(on_host(out, layout), values, x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("precision", "eps"), [("tf32", 2.0**-10), ("tf32x3", 2.0**-21)])
def test_less_precise_float32(cupy, rng, layout, precision, eps):
    for pattern in [(1, 64, 64, 16), (2, 48, 100, 1), (3, 33, 35, 3), (1, 96, 40, 4)]:
        values = values_of(rng, pattern, "float32")
        op = bk.KroneckerSparse(values, layout=layout, precision=precision).to("cuda")
        assert op.T.precision == precision
        x = vectors(rng, 300, op.shape[1], "float32")
        y = on_host(op.apply(on_device(cupy, x, layout)), layout)
        assert_product(y, values, x, eps=eps)
        function = bk.kronecker_sparse_multiply(
            cupy.asarray(values), on_device(cupy, x, layout), layout=layout, precision=precision
        )
        assert_product(on_host(function, layout), values, x, eps=eps)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ALL)
def test_every_variant_of_panels(cupy, rng, poisoned_on_device, monkeypatch, dtype, layout):
    """Not only those that are chosen; some of them, as there are many."""
    from batchkron.backends.cuda.kron_sparse import plan
    from batchkron.backends.cuda.runtime.device import device_limits

    if np.dtype(dtype).kind == "c":
        pytest.skip("panels are for real numbers")
    tiles = FAMILIES[0]
    pattern = {"batch-first": (2, 70, 56, 16), "batch-last": (1, 101, 52, 2)}[layout]
    values = values_of(rng, pattern, dtype)
    op = bk.KroneckerSparse(values, layout=layout)
    x = vectors(rng, 200, op.shape[1], dtype)
    limits, seen, numbers = device_limits(0), [], rng.permutation(500)[:20].tolist()

    def chosen(shape, device, *, plain):
        variants = tiles.variants(shape, limits)
        if plain:
            seen.append(len(variants))
        return tiles.kernel(shape, variants[numbers[len(seen) - 1] % len(variants)], limits)

    monkeypatch.setattr(plan, "fastest_way", chosen)
    for _ in numbers:
        plan.prepared_product.cache_clear()
        own = bk.KroneckerSparse(values, layout=layout).to("cuda")
        given = on_device(cupy, x, layout)
        shape = (200, op.shape[0]) if layout == "batch-first" else (op.shape[0], 200)
        out = poisoned_on_device(shape, dtype)
        own.apply(given, out=out)
        assert_product(on_host(out, layout), values, x)
    plan.prepared_product.cache_clear()
    assert min(seen) > 3


LIBRARY_PATTERNS = [
    (1, 64, 64, 16),
    (5, 8, 16, 1),
    (3, 32, 24, 1),
    (9, 16, 5, 4),
    (2, 48, 7, 16),
    (1, 200, 96, 1),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("pattern", LIBRARY_PATTERNS, ids=str)
def test_products_by_the_matrix_library(cupy, rng, poisoned_on_device, pattern, dtype, layout):
    """By operators and functions, scaled and added, and in graphs, on two streams."""
    values = values_of(rng, pattern, dtype)
    x = vectors(rng, 136, pattern[0] * pattern[2] * pattern[3], dtype)
    y = vectors(rng, 136, pattern[0] * pattern[1] * pattern[3], dtype)
    given, added = on_device(cupy, x, layout), on_device(cupy, y, layout)
    with without(*families_off(["library"]), "kron_sparse.transposed"):
        op = bk.KroneckerSparse(values, layout=layout).to("cuda")
        out = poisoned_on_device(added.shape, dtype)
        function = partial(
            bk.kronecker_sparse_multiply, cupy.asarray(values), given, layout=layout, out=out
        )
        for call in (partial(op.apply, given, out=out), function):
            out[...] = np.nan
            call()
            assert_product(on_host(out, layout), values, x)
            streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
            cupy.cuda.get_current_stream().synchronize()
            for stream in streams:
                with stream:
                    stream.begin_capture()
                    call()
                    graph = stream.end_capture()
                    out[...] = np.nan
                    graph.launch(stream)
                    stream.synchronize()
                    assert_product(on_host(out, layout), values, x)
        op.accumulate(given, added, alpha=-0.5)
        assert_product(on_host(added, layout), values, x, y, -0.5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_products_by_the_matrix_library_of_transposed_vectors(cupy, rng, dtype):
    values = values_of(rng, (2, 48, 56, 16), dtype)
    x = vectors(rng, 136, 2 * 56 * 16, dtype)
    with always_transposed(), without(*families_off(["library", "general"])):
        op = bk.KroneckerSparse(values).to("cuda")
        assert_product(op.apply(cupy.asarray(x)).get(), values, x)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_transposed_vectors(cupy, rng, poisoned_on_device, pattern, dtype):
    """In parts of 64 vectors and some more, by an operator and by the function, also in a graph."""
    values = values_of(rng, pattern, dtype)
    op = bk.KroneckerSparse(values)
    x = vectors(rng, 150, op.shape[1], dtype)
    turned = cupy.asarray(np.ascontiguousarray(values.transpose(0, 2, 1, 3))).transpose(0, 2, 1, 3)
    given = cupy.asarray(x)
    odd = cupy.empty(x.size + 1, dtype)[1:].reshape(x.shape)
    odd[...] = given
    out = poisoned_on_device((150, op.shape[0]), dtype)
    with always_transposed():
        device = op.to("cuda")
        calls = [partial(device.apply, one, out=out) for one in (given, odd)]
        calls += [
            partial(bk.kronecker_sparse_multiply, turned, one, out=out) for one in (given, odd)
        ]
        for call in calls:
            out[...] = np.nan
            call()
            assert_product(out.get(), values, x)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()
        for call in calls:
            with stream:
                stream.begin_capture()
                call()
                graph = stream.end_capture()
                out[...] = np.nan
                graph.launch(stream)
                assert_product(out.get(), values, x)


@pytest.mark.parametrize("dtype", ALL)
def test_vectors_behind_an_odd_address(cupy, rng, dtype):
    """Arrays that are not aligned to 16 bytes take narrower accesses."""
    for layout in LAYOUTS:
        for pattern in [(1, 64, 48, 4), (2, 32, 40, 1), (1, 2, 2, 32)]:
            values = values_of(rng, pattern, dtype)
            op = bk.KroneckerSparse(values, layout=layout).to("cuda")
            x = vectors(rng, 40, op.shape[1], dtype)
            given = on_device(cupy, x, layout)
            places = cupy.empty(given.size + 1, dtype)[1:].reshape(given.shape)
            places[...] = given
            result = cupy.full(40 * op.shape[0] + 3, np.nan, dtype)
            shape = (40, op.shape[0]) if layout == "batch-first" else (op.shape[0], 40)
            out = result[1:-2].reshape(shape)
            op.apply(places, out=out)
            assert_product(on_host(out, layout), values, x)
            assert np.isnan(result[[0, -1, -2]].get()).all()


def test_empty_and_single(cupy, rng):
    for pattern in [(0, 2, 2, 2), (2, 0, 3, 1), (2, 3, 0, 1), (1, 2, 3, 0)]:
        values = np.ones(pattern)
        op = bk.KroneckerSparse(values).to("cuda")
        y = op.apply(cupy.ones((3, op.shape[1])))
        assert y.shape == (3, op.shape[0])
        assert not y.any()
        added = op.accumulate(cupy.ones((3, op.shape[1])), cupy.ones((3, op.shape[0])))
        assert (added == 1).all()
        assert not bk.kronecker_sparse_multiply(
            cupy.asarray(values), cupy.ones((3, op.shape[1]))
        ).any()
    op = bk.KroneckerSparse(rng.standard_normal((2, 3, 4, 2))).to("cuda")
    assert op.apply(cupy.empty((0, 16))).shape == (0, 12)


@pytest.mark.parametrize("dtype", ALL)
def test_relatives_updates_and_scipy_products(cupy, rng, dtype):
    values = values_of(rng, (2, 18, 20, 4), dtype)
    op = bk.KroneckerSparse(values)
    device = op.to("cuda")
    assert device.to("cpu") is op
    assert device.to("cuda") is device
    assert op.dtype == (np.float32 if dtype == "float16" else np.dtype(dtype))
    X, w = vectors(rng, 9, 160, dtype), vectors(rng, 9, 144, dtype)
    turned = values.swapaxes(1, 2)

    def check_all(values, turned):
        assert_product((device @ cupy.asarray(X.T)).get().T, values, X)
        assert_product((device @ cupy.asarray(X[0])).get(), values, X[0])
        assert_product(device.T.apply(cupy.asarray(w)).get(), turned, w)
        assert_product(device.H.apply(cupy.asarray(w)).get(), turned.conj(), w)
        dense = device.to_dense()
        assert dense.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(dense.get(), dense_matrix(values).astype(dtype))
        np.testing.assert_array_equal(device.diagonal().get(), dense.get().diagonal())

    check_all(values, turned)
    again = values_of(rng, (2, 18, 20, 4), dtype)
    device.update(again)
    check_all(again, again.swapaxes(1, 2))
    np.testing.assert_array_equal(op.to_dense(), dense_matrix(again).astype(op.dtype))
    op.T.update(turned)
    check_all(values, turned)
    for twin in (copy.deepcopy(device), pickle.loads(pickle.dumps(device))):
        assert (twin.device, twin.dtype) == ("cuda", np.dtype(dtype))
        assert_product(twin.apply(cupy.asarray(X)).get(), values, X)
    wide = device.apply(cupy.asarray(X.astype("float64" if X.dtype.kind == "f" else "c16")))
    eps = np.finfo("float64").eps
    assert_product(wide.get(), values, X.astype(wide.dtype), eps=eps)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chains_and_algebra(cupy, rng, dtype, layout):
    patterns = [(1, 16, 12, 6), (2, 9, 3, 4), (3, 8, 10, 1)]
    values = [values_of(rng, pattern, dtype) for pattern in patterns]
    chain = bk.KroneckerSparseChain(values, layout=layout)
    device = chain.to("cuda")
    assert isinstance(device, bk.KroneckerSparseChain)
    assert (device.dtype, device.layout) == (np.dtype(dtype), layout)
    x = vectors(rng, 50, chain.shape[1], dtype)
    dense = chain.to_dense()
    bound = 60 * np.finfo(dtype).eps * (np.abs(x) @ np.abs(dense).T).max()
    y = device.apply(on_device(cupy, x, layout))
    np.testing.assert_allclose(on_host(y, layout), x @ dense.T, rtol=0, atol=bound)
    device.accumulate(on_device(cupy, x, layout), y, alpha=2)
    np.testing.assert_allclose(on_host(y, layout), 3 * x @ dense.T, rtol=0, atol=3 * bound)
    w = vectors(rng, 50, chain.shape[0], dtype)
    for relative, matrix in ((device.T, dense.T), (device.H, dense.conj().T)):
        z = on_host(relative.apply(on_device(cupy, w, layout)), layout)
        np.testing.assert_allclose(z, w @ matrix.T, rtol=0, atol=2 * bound)
    both = 2 * device.factors[0] + device.factors[0]
    z = vectors(rng, 5, both.shape[1], dtype)
    found = both.apply(cupy.asarray(z)).get()
    assert_product(found, values[0], z, alpha=3, eps=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_functions(cupy, rng, poisoned_on_device, dtype, layout):
    for pattern in [(1, 40, 24, 8), (2, 3, 2, 4), (5, 31, 29, 1)]:
        values = values_of(rng, pattern, dtype)
        rows, columns = (pattern[0] * n * pattern[3] for n in pattern[1:3])
        x = vectors(rng, 30, columns, dtype)
        given = on_device(cupy, x, layout)
        y = bk.kronecker_sparse_multiply(cupy.asarray(values), given, layout=layout)
        assert y.dtype == np.dtype(dtype)
        assert_product(on_host(y, layout), values, x)
        out = poisoned_on_device(y.shape, dtype)
        turned = cupy.asarray(np.ascontiguousarray(values.transpose(3, 0, 2, 1)))
        bk.kronecker_sparse_multiply(turned.transpose(1, 3, 2, 0), given, layout=layout, out=out)
        assert_product(on_host(out, layout), values, x)
        assert rows == y.shape[-1 if layout == "batch-first" else 0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_graphs(cupy, rng, captured, poisoned_on_device, layout):
    stream = cupy.cuda.Stream(non_blocking=True)
    values = [values_of(rng, p, "float32") for p in [(1, 32, 24, 4), (4, 24, 20, 1)]]
    chain = bk.KroneckerSparseChain(values, layout=layout)
    device, dense = chain.to("cuda"), chain.to_dense()
    x = vectors(rng, 64, chain.shape[1], "float32")
    given = on_device(cupy, x, layout)
    shape = (64, chain.shape[0]) if layout == "batch-first" else (chain.shape[0], 64)
    out = poisoned_on_device(shape, "float32")
    graph = captured(stream, lambda: device.apply(given, out=out))
    out.fill(np.nan)
    given *= 2
    cupy.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    bound = 60 * np.finfo("float32").eps * (np.abs(2 * x) @ np.abs(dense).T).max()
    np.testing.assert_allclose(on_host(out, layout), 2 * x @ dense.T, rtol=0, atol=bound)
    values_device = cupy.asarray(values[0])
    y = poisoned_on_device((64, 128) if layout == "batch-first" else (128, 64), "float32")
    z = on_device(cupy, vectors(rng, 64, 96, "float32"), layout)
    call = captured(
        stream,
        lambda: bk.kronecker_sparse_multiply(values_device, z, layout=layout, out=y),
    )
    y.fill(np.nan)
    cupy.cuda.Device().synchronize()
    call.launch(stream)
    stream.synchronize()
    assert_product(on_host(y, layout), values[0], on_host(z, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_butterflies_are_multiplied_out(cupy, rng, captured, poisoned_on_device, layout):
    """Their products of neighbours follow updates, in a captured graph, too."""
    patterns = [(2**k, 2, 2, 2 ** (7 - k)) for k in range(8)]

    def drawn():
        return [values_of(rng, pattern, "float64") for pattern in patterns]

    device = bk.KroneckerSparseChain(drawn(), layout=layout).to("cuda")
    assert len(device._steps()) < len(device.factors)
    x = vectors(rng, 70, 256, "float64")
    given = on_device(cupy, x, layout)
    out = poisoned_on_device((70, 256) if layout == "batch-first" else (256, 70), "float64")
    stream = cupy.cuda.Stream(non_blocking=True)
    graph = captured(stream, lambda: device.apply(given, out=out))
    for _ in range(2):
        new = drawn()
        device.update(new)
        out.fill(np.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        dense = bk.KroneckerSparseChain(new).to_dense()
        bound = 200 * np.finfo("float64").eps * (np.abs(x) @ np.abs(dense).T).max()
        np.testing.assert_allclose(on_host(out, layout), x @ dense.T, rtol=0, atol=bound)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversions_to_16_bits(cupy, rng, layout):
    values = values_of(rng, (2, 33, 40, 4), "float32")
    op = bk.KroneckerSparse(values, layout=layout)
    with pytest.raises(TypeError, match="float16"):
        op.astype("float16")  # on the CPU
    half = op.to("cuda").astype("float16")
    assert (half.dtype, half.layout) == (np.dtype("float16"), layout)
    assert half.astype("float16") is half
    x = vectors(rng, 70, op.shape[1], "float16")
    y = on_host(half.apply(on_device(cupy, x, layout)), layout)
    assert y.dtype == np.float16
    assert_product(y, values.astype("float16"), x)
    back = half.astype("float32")
    y = on_host(back.apply(on_device(cupy, x.astype("float32"), layout)), layout)
    assert_product(y, values.astype("float16").astype("float32"), x.astype("float32"))
    chain = bk.KroneckerSparseChain([op, bk.KroneckerSparse(values.swapaxes(1, 2), layout=layout)])
    assert chain.to("cuda").astype("float16").dtype == np.float16
    with pytest.raises(TypeError):
        op.to("cuda").astype("complex64").astype("float16")


def test_bfloat16(cupy, rng):
    """Where ml_dtypes and CuPy have it."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(ml_dtypes.bfloat16)
    try:
        assert cupy.asarray(np.ones(2, kind)).dtype == kind
    except (TypeError, ValueError, AssertionError) as error:
        pytest.skip(f"CuPy has no bfloat16: {error}")
    for layout in LAYOUTS:
        for pattern in [(1, 64, 64, 16), (2, 33, 40, 1), (1, 2, 2, 32), (2, 20, 20, 3)]:
            values = values_of(rng, pattern, "float32").astype(kind)
            op = bk.KroneckerSparse(values, layout=layout).to("cuda")
            assert op.dtype == kind
            x = vectors(rng, 100, op.shape[1], "float32").astype(kind)
            y = on_host(op.apply(on_device(cupy, x, layout)), layout).astype("float32")
            wide = values.astype("float32"), x.astype("float32")
            eps = float(ml_dtypes.finfo(kind).eps)
            assert_product(y, *wide, eps=eps)
            turned = [op.H, op.T, op.to("cpu").to("cuda").astype(kind).H]
            z = vectors(rng, 100, op.shape[0], "float32").astype(kind)
            transposed = values.swapaxes(1, 2).astype("float32"), z.astype("float32")
            for one in turned:
                assert one.dtype == kind
                y = on_host(one.apply(on_device(cupy, z, layout)), layout).astype("float32")
                assert_product(y, *transposed, eps=eps)
            assert op.astype("float32").astype(kind).dtype == kind


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_many_vectors(cupy, rng, dtype):
    """Whole tiles and many thread blocks; some of the results are compared."""
    for pattern in [(1, 64, 64, 16), (6, 64, 64, 1), (4, 128, 128, 4), (1, 192, 48, 2)]:
        values = values_of(rng, pattern, dtype)
        for layout in LAYOUTS:
            op = bk.KroneckerSparse(values, layout=layout).to("cuda")
            x = vectors(rng, 5003, op.shape[1], dtype)
            y = on_host(op.apply(on_device(cupy, x, layout)), layout)
            some = np.r_[0:70, 2400:2470, 4933:5003]
            assert_product(y[some], values, x[some])
            again = on_host(op.apply(on_device(cupy, x, layout)), layout)
            np.testing.assert_array_equal(y, again)
