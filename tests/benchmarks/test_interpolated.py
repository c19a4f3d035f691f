"""The benchmark of interpolated Kronecker products."""

import json
import sys

import numpy as np
import pytest
import source_benchmarks
from interpolation_oracle import dense_interpolation

import batchkron as bk


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "interpolated.json"
    small = "interpolated --modes 2,3 --points 50 --batch 1,3 --turn 0"
    source_benchmarks.command(small, "--json", path)
    cells = json.loads(path.read_text())["cells"]
    assert len(cells) == 16  # dimensions, dtypes, batches, kinds
    for cell in cells:
        assert not cell["failed"]
        assert {"batchkron", "SciPy CSR"} <= set(cell["seconds"])
        assert cell["gain"] > 0
        assert cell["bytes"]["batchkron"] < cell["bytes"]["SciPy CSR"]


def test_double_precision_alone(tmp_path, monkeypatch, capsys):
    module, path = source_benchmarks.module("interpolated"), tmp_path / "found.json"
    given = ["--modes", "4,5,6", "--dtypes", "float64", "--points", "20", "--batch", "1"]
    monkeypatch.setattr(sys, "argv", ["interpolated", *given, "--turn", "0", "--json", str(path)])
    assert module.main() == 0
    cells = json.loads(path.read_text())["cells"]
    assert [(len(cell["sizes"]), cell["dtype"]) for cell in cells] == [
        (modes, "float64") for modes in (4, 4, 5, 5, 6, 6)
    ]
    assert all(cell["less_memory"] >= 20 for cell in cells if len(cell["sizes"]) >= 5)
    assert "less memory" in capsys.readouterr().out


@pytest.mark.parametrize("sizes", [(9,), (5, 6), (4, 5, 6)])
def test_sparse_matrices_of_peers(rng, monkeypatch, sizes):
    module = source_benchmarks.module("interpolated")
    grid, points = bk.RegularGrid(0.0, 1.0, sizes), rng.random((13, len(sizes)))
    made, expected = module.SparseMatrices(points, grid), dense_interpolation(points, grid)
    for dtype in module.DTYPES:
        bound = 100 * np.finfo(dtype).eps  # of places in cells, up to 9, times slopes of weights
        for turned, dense in ((False, expected), (True, expected.T)):
            found = made.matrix(dtype, turned=turned)
            assert (found.dtype, found.indices.dtype) == (dtype, "int32")
            assert found is made.matrix(dtype, turned=turned)
            np.testing.assert_allclose(found.toarray(), dense, rtol=0, atol=bound)


def test_floors_on_a_device(monkeypatch):
    floors = source_benchmarks.module("gpu.cases.cases")
    sizes, points = (64,) * 3, 1_000_000
    gathered = floors.interpolation_bytes(sizes, points, 1, "float64", "W")
    assert gathered == points * (96 + 12 + 8) + 8 * 64**3
    scattered = floors.interpolation_bytes(sizes, points, 1, "float64", "W transposed")
    assert scattered == gathered + 4 * 61**3
    assert floors.interpolation_bytes((64,) * 6, 10, 2, "float32", "W") == 10 * (
        96 + 12 + 8 + 8 * 4**6
    )
    assert floors.interpolation_flops(2, 5, 3, "W") == 2 * 15 * (16 + 4)
    assert floors.interpolation_flops(2, 5, 3, "W transposed") == 2 * 15 * 16
    both = [
        floors.interpolation_floor(sizes, points, 1, "float64", 3e12, kind)
        for kind in ("W", "W transposed", "W K")
    ]
    assert both[2] == pytest.approx(both[0] + both[1])
    assert both[0] == pytest.approx(1e6 * gathered / 3e12)
