"""The benchmark of full and sparse grids at equal error."""

import json

import source_benchmarks


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "runs.json"
    files = "--json", path, "--plot", tmp_path / "runs.svg"
    source_benchmarks.command("full_or_sparse --quick", *files)
    runs = json.loads(path.read_text())["runs"]
    assert len(runs) == 14  # four kinds of grids, of which two cases have three
    assert all(0.0 < one["error"] < 1.0 for one in runs)
    errors = {one["grid"]: one["error"] for one in runs if one["case"] == "Burgers"}
    assert errors["sparse"] < 0.1
    assert (tmp_path / "runs.svg").stat().st_size > 1000
