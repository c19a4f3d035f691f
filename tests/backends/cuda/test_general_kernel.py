"""How the general kernel's work is cut: every plan must fit the device and cover the work."""

import math

import numpy as np
import pytest
from device_strategies import dtypes, limits
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import check_runs, plan_of, product, seconds_of

from batchkron.backends.cuda.batch.general import batch_tiling
from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import MAX_FIXED_MODES, k_tile, plan_order, plan_steps

shapes = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6)


def check_tiling(tiling, device):
    assert tiling.shared_bytes <= device.shared_bytes
    assert tiling.width & (tiling.width - 1) == 0
    assert tiling.block % tiling.threads == 0
    assert 32 <= tiling.block <= 512
    assert tiling.threads % tiling.width == 0
    if tiling.in_shared:
        stride = tiling.width + bool(tiling.row_length)
        buffers = tiling.buffers * tiling.buffer_elements
        assert tiling.group_elements >= tiling.staged_elements + buffers
        assert tiling.buffer_elements >= max(tiling.input_size, tiling.output_size) * stride
    else:
        assert tiling.groups == 1
        assert tiling.workspace_bytes > 0
    assert (tiling.group_elements * tiling.itemsize) % 16 == 0


@settings(max_examples=300, deadline=None)
@given(shapes, st.integers(1, 5000), st.integers(1, 70), dtypes, limits)
def test_passes_of_a_kron_matmul(factors, outer, inner, dtype, device):
    plan = plan_of(factors, outer, inner, dtype, device, families=("general",))
    check_runs(plan, product(factors, outer, inner, dtype))
    for kernel in plan:
        tiling, run = kernel.tile, kernel.work
        check_tiling(tiling, device)
        assert sorted(step.mode for step in tiling.steps) == sorted(kernel.modes)
        assert len(kernel.modes) <= MAX_FIXED_MODES
        assert tiling.input_size == math.prod(run.inputs)
        assert tiling.output_size == math.prod(run.outputs)
        if tiling.row_length:
            assert tiling.row_length == run.R < tiling.width
        else:
            assert tiling.width <= run.R or tiling.width == 1 or not tiling.in_shared
        arguments = kernel.arguments
        assert (arguments["columns"], arguments["R"]) == (run.L * run.R, run.R)


@settings(max_examples=300, deadline=None)
@given(shapes, st.integers(1, 200), st.sampled_from([2, 3]), dtypes, limits)
def test_products_of_a_batch(factors, inner, buffers, dtype, device):
    outputs, inputs = ([shape[axis] for shape in factors] for axis in (0, 1))
    steps = plan_steps(inputs, outputs, plan_order(inputs, outputs), dtype)
    tiling = batch_tiling(steps, inner, buffers, dtype.itemsize, device)
    check_tiling(tiling, device)
    assert tiling.width <= max(1, inner)
    assert tiling.max_blocks(device) >= 1


@pytest.mark.parametrize(
    ("outputs", "real", "complex_"),
    [(1, 1, 1), (3, 3, 3), (4, 4, 4), (7, 7, 4), (8, 8, 4), (13, 7, 4), (16, 8, 4), (25, 5, 4)],
)
def test_threads_compute_tiles_that_need_fewest_loads(outputs, real, complex_):
    assert k_tile(outputs, np.dtype("f8")) == real
    assert k_tile(outputs, np.dtype("c16")) == complex_


def test_equal_factors_begin_at_the_last_mode():
    assert plan_order([3, 3, 3], [3, 3, 3]) == [2, 1, 0]
    assert plan_order([8, 128], [32, 64]) == [1, 0]
    assert plan_order([0, 2], [2, 0]) == [1, 0]


def test_a_row_that_fits_may_be_one_pass():
    device = DeviceLimits(227 << 10, 132)
    for size, modes in ((8, 3), (3, 7), (2, 9)):
        sizes = [(size, size)] * modes, 1024, 1, "f8"
        one = FAMILY_OF["general"].fastest(product(*sizes), device)
        assert one.tile.in_shared
        plan = plan_of(*sizes, device, families=("general",))
        assert len(plan) == 1 or seconds_of(plan) < one.seconds
