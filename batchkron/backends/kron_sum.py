"""Kronecker sums made of a backend's products: one per mode, or as a batch list."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from batchkron.backends.protocol import Backend, BatchPlan, Product, reserve
from batchkron.spec.batch import one_sum_spec
from batchkron.spec.kron import Array, BatchSpec


class SumOfModes:
    """y = alpha (A_1 ⊕ … ⊕ A_d) x: a product along each mode, one after another.

    ``backend``: the backend of the products.
    ``factors`` (sequence of ndarray, each (n_k, n_k)): matrices of one dtype.
    """

    def __init__(self, backend: Backend, factors: Sequence[Array]) -> None:
        self._backend = backend
        sizes = [factor.shape[-1] for factor in factors]
        modes = range(len(sizes))
        self._around = [(math.prod(sizes[:k]), math.prod(sizes[k + 1 :])) for k in modes]
        self._products = [backend.kron_product([factor]) for factor in factors]

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Copy new factors of the same shapes."""
        self._products = [
            self._backend.kron_product([factor], known=product)
            for product, factor in zip(self._products, factors, strict=True)
        ]

    def _axes(self, outer: int, inner: int) -> list[tuple[Product, int, int]]:
        """Return the product along each mode, and the sizes before and behind it."""
        return [
            (product, outer * before, inner * behind)
            for product, (before, behind) in zip(self._products, self._around, strict=True)
        ]

    def reserve(self, outer: int, inner: int) -> None:
        """Allocate what `run` will need, if the backend is on a device."""
        for axis in self._axes(outer, inner):
            reserve(*axis)

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y or overwriting it."""
        axes = self._axes(outer, inner)
        for axis in axes:
            reserve(*axis)  # for all modes before anything is written
        for product, before, behind in axes:
            product.run(x, y, before, behind, alpha, accumulate)
            accumulate = True


class ListedSum:
    """y_s = alpha (A_s1 ⊕ … ⊕ A_sd) x_s: a batch list with one product I ⊗ A_sk ⊗ I per factor.

    ``make``: returns the plan of a batch list.
    ``factors`` (sequence of ndarray, each (..., n_k, n_k)): matrices of one dtype; leading axes are
      broadcast to the systems.
    """

    def __init__(self, make: Callable[[BatchSpec], BatchPlan], factors: Sequence[Array]) -> None:
        self.plan = make(one_sum_spec(factors))

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Copy new factors of the same shapes."""
        spec = one_sum_spec(factors)
        self.plan.set_values(spec.pools, spec.weights)

    def reserve(self, outer: int, inner: int) -> None:
        """Compile and allocate what `run` will need, if the backend is on a device."""
        reserve(self.plan, outer, inner)

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y or overwriting it."""
        self.plan.run(x, y, outer, inner, alpha, accumulate)
