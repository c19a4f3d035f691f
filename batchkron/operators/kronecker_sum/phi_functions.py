"""The φ-functions Σ_k t^k φ_k(t A) v_k of a Kronecker sum A."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from batchkron.arrays import array_module
from batchkron.operators.factor_by_factor import checked_time
from batchkron.operators.kronecker_sum.scaled_exponential import (
    SumExponential,
    scaled_exponential,
    squared,
)
from batchkron.spec.kron import Array, compute_dtype

__all__ = ["PhiFunctions"]

_TAYLOR_NORM = 0.5  # a Taylor series is used up to this 1-norm of t A; larger ones are halved
_TAYLOR_TERMS = 16  # terms of the series: the last one, 0.5¹⁶ / 17!, is below rounding


class PhiFunctions:
    """Σ_k t^k φ_k(t A) v_k for a Kronecker sum A = A_1 ⊕ … ⊕ A_d and a fixed t.

    ``operator``: the operator A, on the device of the vectors.

    Raises `ValueError` if t A is not finite. `TypeError` if t is not a number.

    exp(tA) is the Kronecker product of the exp(t A_k), whose sizes are powers of two that are added
    up and applied once, so that shifts of factors may cancel. φ_0 = exp and φ_(k+1)(z) =
    (φ_k(z) - 1/k!) / z are evaluated by the Taylor series at t / 2^s, where ‖t A‖ / 2^s ≤ ½, then
    by s doublings,

        φ_j(2z) v = 2^(-j) [exp(z) φ_j(z) v + Σ_(i=1…j) φ_i(z) v / (j - i)!],

    which never divide by A. This costs s Kronecker products for each vector and function and stores
    s (n_1² + … + n_d²) numbers. Source: M. Hochbruck, A. Ostermann, Exponential integrators, Acta
    Numerica 19 (2010), section 2; the doubling is that of B. Skaflestad, W. M. Wright, Appl. Numer.
    Math. 59 (2009).

    Examples
    --------
    >>> import numpy as np, batchkron as bk
    >>> from batchkron.operators.kronecker_sum.phi_functions import PhiFunctions
    >>> decay = PhiFunctions(bk.KroneckerSum([np.diag([-1.0, -2.0])]), 0.5)
    >>> print(decay.apply([np.ones(2)]).round(6))
    [0.606531 0.367879]
    """

    def __init__(self, operator: Any, t: Any) -> None:
        self._t = t = checked_time(t)
        factors, device = operator.factors, operator.device
        norm = abs(t) * sum(float(np.abs(f).sum(axis=0).max(initial=0)) for f in factors)
        if not math.isfinite(norm):
            raise ValueError(f"t A has the norm {norm}; expected finite factors and a finite t")
        self._doublings = (
            max(0, math.ceil(math.log2(norm / _TAYLOR_NORM))) if norm > _TAYLOR_NORM else 0
        )
        self._small = 2.0**-self._doublings
        self._operator = operator
        dtype = self._common(factors)
        scaled = [scaled_exponential(factor, t * self._small) for factor in factors]
        self._exponentials = [SumExponential(scaled, dtype, device)]
        for _ in range(self._doublings):
            scaled = [squared(factor) for factor in scaled]
            self._exponentials.append(SumExponential(scaled, dtype, device))

    def apply(self, vectors: Sequence[Array | None]) -> Array:
        """Return Σ_k t^k φ_k(t A) v_k for vectors v_0, v_1, … (N,), of which None stands for zero.

        It is the state at t of w' = A w + v_1 + t v_2 + t²/2 v_3 + …, w(0) = v_0.
        """
        given = [v for v in vectors if v is not None]
        if not given:
            raise ValueError("vectors has no vector; expected v_0, v_1, … and at least one of them")
        total: Array = array_module(given[0]).zeros(given[0].shape, self._common(given))
        for k, vector in enumerate(vectors):
            if vector is not None:
                part = self._exponentials[-1].apply(vector) if k == 0 else self._phi(k, vector)
                total += self._t**k * part
        return total

    def _common(self, arrays: Sequence[Array]) -> np.dtype[Any]:
        """Return the dtype of results; t does not raise the precision."""
        kind = np.result_type(self._operator.dtype, *map(compute_dtype, arrays))
        return np.result_type(kind, np.complex64) if isinstance(self._t, complex) else kind

    def _phi(self, order: int, vector: Array) -> Array:
        """Return φ_order(t A) v."""
        values = self._taylor(order, vector)
        for level in range(self._doublings):
            exponential = self._exponentials[level]
            doubled = []
            for j in range(1, order + 1):
                total = exponential.apply(values[j - 1])
                for i in range(1, j + 1):
                    total = total + values[i - 1] / math.factorial(j - i)
                doubled.append(total * 0.5**j)
            values = doubled
        return values[-1]

    def _taylor(self, order: int, vector: Array) -> list[Array]:
        """Return φ_j(z) v for j = 1 … order, z = t A / 2^s."""
        power = vector
        values: list[Array] = [vector / math.factorial(j) for j in range(1, order + 1)]
        for m in range(1, _TAYLOR_TERMS + 1):
            power = (self._operator @ power) * (self._t * self._small)
            values = [v + power / math.factorial(m + j) for j, v in enumerate(values, start=1)]
        return values
