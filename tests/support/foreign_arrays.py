"""Arrays of other libraries that speak DLPack, made of NumPy's."""

import importlib

import array_api_strict
import numpy as np
import pytest


def torch_tensor(values):
    return pytest.importorskip("torch").from_numpy(np.array(values))


def jax_array(values):
    pytest.importorskip("jax").config.update("jax_enable_x64", True)
    return importlib.import_module("jax.numpy").asarray(values)


# By the names of libraries; those that are not installed skip the test.
MAKERS = {"strict": array_api_strict.asarray, "torch": torch_tensor, "jax": jax_array}
