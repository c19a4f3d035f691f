"""The error bounds of less precise float32, held by an emulation of the matrix units."""

import numpy as np
import pytest
from dense_oracle import random_array
from nvrtc import DEVICES
from plans import plan_of, seconds_of
from tf32_oracle import T, mode_bound, nearest, tf32_multiply

from batchkron.backends.cuda.kron.fibres.passes import PRODUCTS, _tf32

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
        plan = plan_of([(size, size)] * 2, 1024, 1, "f4", limits, precision)
        assert {kernel.family.name for kernel in plan} == {"fibres"}
        on_units = PRODUCTS[precision]
        wanted = {on_units}
        if size == 128 and precision == "tf32x3":  # as fast with factors in registers, by estimate
            wanted = {0, on_units}
        products = {one.share.products for kernel in plan for one in kernel.tile.passes}
        assert products <= wanted
        full = plan_of([(size, size)] * 2, 1024, 1, "f4", limits)
        assert seconds_of(plan) <= seconds_of(full)
        fibres, run = plan[0].family, plan[0].work
        ways = [fibres.kernel(run, one, limits) for one in fibres.variants(run, limits)]
        assert on_units in {one.share.products for way in ways for one in way.tile.passes}


def test_nothing_else_does():
    for dtype, precision in (("f8", "tf32x3"), ("f4", None)):
        sizes = [(64, 64)] * 2, 1024, 1, dtype, DEVICES["90"], precision
        plan = plan_of(*sizes, families=("fibres",))
        assert plan
        assert all(one.share.products == 0 for kernel in plan for one in kernel.tile.passes)


def test_sums_that_do_not_fit_in_registers_are_shared_or_refused():
    assert _tf32(128, 128, 128, 8, 255, 1, False, 3).split > 1
    assert _tf32(128, 3000, 128, 8, 255, 1, False, 3) is None
