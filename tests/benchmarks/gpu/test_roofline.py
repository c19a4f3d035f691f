"""The roofline of the GPU benchmark: marks, names, figures, and what is committed of it."""

import json
from itertools import combinations
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import source_benchmarks

ROOT = source_benchmarks.ROOT
RESULTS = ROOT / "benchmarks" / "results" / "h200-gpu.json"
PAGE = ROOT / "docs" / "results" / "gpu-roofline.md"
COMMAND = f"python -m benchmarks.gpu.roofline {RESULTS} {RESULTS.with_name('h200-roofline.svg')}"


def gpu(name):
    return source_benchmarks.module(f"gpu.{name}")


def cell(name, dtype, tflops, terabytes, floor=10.0, part="kron"):
    return {
        "part": part,
        "case": name,
        "dtype": dtype,
        "tflops": tflops,
        "terabytes_per_second": terabytes,
        "floor": floor,
    }


def texts(drawn):
    """All texts of a picture."""
    found = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return [one.text for one in found]


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
    assert (bound["intensity"], bound["rate"]) == (8, 1.6e13)
    share = gpu("roofline").share
    assert share(bound) == pytest.approx(16 / (8 * 4.29))
    assert bound["moved"] == (1, 1)
    assert share(bound, 2) == pytest.approx(2 * share(bound))
    assert share(free) == pytest.approx(0.5)
    assert share(free, sum(free["moved"])) == pytest.approx(0.5), "two passes are no bound there"
    *_, small, large = gpu("roofline").table([bound, free])
    assert small == "| 1024: 16^4 | – | – | – | – | – | 8 | 2 | 16 | 47 | 93 |"
    assert large == "| 16: 64^3 | 65 | 2 | 32 | 50 | 50 | – | – | – | – | – |"


def test_what_kernels_read_and_write_is_counted_for_all_their_kinds():
    moved = gpu("roofline").moved

    def kron(text):
        return source_benchmarks.module("shapes").kron_matmuls(text)[0]

    for shape, dtype, expected in [
        (kron("1024: 4^7"), "float32", (1,)),  # registers
        (kron("320: 128^3"), "float64", (1, 1, 1)),  # fibres
        (kron("16: 8^8"), "float64", (1, 1)),  # slices, with columns and without
        (kron("64: 300^1"), "float32", (1,)),  # any size
        (kron("50: 32×8, 64×128"), "float64", (5 / 6, 1 / 2)),  # panels
    ]:
        assert moved(shape, dtype) == pytest.approx(expected), (shape.name, dtype)
    wide = kron("2: 2×600, 600×2")  # its intermediate result is the larger one
    first, second = moved(wide, "float32")
    assert first == pytest.approx(second)
    assert first == pytest.approx((2 * 1200 + 2 * 4) / (2 * 1200 * 2))


def test_a_roof_is_that_of_memory_and_of_arithmetic():
    plots = source_benchmarks.module("core.plots")
    roof = plots.Roof(4.0, 64.0)
    assert (roof.ridge, roof.at(4.0), roof.at(16.0), roof.at(100.0)) == (16, 16, 64, 64)
    lines = []
    axis = SimpleNamespace(plot=lambda x, y, **style: lines.append((x, y, style)))
    roof.draw(axis, 1.0, 32.0, color="black")
    roof.draw(axis, 1.0, 8.0)
    assert lines == [
        ([1.0, 16.0, 32.0], [4.0, 64.0, 64.0], {"color": "black"}),
        ([1.0, 8.0], [4.0, 32.0], {}),
    ]


def test_names_do_not_cover_each_other(tmp_path):
    pytest.importorskip("matplotlib")
    roofline = gpu("roofline")
    report = json.loads(RESULTS.read_text())
    points = [one for one in roofline.points_of(report) if one["floor"] >= 2]
    assert len(points) > 30
    boxes = roofline.draw(points, tmp_path / "roofline.svg")
    assert len(boxes) == len(points)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_the_command_draws_what_is_committed(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    target = tmp_path / "roofline.svg"
    gpu("roofline").main([str(RESULTS), str(target)])
    cells = json.loads(RESULTS.read_text())["cells"]
    large = [one["case"] for one in cells if one["part"] == "kron" and one["floor"] >= 2]
    drawn, committed = (
        texts(path.read_text()) for path in (target, RESULTS.with_name("h200-roofline.svg"))
    )
    assert sorted(one for one in drawn if one in large) == sorted(large)
    assert sorted(committed) == sorted(drawn), f"run {COMMAND}"
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
