"""The benchmark of GPyTorch's training steps: right on a small case, and wrong losses are found."""

import importlib
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("gpytorch")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmark():
    """The benchmarks are found in the source, behind what is installed."""
    sys.path.append(str(ROOT))
    yield importlib.import_module("benchmarks.gaussian_processes")
    sys.path.remove(str(ROOT))


def test_a_run(benchmark, tmp_path, capsys):
    file = tmp_path / "times.json"
    given = ["--cases", "quick 8^2", "--models", "SKI", "LOVE", "--epochs", "2", "--json"]
    benchmark.main([*given, str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["model"] for row in rows] == ["SKI", "LOVE"]
    for row in rows:
        assert set(row["milliseconds"]) == set(benchmark.WAYS) == set(row["losses"])
        assert all(time > 0 for time in row["milliseconds"].values())
    shown = capsys.readouterr().out
    assert "GPyTorch / interpolated" in shown


def test_too_large_matrices_are_not_formed(benchmark, monkeypatch, capsys):
    monkeypatch.setitem(benchmark.MAX_ENTRIES, "cpu", 10)
    given = ["--cases", "quick 8^2", "--epochs", "2"]
    benchmark.main(given)
    assert "product: an interpolation matrix of 1.0e+03 entries" in capsys.readouterr().out


def test_wrong_losses_are_found(benchmark, monkeypatch):
    row = benchmark.Row("case", "SKI", "float64", 10, {}, {}, {"GPyTorch": 1.0, "product": 1.001})
    assert benchmark.remarks(row) == ["product: the loss differs by 1.0e-03"]
    row.losses["product"] = float("nan")
    assert "differs" in benchmark.remarks(row)[0]
    monkeypatch.setitem(benchmark.WAYS, "product", benchmark.without_products)
    with pytest.raises(SystemExit, match="losses differ"):
        benchmark.main(["--cases", "quick 8^2", "--epochs", "2"])


def test_the_bound_leaves_nothing_behind(benchmark):
    from linear_operator.operators import KroneckerProductLinearOperator

    before = dict(vars(KroneckerProductLinearOperator))
    with benchmark.without_products():
        assert dict(vars(KroneckerProductLinearOperator)) != before
    assert dict(vars(KroneckerProductLinearOperator)) == before
