"""Gradients of tensors by a device's plans, with main memory in the place of a device."""

from device_check import run_check


def test_gradients():
    """In a process of its own, whose CuPy is that of fake_cupy."""
    run_check("torch_calls", "gradients")


def test_chains_of_kronecker_sparse_matrices():
    run_check("torch_calls", "sparse_chains")


def test_biases_and_activations_of_chains():
    run_check("torch_calls", "sparse_endings")
