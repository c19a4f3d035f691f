"""Modules and commands of the benchmarks, which are in the source and not in the package."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def module(name):
    """A module of the benchmarks; `tests/benchmarks/conftest.py` lets it be found."""
    return importlib.import_module(f"benchmarks.{name}")


def command(text, *words, statuses=(0,)):
    """Run ``python -m benchmarks.TEXT WORDS`` from the root of the source, as its README says."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    name, *first = text.split()
    line = [sys.executable, "-m", f"benchmarks.{name}", *first, *map(str, words)]
    run = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode in statuses, run.stdout + run.stderr
    return run
