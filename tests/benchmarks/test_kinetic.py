"""The benchmark of kinetic problems."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "kinetic.json"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.kinetic", "--levels", "2", "--turns", "1"]
    command += ["--until", "0.3", "--adapted-level", "4", "--json", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    record = json.loads(path.read_text())
    (side,) = record["right_hand_sides"]
    assert side["unknowns"] == 72
    assert min(side["field"], side["frozen"]) > 0
    assert record["steps"][0]["problem"] == "two-stream"
    full, sparse, adapted = record["adapted"]["runs"]
    assert (full["unknowns"], full["error"]) == (2304, 0.0)
    assert sparse["unknowns"] == 432
    assert 0.0 < adapted["error"] < 1.0
