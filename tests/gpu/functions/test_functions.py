"""gekmm, gemkm and batched_gemm on CuPy arrays."""

import numpy as np
import pytest
from dense_oracle import dense_kron, factors_of, random_array, rounding_bound, sizes
from plans import preferred

import batchkron as bk
from batchkron.backends.cuda.kron import panels
from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.steps import ModeRun
from batchkron.spec.kron import KronSpec

pytestmark = pytest.mark.gpu

SHAPES = [
    [(1, 1)],
    [(3, 3)],
    [(2, 5)],
    [(1, 4), (4, 1)],
    [(4, 1), (1, 4)],
    [(2, 2)] * 3,
    [(3, 4), (4, 3), (2, 5)],
    [(8, 8)] * 2,
    [(7, 7), (5, 5), (6, 6)],
    [(16, 16), (17, 17)],
    [(33, 13), (9, 31)],
    [(64, 64)],
    [(128, 128)],
    [(32, 32)] * 2,
    [(52, 50), (30, 20)],
    [(20, 24), (2, 3), (28, 20)],
    [(4, 100), (100, 4)],
    [(2, 3), (3, 2), (1, 2), (2, 1), (2, 2)],
    [(2, 2)] * 8,
    [(1, 1)] * 13 + [(3, 2)],
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("count", [None, 0, 1, 5, 64])
def test_gekmm_equals_dense(cupy, poisoned_on_device, rng, dtype, shapes, count):
    host, factors = factors_of(cupy, rng, shapes, dtype)
    rows, columns = sizes(shapes)
    tail = () if count is None else (count,)
    x = random_array(rng, (columns, *tail), dtype)
    out = poisoned_on_device((rows, *tail), dtype)
    assert bk.gekmm(factors, cupy.asarray(x), out=out) is out
    bound = rounding_bound(host, np.abs(x), left=True)
    assert (np.abs(out.get() - dense_kron(*host) @ x) <= bound).all()


@pytest.mark.parametrize("shapes", [[(32, 32)] * 3, [(64, 64)] * 3, [(20, 16)] * 4], ids=str)
def test_groups_of_large_factors_equal_the_cpu(cupy, poisoned_on_device, rng, dtype, shapes):
    host, factors = factors_of(cupy, rng, shapes, dtype)
    rows, columns = sizes(shapes)
    x = random_array(rng, (3, columns), dtype)
    y = random_array(rng, (3, rows), dtype)
    out = poisoned_on_device((3, rows), dtype)
    options = {"alpha": 2, "beta": -1, "transpose": True}
    bk.gemkm(cupy.asarray(x), factors, y=cupy.asarray(y), out=out, **options)
    expected = bk.gemkm(x, host, y=y, **options)
    scale = 1000 * np.finfo(expected.dtype).eps * np.abs(expected).max()
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=scale)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("count", [None, 0, 1, 5, 3000])
def test_gemkm_equals_dense(cupy, poisoned_on_device, rng, dtype, shapes, count):
    host, factors = factors_of(cupy, rng, shapes, dtype)
    rows, columns = sizes(shapes)
    head = () if count is None else (count,)
    x = random_array(rng, (*head, rows), dtype)
    out = poisoned_on_device((*head, columns), dtype)
    assert bk.gemkm(cupy.asarray(x), factors, out=out) is out
    bound = rounding_bound(host, np.abs(x), left=False)
    assert (np.abs(out.get() - x @ dense_kron(*host)) <= bound).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9, 16, 31, 33])
@pytest.mark.parametrize("inner", [1, 3, 31, 33])
def test_every_tile_edge(cupy, rng, size, inner):
    host, factors = factors_of(cupy, rng, [(2, 3), (size, size), (3, 2)], np.float64)
    x = random_array(rng, (700, 6 * size, inner), np.float64)
    bound = rounding_bound(host, np.abs(x), left=True)
    result = bk.gekmm(factors, cupy.asarray(x)).get()
    assert (np.abs(result - dense_kron(*host) @ x) <= bound).all()


@pytest.mark.parametrize(
    ("shapes", "count"),
    [([(8, 8)] * 5, 20), ([(8, 8)] * 6, 2), ([(3, 3)] * 7, 300), ([(128, 128)] * 2, 70)],
    ids=str,
)
def test_several_passes_equal_the_cpu(cupy, rng, dtype, shapes, count):
    host, factors = factors_of(cupy, rng, shapes, dtype)
    x = random_array(rng, (count, sizes(shapes)[0]), dtype)
    expected = bk.gemkm(x, host)
    result = bk.gemkm(cupy.asarray(x), factors).get()
    scale = np.abs(expected).max()
    eps = 1000 * np.finfo(dtype).eps
    np.testing.assert_allclose(result, expected, rtol=0, atol=eps * scale)


@pytest.mark.parametrize("shape", [(128, 128), (104, 100), (101, 103)], ids=str)
@pytest.mark.parametrize("inner", [1, 36, 70])
def test_factors_that_warps_share(cupy, poisoned_on_device, rng, shape, inner):
    """Each warp holds rows of the factor, maybe none; teams have several tiles, one in part."""
    multiprocessors = cupy.cuda.runtime.deviceGetAttribute(
        cupy.cuda.runtime.cudaDevAttrMultiProcessorCount, 0
    )
    host, factors = factors_of(cupy, rng, [shape], np.float64)
    count = 32 * 11 * multiprocessors // inner + 1
    for offset, transposed, beta in ((0, False, 0), (1, True, -1)):
        if transposed:
            factors = [cupy.asfortranarray(factor) for factor in factors]
        x = random_array(rng, (count, shape[1], inner), np.float64)
        y = random_array(rng, (count, shape[0], inner), np.float64)
        given = poisoned_on_device(x.size + offset, np.float64)[offset:].reshape(x.shape)
        given[...] = cupy.asarray(x)
        out = poisoned_on_device(y.size + offset, np.float64)[offset:].reshape(y.shape)
        with preferred("fibres"):
            bk.gekmm(factors, given, y=cupy.asarray(y), out=out, alpha=2, beta=beta)
        expected = 2 * (host[0] @ x) + beta * y
        scale = 1000 * np.finfo(np.float64).eps * np.abs(expected).max()
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=scale)


@pytest.mark.parametrize(
    "shapes",
    [[(200, 129)], [(131, 257), (3, 5)], [(4, 2), (40, 140), (33, 40)], [(64, 64), (256, 256)]],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 7, 130])
@pytest.mark.parametrize("inner", [1, 3, 64])
def test_factors_in_panels(cupy, poisoned_on_device, rng, dtype, shapes, count, inner):
    """Odd and even sizes, vectors that begin inside of a word, transposed factors, added to y."""
    host, factors = factors_of(cupy, rng, shapes, dtype)
    rows, columns = sizes(shapes)
    for offset, transposed in ((0, False), (1, True)):
        if transposed:
            factors = [cupy.asfortranarray(factor) for factor in factors]
        x = random_array(rng, (count, columns, inner), dtype)
        y = random_array(rng, (count, rows, inner), dtype)
        given = poisoned_on_device(x.size + offset, dtype)[offset:].reshape(x.shape)
        given[...] = cupy.asarray(x)
        out = poisoned_on_device(y.size + offset, dtype)[offset:].reshape(y.shape)
        options = {"alpha": 2, "beta": -1}
        with preferred("panels"):
            bk.gekmm(factors, given, y=cupy.asarray(y), out=out, **options)
        expected = bk.gekmm(host, x, y=y, **options)
        scale = 1000 * np.finfo(expected.dtype).eps * np.abs(expected).max()
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=scale)


@pytest.mark.parametrize("shape", [(200, 200), (140, 132)], ids=str)
@pytest.mark.parametrize("inner", [1, 4])
def test_panels_at_any_address(cupy, rng, dtype, shape, inner):
    """Factor, x or y begins one real number late: inside of a word, or of a complex number."""

    def shifted(values, parts):
        room = cupy.empty(2 * values.size + parts, values.real.dtype)
        count = values.size * (2 if values.dtype.kind == "c" else 1)
        view = room[parts : parts + count].view(values.dtype).reshape(values.shape)
        view[...] = cupy.asarray(values)
        return view

    factor = random_array(rng, shape, dtype)
    x = random_array(rng, (7, shape[1], inner), dtype)
    y = random_array(rng, (7, shape[0], inner), dtype)
    expected = bk.gekmm([factor], x, y=y, beta=2)
    scale = 1000 * np.finfo(expected.dtype).eps * np.abs(expected).max()
    for place in range(3):
        parts = [int(place == one) for one in range(3)]
        given = [shifted(one, by) for one, by in zip((factor, x, y), parts, strict=True)]
        with preferred("panels"):
            result = bk.gekmm([given[0]], given[1], y=given[2], beta=2).get()
        np.testing.assert_allclose(result, expected, rtol=0, atol=scale)


def test_fibres_whose_remainders_are_taken_apart(cupy, poisoned_on_device, rng):
    """The compiler has sent results of a warp's fourth group of fibres 16 GiB beyond y."""
    from batchkron.backends.cuda.kron.plan import prepared_call
    from batchkron.backends.cuda.runtime.device import current_device, device_limits, load_kernel

    device = current_device()
    sizes, fibres = ((25,), (25,), 4096, 11, np.dtype("f4")), FAMILY_OF["fibres"]
    run = ModeRun(0, *sizes, fixed_columns=True)
    kernel = fibres.kernel(run, fibres.variant_type((8, 11, 6, 1, 1, 0)), device_limits(device))
    factor, x = random_array(rng, (25, 25), "f4"), random_array(rng, (4096, 25, 11), "f4")
    given, out = cupy.asarray(x), poisoned_on_device(x.shape, "f4")

    def load(kernel):
        return load_kernel(kernel.program, device)

    factors = [cupy.asarray(factor)]
    prepared_call(KronSpec(*sizes), device, [kernel], factors, load)(given.data.ptr, out.data.ptr)
    expected = bk.gekmm([factor], x)
    np.testing.assert_allclose(out.get(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "count", "inner"),
    [((131, 137), 150, 1), ((140, 136), 150, 1), ((131, 137), 31, 5), ((140, 136), 9, 68)],
    ids=str,
)
def test_every_cut_of_panels(
    cupy, poisoned_on_device, rng, monkeypatch, dtype, shape, count, inner
):
    """The last tiles are full in part; entries are loaded one by one, or in whole words."""
    key = np.dtype(dtype), inner == 1
    factor = random_array(rng, shape, dtype)
    x = random_array(rng, (count, shape[1], inner), dtype)
    y = random_array(rng, (count, shape[0], inner), dtype)
    expected = bk.gekmm([factor], x, y=y, alpha=2, beta=-1)
    given = [cupy.asarray(one) for one in (factor, x, y)]
    scale = 1000 * np.finfo(expected.dtype).eps * np.abs(expected).max()
    for cut in panels._CUTS[key]:
        with monkeypatch.context() as patch:
            patch.setitem(panels._CUTS, key, (cut,))
            out = poisoned_on_device(y.size, dtype).reshape(y.shape)
            with preferred("panels"):
                bk.gekmm([given[0]], given[1], y=given[2], out=out, alpha=2, beta=-1)
        np.testing.assert_allclose(out.get(), expected, rtol=0, atol=scale, err_msg=str(cut))


@pytest.mark.parametrize("shape", [(2, 20_000), (20_000, 2), (3, 40_000)])
def test_factors_beyond_shared_memory(cupy, rng, shape):
    host, factors = factors_of(cupy, rng, [(2, 2), shape], np.float64)
    x = rng.standard_normal((2 * shape[1], 3))
    expected = bk.gekmm(host, x)
    scale = 1e-12 * np.abs(expected).max()
    result = bk.gekmm(factors, cupy.asarray(x)).get()
    np.testing.assert_allclose(result, expected, rtol=0, atol=scale)
    with preferred("general"):
        result = bk.gekmm(factors, cupy.asarray(x)).get()
    np.testing.assert_allclose(result, expected, rtol=0, atol=scale)


@pytest.mark.parametrize("alpha", [1, -2.5, 0])
@pytest.mark.parametrize("beta", [0, 1, -0.5])
def test_alpha_and_beta(cupy, rng, dtype, alpha, beta):
    host, factors = factors_of(cupy, rng, [(3, 4), (5, 2)], dtype)
    x, y = random_array(rng, (8, 6), dtype), random_array(rng, (15, 6), dtype)
    given, previous = cupy.asarray(x), cupy.asarray(y)
    result = bk.gekmm(factors, given, alpha=alpha, beta=beta, y=previous)
    expected = alpha * (dense_kron(*host) @ x) + beta * y
    bound = (abs(alpha) + 1) * rounding_bound(host, np.abs(x), left=True)
    bound = bound + 4 * np.finfo(dtype).eps * np.abs(beta * y)
    assert (np.abs(result.get() - expected) <= bound).all()
    np.testing.assert_array_equal(previous.get(), y)
    assert bk.gekmm(factors, given, alpha=alpha, beta=beta, y=previous, out=previous) is previous
    np.testing.assert_array_equal(previous.get(), result.get())


@pytest.mark.parametrize(
    "shapes",
    [[(4, 4)] * 3, [(13, 11)], [(8, 8)] * 4, [(33, 13), (9, 31)], [(50, 50)], [(64, 64)] * 2,
     [(100, 100)], [(124, 128)], [(131, 137)]],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(("count", "inner"), [(600, 1), (7, 40), (3, 77)])
@pytest.mark.parametrize("family", FAMILY_OF)
def test_results_are_added_in_place(cupy, rng, dtype, shapes, count, inner, family):
    """By every kernel family, from registers and from shared memory, also in tiles cut off."""
    host, factors = factors_of(cupy, rng, shapes, dtype)
    rows, columns = sizes(shapes)
    x = random_array(rng, (count, columns, inner), dtype)
    y = random_array(rng, (count, rows, inner), dtype)
    expected = bk.gekmm(host, x, y=y, alpha=-2, beta=0.5)
    scale = 1000 * np.finfo(expected.dtype).eps * np.abs(expected).max()
    for offset in (0, 1):
        target = cupy.empty(y.size + offset, dtype)[offset:].reshape(y.shape)
        target[...] = cupy.asarray(y)
        with preferred(family):
            bk.gekmm(factors, cupy.asarray(x), y=target, out=target, alpha=-2, beta=0.5)
        np.testing.assert_allclose(target.get(), expected, rtol=0, atol=scale)


def test_beta_zero_never_reads_y(cupy, poisoned_on_device, rng):
    _, factors = factors_of(cupy, rng, [(3, 3), (2, 2)], np.float64)
    y = poisoned_on_device((6, 2), np.float64)
    assert np.isfinite(
        bk.gekmm(factors, cupy.asarray(rng.standard_normal((6, 2))), y=y).get()
    ).all()


def test_strides_transposes_and_conjugates(cupy, rng, dtype):
    wide = [random_array(rng, (6, 8), dtype), random_array(rng, (9, 8), dtype)]
    x = random_array(rng, (40, 10), dtype)
    views = [lambda m: m[::2, ::-2], lambda m: m.T[::2, ::3]]
    host = [view(matrix) for view, matrix in zip(views, wide, strict=True)]
    factors = [view(cupy.asarray(matrix)) for view, matrix in zip(views, wide, strict=True)]
    given = cupy.asarray(x)
    used = [host[0].T, host[1].conj()]
    rows = x[:18:2, ::-2]
    expected = dense_kron(*used) @ rows
    bound = rounding_bound(used, np.abs(rows), left=True)
    result = bk.gekmm(factors, given[:18:2, ::-2], transpose=[True, False], conj=[False, True])
    assert (np.abs(result.get() - expected) <= bound).all()
    np.testing.assert_array_equal(given.get(), x)


def test_outputs_with_strides(cupy, rng):
    _, factors = factors_of(cupy, rng, [(3, 2), (2, 2)], np.float64)
    x = cupy.asarray(rng.standard_normal((4, 5)))
    expected = bk.gekmm(factors, x).get()
    wide = cupy.zeros((12, 10))
    bk.gekmm(factors, x, out=wide[::2, ::2])
    np.testing.assert_array_equal(wide.get()[::2, ::2], expected)
    assert not wide.get()[1::2].any()


@pytest.mark.parametrize("shapes", [[(0, 3)], [(3, 0)], [(2, 3), (0, 2)], [(2, 0), (3, 2)]])
def test_sizes_of_zero(cupy, poisoned_on_device, rng, shapes):
    _, factors = factors_of(cupy, rng, shapes, np.float64)
    rows, columns = sizes(shapes)
    x = cupy.asarray(rng.standard_normal((columns, 4)))
    out = poisoned_on_device((rows, 4), np.float64)
    assert not bk.gekmm(factors, x, out=out).get().any()
    y = cupy.ones((rows, 4))
    np.testing.assert_array_equal(bk.gekmm(factors, x, beta=2, y=y).get(), 2 * np.ones((rows, 4)))


def test_factors_with_leading_axes(cupy, rng, dtype):
    host, factors = factors_of(cupy, rng, [(4, 3, 2), (1, 2, 5)], dtype)
    x = random_array(rng, (4, 10, 7), dtype)
    expected = bk.gekmm(host, x)
    result = bk.gekmm(factors, cupy.asarray(x)).get()
    np.testing.assert_allclose(result, expected, rtol=0, atol=100 * np.finfo(dtype).eps)


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 5), (8, 8, 8), (17, 2, 33)])
def test_batched_gemm_equals_the_reference(cupy, rng, dtype, shape, transpose_b):
    m, k, n = shape
    a = random_array(rng, (4, m, k), dtype)
    b = random_array(rng, (5, n, k) if transpose_b else (5, k, n), dtype)
    c = random_array(rng, (3, m, n), dtype)
    ids = {
        "a_ids": rng.integers(0, 4, 11),
        "b_ids": rng.integers(0, 5, 11),
        "c_ids": rng.integers(0, 3, 11),
    }
    options = {"alpha": 1.5, "beta": -2, "transpose_b": transpose_b, **ids}
    with bk.backends.using("reference"):
        expected = bk.batched_gemm(a, b, c, **options)
    device = [cupy.asarray(array) for array in (a, b, c)]
    result = bk.batched_gemm(*device, **options).get()
    np.testing.assert_allclose(result, expected, rtol=0, atol=200 * k * np.finfo(dtype).eps)
    np.testing.assert_array_equal(device[2].get(), c)


def test_mixed_dtypes_promote(cupy, rng):
    factors = [cupy.asarray(rng.standard_normal((2, 2)).astype("f4")), cupy.ones((2, 2), "i8")]
    result = bk.gekmm(factors, cupy.asarray(rng.standard_normal(4) + 1j).astype("c8"))
    assert result.dtype == "complex128"
    assert bk.gekmm(factors[:1], cupy.ones(2, "f4"), alpha=1j).dtype == "complex64"


def test_arrays_in_two_places_are_refused(cupy, rng):
    factors = [cupy.asarray(rng.standard_normal((2, 2)))]
    with pytest.raises(TypeError, match="x is an array on the CPU, but the other operands"):
        bk.gekmm(factors, np.ones(2))
    with pytest.raises(TypeError, match=r"factors\[0\] is an array on the CPU"):
        bk.gekmm([np.ones((2, 2))], cupy.ones(2))
    with pytest.raises(TypeError, match="out is a ndarray; expected a CuPy array"):
        bk.gekmm(factors, cupy.ones(2), out=np.ones(2))
    x = cupy.ones(2)
    with pytest.raises(ValueError, match="out overlaps an input"):
        bk.gekmm(factors, x, out=x)


@pytest.mark.parametrize("size", [0, 1, 255, 1025, 3_000_000])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 20])
def test_linear_combinations_have_the_bits_of_the_cpu(cupy, poisoned_on_device, rng, size, count):
    for dtype in "fdFD" if size < 10**6 else "d":
        factors = rng.standard_normal(count).tolist()
        host = [random_array(rng, size, np.dtype(dtype)) for _ in range(count)]
        expected = bk.linear_combination(factors, host, np.empty_like(host[0]))
        vectors = [cupy.asarray(vector) for vector in host]
        out = poisoned_on_device(size, np.dtype(dtype))
        assert bk.linear_combination(factors, vectors, out) is out
        np.testing.assert_array_equal(out.get(), expected)
        first, last = 0, count - 1  # sums of more than 8 vectors begin with the one that is out
        bk.linear_combination(factors, vectors, vectors[first])
        np.testing.assert_array_equal(vectors[first].get(), expected)
        vectors[first].set(host[first])
        bk.linear_combination(factors, vectors, vectors[last])
        magnitude = sum(abs(a) * abs(vector) for a, vector in zip(factors, host, strict=True))
        error = abs(vectors[last].get() - expected)
        assert (error <= 2 * count * np.finfo(dtype).eps * magnitude).all()


def test_linear_combinations_of_strided_and_overlapping_vectors(cupy, rng):
    host = rng.standard_normal((3, 40))
    rows = cupy.asarray(host)
    result = bk.linear_combination([1.0, 2.0, -3.0], list(rows[:, ::2]), cupy.empty(20))
    np.testing.assert_allclose(result.get(), [1.0, 2.0, -3.0] @ host[:, ::2], rtol=1e-13)
    with pytest.raises(ValueError, match=r"out overlaps vectors\[1\] in memory"):
        bk.linear_combination([1.0, 1.0], [rows[1, :20], rows[0, 1:21]], rows[0, :20])
    np.testing.assert_array_equal(rows.get(), host)
