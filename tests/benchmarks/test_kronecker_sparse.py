"""The benchmark of Kronecker-sparse matrices."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "sparse.json"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.kronecker_sparse", "--patterns", "2"]
    command += ["--batch", "16", "--turn", "0", "--json", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    cells = json.loads(path.read_text())["cells"]
    assert len(cells) == 8  # patterns, dtypes, layouts
    for cell in cells:
        assert not cell["failed"]
        assert {"batchkron", "einsum", "permuted matmul", "SciPy CSR"} < set(cell["seconds"])
        assert cell["gain"] > 0
