"""Plans of multiplies by one Kronecker product, on one device."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_family import forget_plans, forgotten
from batchkron.backends.cuda.kron.choose import fastest_plan, product_of
from batchkron.backends.cuda.kron.program import KronProgram, Load
from batchkron.backends.cuda.kron.registers.variants import MAX_FACTOR_SIZE, factor_words
from batchkron.backends.cuda.kron.spread import spread_arguments, spread_kernel
from batchkron.backends.cuda.runtime.device import (
    ConstantKernel,
    DeviceArray,
    Workspaces,
    check_device,
    cupy,
    current_device,
    device_errors,
    device_limits,
    load_kernel,
    matrix_strides,
    place,
    ready_stream,
    upload,
)
from batchkron.backends.cuda.runtime.kernel_cache import is_tuned
from batchkron.backends.cuda.runtime.launch import (
    BoundedCache,
    LaunchSequence,
    Place,
    ScalarArguments,
)
from batchkron.backends.cuda.runtime.plan import LinearPlan
from batchkron.backends.cuda.runtime.program import Program
from batchkron.backends.cuda.steps import MAX_MULTIPLIED_IDENTITY
from batchkron.backends.cuda.tuning.tuning import Tuning, wanted_tuning
from batchkron.backends.protocol import Owners
from batchkron.spec.identities import merged_identities, sizes_of, skipped_modes
from batchkron.spec.kron import Array, KronSpec, Precision

_MAX_CACHED_PLANS = 64  # largest number of prepared calls that a product keeps; chosen by hand


def _kernels(spec: KronSpec, constant: bool, device: int) -> tuple[Kernel, ...]:
    """Return the tuned kernels if there are some, else those with the smallest estimated time."""
    if is_tuned():  # imported only then, to keep the start of other processes short
        from batchkron.backends.cuda.kron.tuned import planned_kernels

        return planned_kernels(spec, constant, device)
    return fastest_plan(product_of(spec, constant), device_limits(device))


def prepared_call(
    spec: KronSpec,
    device: int,
    kernels: Sequence[Kernel],
    factors: Sequence[DeviceArray],
    load: Load,
) -> Callable[[int, int], None]:
    """Return a function that applies kernels with these factors, given the addresses of x and y."""
    program = KronProgram(kernels, load)
    return _Prepared(program, factors, spec.dtype, device, Workspaces()).apply


def _tune(spec: KronSpec, constant: bool, device: int, tuning: Tuning | None) -> None:
    """Search the kernels of a product if tuning is requested and was not done before."""
    if tuning is None or is_empty(spec) or cupy.cuda.get_current_stream().is_capturing():
        return

    from batchkron.backends.cuda.kron.tuned import tune_kron

    with device_errors():
        if tune_kron(spec, constant, device, partial(prepared_call, spec, device), tuning):
            forget_plans()


@forgotten
@lru_cache(maxsize=1024)
def kron_program(spec: KronSpec, device: int) -> KronProgram:
    """Return kernels that read their factors from memory, shared by all plans of a spec."""
    kernels = _kernels(spec, False, device)
    return KronProgram(kernels, lambda kernel: load_kernel(kernel.program, device))


class _OwnKernels:
    """Kernels with the factors of one operator in their constant memory, on one device.

    They exist as long as the operator, because captured graphs call them.
    """

    def __init__(self, factors: Sequence[Array], device: int) -> None:
        self._factors, self._device = factors, device
        # by program, and the modes of its factors
        self._kernels: dict[tuple[Program, tuple[int, ...]], ConstantKernel] = {}
        self._changing = threading.Lock()

    def function(self, kernel: Kernel) -> Any:
        """Return a kernel with the factors in its constant memory."""
        with self._changing:
            key = kernel.program, kernel.modes
            own = self._kernels.get(key)
            if own is None:
                own = self._kernels[key] = ConstantKernel(kernel.program, self._device)
                self._set(own, kernel.modes)
            return own.function

    def set_factors(self, factors: Sequence[Array]) -> None:
        """Set new factors; no kernel may be running."""
        with self._changing:
            self._factors = factors
            for (_, modes), kernel in self._kernels.items():
                self._set(kernel, modes)

    def _set(self, kernel: ConstantKernel, modes: Sequence[int]) -> None:
        kernel.set_constants(factor_words([self._factors[mode] for mode in modes]))

    def program(self, spec: KronSpec) -> KronProgram | None:
        """Return the kernels of a Kron-Matmul, None if the factors are too large."""
        if not _may_be_constant(spec):
            return None

        def load(kernel: Kernel) -> Any:
            if kernel.program.constants:
                return self.function(kernel)
            return load_kernel(kernel.program, self._device)

        return KronProgram(_kernels(spec, True, self._device), load)


def _may_be_constant(spec: KronSpec) -> bool:
    """Whether factors of these sizes may lie in a kernel's constant memory."""
    modes = product_of(spec, constant=True).multiplied[0]
    return max(max(spec.inputs[k], spec.outputs[k]) for k in modes) <= MAX_FACTOR_SIZE


class PreparedMultiply:
    """A Kron-Matmul of factors with some strides; a call takes addresses and scalars.

    ``sequence``: of the addresses of x, y, previous (or 0), the workspace, and each factor;
    ``workspace``: bytes of memory that a call needs.
    """

    def __init__(
        self, program: KronProgram, strides: Sequence[tuple[int, int]], device: int
    ) -> None:
        x, y, previous, memory, *factors = map(Place, range(4 + len(strides)))
        steps = program.steps(strides, x, (y, previous), memory, factors)
        self.sequence = LaunchSequence(steps, 4 + len(strides))
        self._device = device
        self.workspace = program.bytes

    def launch(self, addresses: tuple[int, ...], scalars: bytes) -> None:
        """Write alpha A x + beta previous to y; ``scalars``: `kron_scalars`."""
        self.sequence(ready_stream(self._device), addresses, scalars)


class _Prepared(PreparedMultiply):
    """A Kron-Matmul with its factors and workspace; a call only takes vectors and scalars."""

    def __init__(
        self,
        program: KronProgram,
        factors: Sequence[DeviceArray],
        dtype: np.dtype[Any],
        device: int,
        workspaces: Workspaces,
    ) -> None:
        super().__init__(program, [matrix_strides(factor) for factor in factors], device)
        self._factors = tuple(factor.data.ptr for factor in factors)
        self._plain = kron_scalars(dtype, 1, 0)
        self._workspaces = workspaces

    def reserve(self) -> None:
        """Allocate the workspace of the current stream."""
        self._workspaces.pointer(self.workspace)

    def apply(self, x: int, y: int) -> None:
        """Write the product with the vectors at the address x to y."""
        self.run(x, y, 0, self._plain)

    def run(self, x: int, y: int, previous: int, scalars: bytes) -> None:
        """Write alpha A x + beta previous to y, all given by addresses."""
        memory = self._workspaces.pointer(self.workspace)
        self.launch((x, y, previous, memory, *self._factors), scalars)


def kron_scalars(dtype: np.dtype[Any], alpha: complex, beta: complex) -> bytes:
    """Return the bytes of the scalars at the end of a kernel's arguments."""
    return np.array([alpha, beta], dtype).tobytes()


class KronPlan:
    """y = alpha (A_1 ⊗ … ⊗ A_d) x + beta y on the device that is current at the call."""

    def __init__(self, spec: KronSpec) -> None:
        self.spec = spec
        self._workspaces = Workspaces()

    def prepare(self) -> None:
        """Compile what `run` needs on the current device."""
        if not is_empty(self.spec):
            _tune(self.spec, False, current_device(), wanted_tuning())
            kron_program(self.spec, current_device())

    def run(
        self,
        factors: Sequence[DeviceArray | int],
        x: DeviceArray,
        alpha: complex,
        beta: complex,
        y: DeviceArray | None,
        out: DeviceArray,
    ) -> None:
        """Write the result to the C-contiguous ``out``; y may be ``out`` itself."""
        device, spec = current_device(), self.spec
        factors = [_identity_of(one, spec.dtype, device) for one in factors]
        check_device(device, x, out, *factors, *([] if y is None else [y]))
        if out.size == 0:
            return
        with device_errors():
            # Allocate everything before writing anything.
            previous = None
            if beta != 0 and y is not None:
                previous = y if y is out else cupy.ascontiguousarray(y, dtype=spec.dtype)
            if is_empty(spec):
                out[...] = 0 if previous is None else beta * previous
                return
            _tune(spec, False, device, wanted_tuning())
            program = kron_program(spec, device)
            prepared = _Prepared(program, factors, spec.dtype, device, self._workspaces)
            added = (0, 0) if previous is None else (previous.data.ptr, beta)
            scalars = kron_scalars(spec.dtype, alpha, added[1])
            prepared.run(x.data.ptr, out.data.ptr, added[0], scalars)


def is_empty(spec: KronSpec) -> bool:
    """Whether a product has no vectors or a size of zero."""
    return 0 in (spec.outer, spec.inner, *spec.inputs, *spec.outputs)


@lru_cache(maxsize=256)
def _identity_on(size: int, dtype: np.dtype[Any], device: int) -> DeviceArray:
    (matrix,) = place([np.eye(size, dtype=dtype)])
    return matrix


def _identity_of(factor: Any, dtype: np.dtype[Any], device: int) -> DeviceArray:
    """Return a factor on the device; for the size of an identity a matrix, one that may be read."""
    if not isinstance(factor, int):
        return factor
    return _identity_on(factor if factor <= MAX_MULTIPLIED_IDENTITY else 1, dtype, device)


class KronProduct(LinearPlan):
    """y = alpha (A_1 ⊗ … ⊗ A_d) x with factors on the current device, and one workspace."""

    def __init__(self, factors: Sequence[Array | int], precision: Precision | None = None) -> None:
        self._tuning = wanted_tuning()  # used for each number of vectors when it first occurs
        self._precision = precision
        self._before, kept, self._behind = merged_identities(factors)
        self._outputs, self._inputs = sizes_of(kept)
        self._skipped = skipped_modes(kept)
        self._own = place([factor for factor in kept if not isinstance(factor, int)])
        dtype, device, own = self._own[0].dtype, current_device(), iter(self._own)
        others = self._before * self._behind
        columns, rows = others * math.prod(self._inputs), others * math.prod(self._outputs)
        super().__init__(device, dtype, (columns,), (rows,))
        self._factors = tuple(
            _identity_of(one, dtype, device) if isinstance(one, int) else next(own) for one in kept
        )
        self._workspaces = Workspaces()
        self._kernels = _OwnKernels(self._on_host(), device)
        self._prepared: dict[tuple[int, int], _Prepared] = {}
        self._spread: BoundedCache[Hashable, _Prepared | None] = BoundedCache()
        self._scalars = ScalarArguments(partial(kron_scalars, dtype))

    def set_values(self, factors: Sequence[Array | int]) -> None:
        """Copy new factors in place, so that captured graphs use them."""
        upload([factor for factor in factors if not isinstance(factor, int)], self._own)
        self._kernels.set_factors(self._on_host())

    def _on_host(self) -> list[Array]:
        return [cupy.asnumpy(factor) for factor in self._factors]

    def _fast_path(self, x: DeviceArray, out: DeviceArray) -> Callable[[int, int], None] | None:
        """Accept vectors (..., N)."""
        fits = x.dtype == self._dtype and x.shape[-1:] == self._given
        if not (fits and out.shape == (*x.shape[:-1], *self._result)):
            return None
        return self._prepare(x.size // self._given[0], 1).apply

    def _spec(self, outer: int, inner: int) -> KronSpec:
        """Return what is computed for vectors (outer, N, inner)."""
        vectors = outer * self._before, self._behind * inner
        sizes = self._inputs, self._outputs
        return KronSpec(*sizes, *vectors, self._dtype, self._precision, self._skipped)

    def _prepare(self, outer: int, inner: int) -> _Prepared:
        """Return the product for vectors (outer, N, inner), which are not empty."""
        prepared = self._prepared.get((outer, inner))
        if prepared is None:
            spec = self._spec(outer, inner)
            _tune(spec, _may_be_constant(spec), self._device, self._tuning)
            program = self._kernels.program(spec) or kron_program(spec, self._device)
            prepared = self._with(program)
            if len(self._prepared) >= _MAX_CACHED_PLANS:
                self._prepared.clear()
            self._prepared[outer, inner] = prepared
        return prepared

    def _with(self, program: KronProgram) -> _Prepared:
        return _Prepared(program, self._factors, self._dtype, self._device, self._workspaces)

    def reserve(self, outer: int, inner: int) -> None:
        """Compile and allocate what `run` will need."""
        if not is_empty(self._spec(outer, inner)):
            self._prepare(outer, inner).reserve()

    def spread(
        self, owners: Owners, x: DeviceArray, outer: int, inner: int, alpha: complex
    ) -> bool:
        """Write alpha A x to the memory of its owners; False if no kernel does this."""
        check_device(self._device, x)
        addresses = tuple(int(array.data.ptr) for array in owners.arrays)
        sizes = owners.group, owners.vector, owners.slice, owners.row
        key = outer, inner, alpha, addresses, *sizes
        with device_errors():
            if key not in self._spread:
                self._spread[key] = self._prepare_spread(owners, addresses, outer, inner, alpha)
            prepared = self._spread[key]
            if prepared is not None:
                prepared.run(x.data.ptr, 0, 0, b"")
        return prepared is not None

    def _prepare_spread(
        self, owners: Owners, addresses: tuple[int, ...], outer: int, inner: int, alpha: complex
    ) -> _Prepared | None:
        spec = self._spec(outer, inner)
        if is_empty(spec) or self._before > 1 or self._behind > 1:  # rows of owners are others
            return None
        *between, last = _kernels(spec, False, self._device)
        kernel = spread_kernel(last, len(addresses), device_limits(self._device))
        if kernel is None:
            return None
        arguments = spread_arguments(kernel, owners, addresses, inner, alpha)
        if arguments is None:
            return None
        kernels = *between, replace(kernel, arguments=arguments)
        program = KronProgram(kernels, lambda kernel: load_kernel(kernel.program, self._device))
        return self._with(program)

    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        scalars = self._scalars(alpha, accumulate)
        self._prepare(outer, inner).run(x, y, y if accumulate else 0, scalars)


def kron_product(
    factors: Sequence[Array | int],
    precision: Precision | None = None,
    known: KronProduct | None = None,
) -> KronProduct:
    """Return the product with these factors: the known one, of the same shapes, with new values."""
    if known is None:
        return KronProduct(factors, precision)
    known.set_values(factors)
    return known
