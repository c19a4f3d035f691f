"""The benchmark of identities among factors."""

import json

import pytest
import source_benchmarks


@pytest.fixture
def benchmark():
    return source_benchmarks.module("identity_factors")


def test_it_measures_and_writes(benchmark, tmp_path, capsys):
    path = tmp_path / "identities.json"
    small = ["--size", "4", "--elements", "400", "--sites", "8"]
    assert benchmark.main([*small, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert len(found["cells"]) == 12  # positions, dtypes
    assert all(cell["ratio"] > 0 for cell in found["cells"])
    assert found["chain"]["bytes"]["ours"] < found["chain"]["bytes"]["CSR"]
    printed = capsys.readouterr().out
    assert printed.count("position I ⊗ A ⊗ I, n 4, ") == 4
    assert "terms 12, sites 8, " in printed
