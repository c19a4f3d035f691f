"""The benchmark of full and sparse grids at equal error."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "runs.json"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.full_or_sparse", "--quick", "--json", str(path)]
    command += ["--plot", str(tmp_path / "runs.svg")]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    runs = json.loads(path.read_text())["runs"]
    assert len(runs) == 14  # four kinds of grids, of which two cases have three
    assert all(0.0 < one["error"] < 1.0 for one in runs)
    errors = {one["grid"]: one["error"] for one in runs if one["case"] == "Burgers"}
    assert errors["sparse"] < 0.1
    assert (tmp_path / "runs.svg").stat().st_size > 1000
