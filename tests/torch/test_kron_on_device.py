"""Gradients of tensors by a device's plans, with main memory in the place of a device."""

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "support"


def test_gradients():
    """In a process of its own, whose CuPy is that of fake_cupy."""
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(SUPPORT / "run_device_check.py"), "torch_calls", "gradients"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
