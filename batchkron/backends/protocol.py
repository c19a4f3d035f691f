"""What every backend offers: plans, and two functions that need none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from batchkron.backends.krylov_arguments import Stage
from batchkron.spec.kron import Array, BatchSpec, KronSpec, Precision
from batchkron.spec.segmented import SegmentedSpec
from batchkron.spec.sweeps import SweepList


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


class KronProduct(Protocol):
    """A Kronecker product or sum with factors of its own, for any number of vectors."""

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y or overwriting it."""

    def apply(self, x: object, out: object) -> bool:
        """Write A x[..., :] to out[..., :] if both are plain arrays that fit, else return False."""


class DiagonalProduct(Protocol):
    """A product with diagonal matrices of entries (systems…, N) on a device."""

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha d x, added to y or overwriting it."""

    def apply(self, x: object, out: object) -> bool:
        """Write d x to ``out`` if both are plain arrays that fit, else return False."""


class BatchPlan(Protocol):
    """A batch list of fixed structure, for one system or many."""

    def set_values(self, pools: Sequence[Array], weights: Array) -> None:
        """Copy new pools (systems, count, P, Q) and weights (systems, products) in place."""

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, num_inputs, size, inner) to alpha A x, added to y or overwriting it."""


class SumPlan(Protocol):
    """A Kronecker sum for each of many systems."""

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Copy new factors (..., n_k, n_k) of the same shapes in place."""

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x, added to y or overwriting it.

        ``outer`` are vectors for all systems, one set after another.
        """


class SegmentedPlan(Protocol):
    """A mode multiply summed over a list of edges of fixed structure."""

    def set_values(self, matrices: Array) -> None:
        """Copy new matrices (count, P, Q) in place."""

    def run(self, x: Array, y: Array, alpha: complex, accumulate: bool) -> None:
        """Map x (num_inputs, block) to alpha A x, added to y or overwriting it."""


class SweepPlan(Protocol):
    """A list of sweeps along fibres, of fixed structure."""

    def set_values(self, matrices: Sequence[Array]) -> None:
        """Copy new matrices (count, n, n), one array per part; runs under way keep the old ones."""

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, blocks, elements, inner) to alpha A x, added to y or overwriting it."""


class KrylovPasses(Protocol):
    """Passes of a Krylov method over the vectors of many systems, one after another."""

    def run(self, address: int) -> int:
        """Run them, given the address of their ``ARGUMENTS`` (krylov.py).

        Returns how many systems are running afterwards, -1 where that is not known without
        waiting for a device.
        """


class KrylovBackend(Protocol):
    """What a Krylov method needs of a backend besides products with its operator."""

    @property
    def array_module(self) -> Any:
        """The module of the arrays that it works on: NumPy or CuPy."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array where the backend works."""

    def krylov_vectors(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return uninitialised vectors for passes, placed as these are quickest with."""

    def krylov_passes(
        self, names: tuple[str, ...], dtype: np.dtype[Any], n: int, systems: int, restart: int
    ) -> KrylovPasses:
        """Return passes by their names, for vectors (systems, n) and bases of restart + 1."""

    def krylov_iterations(
        self, plan: SumPlan, stages: tuple[Stage, ...], kept: int, count: int
    ) -> KrylovPasses | None:
        """Return whole iterations for systems of a plan, in one call; None where there are none.

        Of ``count`` vectors the first ``kept`` go on from iteration to iteration.
        """

    def krylov_parts(self, n: int, systems: int) -> int:
        """Return how many sums a pass leaves of one system, before they are added."""

    def krylov_recorder(self) -> KrylovRecorder | None:
        """Return what records work on a device to launch it again; None on the CPU."""

    def krylov_reader(self) -> Callable[[Array], Array]:
        """Return what brings arrays to the host, each valid until the next one is brought."""

    def krylov_stream(self) -> tuple[Hashable, object]:
        """Return what tells the place of work from others, and what keeps it so.

        Work of a thread on one place is done in order.
        """

    def address(self, array: Array) -> int:
        """Return where an array lies."""


class KrylovRecorder(Protocol):
    """Launches the same work on a device again and again."""

    def run(self, key: object, work: Callable[[], None]) -> bool:
        """Do what ``work`` does, which is the same for the same key.

        Returns whether that was without calling it.
        """


class Backend(Protocol):
    """One place where work runs."""

    @property
    def name(self) -> str:
        """The backend's name."""

    @property
    def array_module(self) -> Any:
        """The module of the arrays that it works on: NumPy or CuPy."""

    def current_device(self) -> str:
        """Return the place where new operators will be: "cpu", or such as "cuda:0"."""

    def kron_plan(self, spec: KronSpec) -> KronPlan:
        """Return the plan of a multiply by one Kronecker product."""

    def kron_product(
        self, factors: Sequence[Array], precision: Precision | None = None
    ) -> KronProduct:
        """Return a product with these factors, host arrays of one dtype."""

    def with_factors(self, product: KronProduct, factors: Sequence[Array]) -> KronProduct:
        """Return a product with new factors of the same shapes; on a device it is the same one."""

    def kron_sum(self, factors: Sequence[Array]) -> KronProduct | None:
        """Return the product with the Kronecker sum of these matrices, if modes share a call."""

    def batch_plan(self, spec: BatchSpec) -> BatchPlan:
        """Return the plan of a batch list."""

    def sum_plan(self, factors: Sequence[Array]) -> SumPlan:
        """Return the plan of a Kronecker sum for each system, of factors (..., n_k, n_k)."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array where the backend works."""

    def place(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Return the arrays where the backend works: themselves, or copies on a device."""

    def reserve(
        self, plan: KronProduct | BatchPlan | SumPlan | SweepPlan, outer: int, inner: int
    ) -> None:
        """Allocate on a device what a plan's `run` will need, so that it cannot fail halfway."""

    def diagonal_product(self, entries: Array) -> DiagonalProduct | None:
        """Return the product with diagonal matrices on a device; None on the CPU."""

    def workspace(self) -> Any:
        """Return memory of one operator on a device, for each stream; None on the CPU."""

    def segmented_plan(self, spec: SegmentedSpec) -> SegmentedPlan:
        """Return the plan of a segmented mode multiply."""

    def sweep_plan(self, sweeps: SweepList, matrices: Sequence[Array]) -> SweepPlan:
        """Return the plan of a list of sweeps, with an array of matrices for each part."""

    def kron(self, factors: Sequence[Array], out: Array) -> None:
        """Write the explicit Kronecker product of matrices of one dtype."""

    def fast_kron(self) -> Callable[[Sequence[Any], Any], Array | None] | None:
        """Return what writes the product of plain matrices on a device, or returns None for others.

        None on the CPU.
        """

    def check_capture(
        self, factors: Sequence[Array], out: Array | None, dtype: np.dtype[Any]
    ) -> None:
        """Refuse factors and a result of `kron` that would be copied while a graph is captured."""

    def sum_vectors(self, factors: Sequence[float], vectors: Sequence[Array], out: Array) -> None:
        """Write Σ factors[k] vectors[k] to ``out``, which may be one of the real vectors."""

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
