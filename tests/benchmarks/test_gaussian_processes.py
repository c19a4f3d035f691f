"""The benchmark of GPyTorch's training steps: right on a small case, and wrong losses are found."""

import importlib
import json
import weakref
from argparse import Namespace

import pytest
import source_benchmarks

torch = pytest.importorskip("torch")
pytest.importorskip("gpytorch")


@pytest.fixture(scope="module")
def benchmark():
    return source_benchmarks.module("gaussian_processes")


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
    row = {"dtype": "float64", "milliseconds": {}, "losses": {"GPyTorch": 1.0, "product": 1.001}}
    assert benchmark.comparisons(row) == ["product: the loss differs by 1.0e-03"]
    row["losses"]["product"] = float("nan")
    assert "differs" in benchmark.comparisons(row)[0]
    monkeypatch.setitem(benchmark.WAYS, "product", benchmark.without_products)
    with pytest.raises(SystemExit, match="losses differ"):
        benchmark.main(["--cases", "quick 8^2", "--epochs", "2"])


def test_the_bound_leaves_nothing_behind(benchmark):
    from linear_operator.operators import KroneckerProductLinearOperator

    before = dict(vars(KroneckerProductLinearOperator))
    with benchmark.without_products():
        assert dict(vars(KroneckerProductLinearOperator)) != before
    assert dict(vars(KroneckerProductLinearOperator)) == before


@pytest.fixture
def table(benchmark, monkeypatch):
    """The command of the paper's table, with one small case and a small network."""
    found = source_benchmarks.module("papers.gaussian_processes")
    monkeypatch.setattr(found, "QUICK", {"quick 8^2": benchmark.QUICK["quick 8^2"]})
    monkeypatch.setattr(benchmark, "HIDDEN", (8,))
    monkeypatch.setattr(found, "TESTED", 20)
    return found


def test_the_papers_table(table, tmp_path, capsys):
    file = tmp_path / "table.json"
    given = ["--quick", "--epochs", "2", "--json", str(file)]
    assert table.main([*given, "--device", "cpu"]) == 0
    cells = json.loads(file.read_text())["cells"]
    assert set(cells) == {"quick 8^2 SKI float32", "quick 8^2 LOVE float32"}
    found = cells["quick 8^2 LOVE float32"]["predictions"]
    for way in table.PREDICTED:
        assert found[way]["first"] > 0
        assert found[way]["next"] > 0
    assert set(found["differences"]) == {"mean", "deviation"}
    assert all(0 <= one < 1e-3 for one in found["differences"].values())
    first = capsys.readouterr().out
    assert table.main(given) == 0  # from the file
    assert capsys.readouterr().out in first
    rows = [line for line in first.splitlines() if line.startswith("| quick 8^2")]
    assert [row.split(" | ")[2] for row in rows[:3]] == ["SKI", "SKIP", "LOVE"]
    assert rows[0].replace("SKI", "SKIP") == rows[1]
    assert len(rows) == 4  # with that of predictions


def test_predictions_are_on_one_grid(table, benchmark):
    """GPyTorch's are those of the model: it mixes two grids if it is free to choose them."""
    torch = importlib.import_module("torch")
    options = Namespace(device="cpu")
    made = table.Prediction(benchmark.Case(200, 10, 2), "GPyTorch", options, torch.float64)
    model, test = made.model, made.points[0]
    kernel = model.covar_module.base_kernel
    before = [axis.clone() for axis in kernel.grid]
    made.forget()
    mean, variance = made.predict(test)[1]
    for points in made.points:
        made.predict(points)
    assert all(map(torch.equal, before, kernel.grid))
    with torch.no_grad():
        x = model.train_inputs[0]
        places = model.features(torch.cat([x, test]))
        joint = model.covar_module(places).to_dense()
        count, noise = len(x), model.likelihood.noise
        noisy = joint[:count, :count] + noise * torch.eye(count, dtype=x.dtype)
        between = joint[count:, :count]
        exact = between @ torch.linalg.solve(noisy, model.train_targets)
        reduced = (between * torch.linalg.solve(noisy, between.mT).mT).sum(1)
    torch.testing.assert_close(mean, exact, rtol=0, atol=1e-9)
    torch.testing.assert_close(variance, joint.diagonal()[count:] - reduced, rtol=0, atol=1e-9)


def test_differences_are_relative_to_the_prior(table):
    torch = importlib.import_module("torch")
    mean, variance = torch.tensor([5.0, 5.5, 6.0]), torch.tensor([4e-6, 1e-6, 1e-6])
    found = mean + torch.tensor([0.0, 0.01, 0.0]), torch.tensor([9e-6, 1e-6, -1e-9])
    apart = table.differences(found, (mean, variance), prior=0.25)
    assert apart["mean"] == pytest.approx(0.01, rel=1e-3)
    assert apart["deviation"] == pytest.approx(2e-3, rel=1e-3)


def test_the_difference_of_earlier_files_is_not_shown(table):
    known = {"first": 2.0, "next": 1.0, "bytes": None}
    predictions = {"GPyTorch": known, "interpolated": known, "difference": 4.1}
    cells = {"servo 64^4 LOVE float32": {"trained": 5, "predictions": predictions}}
    (row,) = list(table.predictions_table({"cells": cells}, "float32", ["servo 64^4"]))[1:]
    assert row == "| servo 64^4 | 5 | 2 | 2 | 1 | 1 | – | – | – | – |"


def test_the_papers_table_without_memory(table, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(table.MAX_KEPT, "cpu", 10)
    file = tmp_path / "table.json"
    given = ["--quick", "--epochs", "2", "--device", "cpu", "--json", str(file)]
    assert table.main(given) == 0
    found = json.loads(file.read_text())["cells"]["quick 8^2 LOVE float32"]["predictions"]
    assert found["GPyTorch"] == {"failed": "4.1e+03 elements"}
    assert found["interpolated"]["next"] > 0
    assert "4.1e+03 elements" in capsys.readouterr().out


def test_what_runs_out_of_memory_leaves_nothing_behind(table, monkeypatch, tmp_path):
    alive, before = weakref.WeakSet(), []

    class Failing(table.Prediction):
        def __init__(self, case, way, options, dtype):
            before.append(len(alive))
            super().__init__(case, way, options, dtype)
            alive.add(self)

        def predict(self, points):
            raise torch.OutOfMemoryError

    monkeypatch.setattr(table, "Prediction", Failing)
    file = tmp_path / "table.json"
    assert table.main(["--quick", "--epochs", "2", "--device", "cpu", "--json", str(file)]) == 0
    found = json.loads(file.read_text())["cells"]["quick 8^2 LOVE float32"]["predictions"]
    assert found == {way: {"failed": "OutOfMemoryError"} for way in table.PREDICTED}
    assert before == [0, 0]


def test_published_factors_of_the_paper(table):
    cells = {
        f"{name} {model} float32": {
            "trained": 5,
            "published": dict(
                zip(("SKI", "SKIP", "LOVE"), table.CASES[name].published, strict=True)
            ),
            "milliseconds": {"GPyTorch": 30.0, "product": 20.0, "interpolated": 3.0, "bound": 15.0},
        }
        for name in table.ORDER
        for model in table.MODELS
    }
    lines = list(table.steps_table({"cells": cells}, "float32", table.ORDER))[1:]
    assert len(lines) == 24
    text = "| servo 64^4 | 5 | LOVE | 30 | 20 | 3 | 15 | 2.2 | 1.5 | 2 | 10 |"
    assert text in lines
    assert table.kept_elements(table.CASES["servo 64^4"], 107) == 107 * 64**4
    assert table.kept_elements(table.CASES["kin40k 8^8"], 25_600) == 25_600 * 4**8


def test_nothing_is_printed_of_nothing(table):
    with pytest.raises(SystemExit, match="nothing was measured"):
        table.main(["--quick"])
