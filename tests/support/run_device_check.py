"""Run one of the fake_device_checks: python tests/support/run_device_check.py kron values"""

import sys
from importlib import import_module

if __name__ == "__main__":
    module, check = sys.argv[1:]
    getattr(import_module(f"fake_device_checks.{module}"), check)()
