"""How work is cut for a device: every plan must fit the device and cover the work."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchkron.backends.cuda.batch.matrix_units import unit_tiling
from batchkron.backends.cuda.batch.registers import LARGEST_SHORT_ID, register_tiling
from batchkron.backends.cuda.batch.slices import slice_tiling
from batchkron.backends.cuda.batch.unit_slices import unit_slice_tiling
from batchkron.backends.cuda.general_kernel import batch_tiling, kron_groups
from batchkron.backends.cuda.runtime.hardware import DeviceLimits
from batchkron.backends.cuda.steps import MOST_FIXED_MODES, k_tile, plan_order, plan_steps

shapes = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=6)
dtypes = st.sampled_from([np.dtype(code) for code in "fdFD"])
limits = st.builds(
    DeviceLimits,
    shared_bytes=st.sampled_from([1 << 10, 48 << 10, 163 << 10, 227 << 10]),
    multiprocessors=st.sampled_from([1, 16, 132]),
)


def check_tiling(tiling, device):
    assert tiling.shared_bytes <= device.shared_bytes
    assert tiling.width & (tiling.width - 1) == 0
    assert tiling.block % tiling.threads == 0
    assert 32 <= tiling.block <= 512
    assert tiling.threads % tiling.width == 0
    if tiling.in_shared:
        stride = tiling.width + bool(tiling.row_length)
        buffers = tiling.buffers * tiling.buffer_elements
        assert tiling.team_elements >= tiling.staged_elements + buffers
        assert tiling.buffer_elements >= max(tiling.input_size, tiling.output_size) * stride
    else:
        assert tiling.teams == 1
        assert tiling.workspace_bytes > 0
    assert (tiling.team_elements * tiling.itemsize) % 16 == 0


@settings(max_examples=300, deadline=None)
@given(shapes, st.integers(1, 5000), st.integers(1, 70), dtypes, limits)
def test_passes_of_a_kron_matmul(factors, outer, inner, dtype, device):
    outputs, inputs = ([shape[axis] for shape in factors] for axis in (0, 1))
    groups = kron_groups(inputs, outputs, outer, inner, dtype, device)
    sizes = list(inputs)
    for group in groups:
        tiling = group.tiling
        check_tiling(tiling, device)
        modes = sorted(step.mode for step in tiling.steps)
        assert modes == list(range(modes[0], modes[-1] + 1))
        assert len(modes) <= MOST_FIXED_MODES
        before, after = sizes[: modes[0]], sizes[modes[-1] + 1 :]
        assert math.prod(after) * inner == group.R
        assert math.prod(before) * outer * group.R == group.columns
        assert tiling.input_size == math.prod(sizes[modes[0] : modes[-1] + 1])
        if tiling.row_length:
            assert tiling.row_length == group.R < tiling.width
        else:
            assert tiling.width <= group.R or tiling.width == 1 or not tiling.in_shared
        for mode in modes:
            sizes[mode] = outputs[mode]
        assert tiling.output_size == math.prod(sizes[modes[0] : modes[-1] + 1])
    assert sizes == list(outputs)


@settings(max_examples=300, deadline=None)
@given(shapes, st.integers(1, 200), st.sampled_from([2, 3]), dtypes, limits)
def test_products_of_a_batch(factors, inner, buffers, dtype, device):
    outputs, inputs = ([shape[axis] for shape in factors] for axis in (0, 1))
    steps = plan_steps(inputs, outputs, plan_order(inputs, outputs), dtype)
    tiling = batch_tiling(steps, inner, buffers, dtype.itemsize, device)
    check_tiling(tiling, device)
    assert tiling.width <= max(1, inner)
    assert tiling.most_blocks(device) >= 1


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


def test_one_pass_where_a_row_fits():
    device = DeviceLimits(227 << 10, 132)
    for size, modes in ((8, 3), (3, 7), (2, 9)):
        groups = kron_groups((size,) * modes, (size,) * modes, 1024, 1, np.dtype("f8"), device)
        assert len(groups) == 1


small_shapes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=13)


def test_products_of_up_to_32_rows_go_through_registers():
    device = DeviceLimits(227 << 10, 132)
    for size, modes in ((12, 3), (16, 2), (32, 2), (33, 2)):
        steps = plan_steps((size,) * modes, (size,) * modes, list(range(modes)), np.dtype("f4"))
        tiling = register_tiling(steps, 4, 1000, 64000, True, False, device)
        assert (tiling is None) == (size > 32)
        if tiling is not None:
            check_passes(tiling, (size,) * modes, (size,) * modes)


@settings(max_examples=300, deadline=None)
@given(small_shapes, dtypes, st.integers(1, 5000), st.integers(1, 100), limits)
def test_products_in_registers(factors, dtype, outputs, mean, device):
    sizes = [[shape[axis] for shape in factors] for axis in (1, 0)]
    steps = plan_steps(*sizes, plan_order(*sizes), dtype)
    tiling = register_tiling(steps, dtype.itemsize, outputs, outputs * mean, True, False, device)
    if tiling is None:
        return
    assert tiling.shared_bytes <= device.shared_bytes
    assert tiling.block % tiling.group == 0
    assert tiling.group >= tiling.products * tiling.team
    assert 1 <= tiling.crew <= mean
    assert tiling.outputs >= 1
    assert tiling.pitch % 16 == 0
    check_passes(tiling, *sizes)


def check_passes(tiling, inputs, outputs):
    """Every pass must read what the one before has written, and nothing twice."""
    assert sorted(mode.step for one in tiling.passes for mode in one.held) == list(
        range(len(inputs))
    )
    places = {e + e // tiling.run * tiling.gap for e in range(math.prod(inputs))}
    for one in tiling.passes:
        assert offsets(one, "C", "source") == places
        places = offsets(one, "K", "target")
        assert len(places) == math.prod(mode.K for mode in one.held) * one.items
        assert max(places) < max(tiling.area, tiling.exchange)
        if len(tiling.passes) > 1 and not tiling.exchange:
            assert all((m.C, m.source) == (m.K, m.target) for m in one.held) or (
                one is tiling.passes[-1]
            )
    assert places == set(range(math.prod(outputs)))


def offsets(one, size, stride):
    axes = [(getattr(mode, size), getattr(mode, stride)) for mode in one.held]
    axes += [(mode.size, getattr(mode, stride)) for mode in one.spread]
    places = {0}
    for count, step in axes:
        places = {place + i * step for place in places for i in range(count)}
    return places


@pytest.mark.parametrize(("outputs", "clusters", "blocks"), [(5, 8, 8), (5, 1, 1), (500, 8, 1)])
def test_few_outputs_are_shared_by_clusters(outputs, clusters, blocks):
    steps = plan_steps((3,) * 6, (3,) * 6, range(5, -1, -1), np.dtype("f8"))
    device = DeviceLimits(227 << 10, 132, clusters)
    tiling = register_tiling(steps, 8, outputs, 64 * outputs, True, False, device)
    assert tiling.cluster == blocks
    assert tiling.cluster * tiling.crew <= 64


@settings(max_examples=300, deadline=None)
@given(small_shapes, dtypes, st.integers(1, 500), st.integers(1, 100), st.integers(1, 8), limits)
def test_products_in_slices(factors, dtype, outputs, mean, skew, device):
    sizes = [[shape[axis] for shape in factors] for axis in (1, 0)]
    steps = plan_steps(*sizes, plan_order(*sizes), dtype)
    products, most = outputs * mean, min(skew * mean, outputs * mean)
    tiling = slice_tiling(steps, dtype.itemsize, outputs, products, most, True, False, device)
    if tiling is None:
        return
    threads = [steps[s].mode for s in (tiling.split, *tiling.exchanged)]
    held = [steps[mode.step].mode for mode in tiling.held]
    before = len(held) - tiling.behind
    assert [*held[:before], *threads, *held[before:]] == list(range(len(factors)))
    behind = [factors[mode] for mode in held[before:]]
    assert tiling.run_sizes == (math.prod(q for _, q in behind), math.prod(p for p, _ in behind))
    assert tiling.team <= 32
    assert tiling.team * tiling.slice_sizes[0] == math.prod(sizes[0])
    assert steps[tiling.split].K * tiling.parts * tiling.slice_sizes[1] == math.prod(sizes[1])
    assert tiling.block <= 256
    assert tiling.shared_bytes <= 48 << 10
    assert 32 // tiling.team * (tiling.warps - 1) < most
    assert tiling.slots in (0, most)
    assert tiling.slots * outputs <= 4 * products


def test_sums_in_slices_fit_in_shared_memory():
    outputs, inputs = zip((96, 1), *[(2, 2)] * 5, strict=True)
    steps = plan_steps(inputs, outputs, plan_order(inputs, outputs), np.dtype("f8"))
    numbers = 8, 40, 16_000, 500, True, False
    small, large = (DeviceLimits(kilobytes << 10, 132) for kilobytes in (99, 227))
    assert slice_tiling(steps, *numbers, small) is None
    assert slice_tiling(steps, *numbers, large).shared_bytes == 192 << 10


matrix_sizes = st.builds(
    lambda leading, matrices: [*((n, n) for n in leading), *matrices],
    st.lists(st.sampled_from([1, 2, 3, 4, 7, 8, 9]), max_size=3),
    st.one_of(
        st.just([(4, 4)] * 4),
        st.lists(st.tuples(st.integers(1, 17), st.integers(1, 17)), min_size=1, max_size=2),
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    matrix_sizes, st.integers(1, 5000), st.integers(1, 100), limits, st.sampled_from(["f4", "f8"])
)
def test_products_on_matrix_units(sizes, outputs, mean, device, dtype):
    rows, columns = zip(*sizes, strict=True)
    steps = plan_steps(columns, rows, plan_order(columns, rows), np.dtype(dtype))
    numbers = outputs, outputs * mean, True
    tiling = unit_tiling(steps, np.dtype(dtype), *numbers, False, device)
    if tiling is None:
        return
    taken = [s for s in (tiling.split, tiling.lanes) if s is not None]
    assert [steps[s].mode for s in (*taken, *tiling.slow, *tiling.fast)] == list(range(len(sizes)))
    slow, fast = (math.prod(steps[s].K for s in matrix) for matrix in (tiling.slow, tiling.fast))
    assert slow <= fast <= 8 or fast <= slow <= 8 or {slow, fast} <= set(range(9, 17))
    assert all(1 < steps[s].C == steps[s].K <= 8 for s in taken)
    assert all(steps[s].C <= 16 for s in (*tiling.slow, *tiling.fast))
    held = 1 if tiling.lanes is None else steps[tiling.lanes].C
    assert held % tiling.chunk == 0
    assert held == tiling.chunk or held // tiling.chunk % 2 == 0
    assert tiling.block <= 256
    assert tiling.shared_bytes <= device.shared_bytes
    assert tiling.crew == 1 or tiling.crew * 8 <= mean
    assert tiling.crew * tiling.warps * outputs >= 8 * device.multiprocessors


@pytest.mark.parametrize(
    ("sizes", "outputs", "crew"),
    [
        ((8, 8), 31_250, 1),
        ((8, 8, 8), 3906, 2),
        ((4,) * 4, 7812, 1),
        ((4,) * 5, 1953, 4),
        ((4,) * 6, 488, 2),
        ((4,) * 4, 125, 0),
        ((12, 12), 13_888, 1),
        ((4, 16, 12), 2604, 4),
        ((8, 16, 16), 976, 0),
        ((8, 12), 20_833, 0),
        ((7, 7, 7), 5830, 2),
        ((5, 5), 80_000, 1),
        ((9, 15), 14_814, 1),
        ((4, 4, 4), 31_250, 0),
        ((8,) * 4, 488, 0),
        ((9, 8, 8), 3906, 0),
        ((1, 8, 8), 31_250, 0),
        ((17, 16), 7353, 0),
    ],
)
def test_warps_of_an_output_on_matrix_units(sizes, outputs, crew):
    """On an H200, 64 products an output; none where others run."""
    steps = plan_steps(sizes, sizes, plan_order(sizes, sizes), np.dtype("f8"))
    numbers, device = (outputs, 64 * outputs, True), DeviceLimits(227 << 10, 132, 8)
    tiling = unit_tiling(steps, np.dtype("f8"), *numbers, False, device)
    assert (tiling.crew if tiling else 0) == crew
    assert unit_tiling(steps, np.dtype("f8"), *numbers, True, device) is None
    for other in "FD":
        assert unit_tiling(steps, np.dtype(other), *numbers, False, device) is None
    single = unit_tiling(steps, np.dtype("f4"), *numbers, False, device)
    many = math.prod(sizes[-2:]) * sum(sizes[-2:]) >= 500
    assert (single is not None) == (crew > 0 and many and len(sizes) < 4)
    slower = replace(device, double_units=False)
    assert unit_tiling(steps, np.dtype("f4"), *numbers, False, slower) is None
    whole = sizes[-4:] == (4,) * 4 or all(size % 8 == 0 for size in sizes[-2:])
    double = unit_tiling(steps, np.dtype("f8"), *numbers, False, slower)
    assert double == (tiling if whole else None)


@pytest.mark.parametrize(
    ("sizes", "outputs", "share"),
    [
        ((16, 16, 16), 488, (8, 1)),
        ((12, 16, 16), 651, (4, 2)),
        ((12, 12, 12), 1157, (6, 2)),
        ((8, 16, 12), 1302, (4, 3)),
        ((12, 12, 12), 131, None),
        ((4, 16, 16), 1953, None),
        ((20, 16, 16), 390, None),
        ((12, 12, 8), 1736, None),
        ((2, 12, 12, 12), 578, None),
    ],
)
def test_warps_that_share_a_product_on_matrix_units(sizes, outputs, share):
    steps = plan_steps(sizes, sizes, plan_order(sizes, sizes), np.dtype("f8"))
    device = DeviceLimits(227 << 10, 132, 8)
    tiling = unit_slice_tiling(steps, np.dtype("f8"), outputs, True, False, device)
    assert share == (tiling and (tiling.warps, tiling.blocks))
    if tiling:
        modes = [steps[s].mode for s in (tiling.leading, tiling.slow, tiling.fast)]
        assert modes == [0, 1, 2]
        assert tiling.blocks * (tiling.shared_bytes + 1024) <= 228 << 10
        assert sizes[0] % tiling.warps == 0
    assert unit_slice_tiling(steps, np.dtype("f8"), outputs, True, True, device) is None
    for other in "FD":
        assert unit_slice_tiling(steps, np.dtype(other), outputs, True, False, device) is None
    single = unit_slice_tiling(steps, np.dtype("f4"), outputs, True, False, device)
    assert (single is None) == (share is None)
    slower = replace(device, double_units=False)
    assert unit_slice_tiling(steps, np.dtype("f4"), outputs, True, False, slower) is None


def test_ids_of_sixteen_bits_leave_one_for_identities():
    assert LARGEST_SHORT_ID < 0xFFFF
