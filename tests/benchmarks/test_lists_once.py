"""The benchmark of batch lists that are used once."""

import json

import source_benchmarks


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "once.json"
    source_benchmarks.command("lists_once --quick --json", path)
    content = json.loads(path.read_text())
    assert len(content["cells"]) == 8  # two cases, dtypes, kinds of pools
    for cell in content["cells"]:
        assert set(cell["seconds"]) == {"batched_kron", "built and applied", "applied"}
        assert all(value > 0 for value in cell["seconds"].values())
    assert content["machine"]["batchkron"]
