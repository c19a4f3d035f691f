"""How batch lists are cut for a device: every plan must fit the device and cover the work."""

import math
import re
from dataclasses import replace

import pytest
from device_strategies import dtypes, limits
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import list_shape

from batchkron.backends.cuda.batch.kernel import MAX_SHORT_ID
from batchkron.backends.cuda.batch.matrix_units import MATRIX_UNITS
from batchkron.backends.cuda.batch.registers import register_tiling
from batchkron.backends.cuda.batch.slices import SLICES
from batchkron.backends.cuda.batch.unit_slices import UNIT_SLICES
from batchkron.backends.cuda.runtime.hardware import DeviceLimits

small_shapes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=13)


def test_products_of_up_to_32_rows_go_through_registers():
    device = DeviceLimits(227 << 10, 132)
    for size, modes in ((12, 3), (16, 2), (32, 2), (33, 2)):
        tiling = register_tiling(list_shape([(size, size)] * modes, "f4", 1000, 64000), device)
        assert (tiling is None) == (size > 32)
        if tiling is not None:
            check_passes(tiling, (size,) * modes, (size,) * modes)


@settings(max_examples=300, deadline=None)
@given(small_shapes, dtypes, st.integers(1, 5000), st.integers(1, 100), limits)
def test_products_in_registers(factors, dtype, outputs, mean, device):
    sizes = [[shape[axis] for shape in factors] for axis in (1, 0)]
    tiling = register_tiling(list_shape(factors, dtype, outputs, outputs * mean), device)
    if tiling is None:
        return
    assert tiling.shared_bytes <= device.shared_bytes
    assert tiling.block % tiling.loaders == 0
    assert tiling.loaders >= tiling.products * tiling.group
    assert 1 <= tiling.groups_per_output <= mean
    assert tiling.outputs >= 1
    assert tiling.pitch % 16 == 0
    check_passes(tiling, *sizes)


def check_passes(tiling, inputs, outputs):
    """Every pass must read what the one before has written, and nothing twice."""
    assert sorted(mode.step for held, _ in tiling.passes for mode in held) == list(
        range(len(inputs))
    )
    places = {e + e // tiling.run * tiling.gap for e in range(math.prod(inputs))}
    for one in tiling.passes:
        assert offsets(one, "C", "source") == places
        places = offsets(one, "K", "target")
        assert len(places) == math.prod(mode.K for mode in (*one[0], *one[1]))
        assert max(places) < max(tiling.area, tiling.exchange)
        if len(tiling.passes) > 1 and not tiling.exchange:
            assert all((m.C, m.source) == (m.K, m.target) for m in one[0]) or (
                one is tiling.passes[-1]
            )
    assert places == set(range(math.prod(outputs)))


def offsets(one, size, stride):
    places = {0}
    for mode in (*one[0], *one[1]):
        steps = range(0, getattr(mode, size) * getattr(mode, stride), getattr(mode, stride))
        places = {place + step for place in places for step in steps}
    return places


@pytest.mark.parametrize(("outputs", "clusters", "blocks"), [(5, 8, 8), (5, 1, 1), (500, 8, 1)])
def test_few_outputs_are_shared_by_clusters(outputs, clusters, blocks):
    device = DeviceLimits(227 << 10, 132, clusters)
    tiling = register_tiling(list_shape([(3, 3)] * 6, "f8", outputs, 64 * outputs), device)
    assert tiling.cluster == blocks
    assert tiling.cluster * tiling.groups_per_output <= 64


@settings(max_examples=300, deadline=None)
@given(small_shapes, dtypes, st.integers(1, 500), st.integers(1, 100), st.integers(1, 8), limits)
def test_products_in_slices(factors, dtype, outputs, mean, skew, device):
    sizes = [[shape[axis] for shape in factors] for axis in (1, 0)]
    products, maximum = outputs * mean, min(skew * mean, outputs * mean)
    kernel = SLICES.kernel(list_shape(factors, dtype, outputs, products, maximum), device)
    if kernel is None:
        return
    tiling, steps = kernel.variant, kernel.work.steps
    threads = [steps[s].mode for s in (tiling.split, *tiling.exchanged)]
    held = [steps[s].mode for s in tiling.held]
    before = len(held) - tiling.behind
    assert [*held[:before], *threads, *held[before:]] == list(range(len(factors)))
    behind = [factors[mode] for mode in held[before:]]
    assert tiling.runs == (math.prod(q for _, q in behind), math.prod(p for p, _ in behind))
    assert tiling.group <= 32
    assert tiling.group * tiling.sizes[0] == math.prod(sizes[0])
    assert steps[tiling.split].K * tiling.parts * tiling.sizes[1] == math.prod(sizes[1])
    warps = int(re.search(r"SliceCut<(\d+)", kernel.program.expression)[1])
    slots = kernel.arguments["slots"][0]
    assert kernel.launch.threads <= 256
    assert kernel.launch.shared_bytes <= 48 << 10
    assert 32 // tiling.group * (warps - 1) < maximum
    assert slots in (0, maximum)
    assert slots * outputs <= 4 * products


def test_sums_in_slices_fit_in_shared_memory():
    shape = list_shape([(96, 1), *[(2, 2)] * 5], "f8", 40, 16_000, 500)
    small, large = (DeviceLimits(kilobytes << 10, 132) for kilobytes in (99, 227))
    assert SLICES.kernel(shape, small) is None
    assert SLICES.kernel(shape, large).launch.shared_bytes == 192 << 10


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
    kernel = MATRIX_UNITS.kernel(list_shape(sizes, dtype, outputs, outputs * mean), device)
    if kernel is None:
        return
    tiling, steps = kernel.variant, kernel.work.steps
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
    assert tiling.groups_per_output == 1 or tiling.groups_per_output * 8 <= mean
    assert tiling.groups_per_output * tiling.warps * outputs >= 8 * device.multiprocessors


@pytest.mark.parametrize(
    ("sizes", "outputs", "groups_per_output"),
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
def test_warps_of_an_output_on_matrix_units(sizes, outputs, groups_per_output):
    """On an H200, with 64 products an output; 0 where another family takes the list."""
    device = DeviceLimits(227 << 10, 132, 8)
    slower = replace(device, double_units=False)

    def kernel_of(dtype, on=device, identities=False):
        numbers = outputs, 64 * outputs
        shape = list_shape([(n, n) for n in sizes], dtype, *numbers, identities=identities)
        return MATRIX_UNITS.kernel(shape, on)

    kernel = kernel_of("f8")
    assert (kernel.variant.groups_per_output if kernel else 0) == groups_per_output
    assert kernel_of("f8", identities=True) is None
    assert kernel_of("F") is None
    assert kernel_of("D") is None
    many = math.prod(sizes[-2:]) * sum(sizes[-2:]) >= 500
    single = kernel_of("f4") is not None
    assert single == (groups_per_output > 0 and many and len(sizes) < 4)
    assert kernel_of("f4", slower) is None
    whole = sizes[-4:] == (4,) * 4 or all(size % 8 == 0 for size in sizes[-2:])
    assert kernel_of("f8", slower) == (kernel if whole else None)


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
    device = DeviceLimits(227 << 10, 132, 8)
    slower = replace(device, double_units=False)

    def kernel_of(dtype, on=device, identities=False):
        numbers = outputs, 64 * outputs
        shape = list_shape([(n, n) for n in sizes], dtype, *numbers, identities=identities)
        return UNIT_SLICES.kernel(shape, on)

    kernel = kernel_of("f8")
    assert share == (kernel and kernel.variant)
    if kernel:
        (warps, blocks), steps = share, kernel.work.steps
        assert blocks * (kernel.launch.shared_bytes + 1024) <= 228 << 10
        assert sizes[0] % warps == 0
        leading, slow, fast = sorted(range(3), key=lambda s: steps[s].mode)
        modes = rf"UnitMode<{leading}, .*Mode<double, {slow}, .*Mode<double, {fast}, "
        assert re.search(modes, kernel.program.expression)
    assert kernel_of("f8", identities=True) is None
    assert kernel_of("F") is None
    assert kernel_of("D") is None
    assert (kernel_of("f4") is None) == (share is None)
    assert kernel_of("f4", slower) is None


def test_ids_of_sixteen_bits_leave_one_for_identities():
    assert MAX_SHORT_ID < 0xFFFF
