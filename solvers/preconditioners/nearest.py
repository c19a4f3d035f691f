"""The Kronecker product, and the Kronecker sum, nearest to a sum of Kronecker products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.operators.scaling import times_power_of_two, unit_exponent

__all__ = ["nearest_product", "nearest_sum"]

# Alternating least squares end after this many sweeps, or when norms change by less than this
# factor; chosen by hand.
_SWEEPS = 200
_SETTLED = 1e-13


def nearest_product(terms: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return X_k that minimise ‖Σ_t A_t1 ⊗ … ⊗ A_td - X_1 ⊗ … ⊗ X_d‖_F.

    Parameters
    ----------
    terms : sequence of ndarray, (..., terms, n_k, n_k), one per mode
        The A_tk; coefficients are multiplied into the first mode. Leading axes stand for many such
        sums.

    Returns
    -------
    list of ndarray, (..., n_k, n_k)
        For two modes the best rank-1 approximation of the rearranged matrix. For more modes a
        minimum with respect to each single X_k, found by alternating least squares that start from
        identities.

    Notes
    -----
    Source: C. F. Van Loan, N. Pitsianis, Approximation with Kronecker products, in: Linear Algebra
    for Large Scale and Real-Time Applications, Kluwer (1993). The Kronecker products are never
    formed: X_k = Σ_t A_tk Π_{j≠k} ⟨X_j, A_tj⟩ / ‖X_j‖².

    Examples
    --------
    >>> import numpy as np
    >>> A, B = np.diag([1.0, 2.0]), np.array([[2.0, 1.0], [0.0, 2.0]])
    >>> X = nearest_product([np.array([A, A]), np.array([B, 2 * B])])
    >>> print(np.allclose(np.kron(*X), 3 * np.kron(A, B)))
    True
    """
    units = [unit_exponent(mode) for mode in terms]  # whose squares would be out of range
    terms = [times_power_of_two(mode, -unit) for mode, unit in zip(terms, units, strict=True)]
    shapes = [(*mode.shape[:-3], *mode.shape[-2:]) for mode in terms]
    dtype = np.result_type(np.float64, *terms)
    found = [np.broadcast_to(np.eye(shape[-1], dtype=dtype), shape) for shape in shapes]
    products = [_inner(x, mode) for x, mode in zip(found, terms, strict=True)]
    sizes = [_square(x) for x in found]
    before = None
    for _ in range(_SWEEPS):
        for k, mode in enumerate(terms):
            weights: Any = 1.0
            for j in range(len(terms)):
                if j != k:
                    weights = weights * products[j] / sizes[j][..., None]
            total = np.einsum("...t,...tij->...ij", weights * np.ones(mode.shape[:-2]), mode)
            found[k] = total
            products[k], sizes[k] = _inner(total, mode), _square(total)
        now = np.prod([np.sqrt(size) for size in sizes], axis=0)
        if before is not None and np.all(np.abs(now - before) <= _SETTLED * now):
            break
        before = now
    pairs = zip(_balanced(found), units, strict=True)
    return [np.asarray(times_power_of_two(one, unit)) for one, unit in pairs]


def nearest_sum(terms: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return K_k that minimise ‖Σ_t A_t1 ⊗ … ⊗ A_td - (K_1 ⊕ … ⊕ K_d)‖_F.

    Parameters
    ----------
    terms : sequence of ndarray, (..., terms, n_k, n_k), one per mode
        The A_tk; coefficients are multiplied into the first mode.

    Returns
    -------
    list of ndarray, (..., n_k, n_k)
        The orthogonal projection: partial traces over all other modes, divided by these modes'
        sizes, with the mean of the diagonal distributed evenly over the K_k.

    Examples
    --------
    >>> import numpy as np
    >>> A, B, one = np.diag([1.0, 2.0]), np.array([[2.0, 1.0], [0.0, 2.0]]), np.eye(2)
    >>> K = nearest_sum([np.array([A, one]), np.array([one, B])])
    >>> given = np.kron(A, one) + np.kron(one, B)
    >>> print(np.allclose(np.kron(K[0], one) + np.kron(one, K[1]), given))
    True
    """
    means = [np.trace(mode, axis1=-2, axis2=-1) / mode.shape[-1] for mode in terms]
    whole = np.prod(means, axis=0).sum(axis=-1)
    share = whole * (len(terms) - 1) / len(terms)
    found = []
    for k, mode in enumerate(terms):
        weights: Any = np.ones(mode.shape[:-2])
        for j, mean in enumerate(means):
            if j != k:
                weights = weights * mean
        part = np.einsum("...t,...tij->...ij", weights, mode)
        found.append(part - share[..., None, None] * np.eye(mode.shape[-1]))
    return found


def _inner(x: NDArray[Any], mode: NDArray[Any]) -> NDArray[Any]:
    """Return ⟨X, A_t⟩ for each term."""
    return np.asarray(np.einsum("...ij,...tij->...t", x.conj(), mode))


def _square(x: NDArray[Any]) -> NDArray[Any]:
    """Return ‖X‖², but at least the smallest positive number, so that it can be divided by."""
    least = np.finfo(np.float64).tiny
    return np.asarray(np.maximum((np.abs(x) ** 2).sum(axis=(-2, -1)), least))


def _balanced(found: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return the factors scaled to equal norms; their product is unchanged."""
    norms = [np.sqrt(_square(x)) for x in found]
    common = np.prod(norms, axis=0) ** (1.0 / len(found))
    return [x * (common / norm)[..., None, None] for x, norm in zip(found, norms, strict=True)]
