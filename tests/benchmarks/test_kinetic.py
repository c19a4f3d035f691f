"""The benchmark of kinetic problems."""

import json

import source_benchmarks


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "kinetic.json"
    small = "kinetic --levels 2 --turns 1 --until 0.3 --adapted-level 4"
    source_benchmarks.command(small, "--json", path)
    record = json.loads(path.read_text())
    (side,) = record["right_hand_sides"]
    assert side["unknowns"] == 72
    assert min(side["field"], side["frozen"]) > 0
    assert record["steps"][0]["problem"] == "two-stream"
    full, sparse, adapted = record["adapted"]["runs"]
    assert (full["unknowns"], full["error"]) == (2304, 0.0)
    assert sparse["unknowns"] == 432
    assert 0.0 < adapted["error"] < 1.0
