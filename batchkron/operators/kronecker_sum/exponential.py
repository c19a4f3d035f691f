"""exp(t A) and the φ-functions of a Kronecker sum, exact up to rounding, as Kronecker products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchkron.operators.kronecker_sum.operator import KroneckerSum
from batchkron.operators.kronecker_sum.phi_functions import PhiFunctions

__all__ = ["SumPropagator"]


class SumPropagator(PhiFunctions):
    """Σ_k t^k φ_k(t A) v_k for A = A_1 ⊕ … ⊕ A_d and a fixed t.

    Parameters
    ----------
    factors : sequence of array_like, (n_k, n_k)
        The A_k.
    t : scalar
        The time.
    device : {"cpu", "cuda"}
        Device of the vectors.

    Raises
    ------
    ValueError
        If there is no factor, a factor is not square, or t A is not finite.

    Notes
    -----
    See `PhiFunctions` (phi_functions.py) for the method and its cost.

    Examples
    --------
    >>> import numpy as np
    >>> from batchkron.operators.kronecker_sum.exponential import SumPropagator
    >>> decay = SumPropagator([np.diag([-1.0, -2.0])], 0.5)
    >>> print(decay.apply([np.ones(2)]).round(6))
    [0.606531 0.367879]
    """

    def __init__(self, factors: Sequence[Any], t: Any, device: str = "cpu") -> None:
        operator = KroneckerSum(factors)
        super().__init__(operator, operator.factors, t, device)
