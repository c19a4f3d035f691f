"""The benchmark of Krylov methods runs from the command to the file, on the CPU."""

import json

import numpy as np
import pytest
import source_benchmarks

ROOT = source_benchmarks.ROOT


@pytest.fixture(scope="module")
def smallest_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "krylov.json"
    small = "krylov --case batch --systems 20 --case"
    run = source_benchmarks.command(small, "cg, *, 100", "--json", path)
    return run.stdout, json.loads(path.read_text())


def test_all_are_timed_and_right(smallest_run):
    printed, report = smallest_run
    assert len(report["cells"]) == 4
    for cell in report["cells"]:
        assert cell["right"]
        assert cell["ratio"] > 0
        assert cell["case"] in printed
        assert all(0 < seconds < 10 for seconds in cell["seconds"].values())
    assert report["machine"]["scipy"]


def test_a_systems_matrix_is_that_of_the_operator():
    cases = source_benchmarks.module("krylov.cases")
    op, factors, b = cases.batch(3, np)
    dense = cases.dense(factors)
    np.testing.assert_allclose(op.apply_flat(b, np.empty_like(b)), (dense @ b[..., None])[..., 0])
    assert np.linalg.cond(dense).max() < 10


@pytest.mark.slow
def test_threads_of_scipys_solvers(tmp_path):
    path = tmp_path / "threads.json"
    # other processes may be busy
    small = "krylov.threads --unknowns 0 10000 --json"
    run = source_benchmarks.command(small, path, statuses=(0, 1))
    records = json.loads(path.read_text())["solves"]
    assert len(records) == run.stdout.count("method cg, ") + run.stdout.count("method gmres, ") == 4
    assert all(record["over_one"] > 0 for record in records)
