"""The benchmark of factored plans of batch lists."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "factored.json"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.factored_lists", "--quick", "--json", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    content = json.loads(path.read_text())
    assert len(content["cells"]) == 5  # of an operator, all pairs, random, two of set-up
    assert all(value > 0 for cell in content["cells"] for value in cell["seconds"].values())
    assert content["cells"][1]["fewer"] > 4
    assert content["machine"]["batchkron"]
