"""What XLA's calls launch, with main memory in the place of a device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize("check", ["kron_matmul", "mode_gram"])
def test_launches(check):
    """In a process of its own, whose CuPy is that of fake_cupy."""
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(SUPPORT / "run_device_check.py"), "jax_calls", check]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
