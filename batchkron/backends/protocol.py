"""The interface of a backend: `Backend` makes plans, and the protocols are the plans' methods.

A backend for the CPU derives from `HostBackend` (host.py), which has what hosts share. It
implements twelve functions and twelve methods of plans: `run` of six kinds of plans, `set_values`
of four, `scatter` and `gather` of interpolation. A backend for a device implements all of
`Backend`. How a device launches and repeats its work, and its fast paths, are not part of the
interface.

Vectors given to plans are contiguous arrays of the plan's dtype, in the backend's memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from batchkron.backends.krylov_arguments import Stage
from batchkron.spec.interpolated import Windows
from batchkron.spec.kron import Array, BatchSpec, KronSpec, Precision
from batchkron.spec.segmented import SegmentedSpec
from batchkron.spec.sweeps import SweepList


@dataclass(frozen=True, slots=True)
class Owners:
    """Arrays that the results of a product are spread over, by their first mode.

    Row k of the first factor belongs to owner d for d K / owners <= k < (d + 1) K / owners. Vectors
    l are in groups. The result (l, k, rest, r), r < inner, is the element

        (l // group) vector + (l % group) slice + ((k - d K / owners) rests + rest) row + r

    of the owner's array.

    Parameters
    ----------
    arrays : tuple of ndarray
        Of the product's dtype, contiguous; on a device also other devices' memory.
    group : int
    vector, slice, row : int
        Elements.
    """

    arrays: tuple[Any, ...]
    group: int
    vector: int
    slice: int
    row: int


class KronPlan(Protocol):
    """A multiply by one Kronecker product of fixed shape. Plans are immutable and may be shared."""

    def run(
        self,
        factors: Sequence[Array | int],
        x: Array,
        alpha: complex,
        beta: complex,
        y: Array | None,
        out: Array,
    ) -> None:
        """Write alpha * (kron of factors) x + beta * y to ``out``; y may be ``out`` itself.

        Factors that the spec skips are ints.
        """


class Product(Protocol):
    """A product with a matrix A that the plan holds, for any number of vectors.

    A may be one matrix, or one for each of many systems; ``outer`` then counts (..., systems).
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


class TriangularSum(Protocol):
    """Systems with the Kronecker sum of upper triangular matrices."""

    def solve(self, x: Array, shift: complex) -> None:
        """Overwrite b (N, K) with the solutions of (T_1 ⊕ … ⊕ T_d + shift) x = b."""


class FieldPlan(Protocol):
    """The blocks of multiplications by fields that follow a state."""

    def write(self, u: Array, heap: Array, ancestors: Array) -> bool:
        """Write the blocks of ``csrc/engine/fields/blocks.hpp`` for the state u (N,).

        It is False, and nothing is written, where a divisor that should be positive is not.
        """


class SegmentedPlan(Protocol):
    """A mode multiply summed over a list of edges of fixed structure."""

    def set_values(self, matrices: Array) -> None:
        """Copy new matrices (count, P, Q) in place."""

    def run(self, x: Array, y: Array, alpha: complex, accumulate: bool) -> None:
        """Map x (num_inputs, block) to alpha A x, added to y or overwriting it."""


class SweepPlan(Product, Protocol):
    """A list of sweeps along fibres, of fixed structure; vectors are blocks of elements."""

    def set_values(self, matrices: Sequence[Array]) -> None:
        """Copy new matrices (count, n, n), one array per part; present runs use the old ones."""

    def link(self, parts: Sequence[tuple[int, NDArray[np.int64], complex]], count: int) -> Array:
        """Return a vector of ``count`` zeros, of which `gather` copies the matrices of some parts.

        For each part there is its number, the places (count, n, n) of its entries in the vector,
        and a factor.
        """

    def gather(self) -> None:
        """Copy the present values of the vector that `link` has returned."""


class KronSparseProduct(Product, Protocol):
    """The product with a Kronecker-sparse matrix of fixed pattern."""

    def set_values(self, values: Array) -> None:
        """Take new values (a, b, c, d), an array that nobody changes."""


class InterpolationPlan(Protocol):
    """Interpolation W of grid values at points, and its transpose, for some vectors at a time.

    Vectors are 1, 2, 4, 8 or 16. Element p of vector r lies at points[p * point_step + vectors[r]],
    and its value in a cell at grid[cell * cell_step + column + r]; arrays are flat or contiguous.
    """

    def scatter(
        self,
        points: Array,
        point_step: int,
        vectors: Sequence[int],
        grid: Array,
        cell_step: int,
        column: int,
    ) -> None:
        """Write W^T points to the grid; the order of sums is fixed."""

    def gather(
        self,
        grid: Array,
        cell_step: int,
        column: int,
        points: Array,
        point_step: int,
        vectors: Sequence[int],
        alpha: float,
        accumulate: bool,
    ) -> None:
        """Write alpha W grid to the points, or add it."""


def own_apply(plan: object) -> Callable[[object, object], bool] | None:
    """Return a plan's fast path that writes A x[..., :] to ``out[..., :]``, if it has one.

    It takes any two objects. Unless they are arrays that need no copy, it does nothing and returns
    False. It saves the checks in Python, which take most of the time of small calls.
    """
    return getattr(plan, "apply", None)


def own_apply_last(plan: object) -> Callable[[object, object], bool] | None:
    """Return a plan's fast path that writes A x[:, ...] to ``out[:, ...]``, if it has one."""
    return getattr(plan, "apply_last", None)


def own_spread(plan: object) -> Callable[[Owners, Array, int, int, complex], bool]:
    """Return how a plan of `Backend.kron_product` writes alpha A x to the memory of its owners.

    The function takes (owners, x, outer, inner, alpha) and returns whether it has done so. If not,
    it has done nothing: `run` and `Backend.copy_views` do the same.
    """
    return getattr(plan, "spread", unavailable)


def reserve(plan: object, outer: int, inner: int) -> None:
    """Compile and allocate what a plan's `run` will need, so that it cannot fail midway.

    Plans of a host need nothing: memory belongs to the calling thread.
    """
    getattr(plan, "reserve", unavailable)(outer, inner)


def unavailable(*arguments: Any, **named: Any) -> Any:
    """Do nothing, and return None: what a backend or a plan does not have of its own."""
    return None


FastCall = Literal[
    "kron_multiply",
    "kron_sparse_multiply",
    "kron",
    "batched_gemm",
    "batched_kron",
    "field_blocks",
    "field_plan",
    "formula_values",
    "triangular_sum",
]
"""Calls that a backend may do at once; see `Backend.fast_path`."""


class Repetition:
    """How a backend repeats work that launches the same kernels; on a host it is called again."""

    def repeated(
        self,
        work: Callable[[Any, Any], None],
        sizes: tuple[int, int],
        dtype: np.dtype[Any],
        beside: Any = None,
    ) -> Callable[..., None]:
        """Return what does work that launches the same kernels in every call, with less effort.

        ``work``: ``work(x, y)`` reads x and overwrites y, and may change arrays of its own. It must
          not keep the result alive.
        ``sizes``: lengths of x and y; the latter is 0 for work without y, which is called with
          None.
        ``dtype``: of both.
        ``beside``: what this method has returned for other work that changes the same arrays.

        Result: it takes (x, y). The work itself where nothing can be saved.
        """
        return work

    def recorder(self) -> Recorder | None:
        """Return an object that repeats work by a key, None where calling it is as fast."""
        return None

    def note_move(self) -> None:
        """Say that an update of an operator makes its products other work, or moves their arrays.

        What has been recorded of them is not repeated any more.
        """


class StepTable(Protocol):
    """Numbers of the steps of a time stepper, which sums of vectors take, and what these find.

    Each step since `begin` has a row of numbers and a row of results. It does some passes, of which
    the last one ends it. On a device only `read` waits for steps, and the passes may be captured in
    a CUDA graph, which then serves all steps.
    """

    max_vectors: int

    def begin(self, rows: Array | None = None) -> None:
        """Go back to the first row, and write rows from there on as `write` does."""
        ...

    def write(self, first: int, rows: Array) -> None:
        """Copy numbers (k, n <= width) to rows from ``first`` on, each once after `begin`."""
        ...

    def sum_pass(
        self,
        first: int,
        vectors: Sequence[Array],
        out: Array | None,
        result: int = -1,
        *,
        ends: bool = False,
    ) -> Callable[[], None]:
        """Return what writes Σ row[first + k] vectors[k] to ``out``, which may be one of them.

        The vectors (N,), at most ``max_vectors``, are contiguous and real, of one dtype. The sum of
        squares of the result goes to a column of the results, unless ``result`` is negative; if
        that is all, ``out`` may be None. ``ends``: whether a step ends with this pass.
        """
        ...

    def program(self, work: Sequence[Callable[[], object]]) -> Callable[[int], None] | None:
        """Return what does the passes of so many steps in one call, None if there is no such call.

        ``work`` has all that a step does: passes of `sum_pass`, and of the plans' ``bind``.
        """
        ...

    def read(self, count: int) -> Array:
        """Return the results (count, columns) of the steps since `begin`, until the next call."""
        ...


class Backend(ABC):
    """An implementation of all products, on the CPU or on a kind of device.

    Attributes
    ----------
    name : str
        "cpu", "cuda" or "reference".
    has_half : bool
        Whether it multiplies Kronecker-sparse matrices of float16 and bfloat16 as they are.
    array_module : module
        The module of its arrays: NumPy or CuPy.
    workspace : callable
        Returns workspace for one operator; memory of its ``array(elements, dtype)`` is reused.
    repetition : Repetition
        How work that launches the same kernels is repeated.
    """

    name: str
    has_half: bool = False
    array_module: Any
    workspace: Callable[[], Any]
    repetition: Repetition = Repetition()

    @abstractmethod
    def current_device(self) -> str:
        """Return the device of new operators: "cpu", or for example "cuda:0"."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array where the backend works."""

    @abstractmethod
    def place(self, arrays: Sequence[Array], known: Sequence[Array] = ()) -> tuple[Array, ...]:
        """Return host arrays in the backend's memory: themselves, or copies on a device.

        ``known``: what this method has returned for arrays of the same shapes. On a device they are
        returned again, with the values in them when earlier work has ended.
        """

    @abstractmethod
    def kron_plan(self, spec: KronSpec) -> KronPlan:
        """Return the plan of a multiply by one Kronecker product."""

    @abstractmethod
    def kron_product(
        self, factors: Sequence[Array | int], precision: Precision | None = None, known: Any = None
    ) -> Product:
        """Return the product with A_1 ⊗ … ⊗ A_d of these factors, host arrays of one dtype.

        An int n stands for the identity of n rows; one factor at least is an array. ``known``: a
        product with factors and identities of the same shapes, and the same precision. It may be
        returned, with the new factors.
        """

    @abstractmethod
    def batch_plan(self, spec: BatchSpec) -> BatchPlan:
        """Return the plan of a batch list."""

    @abstractmethod
    def sum_plan(self, factors: Sequence[Array]) -> SumPlan:
        """Return the product with A_1 ⊕ … ⊕ A_d of host arrays (..., n_k, n_k)."""

    @abstractmethod
    def diagonal_product(self, entries: Array) -> Product:
        """Return the product with diagonal matrices of entries (systems…, N), a `place`d array."""

    @abstractmethod
    def segmented_plan(self, spec: SegmentedSpec) -> SegmentedPlan:
        """Return the plan of a segmented mode multiply."""

    @abstractmethod
    def sweep_plan(self, sweeps: SweepList, matrices: Sequence[Array]) -> SweepPlan:
        """Return the plan of a list of sweeps; ``matrices`` has one array for each part."""

    @abstractmethod
    def kron_sparse_product(
        self, values: Array, precision: Precision | None = None
    ) -> KronSparseProduct:
        """Return the product with a Kronecker-sparse matrix of values (a, b, c, d).

        They are a host array that nobody changes; where ``has_half`` they may have 16 bits.
        y[o, i, k, j, r] = Σ_l values[i, k, l, j] x[o, i, l, j, r] for x (outer, a, c, d, inner).
        """

    @abstractmethod
    def multiply_kron_sparse(
        self,
        values: Array,
        x: Array,
        y: Array,
        outer: int,
        inner: int,
        precision: Precision | None = None,
    ) -> None:
        """Write the product of `kron_sparse_product` to y; values are where the backend works."""

    @abstractmethod
    def interpolation_plan(self, windows: Windows, known: Any = None) -> InterpolationPlan:
        """Return the plan of interpolation from windows of a grid.

        ``known``: such a plan of as many windows. It may be returned, with the new ones.
        """

    def copy_views(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        """Copy arrays to others: what ranks pack and unpack.

        Parameters
        ----------
        pairs : sequence of (target, source)
            Of one shape (a, b, c, i) and one dtype; on a device these may be layouts, and the last
            axis is contiguous.
        """
        for target, source in pairs:
            target[...] = source

    @abstractmethod
    def kron(self, factors: Sequence[ArrayLike], out: Array | None) -> Array:
        """Return the explicit Kronecker product, ``out`` if given, with all checks of the inputs.

        This is all that `batchkron.kron` does.
        """

    @abstractmethod
    def sum_vectors(self, factors: Sequence[float], vectors: Sequence[Array], out: Array) -> None:
        """Write Σ factors[k] vectors[k] to ``out``, which may be one of the vectors.

        All are contiguous, real and of one dtype.

        Raises
        ------
        ValueError
            If one overlaps ``out`` without being it.
        """

    @abstractmethod
    def step_table(self, steps: int, width: int, columns: int) -> StepTable:
        """Return a table of numbers (steps, width) for sums of vectors, and of their results."""

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

    def fast_path(self, call: FastCall) -> Callable[..., Any]:
        """Return the function that does a call at once if its arrays are plain, or `unavailable`.

        It takes any objects. Where it returns None or False it has done nothing, and a plan does
        the call, or another function. The arguments, and what is returned else, are

        - "kron_multiply": (factors, x, left, alpha, beta, y, out, precision); the result of
          ``gekmm`` if ``left``, or of ``gemkm``,
        - "kron_sparse_multiply": (values, x, layout, precision, out); the result,
        - "kron": (factors, out); the explicit product,
        - "batched_gemm": (a, b, alpha, beta, transpose_b); the products of a[i] and b[i],
        - "batched_kron": (pools, ids, x, inputs, outputs, y, weights); True, with the products of
          the list added to y,
        - "field_blocks": the arrays of ``csrc/engine/fields/blocks.hpp``; True, with the blocks of
          multiplications by fields written,
        - "field_plan": the named arrays of ``csrc/bindings/fields.cpp``; a `FieldPlan`,
        - "formula_values": a `FormulaSpec`; on a device a function (variables, numbers, out) that
          writes the formula's values by one kernel,
        - "triangular_sum": host arrays T_1, …, T_d of one complex dtype; a `TriangularSum`, where
          not LAPACK solves systems with T_1 ⊕ … ⊕ T_d.
        """
        return unavailable


class KrylovPasses(Protocol):
    """A sequence of passes of a Krylov method over the vectors of many systems."""

    def run(self, address: int) -> int:
        """Run the passes, given the address of their ``ARGUMENTS`` (krylov_arguments.py).

        Returns how many systems are still running, -1 if the device would have to be waited for.
        """


class Reduction(Protocol):
    """The ranks that share vectors, over which sums are taken (`batchkron.distributed`)."""

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    @property
    def capturable(self) -> bool:
        """Whether `gather_into` may be captured in a CUDA graph."""
        ...

    def allreduce(self, values: NDArray[Any], *, maxima: bool = False) -> None:
        """Replace numbers on the host by their sums over the ranks, or maxima."""
        ...

    def gather_into(self, values: Array, gathered: Array) -> None:
        """Write the values (n,) of all ranks to ``gathered``, (size, n), in their order."""
        ...


class Recorder(Protocol):
    """Runs the same work repeatedly, with less effort than calling it each time."""

    def run(self, key: object, work: Callable[[], None]) -> bool:
        """Do what ``work`` does, which must be the same for the same key.

        Returns whether it was done without calling ``work``.
        """


class KrylovBackend(Backend):
    """A backend that also has what a Krylov method needs besides products with its operator."""

    @abstractmethod
    def address(self, array: Array) -> int:
        """Return the address of an array."""

    @abstractmethod
    def place_of_work(self) -> tuple[Hashable, object]:
        """Return a key of the place where work now runs, and an object that keeps the key valid.

        On a device the place is the current stream. Work of a thread at one place runs in order.
        """

    @abstractmethod
    def krylov_vectors(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return uninitialised vectors for passes, with the alignment that makes these fastest."""

    @abstractmethod
    def krylov_passes(
        self,
        names: tuple[str, ...],
        dtype: np.dtype[Any],
        n: int,
        systems: int,
        restart: int,
        reduction: Reduction | None = None,
    ) -> KrylovPasses:
        """Return passes by their names, for vectors (systems, n) and restart + 1 basis vectors.

        With a reduction, the n elements are this rank's part of vectors, and sums are over all.
        """

    @abstractmethod
    def krylov_parts(self, n: int, systems: int) -> int:
        """Return how many parts of each sum of a system a pass leaves in memory, 0 if none."""

    @abstractmethod
    def krylov_reader(self) -> Callable[[Array], Array]:
        """Return a function that copies arrays to the host; a copy is valid until the next call."""

    def krylov_iterations(
        self, plan: Any, stages: tuple[Stage, ...], kept: int, count: int
    ) -> KrylovPasses | None:
        """Return whole iterations for the systems of a `SumPlan`, in one call; None by default.

        Of ``count`` vectors, the first ``kept`` keep their values between calls.
        """
        return None
