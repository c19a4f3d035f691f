"""Functions on device arrays, with main memory in the place of a device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"
CHECKS = {  # by the modules of fake_device_checks
    "kron": (
        "values",
        "repeated_calls",
        "refusals",
        "products_by_address",
        "unusual_arguments",
        "captures",
    ),
    "explicit": ("explicit_products",),
    "gradients": ("kron_gradients", "known_layouts"),
    "batch": ("batches", "lists_once"),
    "kron_sparse": ("kronecker_sparse", "kronecker_sparse_calls"),
    "interpolated": ("interpolated", "transforms"),
    "solves": ("solves", "lanczos"),
    "repeated_work": ("repeated_work",),
}


@pytest.mark.parametrize(
    ("module", "check"), [(module, check) for module in CHECKS for check in CHECKS[module]]
)
def test_function_calls(module, check):
    """In a process of its own, whose CuPy is that of fake_cupy."""
    command = [sys.executable, str(SUPPORT / "run_device_check.py"), module, check]
    # no empty entry: it would be the current folder, whose package is not the installed one
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
