"""Kronecker sums for many systems by the kernels of batch lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchkron.backends.protocol import BatchPlan
from batchkron.spec.batch import one_sum_spec
from batchkron.spec.kron import Array, BatchSpec


class ListedSum:
    """y_s = alpha (A_s1 ⊕ … ⊕ A_sd) x_s: a product for each factor, with identities elsewhere.

    Parameters
    ----------
    make : callable
        Makes the plan of a batch list.
    factors : sequence of ndarray, each (..., n_k, n_k)
        Of one dtype; leading axes broadcast to the systems.
    """

    def __init__(self, make: Callable[[BatchSpec], BatchPlan], factors: Sequence[Array]) -> None:
        self.plan = make(one_sum_spec(factors))

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Copy new factors of the same shapes."""
        spec = one_sum_spec(factors)
        self.plan.set_values(spec.pools, spec.weights)

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y or overwriting it."""
        self.plan.run(x, y, outer, inner, alpha, accumulate)
