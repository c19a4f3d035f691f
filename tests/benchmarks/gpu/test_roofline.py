"""The roofline of the GPU benchmark: marks, names, figures, and what is committed of it."""

import importlib
import json
import re
import sys
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "h200-gpu.json"
PAGE = ROOT / "docs" / "results" / "gpu-roofline.md"
COMMAND = (
    "python -m benchmarks.gpu.roofline benchmarks/results/h200-gpu.json docs/pictures/roofline.svg"
)


@pytest.fixture(autouse=True, scope="module")
def source_root():
    """The benchmarks are found in the source, behind what is installed."""
    sys.path.append(str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def gpu(name):
    return importlib.import_module(f"benchmarks.gpu.{name}")


def cell(name, dtype, tflops, terabytes, floor=10.0, part="kron"):
    return {
        "part": part,
        "case": name,
        "dtype": dtype,
        "tflops": tflops,
        "terabytes_per_second": terabytes,
        "floor": floor,
    }


def elements(drawn, tag, kind=None):
    found = ElementTree.fromstring(drawn).iter(f"{{http://www.w3.org/2000/svg}}{tag}")
    return [one for one in found if kind in (None, one.get("class"))]


def test_figures_of_a_product_under_the_roof():
    report = {
        "cells": [
            cell("1024: 16^4", "float64", 16.0, 2.0),
            cell("16: 64^3", "float32", 32.5, 0.5),
            cell("16: 64^3", "float32", 1.0, 1.0, part="pde"),
            {"part": "kron", "case": "1024: 16^4", "dtype": "float32", "reason": "wrong"},
        ]
    }
    bound, free = gpu("roofline").points_of(report)
    assert (bound.intensity, bound.rate) == (8, 1.6e13)
    assert bound.share == pytest.approx(16 / (8 * 4.29))
    assert bound.moved == (1, 1)
    assert bound.share_of_passes == pytest.approx(2 * bound.share)
    assert free.share == pytest.approx(0.5)
    assert free.share_of_passes == pytest.approx(0.5), "two passes are no bound there"
    *_, small, large = gpu("roofline").table([bound, free])
    assert small == "| 1024: 16^4 | – | – | – | – | – | 8 | 2 | 16 | 47 | 93 |"
    assert large == "| 16: 64^3 | 65 | 2 | 32 | 50 | 50 | – | – | – | – | – |"


def test_what_kernels_read_and_write_is_counted_for_all_their_kinds():
    shapes = importlib.import_module("benchmarks.shapes")
    moved = gpu("roofline").moved
    for shape, dtype, expected in [
        (shapes.power(1024, 4, 7), "float32", (1,)),  # registers
        (shapes.power(320, 128, 3), "float64", (1, 1, 1)),  # fibres
        (shapes.power(16, 8, 8), "float64", (1, 1)),  # slices, with columns and without
        (shapes.power(64, 300, 1), "float32", (1,)),  # any size
        (shapes.rectangular(50, (32, 8), (64, 128)), "float64", (5 / 6, 1 / 2)),  # panels
    ]:
        assert moved(shape, dtype) == pytest.approx(expected), (shape.name, dtype)
    wide = shapes.rectangular(2, (2, 600), (600, 2))  # its intermediate result is the larger one
    first, second = moved(wide, "float32")
    assert first == pytest.approx(second)
    assert first == pytest.approx((2 * 1200 + 2 * 4) / (2 * 1200 * 2))


def test_marks_lie_where_their_numbers_are():
    drawing = gpu("report.roofline_picture")
    roof = drawing.Roof(4.0, 64.0)
    assert roof.ridge == 16
    marks = [
        drawing.Mark("on the slope", "float32", 4.0, 16.0),
        drawing.Mark("at the ridge", "float32", 16.0, 64.0),
        drawing.Mark("a < b & c", "float64", 64.0, 8.0),
    ]
    drawn = drawing.picture(marks, roof)
    on_slope, ridge = elements(drawn, "circle", "float32")[:2]
    (start, corner), level = points_of_roof(drawn)
    share = (float(on_slope.get("cx")) - start[0]) / (corner[0] - start[0])
    assert float(on_slope.get("cy")) == pytest.approx(
        start[1] + share * (corner[1] - start[1]), abs=0.2
    )
    assert float(ridge.get("cx")) == pytest.approx(corner[0], abs=0.1)
    assert float(ridge.get("cy")) == pytest.approx(corner[1], abs=0.1)
    assert level > corner[0]
    square = elements(drawn, "rect", "float64")[0]
    assert float(square.get("y")) > corner[1]
    said = [one.text for one in elements(drawn, "title")]
    assert "a < b & c float64: 64 flops a byte, 8 TFLOP/s" in said


def points_of_roof(drawn):
    """The ends of the roof's slope, and where its level part ends."""
    (path,) = elements(drawn, "path", "roof")
    *numbers, level = map(float, re.findall(r"[\d.]+", path.get("d")))
    return (numbers[:2], numbers[2:]), level


def test_names_do_not_cover_each_other_nor_marks():
    roofline, drawing = gpu("roofline"), gpu("report.roofline_picture")
    points = [one for one in roofline.points_of(json.loads(RESULTS.read_text())) if one.floor >= 2]
    assert len(points) > 30
    marks = [drawing.Mark(one.name, one.dtype, one.intensity, one.rate / 1e12) for one in points]
    roof = drawing.Roof(4.29, 65.0)
    scale = drawing.Scale(marks, roof)
    boxes = drawing.label_boxes(marks, roof, scale)
    assert sum(one.overlap(other) for one, other in combinations(boxes, 2)) < 1
    covered = sum(
        box.left < scale.across(mark.intensity) < box.right
        and box.top < scale.down(mark.rate) < box.bottom
        for box in boxes
        for mark in marks
    )
    assert covered == 0


def test_the_command_draws_what_is_committed(tmp_path, capsys):
    target = tmp_path / "roofline.svg"
    assert gpu("roofline").main([str(RESULTS), str(target)]) == 0
    drawn = target.read_text()
    cells = json.loads(RESULTS.read_text())["cells"]
    large = [one for one in cells if one["part"] == "kron" and one["floor"] >= 2]
    names = [one.text for kind in ("float32", "float64") for one in elements(drawn, "text", kind)]
    assert sorted(names) == sorted(one["case"] for one in large)
    assert len(drawn) < 15_000
    assert drawn == (ROOT / "docs" / "pictures" / "roofline.svg").read_text(), f"run {COMMAND}"
    printed = capsys.readouterr().out
    assert printed in PAGE.read_text(), f"the table is another one: run {COMMAND}"


def test_a_report_without_products_is_refused(tmp_path):
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"cells": [cell("1024: 8^5", "float64", 1, 1, part="pde")]}))
    with pytest.raises(SystemExit, match="--part kron"):
        gpu("roofline").main([str(report), str(tmp_path / "none.svg")])
    assert not (tmp_path / "none.svg").exists()
    with pytest.raises(SystemExit, match=r"RESULTS\.json"):
        gpu("roofline").main([str(report)])
