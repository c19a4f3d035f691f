"""What XLA's calls launch, with main memory in the place of a device."""

import pytest
from device_check import run_check


@pytest.mark.parametrize("check", ["kron_gradients", "kron_matmul", "mode_gram"])
def test_launches(check):
    """In a process of its own, whose CuPy is that of fake_cupy."""
    run_check("jax_calls", check)
