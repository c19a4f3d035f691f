"""Large factors by panels: which they are, their kernels, and what these take."""

import math

import numpy as np
import pytest
from dense_oracle import DTYPES
from nvrtc import DEVICES

from batchkron.backends.cuda.kron.choose import rule_groups
from batchkron.backends.cuda.kron.panels import (
    _CUTS,
    PanelGroup,
    PanelKnobs,
    PanelTile,
    is_large,
    panel_group,
    panel_knobs,
)
from batchkron.backends.cuda.steps import GroupShape

LIMITS = DEVICES["90"]


def groups_of(shapes, rows, columns, dtype):
    outputs, inputs = zip(*shapes, strict=True)
    return rule_groups(inputs, outputs, rows, columns, np.dtype(dtype), False, LIMITS)


@pytest.mark.parametrize(
    ("shapes", "dtype", "large"),
    [
        ([(128, 7)], "f8", []),
        ([(129, 16)], "f8", [0]),
        ([(20_000, 3)], "f4", []),
        ([(8, 8), (200, 200), (4, 4)], "f4", [1]),
        ([(40, 40), (4, 4), (40, 40)], "c16", [0, 2]),
        ([(300, 200), (200, 300)], "c8", [0, 1]),
    ],
    ids=str,
)
def test_which_factors_are_large(shapes, dtype, large):
    groups = groups_of(shapes, 5, 1, dtype) or ()
    assert sorted(g.tile.modes[0] for g in groups if isinstance(g, PanelGroup)) == large
    if large:
        assert sorted(mode for g in groups for mode in g.tile.modes) == list(range(len(shapes)))


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
def test_groups_follow_each_other(shapes, rows, columns):
    """Each group reads what the one before has written."""
    sizes = [q for _, q in shapes]
    for group in groups_of(shapes, rows, columns, "f8"):
        low, high = min(group.tile.modes), max(group.tile.modes) + 1
        assert rows * math.prod(sizes[:low]) == group.L
        assert math.prod(sizes[high:]) * columns == group.R
        for mode in group.tile.modes:
            sizes[mode] = shapes[mode][0]
        assert group.elements == rows * math.prod(sizes) * columns
    assert sizes == [p for p, _ in shapes]


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
    groups = groups_of(shapes, rows, 1, dtype)
    assert [type(group) for group in groups] == [PanelGroup] * len(sizes)
    assert sorted(group.tile.modes for group in groups) == [(m,) for m in range(len(sizes))]
    for group in groups:
        (mode,) = group.tile.modes
        assert rows * math.prod(sizes[:mode]) == group.L
        assert math.prod(sizes[mode + 1 :]) == group.R


def test_a_factor_that_shrinks_goes_first():
    first, second = groups_of([(300, 140), (140, 300)], 3, 1, "f8")
    assert (first.tile.modes, second.tile.modes) == ((1,), (0,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_thread_blocks_fit_together(dtype):
    dtype = np.dtype(dtype)
    for along in (False, True):
        for cut in _CUTS[dtype, along]:
            tile = PanelTile((0,), 300, 300, along, cut, dtype)
            assert tile.blocks * (tile.shared_bytes + 1024) <= 228 << 10


def test_few_tiles_are_small():
    """So that all multiprocessors have some."""
    (few,) = groups_of([(316, 316)], 1, 316, "f8")
    (many,) = groups_of([(316, 316)], 1, 30_000, "f8")
    assert few.tile.cut.fibres < many.tile.cut.fibres
    assert few.tiles() <= 132 < many.tiles()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("rows", "columns"), [(46_225, 1), (215, 215), (1, 46_225)])
def test_last_tiles_are_not_much_larger_than_what_is_left(dtype, rows, columns):
    """215 results are three tiles of 72 or 80; four of 64 would be empty by a sixth."""
    (group,) = groups_of([(215, 215)], rows, columns, dtype)
    assert -(-215 // group.tile.cut.results) * group.tile.cut.results <= 240


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 3])
def test_knobs_name_their_cut(dtype, columns):
    part = GroupShape(0, (300,), (300,), 70, columns, np.dtype(dtype))
    for knobs in panel_knobs(part):
        group = panel_group(part, LIMITS, knobs)
        assert group.knobs == knobs
        assert group.tile.along == (columns == 1)
    assert panel_group(part, LIMITS, PanelKnobs(len(panel_knobs(part)))) is None


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_precision_is_for_float32_alone(precision):
    """Which takes fibres on matrix units as long as they fit, and panels beyond."""

    def groups(size, rows, dtype, precision):
        sizes = (size,) * 2, (size,) * 2, rows, 1, np.dtype(dtype)
        return rule_groups(*sizes, False, LIMITS, precision)

    for size, rows in ((64, 40), (200, 100)):
        full = groups(size, rows, "f8", None)
        assert isinstance(full[0], PanelGroup)
        assert groups(size, rows, "f8", precision) == full
    assert not isinstance(groups(150, 100, "f4", precision)[0], PanelGroup)
    assert isinstance(groups(300, 100, "f4", precision)[0], PanelGroup)


def test_small_factors_are_not_large():
    assert not is_large(128, 128, np.dtype("f4"))
    assert not is_large(5000, 15, np.dtype("f8"))
    assert not is_large(32, 32, np.dtype("c16"))
