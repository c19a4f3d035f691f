"""The benchmark of interpolated Kronecker products."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "interpolated.json"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.interpolated", "--modes", "2,3", "--points", "50"]
    command += ["--batch", "1,3", "--turn", "0", "--json", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    cells = json.loads(path.read_text())["cells"]
    assert len(cells) == 16  # dimensions, dtypes, batches, kinds
    for cell in cells:
        assert not cell["failed"]
        assert {"batchkron", "SciPy CSR"} <= set(cell["seconds"])
        assert cell["gain"] > 0
        assert cell["bytes"]["batchkron"] < cell["bytes"]["SciPy CSR"]
