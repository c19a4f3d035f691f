"""What every backend offers: plans, and two functions that need none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

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


class Backend(Protocol):
    """One place where work runs."""

    @property
    def name(self) -> str:
        """The backend's name."""

    @property
    def array_module(self) -> Any:
        """The module of the arrays that it works on: NumPy or CuPy."""

    def kron_plan(self, spec: KronSpec) -> KronPlan:
        """Return the plan of a multiply by one Kronecker product."""

    def batch_plan(self, spec: BatchSpec) -> BatchPlan:
        """Return the plan of a batch list."""

    def place(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Return the arrays where the backend works: themselves, or copies on a device."""

    def replace(self, values: Sequence[Array], placed: Sequence[Array]) -> tuple[Array, ...]:
        """Return new values where `place` put the old ones; on a device they are overwritten."""

    def workspace(self) -> Any:
        """Return memory of one operator on a device, for each stream; None on the CPU."""

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
