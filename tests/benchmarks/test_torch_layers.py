"""The benchmark of torch's layers: right on small shapes, and wrong results are found."""

import importlib
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def layers():
    """The benchmarks are found in the source, behind what is installed."""
    sys.path.append(str(ROOT))
    yield importlib.import_module("benchmarks.torch_layers")
    sys.path.remove(str(ROOT))


def test_a_run(layers, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(layers, "ROUND_SECONDS", 1e-4)
    file = tmp_path / "times.json"
    given = ["--rounds", "1", "--shapes", "4: 8^3", "--compile", "none", "--json", str(file)]
    layers.main(given)
    found = json.loads(file.read_text())
    assert [row["name"] for row in found["products"]] == ["4: 8^3"] * 2
    assert {row["dtype"] for row in found["calls"]} == {"float32", "float64"}
    for row in found["products"]:
        assert {"ours", "chain"} <= set(row["microseconds"])
        assert not any("wrong" in remark for remark in row["remarks"])
    assert "best peer / ours" in capsys.readouterr().out


def test_wrong_results_are_found(layers):
    exact = torch.linspace(1, 2, 5, dtype=torch.float64)
    assert not layers.is_wrong([exact.float()], [exact])
    assert layers.is_wrong([exact.float() * 1.01], [exact])
    assert layers.is_wrong([exact * float("nan")], [exact])
