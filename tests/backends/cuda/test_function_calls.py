"""Functions on device arrays, with main memory in the place of a device."""

import pytest
from device_check import run_check

CHECKS = {  # by the modules of fake_device_checks
    "kron": (
        "values",
        "repeated_calls",
        "refusals",
        "products_by_address",
        "unusual_arguments",
        "captures",
        "identities",
    ),
    "explicit": ("explicit_products",),
    "gradients": ("kron_gradients", "known_layouts"),
    "batch": ("batches", "lists_once"),
    "factored_lists": ("factored_lists",),
    "kron_sparse": (
        "kronecker_sparse",
        "kronecker_sparse_calls",
        "kronecker_sparse_transposed",
        "kronecker_sparse_tuned",
    ),
    "interpolated": ("interpolated", "transforms", "grids_around_points", "points_on_the_device"),
    "solves": ("solves", "exponentials", "combinations", "lanczos"),
    "krylov_arrays": ("eigenvalues", "least_squares", "functions"),
    "preconditioners": ("block_jacobi",),
    "implicit_steps": ("preconditioned", "equal_steps", "adapted_steps"),
    "pointwise_newton": ("newton",),
    "repeated_work": ("repeated_work",),
    "vector_sum": ("linear_combinations",),
    "step_sums": ("sums", "steps"),
}


@pytest.mark.parametrize(
    ("module", "check"), [(module, check) for module in CHECKS for check in CHECKS[module]]
)
def test_function_calls(module, check):
    """In a process of its own, whose CuPy is that of fake_cupy."""
    run_check(module, check)
