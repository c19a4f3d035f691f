"""Gradients of x (A_1 ⊗ … ⊗ A_d), mode by mode in NumPy; all numbers are real."""

import numpy as np


def along_mode(x, A, mode):
    """Multiply a mode of x (rows, P_1, …, P_d) by A (P, Q), from the right."""
    return np.moveaxis(np.tensordot(x, A, (mode + 1, 0)), -1, mode + 1)


def factor_gradient(x, gradient, factors, k):
    """The gradient in A_k, of x (rows, P_1, …, P_d) and the product's gradient (rows, Q_1, …)."""
    for j, A in enumerate(factors):
        if j < k:
            x = along_mode(x, A, j)
        if j > k:
            gradient = along_mode(gradient, A.T, j)
    left, right = (
        np.moveaxis(one, k + 1, 0).reshape(one.shape[k + 1], -1) for one in (x, gradient)
    )
    return left @ right.T


def vector_gradient(gradient, factors):
    """The gradient in x, (rows, P_1, …, P_d)."""
    for j, A in enumerate(factors):
        gradient = along_mode(gradient, A.T, j)
    return gradient
