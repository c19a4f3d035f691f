"""Functions of the state at points, on a device that is none."""

import pytest
from device_check import run_check


@pytest.mark.timeout(300)
def test_pointwise_terms_on_a_device():
    run_check("pointwise", "on_a_device")
