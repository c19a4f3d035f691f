"""The benchmark of factored plans of batch lists."""

import json

import source_benchmarks


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "factored.json"
    source_benchmarks.command("factored_lists --quick --json", path)
    content = json.loads(path.read_text())
    assert len(content["cells"]) == 5  # of an operator, all pairs, random, two of set-up
    assert all(value > 0 for cell in content["cells"] for value in cell["seconds"].values())
    assert content["cells"][1]["fewer"] > 4
    assert content["machine"]["batchkron"]
