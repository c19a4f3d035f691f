"""What the tests of batchkron.linear_operator share; they are skipped where it is not installed."""

import importlib

import pytest
from optional_packages import file_that_needs


def pytest_pycollect_makemodule(module_path, parent):
    return file_that_needs("linear_operator", module_path, parent)


@pytest.fixture
def tensor(rng):
    """Makes random tensors of a shape and a dtype, optionally with a gradient."""
    torch = importlib.import_module("torch")

    def make(*shape, dtype=torch.float64, grad=False):
        return torch.tensor(rng.standard_normal(shape), dtype=dtype, requires_grad=grad)

    return make


@pytest.fixture
def definite(tensor):
    """Makes symmetric positive definite matrices (*batch, n, n)."""

    def make(*shape, dtype=None, grad=False):
        root = tensor(*shape)
        matrix = root @ root.mT / shape[-1] + 0.5 * root.new_ones(shape[-1]).diag_embed()
        return matrix.to(dtype or matrix.dtype).requires_grad_(grad)

    return make
