"""What the tests of batchkron.torch share; they are skipped where torch is not installed."""

import importlib

import pytest
from optional_packages import file_that_needs


def pytest_pycollect_makemodule(module_path, parent):
    return file_that_needs("torch", module_path, parent)


@pytest.fixture(params=["float64", "complex128"])
def precise(request):
    """A dtype in which gradients are compared with differences."""
    return getattr(importlib.import_module("torch"), request.param)


@pytest.fixture
def tensor(rng):
    """Makes random tensors of a shape and a dtype, optionally with a gradient."""
    torch = importlib.import_module("torch")

    def make(*shape, dtype=torch.float64, grad=False):
        values = rng.standard_normal(shape)
        if dtype.is_complex:
            values = values + 1j * rng.standard_normal(shape)
        return torch.tensor(values, dtype=dtype, requires_grad=grad)

    return make
