"""A product with factors of its own, for backends of the CPU that plan by shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchkron.backends.protocol import KronPlan
from batchkron.spec import Array, KronSpec

_MOST_PLANS = 64


class PlannedProduct:
    """y = alpha (F_1 x ... x F_d) x, with a plan for each number of vectors.

    Parameters
    ----------
    factors : sequence of ndarray (P_k, Q_k)
        Of one dtype; kept, not copied.
    kron_plan : callable
        The backend's.
    """

    def __init__(self, factors: Sequence[Array], kron_plan: Callable[[KronSpec], KronPlan]) -> None:
        self._factors, self._kron_plan = tuple(factors), kron_plan
        self._outputs, self._inputs = zip(*[factor.shape for factor in factors], strict=True)
        self._plans: dict[tuple[int, int], KronPlan] = {}

    def set_values(self, factors: Sequence[Array]) -> None:
        """Replace the factors."""
        self._factors = tuple(factors)

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y or overwriting it."""
        plan = self._plans.get((outer, inner))
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            spec = KronSpec(self._inputs, self._outputs, outer, inner, self._factors[0].dtype)
            plan = self._plans[outer, inner] = self._kron_plan(spec)
        plan.run(self._factors, x, alpha, int(accumulate), y if accumulate else None, y)
