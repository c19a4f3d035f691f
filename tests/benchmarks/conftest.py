"""The benchmarks are found in the source, behind what is installed."""

import sys

import pytest
from source_benchmarks import ROOT


@pytest.fixture(autouse=True, scope="module")
def source_root():
    sys.path.append(str(ROOT))
    yield
    sys.path.remove(str(ROOT))
