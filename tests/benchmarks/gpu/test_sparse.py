"""The part on Kronecker-sparse matrices of the GPU benchmark, without a device."""

import math
from collections import Counter

import pytest
import source_benchmarks


def gpu(name):
    return source_benchmarks.module(f"gpu.{name}")


def test_patterns():
    """The twelve that were recorded, and three of each ratio."""
    cases = gpu("cases.sparse_cases")
    found = cases.sparse_patterns()
    assert found[:12] == cases.FIRST
    assert len(found) == len(set(found)) == 60
    more = Counter((b + c) / (b * c) for _, b, c, _ in found[12:])
    assert set(more.values()) == {3}
    assert len(more) == 16
    for a, b, c, d in found:
        assert cases.BATCH * a * max(b, c) * d * 8 <= 4 << 30
    assert len(cases.sparse_cases()) == 120


def test_drawn_cells():
    """The first patterns stay if more are drawn; each kind of cell is about equally frequent."""
    cases = gpu("cases.sparse_cases")
    patterns = cases.drawn_patterns(60, 1)
    assert patterns[:20] == cases.drawn_patterns(20, 1)
    assert patterns != cases.drawn_patterns(60, 2)
    for number, (a, b, c, d) in enumerate(patterns):
        assert max(a, d // 2, b // 64, c // 64) <= 16
        assert number % 2 == 0 or all(size % 8 == 0 for size in (b, c) if size > 8)
    cells = list(cases.cells_of(patterns, 4))
    kinds = Counter((case.layout, case.batch, dtype) for case, dtype in cells)
    assert len(kinds) == 12
    assert set(kinds.values()) == {20}
    assert len(set(cases.cells_of(patterns[:5], 12))) == 60
    case = cases.SparseCase((3, 8, 4, 2), "batch-last", 512)
    assert case.name == "(3,8,4,2) last × 512"
    shape = cases.shape_of(case, "float32")
    assert case.bytes("float32") == shape.bytes
    assert case.flops == 2 * shape.multiply_adds


@pytest.mark.parametrize(
    ("pattern", "dtype", "memory", "arithmetic"),
    [  # ms, as recorded with the peers
        ((1, 64, 64, 16), "float32", 0.048, 0.051),
        ((1, 256, 1024, 4), "float16", 0.060, 0.069),
        ((16, 64, 64, 16), "float16", 0.384, 0.069),
        ((1, 192, 48, 2), "float32", 0.011, 0.014),
    ],
)
def test_floors(pattern, dtype, memory, arithmetic):
    floors = gpu("cases.sparse_cases").SparseCase(pattern, "batch-first").floors(dtype)
    assert floors["memory"] / 1000 == pytest.approx(memory, rel=0.04, abs=5e-4)
    assert floors["arithmetic"] / 1000 == pytest.approx(arithmetic, rel=0.04, abs=5e-4)


def test_cells_are_measured_only_where_they_are_asked_for():
    options = gpu("options")
    assert all(one.part != "kronecker-sparse" for one in options.read_options([]).choices)
    chosen = options.read_options(["--part", "kronecker-sparse"]).choices
    assert len(chosen) == 360
    few = ["--part", "kronecker-sparse", "--dtype", "float16", "--case", "(1,64,64,16) first"]
    (one,) = options.read_options(few).choices
    assert (one.case.pattern, one.case.layout) == ((1, 64, 64, 16), "batch-first")
    assert len(gpu("__main__").jobs(chosen)) == 6


def test_standing():
    cell = gpu("report").Cell
    cells = []
    for name, layout, ours, peer, floor in [
        ((1, 2, 3, 4), "batch-first", 12.0, 24.0, 10.0),
        ((1, 2, 3, 4), "batch-last", 10.0, 15.0, 10.0),
        ((5, 2, 3, 4), "batch-first", 30.0, 15.0, 10.0),
        ((5, 2, 3, 4), "batch-last", 20.0, None, 10.0),
    ]:
        one = cell("kronecker-sparse", str(name), "float32", {"microseconds": ours})
        one.peers = {"bmm": {"microseconds": peer} if peer else {"reason": "none"}}
        one.floor, one.more = floor, {"pattern": name, "layout": layout}
        cells.append(one)
    cells.append(cell("kronecker-sparse", "failed", "float32", {"reason": "wrong"}))
    report = gpu("report")
    first, last, both = report.sparse_standing(cells)
    assert (first["fastest"], first["compared"], first["least_gain"]) == (1, 2, 0.5)
    assert math.isclose(first["median_over_floor"], 2.1)
    assert (last["fastest"], last["compared"], last["median_gain"]) == (1, 1, 1.5)
    assert (both["median_ratio"], both["largest_ratio"]) == (1.35, 1.5)
    assert report.sparse_standing([]) == []
