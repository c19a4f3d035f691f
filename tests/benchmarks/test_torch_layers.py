"""The benchmark of torch's layers: right on small shapes, and wrong results are found."""

import json
import subprocess

import pytest
import source_benchmarks

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def layers():
    return source_benchmarks.module("torch_layers")


def test_chains_that_were_not_compiled_are_named(layers, monkeypatch, capsys):
    monkeypatch.setattr(layers, "ROUND_SECONDS", 1e-4)
    compiling = layers
    monkeypatch.setattr(compiling, "failure", lambda task, *how: f"took too long: {task}")
    monkeypatch.setattr(layers, "overheads", lambda device, rounds: [])
    layers.main(["--rounds", "1", "--shapes", "4: 8^3"])
    shown = capsys.readouterr().out
    for dtype in ("float32", "float64"):
        assert f"chain, compiled: took too long: (4, (8, 8, 8), '{dtype}')" in shown


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


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_a_compiled_contender(layers, tmp_path, monkeypatch):
    """Compiled first in another process."""
    monkeypatch.setattr(layers, "ROUND_SECONDS", 1e-4)
    file = tmp_path / "times.json"
    given = ["--rounds", "1", "--shapes", "4: 8^3", "--compile", "eager", "--json", str(file)]
    layers.main([*given, "--compile-seconds", "100"])
    for row in json.loads(file.read_text())["products"]:
        assert row["microseconds"][layers.COMPILED] > 0
        assert not any(layers.COMPILED in remark for remark in row["remarks"])


def test_what_takes_too_long_to_compile_is_ended(layers, monkeypatch):
    started, start = [], subprocess.Popen

    def noted(*given, **how):
        started.append(start(*given, **how))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    failure = layers.failure
    assert failure((4, (2, 2), "float64"), "cpu", "eager", 0.0) == "took over 0 s to compile"
    assert started[0].poll() is not None
    assert "none of these" in failure((4, (2, 2), "float64"), "cpu", "none of these", 100.0)


def test_the_best_peer_is_one_of_the_same_kind(layers):
    times = {"ours": 2.0, "chain": 3.0, "other": None, "ours, graph": 1.0, "chain, graph": 4.0}
    assert layers.best_ratio(times) == 1.5
    assert layers.best_ratio(times, layers.GRAPH) == 4.0
    assert layers.best_ratio({"ours": 2.0, "ours, graph": 1.0}) is None
    assert layers.best_ratio({"chain": 2.0}) is None
