"""Files of tests that need a package are skipped, not imported, where it is not installed."""

import importlib.util

import pytest


class Skipped(pytest.Module):
    """A file of tests that is not imported."""

    package = ""

    def collect(self):
        pytest.importorskip(self.package)
        raise AssertionError(f"{self.package} is installed")


def file_that_needs(package, module_path, parent):
    """What `pytest_pycollect_makemodule` returns for a file that needs a package."""
    if importlib.util.find_spec(package) is not None:
        return None
    skipped = Skipped.from_parent(parent, path=module_path)
    skipped.package = package
    return skipped
