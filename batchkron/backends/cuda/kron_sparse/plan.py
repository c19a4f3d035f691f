"""Products with Kronecker-sparse matrices on one device.

An operator keeps its values as kernels read them. A copy in each call, as functions make, takes 2 %
more in the mean of 168 cells (H200, docs/results/gpu.md), but 33 % more for (1, 768, 192, 2) and
24 % for (1, 256, 1024, 4) in float16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from batchkron.backends.cpu.native import DeviceCall
from batchkron.backends.cuda.kernel_family import forget_plans, forgotten
from batchkron.backends.cuda.kron.fibres.passes import PRODUCTS
from batchkron.backends.cuda.kron_sparse.choose import fastest_way
from batchkron.backends.cuda.kron_sparse.kernel import WORD, SparseShape, Stored, sum_dtype
from batchkron.backends.cuda.kron_sparse.launches import direct_launch, product_steps
from batchkron.backends.cuda.kron_sparse.stored import stored_values
from batchkron.backends.cuda.kron_sparse.transposed import Way, stored_of, workspace_of
from batchkron.backends.cuda.runtime.calls import call_workspace
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    cupy,
    current_device,
    device_errors,
    device_limits,
    ready_stream,
    upload,
)
from batchkron.backends.cuda.runtime.kernel_cache import is_tuned
from batchkron.backends.cuda.runtime.launch import (
    FastPath,
    LaunchSequence,
    Place,
    batch_scalars,
)
from batchkron.backends.cuda.runtime.plan import LinearPlan
from batchkron.backends.cuda.tuning.tuning import Tuning, wanted_tuning
from batchkron.spec.kron import Array, Precision
from batchkron.spec.kron_sparse import Pattern

_MAX_SIZE = 2**30  # each of a, b, c and d is smaller, as the kernels need


def planned_way(shape: SparseShape, device: int, *, plain: bool = True) -> Way:
    """Return the tuned way for y = A x if there is one, else that of the least estimated time.

    If ``plain``, it need not scale or accumulate.
    """
    limits = device_limits(device)
    if is_tuned():  # imported only then, to keep the start of other processes short
        from batchkron.backends.cuda.kron_sparse.tuned import tuned_way

        way = tuned_way(shape, limits)
        if way is not None and (plain or not isinstance(way, tuple)):
            return way
    return fastest_way(shape, limits, plain=plain)


def tune(shape: SparseShape, device: int, tuning: Tuning | None) -> None:
    """Search the way for y = A x if tuning is requested and was not done before."""
    if tuning is None or cupy.cuda.get_current_stream().is_capturing():
        return

    from batchkron.backends.cuda.kron_sparse.tuned import tune_sparse

    with device_errors():
        if tune_sparse(shape, device, tuning):
            forget_plans()


class PreparedProduct:
    """What is launched for a product, and how it finds the values stored.

    ``plain``: for y = A x, which takes no scalars. ``also``: how the values are stored for the
    product of such vectors that scales or accumulates, if this one does not, or the other way
    round. ``workspace``: bytes that the launches need.
    """

    def __init__(self, shape: SparseShape, device: int, plain: bool) -> None:
        way, other = (planned_way(shape, device, plain=one) for one in (plain, not plain))
        self.stored, self.also, self.workspace = stored_of(way), stored_of(other), workspace_of(way)
        self._takes_scalars = not isinstance(way, tuple)
        self._launch: DeviceCall | LaunchSequence
        if isinstance(way, tuple):
            self._launch = LaunchSequence(product_steps(way, device, *map(Place, range(4))), 4)
        else:
            self._launch = direct_launch(way, device)

    def start(self, stream: int, addresses: tuple[int, int, int, int], scalars: bytes) -> None:
        """Launch, with the addresses of x, y, the values and the workspace."""
        taken = addresses if self.workspace else addresses[:3]
        self._launch(stream, taken, scalars if self._takes_scalars else b"")


prepared_product = forgotten(lru_cache(maxsize=1024)(PreparedProduct))


def common_alignment(*addresses: int) -> int:
    """Return the largest power of two up to `WORD` that all addresses are multiples of."""
    together = WORD
    for address in addresses:
        together |= address
    return together & -together


def _plain(values: Array) -> Array:
    """Return values with numbers of 16 bits as integers: only their bits are copied."""
    return values.view(np.uint16) if values.dtype.itemsize == 2 else values


def check_pattern(shape: tuple[int, ...]) -> Pattern:
    """Return the pattern of values; ValueError if kernels cannot count a size."""
    pattern = Pattern(*shape)
    if max(pattern) >= _MAX_SIZE:
        raise ValueError(
            f"values has shape {shape}; expected sizes below {_MAX_SIZE} on a CUDA device"
        )
    return pattern


class KronSparsePlan(LinearPlan):
    """y[o, i, k, j, r] = alpha Σ_l values[i, k, l, j] x[o, i, l, j, r] on one device.

    The values are copied to the device when the first kernel asks for them, once for each of the
    two ways in which kernels store them.
    """

    def __init__(self, values: Array, precision: Precision | None = None) -> None:
        self.pattern = check_pattern(values.shape)
        rows, columns = self.pattern.shape
        super().__init__(current_device(), values.dtype, (columns,), (rows,))
        self._name = values.dtype.name
        self._products = PRODUCTS[precision] if self._name == "float32" else 0
        self._scalars = batch_scalars(sum_dtype(self._name))
        self._host = values
        self._stored: dict[Stored, DeviceArray] = {}
        # each number of vectors is tuned when it first occurs
        self._tuning, self._tuned = wanted_tuning(), set[SparseShape]()
        self._last = _LastFastPath(self)
        self.apply_last = self._last.apply

    def set_values(self, values: Array) -> None:
        """Take new values (a, b, c, d), an array that nobody changes, after earlier work ended."""
        self._host = values
        copies = dict(self._stored)
        if copies:
            upload([stored_values(_plain(values), how) for how in copies], list(copies.values()))

    def values_as(self, stored: Stored) -> DeviceArray:
        """Return the values on the device, copied at first; RuntimeError while capturing."""
        values = self._stored.get(stored)
        if values is None:
            stream = cupy.cuda.get_current_stream()
            if stream.is_capturing():
                raise RuntimeError(
                    "the values have to be copied to the device, which cannot be done while a "
                    "graph is captured; apply the same operator to as many vectors once before"
                )
            copy = cupy.asarray(stored_values(_plain(self._host), stored))
            stream.synchronize()  # afterwards any stream may use the copy
            values = self._stored.setdefault(stored, copy)  # the first thread's, for all threads
        return values

    def _values_for(self, prepared: PreparedProduct) -> DeviceArray:
        """Return the values on the device, with all copies that graphs of such vectors need."""
        values = self.values_as(prepared.stored)
        is_missing = prepared.also not in self._stored
        if is_missing and not cupy.cuda.get_current_stream().is_capturing():
            self.values_as(prepared.also)
        return values

    def reserve(self, outer: int, inner: int) -> None:
        """Compile the kernel for so many vectors, and copy the values for it."""
        if outer and inner and 0 not in self.pattern:
            shape = self._shape(outer, inner, WORD)
            if self._tuning is not None:
                self._tune(shape)
            with device_errors():
                for plain in (False, True):
                    self.values_as(prepared_product(shape, self._device, plain).stored)

    def _shape(self, outer: int, inner: int, alignment: int) -> SparseShape:
        return SparseShape(*self.pattern, outer, inner, self._name, self._products, alignment)

    def _tune(self, shape: SparseShape) -> None:
        """Search the way for a shape that occurs first, later if a graph is captured."""
        if shape not in self._tuned and not cupy.cuda.get_current_stream().is_capturing():
            tune(shape, self._device, self._tuning)
            self._tuned.add(shape)

    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        shape = self._shape(outer, inner, common_alignment(x, y))
        if self._tuning is not None:
            self._tune(shape)
        prepared = prepared_product(shape, self._device, alpha == 1 and not accumulate)
        values = self._values_for(prepared)
        stream, scalars = ready_stream(self._device), self._scalars(alpha, accumulate)
        address, _memory = call_workspace(prepared.workspace) if prepared.workspace else (0, None)
        prepared.start(stream, (x, y, values.data.ptr, address), scalars)


class _LastFastPath(FastPath):
    """The fast path of a product with vectors along the first axis."""

    def __init__(self, plan: KronSparsePlan) -> None:
        super().__init__(plan._device)
        self._plan = plan

    def _fast_path(self, x: DeviceArray, out: DeviceArray) -> Callable[[int, int], None] | None:
        plan, (rows, columns) = self._plan, self._plan.pattern.shape
        fits = x.dtype == plan._dtype and x.shape[:1] == (columns,)
        if not (fits and out.shape == (rows, *x.shape[1:])):
            return None
        inner = math.prod(x.shape[1:])
        return lambda source, target: plan._start(source, target, 1, inner, 1, False)
