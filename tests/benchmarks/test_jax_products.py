"""The benchmark of JAX's products: right on a small shape, and wrong results are found."""

import json

import numpy as np
import pytest
import source_benchmarks

jax = pytest.importorskip("jax")


@pytest.fixture(scope="module")
def products():
    return source_benchmarks.module("jax_products")


def test_a_run(products, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(products, "ROUND_SECONDS", 1e-4)
    monkeypatch.setattr(products, "LOOPS", 3)
    in_loops = {f"{name}, in a loop" for name in products.CONTENDERS}
    file = tmp_path / "times.json"
    products.main(["--rounds", "1", "--shapes", "4: 8^3", "--json", str(file)])
    found = json.loads(file.read_text())["rows"]
    assert [row["dtype"] for row in found] == ["float32", "float64"]
    for row in found:
        assert row["name"] == "4: 8^3"
        assert set(row["microseconds"]) == in_loops.union(products.CONTENDERS)
        assert row["wrong"] == []
    assert "ours, gradients" in capsys.readouterr().out


def test_a_loop_calls_as_often_as_it_says(products, monkeypatch):
    monkeypatch.setattr(products, "LOOPS", 5)
    seen = []

    def function(x, weight):
        jax.debug.callback(seen.append, x, ordered=True)
        return x * weight

    assert products.repeated(function)(np.float32(2), np.float32(3)) == 6
    jax.effects_barrier()
    assert [float(x) for x in seen] == [2] * 5


def test_wrong_results_are_found(products):
    exact = np.linspace(1, 2, 5)
    assert not products.is_wrong([exact + 1e-6], [exact], 1e-4)
    assert products.is_wrong([exact * 1.01], [exact], 1e-4)
    assert products.is_wrong([exact * float("nan")], [exact], 1e-4)
