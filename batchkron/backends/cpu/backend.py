"""The CPU backend: plans whose work the compiled C++ core does."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.cpu import native as _native
from batchkron.backends.cpu.environment import check_environment
from batchkron.backends.cpu.inner_product import inner_product
from batchkron.backends.host import HostBackend
from batchkron.backends.protocol import (
    BatchPlan,
    FastCall,
    FieldPlan,
    InterpolationPlan,
    KronSparseProduct,
    KrylovBackend,
    KrylovPasses,
    Product,
    Reduction,
    SegmentedPlan,
    SumPlan,
    SweepPlan,
    unavailable,
)
from batchkron.spec.identities import merged_identities
from batchkron.spec.interpolated import Windows
from batchkron.spec.kron import Array, BatchSpec, KronSpec, Precision
from batchkron.spec.segmented import SegmentedSpec
from batchkron.spec.sweeps import SweepList, SweepPart

_DTYPES = {"Float32": "f", "Float64": "d", "Complex64": "F", "Complex128": "D"}


def _by_dtype(name: str) -> dict[np.dtype[Any], Any]:
    """Return the core's classes of this name that there are, by their dtypes."""
    found = ((kind, getattr(_native, name + suffix, None)) for suffix, kind in _DTYPES.items())
    return {np.dtype(kind): one for kind, one in found if one is not None}


_KRON_PLANS = _by_dtype("KronPlan")
_KRON_PRODUCTS: dict[np.dtype[Any], Callable[..., Product]] = _by_dtype("KronProduct")
_KRON_SUMS = _by_dtype("KronSum")
_BATCH_PLANS: dict[np.dtype[Any], Callable[..., BatchPlan]] = _by_dtype("BatchPlan")
_SEGMENTED_PLANS: dict[np.dtype[Any], Callable[..., SegmentedPlan]] = _by_dtype("SegmentedPlan")
_SWEEP_PLANS: dict[np.dtype[Any], Callable[..., SweepPlan]] = _by_dtype("SweepPlan")
_KRON_SPARSE: dict[np.dtype[Any], Callable[..., KronSparseProduct]] = _by_dtype("KronSparse")
_INTERPOLATIONS: dict[np.dtype[Any], Callable[..., InterpolationPlan]] = _by_dtype("Interpolation")
_NUMBERS = (int, float)
_KRYLOV_DTYPES = ("float32", "float64", "complex64", "complex128")


class KronPlan:
    """y = alpha * (F_1 ⊗ … ⊗ F_d) x + beta * y by sliced multiplies (FastKron, Algorithm 1)."""

    __slots__ = ("native",)

    def __init__(self, native: Any) -> None:
        self.native = native

    def run(
        self,
        factors: Sequence[Array | int],
        x: Array,
        alpha: complex,
        beta: complex,
        y: Array | None,
        out: Array,
    ) -> None:
        """Write the result to ``out``, C-contiguous; y may be ``out`` itself."""
        if beta == 0 or y is None:
            self.native.run(factors, x, alpha, out, False)
            return
        if y is not out:
            np.multiply(y, beta, out=out)
        elif beta != 1:
            out *= beta
        self.native.run(factors, x, alpha, out, True)


class KronSum:
    """y = alpha (A_1 ⊕ … ⊕ A_d) x, with a packed copy of the factors."""

    __slots__ = ("apply", "run")

    def __init__(self, factors: Sequence[Array]) -> None:
        self.set_factors(factors)

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Copy new factors of the same shapes."""
        native = _KRON_SUMS[factors[0].dtype](factors)
        self.run, self.apply = native.run, native.apply


class StepTable:
    """Numbers of steps and what these find, as `batchkron.backends.protocol.StepTable`.

    Sums of squares have the same bits for any number of threads.
    """

    max_vectors = sys.maxsize

    def __init__(self, steps: int, width: int, columns: int) -> None:
        check_environment()
        self._native = _native.StepTable(steps, width, columns)

    def begin(self, rows: Array | None = None) -> None:
        """Go back to the first row, and write rows from there on."""
        self._native.begin()
        if rows is not None:
            self.write(0, rows)

    def write(self, first: int, rows: Array) -> None:
        """Copy numbers (k, n <= width) to rows from ``first`` on."""
        self._native.write(first, np.ascontiguousarray(rows))

    def sum_pass(
        self,
        first: int,
        vectors: Sequence[Array],
        out: Array | None,
        result: int = -1,
        *,
        ends: bool = False,
    ) -> _native.Pass:
        """Return what writes a sum to ``out``, or finds its sum of squares alone."""
        return self._native.sum_pass(first, vectors, out, result, ends)

    def program(self, work: Sequence[Callable[[], object]]) -> Callable[[int], None] | None:
        """Return what does all passes of so many steps, if all of them are the core's."""
        passes = [each for each in work if isinstance(each, _native.Pass)]
        if len(passes) < len(work):
            return None
        return _native.StepProgram(self._native, passes).run

    def read(self, count: int) -> Array:
        """Return the results (count, columns)."""
        return self._native.read(count)


class CpuBackend(HostBackend, KrylovBackend):
    """The compiled kernels, which check the environment before the first of them is made."""

    name = "cpu"

    @staticmethod
    @lru_cache(maxsize=1024)
    def kron_plan(spec: KronSpec) -> KronPlan:
        """Return the plan of a multiply by one Kronecker product, shared by equal specs."""
        check_environment()
        sizes = spec.inputs, spec.outputs, spec.outer, spec.inner
        return KronPlan(_KRON_PLANS[spec.dtype](*sizes, spec.skipped))

    def fast_path(self, call: FastCall) -> Callable[..., Any]:
        """Return the function of the core that does a call with plain arrays."""
        return _FAST_PATHS.get(call, unavailable)

    def kron_product(
        self, factors: Sequence[Array | int], precision: Precision | None = None, known: Any = None
    ) -> Product:
        """Return a product that holds its own packed copy of the factors, in full precision."""
        check_environment()
        before, kept, behind = merged_identities(factors)
        return _KRON_PRODUCTS[kept[0].dtype](kept, before, behind)

    def batch_plan(self, spec: BatchSpec) -> BatchPlan:
        """Return the plan of a batch list; it holds its own copy of the pools."""
        check_environment()
        return _BATCH_PLANS[spec.dtype](
            spec.pools,
            spec.factor_ids,
            spec.inputs,
            spec.outputs,
            spec.weights,
            spec.systems,
            spec.num_inputs,
            spec.num_outputs,
            [flags.tolist() for flags in spec.identity],
            spec.accumulation == "atomic",
        )

    def sum_plan(self, factors: Sequence[Array]) -> SumPlan:
        """Return the product with a Kronecker sum, or with those of many systems."""
        if any(factor.ndim > 2 for factor in factors):
            return super().sum_plan(factors)
        check_environment()
        return KronSum(factors)

    def segmented_plan(self, spec: SegmentedSpec) -> SegmentedPlan:
        """Return the plan of a segmented mode multiply; it holds its own copy of the matrices."""
        check_environment()
        return _SEGMENTED_PLANS[spec.dtype](
            spec.matrices,
            spec.before,
            spec.behind,
            spec.num_inputs,
            spec.starts,
            spec.factor_ids,
            spec.children,
        )

    def sweep_plan(self, sweeps: SweepList, matrices: Sequence[Array]) -> SweepPlan:
        """Return the plan of a list of sweeps; it holds its own copy of the matrices."""
        check_environment()
        steps = [
            (step.target, step.adds, step.adds_x, [_in_32_bits(part) for part in step.parts])
            for step in sweeps.steps
        ]
        return _SWEEP_PLANS[sweeps.dtype](
            sweeps.sizes, sweeps.given, sweeps.vectors, steps, matrices
        )

    def kron_sparse_product(
        self, values: Array, precision: Precision | None = None
    ) -> KronSparseProduct:
        """Return the product with a Kronecker-sparse matrix; it packs copies of the values."""
        check_environment()
        return _KRON_SPARSE[values.dtype](values)

    def multiply_kron_sparse(
        self,
        values: Array,
        x: Array,
        y: Array,
        outer: int,
        inner: int,
        precision: Precision | None = None,
    ) -> None:
        """Write the product with a Kronecker-sparse matrix to y."""
        check_environment()
        _native.multiply_kron_sparse(values, x, y, outer, inner)

    def interpolation_plan(self, windows: Windows, known: Any = None) -> InterpolationPlan:
        """Return the plan of interpolation from windows; it holds its own copy of the weights."""
        check_environment()
        return _INTERPOLATIONS[windows.weights.dtype](
            windows.sizes, windows.corners, windows.weights, windows.places
        )

    def write_kron(self, factors: Sequence[Array], out: Array) -> None:
        """Write the explicit Kronecker product of matrices of one dtype to ``out``, C-contiguous.

        The right factors are multiplied first: all but the last product are small.
        """
        check_environment()
        matrices = [np.ascontiguousarray(factor) for factor in factors]
        if len(matrices) == 1:
            out[...] = matrices[0]
            return
        right = matrices.pop()
        while len(matrices) > 1:
            left = matrices.pop()
            shape = (left.shape[0] * right.shape[0], left.shape[1] * right.shape[1])
            product = np.empty(shape, out.dtype)
            _native.kron(left, right, product)
            right = product
        _native.kron(matrices[0], right, out)

    def sum_vectors(self, factors: Sequence[float], vectors: Sequence[Array], out: Array) -> None:
        """Write Σ factors[k] vectors[k], contiguous, to ``out``, which may be one of them."""
        check_environment()
        _native.sum_vectors(factors, vectors, out)

    def step_table(self, steps: int, width: int, columns: int) -> StepTable:
        """Return a table of numbers (steps, width) for sums of vectors, and of their results."""
        return StepTable(steps, width, columns)

    def inner_product(self, x: Array, y: Array) -> complex:
        """Return Σ conj(x_i) y_i of contiguous vectors, summed in an order of its own."""
        return inner_product(x, y)

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
        check_environment()
        a_ids, b_ids, c_ids = ids
        order = np.argsort(c_ids, kind="stable")
        starts = np.searchsorted(c_ids[order], np.arange(len(c) + 1))
        _native.batched_gemm(
            np.ascontiguousarray(a),
            np.ascontiguousarray(b),
            c,
            alpha,
            transpose_b,
            a_ids[order],
            b_ids[order],
            starts,
        )

    def address(self, array: Array) -> int:
        """Return the address of an array."""
        return int(array.__array_interface__["data"][0])

    def place_of_work(self) -> tuple[str, None]:
        """Return a key that no device has, and nothing to keep alive."""
        return "cpu", None

    def krylov_vectors(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return uninitialised vectors; the first one begins at a cache line."""
        size = math.prod(shape) * dtype.itemsize
        memory = np.empty(size + 63, np.uint8)
        begin = -self.address(memory) % 64
        return memory[begin : begin + size].view(dtype).reshape(shape)

    def krylov_passes(
        self,
        names: tuple[str, ...],
        dtype: np.dtype[Any],
        n: int,
        systems: int,
        restart: int,
        reduction: Reduction | None = None,
    ) -> KrylovPasses:
        """Return the passes of a Krylov method with these names in ``csrc/krylov``."""
        if reduction is None:
            return _krylov_sequence(names, dtype)
        check_environment()

        def reduce(sums: Array, maxima: bool) -> None:
            reduction.allreduce(sums, maxima=maxima)

        return _native.KrylovSequence(names, _KRYLOV_DTYPES.index(dtype.name), reduce)

    def krylov_parts(self, n: int, systems: int) -> int:
        """Return 0: passes add up their sums themselves."""
        return 0

    def krylov_reader(self) -> Callable[[Array], Array]:
        """Return the identity: arrays are on the host."""
        return lambda array: array


@lru_cache(maxsize=256)
def _krylov_sequence(names: tuple[str, ...], dtype: np.dtype[Any]) -> KrylovPasses:
    check_environment()
    return _native.KrylovSequence(names, _KRYLOV_DTYPES.index(dtype.name))


def _multiply(
    factors: Any,
    x: Any,
    left: bool,
    alpha: complex,
    beta: complex,
    y: Any,
    out: Any,
    precision: Precision | None,
) -> Array | None:
    """Return the result of gekmm (``left``) or gemkm by a plan that `kron_plan` has made.

    None for arrays that have to be converted or refused, and where beta y is added, unless y
    is ``out`` and beta is 1.
    """
    if precision is not None or type(beta) not in _NUMBERS:
        return None
    if beta != 0 if y is None else beta != 1 or y is not out:
        return None
    return _native.plain_product(factors, x, out, alpha, left, y is not None)


def _kron(factors: Any, out: Any) -> Array | None:
    check_environment()
    return _native.plain_kron(factors, out)


def _batched_gemm(a: Any, b: Any, alpha: complex, beta: complex, transpose_b: bool) -> Array | None:
    if type(beta) not in _NUMBERS or beta != 0 or type(transpose_b) is not bool:
        return None
    check_environment()
    return _native.plain_gemm(a, b, alpha, transpose_b)


def _field_blocks(arrays: Sequence[Array]) -> bool:
    check_environment()
    _native.field_blocks(*arrays)
    return True


def _field_plan(**arrays: Any) -> FieldPlan:
    check_environment()
    return _native.FieldPlan(**arrays)


def _batched_kron(*arguments: Any) -> bool:
    check_environment()
    return _native.add_batch(*arguments)


_FAST_PATHS: dict[FastCall, Callable[..., Any]] = {
    "kron_multiply": _multiply,
    "kron": _kron,
    "batched_gemm": _batched_gemm,
    "batched_kron": _batched_kron,
    "field_blocks": _field_blocks,
    "field_plan": _field_plan,
}


def _in_32_bits(part: SweepPart) -> SweepPart:
    """Return a part of a sweep with int32 indices, as the core takes them.

    Raises `ValueError` if it has 2^31 edges or blocks, or more.
    """
    for ids in part[-3:]:
        if ids.dtype.itemsize > 4 and ids.size and ids.max() > np.iinfo(np.int32).max:
            raise ValueError("a sweep joins more than 2^31 pairs or cells; the grid is too large")
    indices: list[NDArray[Any]] = [ids.astype(np.int32, copy=False) for ids in part[-3:]]
    return SweepPart(*part[:-3], *indices)
