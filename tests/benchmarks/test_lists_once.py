"""The benchmark of batch lists that are used once."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_measures_and_writes(tmp_path):
    path = tmp_path / "once.json"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", "benchmarks.lists_once", "--quick", "--json", str(path)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    content = json.loads(path.read_text())
    assert len(content["cells"]) == 8  # two cases, dtypes, kinds of pools
    for cell in content["cells"]:
        assert set(cell["seconds"]) == {"batched_kron", "built and applied", "applied"}
        assert all(value > 0 for value in cell["seconds"].values())
    assert content["machine"]["batchkron"]
