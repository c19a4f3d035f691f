"""The benchmark of Krylov methods runs from the command to the file, on the CPU."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def smallest_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "krylov.json"
    # the command is started from the root of the source, as its README says
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.krylov", "--case", "cg, *, 100", "--case", "batch"]
    command += ["--systems", "20", "--json", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
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
    sys.path.append(str(ROOT))
    try:
        cases = importlib.import_module("benchmarks.krylov.cases")
    finally:
        sys.path.remove(str(ROOT))
    op, factors, b = cases.batch(3, np)
    dense = cases.dense(factors)
    np.testing.assert_allclose(op.apply_flat(b, np.empty_like(b)), (dense @ b[..., None])[..., 0])
    assert np.linalg.cond(dense).max() < 10


@pytest.mark.slow
def test_threads_of_scipys_solvers(tmp_path):
    path = tmp_path / "threads.json"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.krylov.threads"]
    command += ["--unknowns", "0", "10000", "--json", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stdout + run.stderr  # other processes may be busy
    records = json.loads(path.read_text())["solves"]
    assert len(records) == run.stdout.count("| cg |") + run.stdout.count("| gmres |") == 4
    assert all(record["over_one"] > 0 for record in records)
