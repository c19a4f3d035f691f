"""Float32 on matrix units: TF32, and three products of its parts, within the bounds of the docs."""

import numpy as np
import pytest
from dense_oracle import random_array
from plans import preferred
from tf32_oracle import U, tf32_bound

import batchkron as bk
from batchkron.backends.cuda.kron.fibres import family as fibres
from batchkron.backends.cuda.kron.fibres import layout, passes
from batchkron.backends.reference import multiply_modes

pytestmark = pytest.mark.gpu

PRECISIONS = ["tf32x3", "tf32"]
SHAPES = [
    [(16, 16)],
    [(17, 23)],
    [(32, 32)] * 2,
    [(33, 47)],
    [(64, 64)],
    [(64, 64)] * 2,
    [(96, 96)],
    [(128, 128)],
    [(128, 128), (64, 32)],
    [(100, 1)],
    [(1, 100)],
    [(130, 7)],
    [(7, 130)],
    [(33, 40), (3, 2)],
    [(3, 2), (33, 40)],
    [(20, 24), (2, 3), (28, 20)],
    [(52, 65), (50, 20)],
    [(32, 8), (64, 128)],
    [(40, 33), (5, 4), (4, 5), (2, 3)],
]


@pytest.fixture
def on_units(cupy, monkeypatch):
    """Fibres on matrix units, also where other kernels are faster."""
    ways = fibres._ways

    def on_units(run):
        return ways(run)[:1]

    monkeypatch.setattr(fibres, "_ways", on_units)
    with preferred("fibres"):
        yield


@pytest.fixture(params=["on units", "the fastest"])
def kernels(request):
    """Kernels on matrix units, and those that are chosen by their estimated times."""
    if request.param == "on units":
        request.getfixturevalue("on_units")


def exact(factors, x):
    return multiply_modes([factor.astype(float) for factor in factors], x.astype(float))


def compare(result, factors, x, precision, bound=None):
    """``x`` is (outer, N, inner), and so is the product that ``result`` is compared with."""
    expected = exact(factors, x)
    bound = tf32_bound(precision, factors, np.abs(x)) if bound is None else bound
    errors = np.abs(result.reshape(expected.shape) - expected)
    assert (errors <= bound).all(), f"{(errors / bound).max():.3g} of the bound"


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("rows", [1, 37, 1000])
def test_rows(cupy, kernels, poisoned_on_device, rng, shapes, rows, precision):
    factors = [random_array(rng, shape, "float32") for shape in shapes]
    op = bk.KroneckerProduct(factors, precision=precision).to("cuda")
    x = random_array(rng, (rows, op.shape[1]), "float32")
    out = poisoned_on_device((rows, op.shape[0]), "float32")
    compare(op.apply(cupy.asarray(x), out=out).get(), factors, x[:, :, None], precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("columns", [1, 5, 32, 300])
def test_columns(cupy, kernels, poisoned_on_device, rng, shapes, columns, precision):
    factors = [random_array(rng, shape, "float32") for shape in shapes]
    on_device = [cupy.asarray(factor) for factor in factors]
    N, M = (int(np.prod([shape[axis] for shape in shapes])) for axis in (1, 0))
    x = random_array(rng, (N, columns), "float32")
    out = poisoned_on_device((M, columns), "float32")
    bk.gekmm(on_device, cupy.asarray(x), out=out, precision=precision)
    compare(out.get(), factors, x[None], precision)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shapes", [[(64, 64)] * 2, [(33, 40), (3, 2)]], ids=str)
def test_alpha_beta_and_transposes(cupy, kernels, poisoned_on_device, rng, shapes, precision):
    factors = [random_array(rng, shape, "float32") for shape in shapes]
    N, M = (int(np.prod([shape[axis] for shape in shapes])) for axis in (1, 0))
    x, y = random_array(rng, (9, N), "float32"), random_array(rng, (9, M), "float32")
    transposed = [cupy.asarray(factor.T.copy()) for factor in factors]
    out = poisoned_on_device((9, M), "float32")
    bk.gemkm(
        cupy.asarray(x), transposed, alpha=2, beta=-3, y=cupy.asarray(y), out=out,
        precision=precision,
    )  # fmt: skip
    expected = 2 * exact(factors, x[:, :, None])[:, :, 0] - 3 * y
    bound = 2 * tf32_bound(precision, factors, np.abs(x)[:, :, None])[:, :, 0]
    assert (np.abs(out.get() - expected) <= bound + 8 * U * np.abs(y)).all()
    op = bk.KroneckerProduct(factors, precision=precision).to("cuda")
    back = [factor.T for factor in factors]
    assert op.T.precision == op.H.precision == precision
    compare(op.T.apply(cupy.asarray(y)).get(), back, y[:, :, None], precision)
    compare(op.rmatvec(cupy.asarray(y[0])).get(), back, y[:1, :, None], precision)


@pytest.mark.parametrize("size", [32, 64, 128])
def test_three_products_are_far_more_precise_than_one(cupy, on_units, rng, size):
    factors = [random_array(rng, (size, size), "float32")]
    x = random_array(rng, (500, size), "float32")
    errors = {}
    for precision in (None, *PRECISIONS):
        result = bk.KroneckerProduct(factors, precision=precision).to("cuda").apply(cupy.asarray(x))
        difference = result.get() - exact(factors, x[:, :, None])[:, :, 0]
        errors[precision] = np.sqrt(np.mean(difference**2))
    assert errors["tf32"] > 100 * errors[None], "matrix units were not used"
    assert errors["tf32"] > 30 * errors["tf32x3"]


@pytest.fixture
def only(on_units, monkeypatch):
    """Makes passes use matrix units: ``blocks`` of 16 fibres a warp, ``sharers`` warps a fibre."""
    caches = [fibres._ranked, fibres._first, passes.shares_of, passes._tf32, layout._layouts]

    def clear():
        for cached in caches:
            cached.cache_clear()

    def choose(blocks, sharers):
        monkeypatch.setattr(passes, "_single", lambda *sizes: ())
        monkeypatch.setattr(passes, "_BLOCKS", (blocks,))
        monkeypatch.setattr(passes, "_SHARERS", (sharers,))
        clear()

    yield choose
    clear()


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("sharers", [1, 2, 4, 8])
@pytest.mark.parametrize("shapes", [[(64, 64)], [(100, 37)], [(65, 40), (70, 3)]], ids=str)
def test_every_way_to_share_a_tile(cupy, poisoned_on_device, rng, only, shapes, blocks, sharers):
    factors = [random_array(rng, shape, "float32") for shape in shapes]
    x = random_array(rng, (133, int(np.prod([q for _, q in shapes]))), "float32")
    only(blocks, sharers)
    op = bk.KroneckerProduct(factors, precision="tf32x3").to("cuda")
    out = poisoned_on_device((133, op.shape[0]), "float32")
    op.apply(cupy.asarray(x), out=out)
    compare(out.get(), factors, x[:, :, None], "tf32x3")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("place", ["vectors", "factor"])
@pytest.mark.parametrize("exactly", [False, True], ids=["random", "whole numbers"])
def test_infinities_and_nan_are_where_float32_has_them(
    cupy, kernels, rng, precision, place, exactly
):
    factors = [random_array(rng, (64, 64), "float32"), random_array(rng, (32, 32), "float32")]
    x = random_array(rng, (40, 64 * 32), "float32")
    if place == "factor":  # an infinity's sign is certain where it multiplies no rounded zero
        factors[1], x = abs(factors[1]), abs(x)
    if exactly:  # with zeros, and no low parts
        factors, x = [np.round(factor) for factor in factors], np.round(x)
    target = x if place == "vectors" else factors[0]  # the last one that is applied
    for row, value in ((3, np.inf), (7, -np.inf), (11, np.nan), (15, np.inf)):
        target[row, row + 5] = value
    target[15, 2] = -np.inf
    result = bk.KroneckerProduct(factors, precision=precision).to("cuda").apply(cupy.asarray(x))
    usual = bk.KroneckerProduct(factors).to("cuda").apply(cupy.asarray(x)).get()
    result = result.get()
    np.testing.assert_array_equal(np.isnan(result), np.isnan(usual))
    np.testing.assert_array_equal(result[np.isinf(usual)], usual[np.isinf(usual)])
    assert np.isinf(usual).any()
    assert np.isfinite(usual).any()
    assert (np.isfinite(result) == np.isfinite(usual)).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_other_dtypes_are_computed_in_full(cupy, rng, dtype, precision):
    if dtype == np.float32:
        return
    factors = [random_array(rng, (64, 64), dtype), random_array(rng, (32, 20), dtype)]
    x = cupy.asarray(random_array(rng, (40, 64 * 20), dtype))
    results = [
        bk.KroneckerProduct(factors, precision=given).to("cuda").apply(x).get()
        for given in (None, precision)
    ]
    np.testing.assert_array_equal(*results)
