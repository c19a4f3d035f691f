"""What the tests of batchkron.torch share; they are skipped where torch is not installed."""

import importlib.util

import pytest


class WithoutTorch(pytest.Module):
    """A file of tests that is not imported."""

    def collect(self):
        pytest.importorskip("torch")
        raise AssertionError("torch is installed")


def pytest_pycollect_makemodule(module_path, parent):
    if importlib.util.find_spec("torch") is None:
        return WithoutTorch.from_parent(parent, path=module_path)
    return None


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
