"""Checks of gradients, which the tests of several functions share."""

import torch


def dense_kron(factors):
    """A_1 ⊗ … ⊗ A_d by torch."""
    product = factors[0]
    for factor in factors[1:]:
        product = torch.kron(product, factor)
    return product


def assert_same(result, expected, steps):
    """Compare results whose sums have ``steps`` terms, with numbers of size 1."""
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    result, expected = result.detach(), expected.detach()
    eps = torch.finfo(result.dtype).eps
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    difference = (result - expected).abs()
    assert difference.numel() == 0 or float(difference.max()) <= 8 * eps * steps * scale
