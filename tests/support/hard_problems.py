"""The hard equations of the benchmarks, for tests of preconditioners."""

import importlib.util
from pathlib import Path

_FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "hard_equations.py"
_SPEC = importlib.util.spec_from_file_location("hard_equations", _FILE)
equations = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(equations)
