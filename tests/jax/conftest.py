"""What the tests of batchkron.jax share; they are skipped where JAX is not installed."""

import importlib.util

import numpy as np
import pytest


class WithoutJax(pytest.Module):
    """A file of tests that is not imported."""

    def collect(self):
        pytest.importorskip("jax")
        raise AssertionError("JAX is installed")


def pytest_pycollect_makemodule(module_path, parent):
    if importlib.util.find_spec("jax") is None:
        return WithoutJax.from_parent(parent, path=module_path)
    return None


@pytest.fixture(autouse=True)
def double_precision():
    """Lets JAX have float64 and complex128; `jax.enable_x64(False)` in a test takes them away."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["complex128", pytest.param("float64", marks=pytest.mark.slow)])
def precise(request):
    """A dtype in which derivatives are compared with differences."""
    return request.param


@pytest.fixture
def array(rng):
    """Makes random arrays of a shape and a dtype."""
    import jax.numpy as jnp

    def make(*shape, dtype="float64"):
        values = rng.standard_normal(shape)
        if np.dtype(dtype).kind == "c":
            values = values + 1j * rng.standard_normal(shape)
        return jnp.asarray(values, dtype=dtype)

    return make
