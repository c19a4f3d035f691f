"""Checks on the device of fake_cupy, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parent


def run_check(module, check):
    """Run a function of a module of fake_device_checks, and fail if it does."""
    command = [sys.executable, str(SUPPORT / "run_device_check.py"), module, check]
    # no empty entry: it would be the current folder, whose package is not the installed one
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
