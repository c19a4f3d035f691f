"""Large factors by panels: their kernels, the memory of these, and where they are chosen."""

import pytest
from dense_oracle import DTYPES
from nvrtc import DEVICES
from plans import check_launch, check_runs, plan_of, product, seconds_of, square_run

from batchkron.backends.cuda.kron.families import FAMILY_OF
from batchkron.backends.cuda.kron.panels import cuts_of, tiles_of

LIMITS = DEVICES["90"]
PANELS = FAMILY_OF["panels"]
OTHERS = [name for name in FAMILY_OF if name != "panels"]


def by_panels(plan):
    """The modes that a plan does by panels."""
    return [mode for kernel in plan if kernel.family is PANELS for mode in kernel.modes]


@pytest.mark.parametrize(
    ("shapes", "dtype", "large"),
    [
        ([(129, 16)], "f8", [0]),
        ([(8, 8), (200, 200), (4, 4)], "f4", [1]),
        ([(40, 40), (4, 4), (40, 40)], "c16", [2]),
        ([(300, 200), (200, 300)], "c8", [0, 1]),
    ],
    ids=str,
)
def test_large_factors_go_in_panels(shapes, dtype, large):
    """In these cases a plan without panels takes longer."""
    sizes = shapes, 5, 1, dtype
    plan = plan_of(*sizes, LIMITS)
    check_runs(plan, product(*sizes))
    assert set(large) <= set(by_panels(plan))
    without = plan_of(*sizes, LIMITS, families=OTHERS)
    assert not by_panels(without)
    assert seconds_of(plan) < seconds_of(without)


@pytest.mark.parametrize(
    "shapes",
    [
        [(200, 300)],
        [(8, 8), (200, 150), (4, 4)],
        [(3, 5), (140, 300), (9, 7), (150, 40), (2, 2)],
        [(300, 140), (140, 300)],
    ],
    ids=str,
)
@pytest.mark.parametrize(("rows", "columns"), [(3, 1), (1, 5)])
def test_kernels_follow_each_other(shapes, rows, columns):
    """Each reads what the one before has written."""
    sizes = shapes, rows, columns, "f8"
    for families in (FAMILY_OF, ["panels"], ["panels", "general"]):
        plan = plan_of(*sizes, LIMITS, families=families)
        check_runs(plan, product(*sizes))
        for kernel in plan:
            check_launch(kernel, LIMITS)


@pytest.mark.parametrize(
    ("rows", "sizes", "dtype"),
    [
        (8, (64, 256), "f8"),
        (8, (256, 64), "f8"),
        (1, (64, 129, 64), "f8"),
        (8, (200, 72), "f4"),
    ],
    ids=str,
)
def test_factors_beside_large_ones_may_go_in_panels(rows, sizes, dtype):
    shapes = [(size, size) for size in sizes]
    plan = plan_of(shapes, rows, 1, dtype, LIMITS)
    check_runs(plan, product(shapes, rows, 1, dtype))
    alone = plan_of(shapes, rows, 1, dtype, LIMITS, families=["panels"])
    assert sorted(by_panels(alone)) == list(range(len(sizes)))
    assert seconds_of(plan) <= seconds_of(alone)
    assert seconds_of(plan) < seconds_of(plan_of(shapes, rows, 1, dtype, LIMITS, families=OTHERS))


def test_a_factor_that_shrinks_goes_first():
    first, second = plan_of([(300, 140), (140, 300)], 3, 1, "f8", LIMITS)
    assert (first.modes, second.modes) == ((1,), (0,))


@pytest.mark.parametrize("capability", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_thread_blocks_fit_together(dtype, capability):
    device = DEVICES[capability]
    for columns in (1, 5):
        run = square_run((300,), 70, columns, dtype)
        for variant in PANELS.variants(run, device):
            kernel = PANELS.kernel(run, variant, device)
            check_launch(kernel, device)
            shape = kernel.launch
            assert shape.resident * (shape.shared_bytes + 1024) <= 228 << 10


def test_few_tiles_are_small():
    """Otherwise some multiprocessors would have none."""
    (few,) = plan_of([(316, 316)], 1, 316, "f8", LIMITS)
    (many,) = plan_of([(316, 316)], 1, 30_000, "f8", LIMITS)
    assert few.tile.fibres < many.tile.fibres
    assert few.launch.blocks >= LIMITS.multiprocessors
    assert many.launch.blocks >= LIMITS.multiprocessors


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("rows", "columns"), [(46_225, 1), (215, 215), (1, 46_225)])
def test_last_tiles_that_are_not_full_cost_as_much_as_others(dtype, rows, columns):
    """215 results are three tiles of 72 or 80; four of 64 are empty by a sixth."""
    run = square_run((215,), rows, columns, dtype)
    for variant in PANELS.variants(run, LIMITS):
        kernel = PANELS.kernel(run, variant, LIMITS)
        tiles = -(-215 // kernel.tile.results) * -(-rows * columns // kernel.tile.fibres)
        assert tiles_of(run, kernel.tile) == tiles
    (chosen,) = plan_of([(215, 215)], rows, columns, dtype, LIMITS)
    assert chosen.seconds == min(
        PANELS.estimate(run, variant, LIMITS) for variant in PANELS.variants(run, LIMITS)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 3])
def test_variants_name_their_cut(dtype, columns):
    run = square_run((300,), 70, columns, dtype)
    found = PANELS.variants(run, LIMITS)
    assert len(found) == len(cuts_of(run))
    for variant in found:
        kernel = PANELS.kernel(run, variant, LIMITS)
        assert kernel.variant == variant
        assert kernel.tile == cuts_of(run)[variant[0]]
    assert PANELS.kernel(run, (len(found),), LIMITS) is None
    assert PANELS.kernel(run, (-1,), LIMITS) is None


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_precision_is_for_float32_alone(precision):
    """It takes fibres on matrix units where these are faster, else panels on ordinary cores."""
    for size, rows in ((64, 40), (200, 100)):
        shapes = [(size, size)] * 2
        full = plan_of(shapes, rows, 1, "f8", LIMITS)
        assert plan_of(shapes, rows, 1, "f8", LIMITS, precision) == full
    for size in (150, 300):
        shapes = [(size, size)] * 2
        plan = plan_of(shapes, 100, 1, "f4", LIMITS, precision)
        assert seconds_of(plan) <= seconds_of(plan_of(shapes, 100, 1, "f4", LIMITS))
    assert by_panels(plan), "no tile of fibres fits"


def test_one_mode_at_a_time_is_taken():
    for dtype in DTYPES:
        assert PANELS.accepts(square_run((300,), 5, 1, dtype), LIMITS)
        pair = square_run((300, 2), 5, 1, dtype)
        assert not PANELS.accepts(pair, LIMITS)
        assert PANELS.fastest(pair, LIMITS) is None
        assert PANELS.kernel(pair, (0,), LIMITS) is None


def test_small_factors_do_not_go_in_panels():
    for shapes, rows, dtype in (
        ([(8, 8)] * 5, 1024, "f8"),
        ([(4, 4)] * 6, 1024, "f4"),
        ([(16, 16)] * 4, 1024, "f8"),
        ([(3, 3)] * 4, 5000, "c16"),
    ):
        assert not by_panels(plan_of(shapes, rows, 1, dtype, LIMITS))
