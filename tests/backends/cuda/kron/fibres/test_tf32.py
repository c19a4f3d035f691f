"""The error bounds of less precise float32, held by an emulation; the option off the device."""

import pickle

import numpy as np
import pytest
from dense_oracle import random_array
from nvrtc import DEVICES
from tf32_oracle import T, mode_bound, nearest, tf32_multiply

import batchkron as bk
from batchkron.backends.cuda.kron.fibres.choose import fibre_groups
from batchkron.backends.cuda.kron.fibres.tf32 import tf32_cut

SIZES = [(16, 16), (64, 64), (33, 17), (128, 8), (5, 100)]


def worst(rng, shape):
    """Positive numbers whose rounding to 11 bits is as wrong as can be, and whose rest is odd."""
    bits = np.uint32(0x3F800FFF) | rng.integers(0, 4, shape, np.uint32) << np.uint32(13)
    return bits.view(np.float32)


def spread(rng, shape):
    return random_array(rng, shape, "float32") * np.exp2(rng.integers(-20, 20, shape)).astype("f4")


def normal(rng, shape):
    return random_array(rng, shape, "float32")


def relative_errors(rng, make, C, K, products):
    """Errors over the sums of magnitudes, (fibres, K)."""
    x, factor = make(rng, (50, C)), make(rng, (C, K))
    exact, magnitudes = x.astype(float) @ factor, np.abs(x).astype(float) @ np.abs(factor)
    return np.abs(tf32_multiply(x, factor, products) - exact) / magnitudes


@pytest.mark.parametrize("make", [normal, spread, worst])
@pytest.mark.parametrize(("C", "K"), SIZES)
def test_bounds_hold(rng, make, C, K):
    for precision, products in (("tf32", 1), ("tf32x3", 3)):
        errors = relative_errors(rng, make, C, K, products)
        assert errors.max() <= mode_bound(precision, C), precision


@pytest.mark.parametrize(("C", "K"), SIZES)
def test_each_product_of_parts_is_needed(rng, C, K):
    for products in (1, 2):
        assert relative_errors(rng, worst, C, K, products).max() > mode_bound("tf32x3", C)


def test_three_products_are_at_the_level_of_float32(rng):
    x, factor = normal(rng, (200, 64)), normal(rng, (64, 64))
    exact = x.astype(float) @ factor
    sums = np.zeros_like(exact, np.float32)
    for c in range(64):
        sums = sums + x[:, c, None] * factor[c]
    usual = np.sqrt(np.mean((sums - exact) ** 2))
    three, one = (np.sqrt(np.mean((tf32_multiply(x, factor, p) - exact) ** 2)) for p in (3, 1))
    assert three < 4 * usual
    assert one > 100 * usual


def test_rounding_is_to_the_nearest(rng):
    x = spread(rng, 1000)
    assert (np.abs(nearest(x) - x.astype(float)) <= T * np.abs(x)).all()
    assert (nearest(x).view(np.uint32) & 0x1FFF == 0).all()


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
@pytest.mark.parametrize("size", [32, 64, 128])
def test_large_factors_go_to_matrix_units(size, precision):
    for limits in DEVICES.values():
        sizes = (size,) * 2
        groups = fibre_groups(sizes, sizes, 1024, 1, np.dtype("f4"), limits, precision)
        products = {one.products for group in groups for one in group.tile.passes}
        assert products == {1 if precision == "tf32" else 3}


def test_nothing_else_does():
    limits, sizes = DEVICES["90"], (64,) * 2
    for dtype, precision in (("f8", "tf32x3"), ("f4", None)):
        groups = fibre_groups(sizes, sizes, 1024, 1, np.dtype(dtype), limits, precision)
        assert all(one.products == 0 for group in groups for one in group.tile.passes)


def test_sums_that_do_not_fit_in_registers_are_shared_or_refused():
    assert tf32_cut(128, 128, 128, 8, 255, 3).sharers > 1
    assert tf32_cut(128, 3000, 128, 8, 255, 3) is None


PRECISIONS = [None, "tf32", "tf32x3"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_cpu_computes_in_full(rng, dtype, precision):
    factors = [random_array(rng, (5, 4), dtype), random_array(rng, (3, 33), dtype)]
    x = random_array(rng, (7, 132), dtype)
    expected = bk.KroneckerProduct(factors).apply(x)
    op = bk.KroneckerProduct(factors, precision=precision)
    np.testing.assert_array_equal(op.apply(x), expected)
    left, right = bk.gekmm(factors, x.T), bk.gemkm(expected, factors)
    np.testing.assert_array_equal(bk.gekmm(factors, x.T, precision=precision), left)
    np.testing.assert_array_equal(bk.gemkm(expected, factors, precision=precision), right)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_relatives_of_an_operator_keep_it(rng, precision):
    op = bk.KroneckerProduct([random_array(rng, (3, 4), "complex64")], precision=precision)
    relatives = [op.T, op.H, op.astype("complex128"), pickle.loads(pickle.dumps(op)), op.to("cpu")]
    relatives += [(2 * op).operator, (op.H @ op).args[1], (op + op).args[0]]
    assert [relative.precision for relative in relatives] == [precision] * len(relatives)
    assert (f"float32 on a GPU as {precision}" in op.describe()) == (precision is not None)


@pytest.mark.parametrize("precision", ["TF32", "float32", "", 3])
def test_other_precisions_are_refused(precision):
    factors = [np.eye(2)]
    text = 'expected None \\(full float32\\), "tf32x3" or "tf32"'
    for call in (
        lambda: bk.KroneckerProduct(factors, precision=precision),
        lambda: bk.gekmm(factors, np.ones(2), precision=precision),
        lambda: bk.gemkm(np.ones(2), factors, precision=precision),
    ):
        with pytest.raises(ValueError, match=text):
            call()
