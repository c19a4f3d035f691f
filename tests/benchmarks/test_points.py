"""The comparison of values at points with derivatives, on small grids."""

import json

import source_benchmarks


def test_the_table_has_each_case(pytestconfig, capsys, monkeypatch, tmp_path):
    points = source_benchmarks.module("points")
    points.main(["--quick", "--rounds", "1", "--json", str(tmp_path / "points.json")])
    record = json.loads((tmp_path / "points.json").read_text())
    assert [case["degree of points"] for case in record["cases"]] == [1, 2, 2, 3]
    for case in record["cases"]:
        assert 0 < case["multiply-adds"] < 10
        assert min(case["time"], case["time back"], case["multiply-adds back"]) > 0
    assert record["projection"]["points"] > 0
    assert "projection at" in capsys.readouterr().out
