"""The CPU benchmark runs from the command to the file, also where no peer is installed."""

import json
from pathlib import Path

import pytest
import source_benchmarks

ROOT = source_benchmarks.ROOT


@pytest.fixture(scope="module")
def smallest_run(tmp_path_factory):
    """What the smallest cell prints and writes, without any peer."""
    path = tmp_path_factory.mktemp("benchmark") / "times.json"
    small = "cpu --quick --threads 1 --rounds 1 --turn 1 --memory 0.1 --regime tiny-cubes --peers"
    run = source_benchmarks.command(small, "--shape", "1: 2^3", "--json", path)
    return run.stdout, json.loads(path.read_text())


def test_our_times_are_measured_in_both_dtypes(smallest_run):
    _, record = smallest_run
    assert [cell["dtype"] for cell in record["cells"]] == ["float64", "float32"]
    for cell in record["cells"]:
        ours = [result for result in cell["results"] if result["kind"] == "times"]
        assert [result["name"] for result in ours] == ["batchkron"]
        assert 0 < ours[0]["least"] <= ours[0]["median"] < 1


def test_missing_peers_are_named_and_meet_nothing(smallest_run):
    printed, record = smallest_run
    for cell in record["cells"]:
        absent = {result["name"] for result in cell["results"] if result["kind"] == "absent"}
        assert absent == {"NumPy", "opt_einsum", "FastKron"}
    assert all(v["ratio"]["value"] is None and v["met"] is not True for v in record["verdicts"])
    assert "FastKron was not measured: left out by --peers" in printed


def test_ceilings_and_versions_are_in_the_file(smallest_run):
    printed, record = smallest_run
    for name in (
        "fma float64",
        "fma float32",
        "gemm float64",
        "gemm float32",
        "bandwidth",
        "write",
    ):
        assert record["ceilings"]["1"][name] > 0
    assert record["machine"]["batchkron"]
    assert record["settings"]["seed"]
    assert "## Summary" in printed


def test_the_page_has_the_tables_of_the_files(monkeypatch, capsys):
    tables = source_benchmarks.module("cpu.tables")
    names = "zen5-cpu.json", "zen5-cpu-large.json"
    files = [str(ROOT / "benchmarks" / "results" / name) for name in names]
    tables.main(files)
    assert capsys.readouterr().out in (ROOT / "docs" / "results" / "cpu.md").read_text()
    tables.main([*files, "--missed"])
    rows = capsys.readouterr().out.splitlines()
    assert "| 4-and-8 | 64: 8^4 | float32 | 1 | 98.2 µs | 2.25 (≥ 3.00) FastKron |  |" in rows
    verdicts = tables.verdicts_of(map(Path, files))
    assert len(rows) == 2 + sum(one["met"] is False for one in verdicts)
