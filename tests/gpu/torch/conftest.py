"""Tensors on a device."""

import pytest


@pytest.fixture(scope="module")
def bkt():
    return pytest.importorskip("batchkron.torch")


@pytest.fixture
def tensor(rng):
    """Makes random tensors on the device."""
    torch = pytest.importorskip("torch")

    def make(*shape, dtype=torch.float64, grad=False):
        values = rng.standard_normal(shape)
        if dtype.is_complex:
            values = values + 1j * rng.standard_normal(shape)
        return torch.tensor(values, dtype=dtype, device="cuda", requires_grad=grad)

    return make
