""".ci/same_bits names the call whose result has changed."""

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / ".ci" / "same_bits"


def run(*options):
    command = [sys.executable, TOOL, "--isa", "best", "--only", "kron float", *options]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_changed_result_is_named(tmp_path):
    path = tmp_path / "hashes.json"
    recorded = run("--output", path)
    assert recorded.returncode == 0, recorded.stderr
    content = json.loads(path.read_text())
    first, second = content["hashes"]
    content["hashes"][second] = content["hashes"][first]
    path.write_text(json.dumps(content))
    compared = run("--compare", path)
    assert compared.returncode == 1, compared.stderr
    assert compared.stdout.split("\n") == [second, ""]
    assert compared.stderr == "1 of 2 calls differ\n"
