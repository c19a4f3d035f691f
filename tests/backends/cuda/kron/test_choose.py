"""The kernels of a Kron-Matmul: the fastest of all ways by estimate, found as a shortest path."""

from functools import cache
from itertools import combinations, pairwise
from math import inf, isclose

import numpy as np
import pytest
from device_strategies import dtypes, limits
from hypothesis import given, settings
from hypothesis import strategies as st
from nvrtc import DEVICES
from plans import check_launch, check_runs, plan_of, product, seconds_of

from batchkron.backends.cuda.kron.choose import _MIN_LAUNCH, fastest_plan, product_of
from batchkron.backends.cuda.kron.families import FAMILIES, FAMILY_OF
from batchkron.spec.kron import KronSpec

LIMITS = DEVICES["90"]
SHAPES = [  # factors (K, C), rows, columns, dtype
    ([(4, 4)] * 3, 1, 1, "f8"),
    ([(8, 8)] * 4, 200, 1, "f4"),
    ([(16, 16)] * 4, 1024, 1, "f8"),
    ([(3, 2), (2, 4), (5, 5)], 11, 7, "c8"),
    ([(8, 8), (130, 20), (4, 4)], 5, 1, "f4"),
    ([(40, 40), (4, 4), (40, 40)], 5, 3, "c16"),
    ([(2, 30), (30, 2), (5, 7)], 90, 1, "f4"),
    ([(300, 140), (140, 300)], 3, 1, "f8"),
    ([(8, 8)] * 5, 1024, 1, "f8"),
    ([(64, 64)] * 3, 16, 1, "f4"),
]
SUBSETS = [
    *[(name,) for name in FAMILY_OF],
    ("registers", "fibres"),
    ("registers", "panels"),
    ("fibres", "slices", "panels"),
    ("registers", "fibres", "slices", "general"),
]


@pytest.fixture(params=range(len(SHAPES)), ids=lambda index: str(SHAPES[index]))
def sizes(request):
    return SHAPES[request.param]


def fewest_seconds(whole, device, families):
    """The least time of all cuts into runs, in every order of them, each by every family."""

    @cache
    def of_run(low, high, done):
        run = whole.part(low, high, done)
        found = (family.fastest(run, device) for family in families)
        return min((kernel.seconds for kernel in found if kernel is not None), default=inf)

    @cache
    def rest(done):
        count = len(whole.inputs)
        left = [mode for mode in range(count) if mode not in done]
        if not left:
            return 0.0
        runs = [(low, high + 1) for low in left for high in left if low <= high]
        runs = [run for run in runs if not done.intersection(range(*run))]
        return min(of_run(*run, done) + rest(done | frozenset(range(*run))) for run in runs)

    return rest(frozenset())


def ways_in_order(whole, order, device, families):
    """The least time of all cuts of modes that follow each other in this order."""
    count, best = len(order), inf
    for parts in range(count):
        for cut in combinations(range(1, count), parts):
            ends, total = (0, *cut, count), 0.0
            for begin, end in pairwise(ends):
                modes = order[begin:end]
                low, high = min(modes), max(modes) + 1
                if high - low != len(modes):
                    total = inf
                    break
                run = whole.part(low, high, order[:begin])
                found = (family.fastest(run, device) for family in families)
                total += min((one.seconds for one in found if one is not None), default=inf)
            best = min(best, total)
    return best


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("constant", [False, True])
def test_every_mode_is_done_once(sizes, capability, constant):
    device = DEVICES[capability]
    plan = plan_of(*sizes, device, constant=constant)
    check_runs(plan, product(*sizes, constant=constant))
    for kernel in plan:
        assert kernel.family.accepts(kernel.work, device)
        check_launch(kernel, device)
        assert _MIN_LAUNCH < kernel.seconds < 1


def test_equal_factors_take_the_fewest_seconds_of_all_orders(sizes):
    """Square factors: whatever the order, the work is the same."""
    shapes = [(k, k) for k, _ in sizes[0]][:4]
    whole = product(shapes, *sizes[1:])
    plan = fastest_plan(whole, LIMITS)
    last_first = list(reversed(range(len(shapes))))
    assert isclose(seconds_of(plan), ways_in_order(whole, last_first, LIMITS, FAMILIES))
    assert seconds_of(plan) >= fewest_seconds(whole, LIMITS, FAMILIES) * (1 - 1e-12)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.integers(1, 3000),
    st.sampled_from([1, 1, 3, 16]),
    dtypes,
    st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=5, unique=True),
    limits,
)
def test_the_path_is_the_shortest(sizes, rows, columns, dtype, families, device):
    """Of all ways from the last mode to the first, the plan is the fastest."""
    whole = product([(size, size) for size in sizes], rows, columns, dtype)
    plan = fastest_plan(whole, device, tuple(families))
    order = list(reversed(range(len(sizes))))
    expected = ways_in_order(whole, order, device, families)
    assert (seconds_of(plan) if plan else inf) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=4),
    st.integers(1, 3000),
    st.sampled_from([1, 3, 16]),
    dtypes,
    limits,
)
def test_rectangular_factors_take_no_longer_than_from_last_to_first(
    shapes, rows, columns, dtype, device
):
    """The path may also go by the order of least work."""
    whole = product(shapes, rows, columns, dtype)
    plan = fastest_plan(whole, device)
    check_runs(plan, whole)
    order = list(reversed(range(len(shapes))))
    assert seconds_of(plan) <= ways_in_order(whole, order, device, FAMILIES) * (1 + 1e-12)
    assert seconds_of(plan) >= fewest_seconds(whole, device, FAMILIES) * (1 - 1e-12)


def test_fewer_families_are_never_faster(sizes):
    fastest = seconds_of(plan_of(*sizes, LIMITS))
    for families in SUBSETS:
        plan = plan_of(*sizes, LIMITS, families=families)
        assert {kernel.family.name for kernel in plan} <= set(families)
        assert not plan or fastest <= seconds_of(plan) * (1 + 1e-12)
        if plan:
            check_runs(plan, product(*sizes))


def test_more_rows_never_take_less_time(sizes):
    """But for few per cent: registers have tiles of several slices only from some rows on."""
    shapes, _, columns, dtype = sizes
    before, registers = 0.0, False
    for rows in (1, 2, 3, 7, 20, 50, 131, 132, 133, 264, 265, 528, 529, 1024, 4000):
        plan = plan_of(shapes, rows, columns, dtype, LIMITS)
        now = "registers" in [kernel.family.name for kernel in plan]
        slack = 0.05 if registers or now else 1e-9
        assert seconds_of(plan) >= before * (1 - slack)
        before, registers = seconds_of(plan), now


def test_the_order_of_families_does_not_matter(sizes):
    there, back = (
        plan_of(*sizes, LIMITS, families=families)
        for families in (list(FAMILY_OF), list(reversed(FAMILY_OF)))
    )
    assert isclose(seconds_of(there), seconds_of(back))


def test_no_plan_where_a_mode_has_no_kernel():
    assert plan_of([(20, 20), (2, 2)], 5, 1, "c8", LIMITS, families=("registers", "fibres")) == ()
    assert plan_of([(2, 2)] * 3, 5, 1, "f8", LIMITS, families=()) == ()


def test_many_modes_have_a_plan():
    for count in (13, 16, 17, 30):
        sizes = [(1, 1)] * (count - 3) + [(2, 2)] * 3, 5, 1, "f8"
        check_runs(plan_of(*sizes, LIMITS), product(*sizes))


@pytest.mark.parametrize("precision", [None, "tf32", "tf32x3"])
@pytest.mark.parametrize("size", [16, 32, 64, 128, 200])
def test_matrix_units_round_only_where_that_is_allowed(size, precision):
    wanted = {None: set(), "tf32": {1}, "tf32x3": {3}}[precision]
    for rows in (1, 40, 1024):
        for capability in DEVICES:
            device = DEVICES[capability]
            sizes = [(size, size)] * 2, rows, 1, "f4"
            plan = plan_of(*sizes, device, precision)
            fibres = [one.tile.passes for one in plan if one.family.name == "fibres"]
            assert {each.share.products for passes in fibres for each in passes} <= {0} | wanted
            assert seconds_of(plan) <= seconds_of(plan_of(*sizes, device)) * (1 + 1e-12)


@pytest.mark.parametrize("dtype", ["f8", "c8", "c16"])
def test_other_dtypes_have_one_precision(dtype):
    sizes = [(32, 32)] * 2, 100, 1, dtype
    for precision in ("tf32", "tf32x3"):
        assert plan_of(*sizes, LIMITS, precision) == plan_of(*sizes, LIMITS)


def test_constant_factors_are_those_of_registers(sizes):
    for constant in (False, True):
        for kernel in plan_of(*sizes, LIMITS, constant=constant):
            assert not kernel.program.constants or (constant and kernel.family.name == "registers")


def test_a_product_without_columns_may_have_them_compiled_in():
    spec = KronSpec((4, 4), (4, 4), 5, 1, np.dtype("f8"), None)
    assert product_of(spec, False).fixed_columns
    wide = KronSpec((4, 4), (4, 4), 5, 3, np.dtype("f8"), None)
    assert not product_of(wide, False).fixed_columns
