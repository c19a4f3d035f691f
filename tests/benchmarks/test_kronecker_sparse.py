"""The benchmark of Kronecker-sparse matrices."""

import json

from source_benchmarks import command


def run(path, *more, statuses=(0,)):
    small = "kronecker_sparse --patterns 2 --batch 16 --turn 0 --json"
    return command(small, path, *more, statuses=statuses)


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "sparse.json"
    done = run(path)
    cells = json.loads(path.read_text())["cells"]
    assert len(cells) == 8  # patterns, dtypes, layouts
    for cell in cells:
        assert not cell["failed"]
        assert {"batchkron", "einsum", "permuted matmul", "SciPy CSR"} < set(cell["seconds"])
        assert cell["gain"] > 0
    gains = sorted(cell["gain"] for cell in cells)
    last = done.stdout.splitlines()[-1].split(" | ")
    assert last[0] == "| all"
    assert last[4:6] == ["8", f"{gains[0]:.2f}"]
    assert last[7] == f"{gains[-1]:.2f}"


def test_runs_go_on_where_the_last_one_ended(tmp_path):
    path = tmp_path / "sparse.json"
    done = run(path)
    report = json.loads(path.read_text())
    first, *others = report["cells"]
    for cell in others:
        cell["gain"] = 1e6  # of a run before
    path.write_text(json.dumps({"machine": report["machine"], "cells": others}))
    ended = run(path, "--seconds", "0")
    assert "7 of 8 cells are there" in ended.stdout
    assert json.loads(path.read_text())["cells"] == others
    done = run(path)
    assert "8 of 8 cells are there" in done.stdout
    *kept, added = json.loads(path.read_text())["cells"]
    assert kept == others
    assert [added[name] for name in ("pattern", "layout")] == [first["pattern"], first["layout"]]
    assert added["gain"] < 1e6
    report["machine"]["processor"] = "another one"
    path.write_text(json.dumps(report))
    refused = run(path, statuses=(1,))
    assert refused.returncode == 1
    assert "another one" in refused.stderr
