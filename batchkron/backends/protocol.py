"""What a backend offers: `Backend` makes plans and computes; the protocols say what plans can do.

A backend for the CPU derives from `HostBackend` (host.py), which has what hosts share. It writes
eight functions and eight methods of plans: `run` of the five kinds that it makes itself, and
`set_values` of three. A device's backend writes all of `Backend`. How a device launches its work,
repeats it, and shortens the way of frequent calls is its own business.

Vectors of plans are contiguous arrays of the plan's dtype, where the backend works.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

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


class Product(Protocol):
    """A product with a matrix A that the plan holds, for any number of vectors.

    A may be one matrix, or one for each of many systems, which then are the last part of ``outer``.
    """

    def run(
        self, x: Array, y: Array, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        """Map x (outer, N, inner) to alpha A x (outer, M, inner), added to y or overwriting it."""


class BatchPlan(Product, Protocol):
    """A batch list of fixed structure, for one system or many."""

    def set_values(self, pools: Sequence[Array], weights: Array) -> None:
        """Copy new pools (systems, count, P, Q) and weights (systems, products) in place."""


class SumPlan(Product, Protocol):
    """A Kronecker sum, or one for each of many systems."""

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Copy new factors (..., n_k, n_k) of the same shapes in place."""


class SegmentedPlan(Protocol):
    """A mode multiply summed over a list of edges of fixed structure."""

    def set_values(self, matrices: Array) -> None:
        """Copy new matrices (count, P, Q) in place."""

    def run(self, x: Array, y: Array, alpha: complex, accumulate: bool) -> None:
        """Map x (num_inputs, block) to alpha A x, added to y or overwriting it."""


class SweepPlan(Product, Protocol):
    """A list of sweeps along fibres, of fixed structure; vectors are blocks of elements."""

    def set_values(self, matrices: Sequence[Array]) -> None:
        """Copy new matrices (count, n, n), one array per part; runs under way keep the old ones."""


def own_apply(plan: object) -> Callable[[object, object], bool] | None:
    """Return a plan's own way to write A x[..., :] to ``out[..., :]``, if it has one.

    It takes any two objects, and returns False, having done nothing, unless these are arrays that
    it need not copy. It spares the checks in Python, most of the time of calls on few data.
    """
    return getattr(plan, "apply", None)


class Backend(ABC):
    """One place where work runs.

    Attributes
    ----------
    name : str
        "cpu", "cuda", "reference".
    array_module : module
        Of the arrays that it works on: NumPy or CuPy.
    """

    name: str
    array_module: Any

    @abstractmethod
    def current_device(self) -> str:
        """Return the place where new operators will be: "cpu", or such as "cuda:0"."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array where the backend works."""

    @abstractmethod
    def place(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Return host arrays where the backend works: themselves, or copies on a device."""

    @abstractmethod
    def workspace(self) -> Any:
        """Return memory of one operator, whose ``array(elements, dtype)`` is kept between calls."""

    @abstractmethod
    def reserve(self, plan: Product, outer: int, inner: int) -> None:
        """Allocate what a plan's `run` will need, so that it cannot fail halfway."""

    @abstractmethod
    def kron_plan(self, spec: KronSpec) -> KronPlan:
        """Return the plan of a multiply by one Kronecker product."""

    @abstractmethod
    def kron_product(self, factors: Sequence[Array], precision: Precision | None = None) -> Product:
        """Return the product with A_1 ⊗ … ⊗ A_d of these factors, host arrays of one dtype."""

    @abstractmethod
    def with_factors(self, product: Any, factors: Sequence[Array]) -> Product:
        """Return a `kron_product` with new factors of the same shapes; it may be the same one."""

    @abstractmethod
    def batch_plan(self, spec: BatchSpec) -> BatchPlan:
        """Return the plan of a batch list."""

    @abstractmethod
    def sum_plan(self, factors: Sequence[Array]) -> SumPlan:
        """Return the product with A_1 ⊕ … ⊕ A_d of host arrays (..., n_k, n_k)."""

    @abstractmethod
    def diagonal_product(self, entries: Array) -> Product:
        """Return the product with diagonal matrices of entries (systems…, N) placed here."""

    @abstractmethod
    def segmented_plan(self, spec: SegmentedSpec) -> SegmentedPlan:
        """Return the plan of a segmented mode multiply."""

    @abstractmethod
    def sweep_plan(self, sweeps: SweepList, matrices: Sequence[Array]) -> SweepPlan:
        """Return the plan of a list of sweeps, with an array of matrices for each part."""

    @abstractmethod
    def kron(self, factors: Sequence[ArrayLike], out: Array | None) -> Array:
        """Return the explicit Kronecker product, ``out`` if given: all of `batchkron.kron`."""

    @abstractmethod
    def batched_gemm(
        self,
        a: Array,
        b: Array,
        c: Array,
        alpha: complex,
        transpose_b: bool,
        ids: tuple[Array, Array, Array],
    ) -> None:
        """Add alpha * a[i] b[j] to c[k] for all (i, j, k) of ``ids``; c holds beta * c on entry."""


class KrylovPasses(Protocol):
    """Passes of a Krylov method over the vectors of many systems, one after another."""

    def run(self, address: int) -> int:
        """Run them, given the address of their ``ARGUMENTS`` (krylov_arguments.py).

        Returns how many systems are running afterwards, -1 where that is not known without
        waiting for a device.
        """


class KrylovRecorder(Protocol):
    """Does the same work again and again."""

    def run(self, key: object, work: Callable[[], None]) -> bool:
        """Do what ``work`` does, which is the same for the same key.

        Returns whether that was without calling it.
        """


class KrylovBackend(ABC):
    """What a Krylov method needs of a backend besides products with its operator."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array where the backend works."""

    @abstractmethod
    def address(self, array: Array) -> int:
        """Return where an array lies."""

    @abstractmethod
    def place_of_work(self) -> tuple[Hashable, object]:
        """Return what tells the place of work from others, and what keeps it so.

        Work of a thread on one place is done in order.
        """

    @abstractmethod
    def krylov_vectors(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return uninitialised vectors for passes, placed as these are quickest with."""

    @abstractmethod
    def krylov_passes(
        self, names: tuple[str, ...], dtype: np.dtype[Any], n: int, systems: int, restart: int
    ) -> KrylovPasses:
        """Return passes by their names, for vectors (systems, n) and bases of restart + 1."""

    @abstractmethod
    def krylov_parts(self, n: int, systems: int) -> int:
        """Return how many sums a pass leaves of one system, before they are added."""

    @abstractmethod
    def krylov_reader(self) -> Callable[[Array], Array]:
        """Return what brings arrays to the host, each valid until the next one is brought."""

    def krylov_iterations(
        self, plan: Any, stages: tuple[Stage, ...], kept: int, count: int
    ) -> KrylovPasses | None:
        """Return whole iterations for the systems of a `SumPlan`, in one call; None by default.

        Of ``count`` vectors the first ``kept`` go on from iteration to iteration.
        """
        return None

    def krylov_recorder(self) -> KrylovRecorder | None:
        """Return what repeats work with less effort than calling it; None by default."""
        return None
