"""How Kronecker sums of many small systems are cut for a device."""

import math

import numpy as np
import pytest
from nvrtc import DEVICES

from batchkron.backends.cuda.choose import kernel_of
from batchkron.backends.cuda.kernel_family import without
from batchkron.backends.cuda.kron_sum.systems import sum_tiling


@pytest.mark.parametrize("limits", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("itemsize", [4, 8, 16])
@pytest.mark.parametrize(
    "sizes", [(8, 8, 8), (4, 8), (5, 7), (33,), (16, 16, 16), (50, 50), (32, 32), (2,) * 12]
)
def test_a_tiling_covers_a_vector_and_fits(sizes, itemsize, limits):
    tiling = sum_tiling(sizes, itemsize, limits)
    assert tiling.threads % 32 == 0
    assert tiling.threads <= 512
    assert tiling.held <= 16
    assert (tiling.held - 1) * tiling.threads < math.prod(sizes) <= tiling.held * tiling.threads
    assert tiling.elements * itemsize <= limits.shared_bytes


def test_fibres_of_the_first_mode_are_a_threads():
    tiling = sum_tiling((8, 8, 8), 8, DEVICES["90"])
    assert (tiling.threads, tiling.held) == (64, 8)


@pytest.mark.parametrize("sizes", [(2, 3), (31,), (100, 100), (200,), (2,) * 13])
def test_what_does_not_fit_is_left_to_lists(sizes):
    assert sum_tiling(sizes, 8, DEVICES["90"]) is None


def test_systems_have_the_kernel_of_their_sizes():
    shape = ((8, 8, 8), np.dtype("f8"), 30)
    kernel = kernel_of("kron_sum", shape, DEVICES["90"])
    assert kernel.variant == sum_tiling((8, 8, 8), 8, DEVICES["90"])
    how = kernel.launch
    assert (how.blocks, how.threads) == (30, 64)
    assert how.shared_bytes == 8 * kernel.variant.elements
    with without("kron_sum.systems"):
        assert kernel_of("kron_sum", shape, DEVICES["90"]) is None
    for none in (((8, 8, 8), np.dtype("f8"), 0), ((2, 3), np.dtype("f8"), 30)):
        assert kernel_of("kron_sum", none, DEVICES["90"]) is None
