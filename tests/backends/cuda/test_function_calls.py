"""Functions on device arrays, with main memory in the place of a device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"
CHECKS = (
    "values",
    "repeated_calls",
    "refusals",
    "products_by_address",
    "unusual_arguments",
    "captures",
    "explicit_products",
    "batches",
    "lists_once",
    "kronecker_sparse",
    "kronecker_sparse_calls",
    "interpolated",
    "transforms",
    "solves",
    "lanczos",
    "repeated_work",
)


@pytest.mark.parametrize("check", CHECKS)
def test_function_calls(check):
    """In a process of its own, whose CuPy is that of fake_cupy."""
    command = [sys.executable, str(SUPPORT / "fake_device_checks.py"), check]
    # no empty entry: it would be the current folder, whose package is not the installed one
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
