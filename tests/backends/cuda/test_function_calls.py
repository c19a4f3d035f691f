"""Functions on device arrays, with main memory in the place of a device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"
CHECKS = ("values", "repeated_calls", "refusals", "unusual_arguments", "captures", "batches")


@pytest.mark.parametrize("check", CHECKS)
def test_function_calls(check):
    """In a process of its own, whose CuPy is that of fake_cupy.py."""
    command = [sys.executable, str(SUPPORT / "fake_device_checks.py"), check]
    paths = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
