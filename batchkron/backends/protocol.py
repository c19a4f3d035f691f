"""What every backend offers: plans, and two functions that need none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from batchkron.segmented_spec import SegmentedSpec
from batchkron.spec import Array, BatchSpec, KronSpec


class KronPlan(Protocol):
    """A multiply by one Kronecker product of fixed shape. Immutable and shared."""

    def run(
        self,
        factors: Sequence[Array],
        x: Array,
        alpha: complex,
        beta: complex,
        y: Array | None,
        out: Array,
    ) -> None:
        """Write alpha * (kron of factors) x + beta * y to ``out``; y may be ``out`` itself."""


class BatchPlan(Protocol):
    """A batch list of fixed structure, for one system or many."""

    def set_values(self, pools: Sequence[Array], weights: Array) -> None:
        """Copy new pools (systems, count, P, Q) and weights (systems, products) in place."""

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, num_inputs, size, inner) to alpha A x, added to y or overwriting it."""


class SegmentedPlan(Protocol):
    """A mode multiply summed over a list of edges of fixed structure."""

    def set_values(self, matrices: Array) -> None:
        """Copy new matrices (count, P, Q) in place."""

    def run(self, x: Array, y: Array, alpha: complex, accumulate: bool) -> None:
        """Map x (num_inputs, block) to alpha A x, added to y or overwriting it."""


class Backend(Protocol):
    """One place where work runs."""

    @property
    def name(self) -> str:
        """The backend's name."""

    def kron_plan(self, spec: KronSpec) -> KronPlan:
        """Return the plan of a multiply by one Kronecker product."""

    def batch_plan(self, spec: BatchSpec) -> BatchPlan:
        """Return the plan of a batch list."""

    def segmented_plan(self, spec: SegmentedSpec) -> SegmentedPlan:
        """Return the plan of a segmented mode multiply."""

    def kron(self, factors: Sequence[Array], out: Array) -> None:
        """Write the explicit Kronecker product of matrices of one dtype."""

    def batched_gemm(
        self,
        a: Array,
        b: Array,
        c: Array,
        alpha: complex,
        transpose_b: bool,
        ids: tuple[Array, Array, Array],
    ) -> None:
        """Add alpha * a[i] b[j] to c[k] for all (i, j, k) of ``ids``."""
