"""The benchmark of identities among factors."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark():
    """The module is found in the source, behind what is installed."""
    sys.path.append(str(ROOT))
    yield importlib.import_module("benchmarks.identity_factors")
    sys.path.remove(str(ROOT))


def test_it_measures_and_writes(benchmark, tmp_path, capsys):
    path = tmp_path / "identities.json"
    small = ["--size", "4", "--elements", "400", "--sites", "8"]
    assert benchmark.main([*small, "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert len(found["cells"]) == 12  # positions, dtypes
    assert all(cell["ratio"] > 0 for cell in found["cells"])
    assert found["chain"]["bytes"]["ours"] < found["chain"]["bytes"]["CSR"]
    printed = capsys.readouterr().out
    assert printed.count("| I ⊗ A ⊗ I | 4 |") == 4
    assert "12 terms of 8 factors:" in printed
