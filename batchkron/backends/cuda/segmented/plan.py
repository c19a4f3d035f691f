"""Plans of mode multiplies that are summed over lists of edges, on one device.

An edge (node, child, matrix) adds the matrix times block ``child`` of the input, along one mode, to
block ``node`` of the output. Sweeps over sparse grids are such sums too, one for each level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from batchkron.backends.cuda.choose import needed_kernel
from batchkron.backends.cuda.kernel import Kernel
from batchkron.backends.cuda.kernel_launch import launch_of
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    Workspaces,
    check_device,
    cupy,
    current_device,
    device_errors,
    device_limits,
    ready_stream,
    upload,
)
from batchkron.backends.cuda.runtime.hardware import MAX_GRID_YZ
from batchkron.backends.cuda.runtime.launch import BoundedCache, Launch, batch_scalars
from batchkron.backends.cuda.runtime.plan import LinearPlan
from batchkron.backends.cuda.segmented.edges import (
    EdgeTable,
    SegmentMode,
    SumsShape,
    edge_list,
    edge_table,
    laid_out_matrices,
    matrix_words,
)
from batchkron.backends.cuda.segmented.levels import sweep_levels
from batchkron.spec.kron import Array
from batchkron.spec.segmented import SegmentedSpec
from batchkron.spec.sweeps import SweepList

# Limit of the scratch memory in bytes when several vectors share a launch; a single vector takes
# what it needs. Chosen by hand.
_SCRATCH_BYTES = 1 << 30


class EdgeSums(LinearPlan):
    """Sums over tables of edges, one launch for each table, on one device.

    The blocks that a table computes are y's, or lie in the scratch memory for later tables. Without
    tables all sums are zero.
    """

    def __init__(
        self,
        modes: Sequence[SegmentMode],
        tables: Sequence[EdgeTable],
        blocks: tuple[int, int, int],
        sizes: tuple[int, int],
        matrices: Array,
    ) -> None:
        """Take ``blocks`` = (inputs, outputs, blocks of scratch memory), and matrices.

        ``sizes`` are the elements of an input and of an output. The matrices have the kernel's
        layout, see `edges.laid_out_matrices`.
        """
        inputs, outputs, _ = self._blocks = blocks
        results = outputs, sizes[1]
        super().__init__(current_device(), matrices.dtype, (inputs, sizes[0]), results)
        self.is_zero = not tables
        self._modes, self._tables = tuple(modes), tables
        self._workspaces = Workspaces()
        self._launches: BoundedCache[tuple[int, int], list[Launch]] = BoundedCache()
        self._scalars = batch_scalars(matrices.dtype)
        self._matrices = cupy.asarray(matrices)
        self._linked: tuple[DeviceArray, DeviceArray, DeviceArray | None] | None = None
        self._on_device: dict[tuple[int, str], dict[str, DeviceArray]] = {}
        self._nodes = max((len(table.targets) for table in tables), default=0)
        for number in range(len(tables)):
            self._arrays(number, self._kernel(1, 1))

    def _copy(self, matrices: Array) -> None:
        """Copy new matrices with the kernel's layout."""
        upload([matrices], [self._matrices])
        if self._linked is not None:
            source = self._linked[0]
            upload([matrices], [source[source.size - matrices.size :]])

    def reserve(self, outer: int, inner: int) -> None:
        """Compile the kernel for ``inner`` vectors at once, and allocate its workspace."""
        if outer and inner and not self.is_zero:
            count = self._at_once(outer, inner)
            for portion in {count, outer % count or count}:
                self._prepared(portion, inner)
            self._workspaces.pointer(count * self._scratch_bytes(inner))

    def _scratch_bytes(self, inner: int) -> int:
        return self._blocks[2] * self._result[1] * inner * self._dtype.itemsize

    def _at_once(self, outer: int, inner: int) -> int:
        """Return how many outer vectors share a launch, limited by `_SCRATCH_BYTES`."""
        return max(1, min(outer, _SCRATCH_BYTES // max(1, self._scratch_bytes(inner))))

    def _kernel(self, outer: int, inner: int) -> Kernel:
        """Return the kernel for vectors (outer, …, inner)."""
        inputs, _, scratch = self._blocks
        children, between = inputs + scratch, scratch > 0
        shape = SumsShape(self._modes, self._dtype, self._nodes, children, between, outer, inner)
        return needed_kernel("segmented", shape, device_limits(self._device))

    def _arrays(self, number: int, kernel: Kernel) -> dict[str, DeviceArray]:
        """Return a table in the kernel's layout, copied to the device on the first request.

        For single vectors the constructor requests it. Several threads may request it at once.

        Raises RuntimeError if it has to be copied while a CUDA graph is captured.
        """
        key = number, kernel.family.name
        arrays = self._on_device.get(key)
        if arrays is None:
            stream = cupy.cuda.get_current_stream()
            if stream.is_capturing():
                raise RuntimeError(
                    "lists of edges have to be copied to the device, which cannot be done while a "
                    "graph is captured; apply the same operator to as many vectors once before"
                )
            given = kernel.variant.arrays(self._tables[number])
            arrays = {name: cupy.asarray(array) for name, array in given.items()}
            stream.synchronize()  # afterwards any stream may use the copies
            arrays = self._on_device.setdefault(key, arrays)  # the first thread's, for all threads
        return arrays

    def _prepared(self, outer: int, inner: int) -> list[Launch]:
        """Return the launches for vectors (outer, …, inner)."""
        launches = self._launches.get((outer, inner))
        if launches is None:
            kernel = self._kernel(outer, inner)
            launches = [self._launch(kernel, number) for number in range(len(self._tables))]
            self._launches[outer, inner] = launches
        return launches

    def _launch(self, kernel: Kernel, number: int) -> Launch:
        table, tiling = self._tables[number], kernel.variant
        slabs = kernel.work.outer * -(-kernel.work.inner // tiling.width)
        nodes, blocks = tiling.nodes_by_group_count(table, slabs, device_limits(self._device))
        arrays = self._arrays(number, kernel).items()
        values = {name: array.data.ptr for name, array in arrays}
        values |= dict(zip(("num_inputs", "num_outputs", "num_scratch"), self._blocks, strict=True))
        values |= {"nodes": len(table.targets), "nodes_by_group_count": nodes}
        values["matrices"] = self._matrices.data.ptr
        grid = blocks, min(slabs, MAX_GRID_YZ), min(tiling.pieces, MAX_GRID_YZ)
        return launch_of(kernel, self._device, 3, "accumulate", grid, **values)

    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        count = self._at_once(outer, inner)
        memory = self._workspaces.pointer(count * self._scratch_bytes(inner))
        stream, scalars = ready_stream(self._device), self._scalars(alpha, accumulate)
        size = inner * self._dtype.itemsize
        x_bytes, y_bytes = math.prod(self._given) * size, math.prod(self._result) * size
        for first in range(0, outer, count):
            addresses = x + first * x_bytes, y + first * y_bytes, memory
            for launch in self._prepared(min(count, outer - first), inner):
                launch(stream, addresses, scalars)


def _begin_with(x: DeviceArray, y: DeviceArray, alpha: complex, accumulate: bool) -> None:
    """Let y be alpha x, or add that to it."""
    if accumulate:
        y += (x if alpha == 1 else alpha * x).reshape(y.shape)
    else:
        y[...] = (x if alpha == 1 else alpha * x).reshape(y.shape)


class SegmentedPlan(EdgeSums):
    """y[node] = or += alpha Σ_e A_e ×_mode x[child_e], over the node's edges e, on one device."""

    def __init__(self, spec: SegmentedSpec) -> None:
        _, outputs, inputs = spec.matrices.shape
        self._mode = mode = SegmentMode(spec.before, inputs, outputs, spec.behind)
        nodes, tables = len(spec.starts) - 1, []
        if 0 not in (*spec.input_shape, *spec.output_shape, len(spec.children)):
            words = spec.factor_ids * matrix_words(mode, spec.dtype.itemsize)
            edges = edge_list(0, 0, spec.starts, spec.children, words)
            tables.append(edge_table([(0, nodes)], [edges], 1))
        around, blocks = spec.before * spec.behind, (spec.num_inputs, nodes, 0)
        sizes = around * inputs, around * outputs
        super().__init__((mode,), tables, blocks, sizes, laid_out_matrices(mode, spec.matrices))

    def set_values(self, matrices: Array) -> None:
        """Copy new matrices (count, P, Q) in place, after all earlier work has ended."""
        self._copy(laid_out_matrices(self._mode, matrices))

    def run(self, x: DeviceArray, y: DeviceArray, alpha: complex, accumulate: bool) -> None:  # type: ignore[override]
        """Map x (num_inputs, block) to alpha A x, added to y or overwriting it."""
        super().run(x, y, 1, 1, alpha, accumulate)


class SweepPlan(EdgeSums):
    """A list of sweeps on one device, with one launch for each level of vectors."""

    def __init__(self, sweeps: SweepList, matrices: Sequence[Array]) -> None:
        levels = sweep_levels(sweeps)
        self._counts = [part.matrices for step in sweeps.steps for part in step.parts]
        self._adds_x = any(step.adds_x for step in sweeps.steps)
        self._levels = replace(levels, tables=())  # without the tables, which EdgeSums holds
        blocks = sweeps.vectors[0].blocks, sweeps.vectors[1].blocks, levels.scratch
        values = levels.laid_out(matrices) if levels.tables else np.zeros(0, sweeps.dtype)
        sizes = sweeps.input_block_size, sweeps.block_size
        super().__init__(levels.modes, levels.tables, blocks, sizes, values)
        self.reserve(1, 1)

    def set_values(self, matrices: Sequence[Array]) -> None:
        """Copy new matrices (count, n, n), one array per part, after all earlier work has ended."""
        if not self.is_zero:
            self._copy(self._levels.laid_out(matrices))

    def link(
        self, parts: Sequence[tuple[int, NDArray[np.int64], complex]], count: int
    ) -> DeviceArray:
        """Return zeros (count,) that `gather` copies matrices from, as `linked_elements`."""
        with device_errors():
            if self.is_zero:
                return cupy.zeros(count, self._dtype)
            found = self._levels.linked_elements(parts, self._counts, count, self._dtype)
            size, (places, factors) = count + 1, found
            source = cupy.zeros(size + self._matrices.size, self._dtype)
            source[size:] = self._matrices
            scale = None if factors is None else cupy.asarray(factors)
            self._linked = source, cupy.asarray(places), scale
            cupy.cuda.get_current_stream().synchronize()  # afterwards any stream may use the arrays
            return source[:count]

    def gather(self) -> None:
        """Copy the matrices from the linked vector, as work of the current stream."""
        with device_errors():
            if self._linked is not None:
                source, places, factors = self._linked
                source.take(places, out=self._matrices)
                if factors is not None:
                    cupy.multiply(self._matrices, factors, out=self._matrices)

    def run(
        self,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        """Map x (outer, blocks, elements, inner) to alpha A x, added to y or overwriting it."""
        if self._adds_x and y.size:
            check_device(self._device, x, y)
            with device_errors():
                _begin_with(x, y, alpha, accumulate)
            accumulate = True
        super().run(x, y, outer, inner, alpha, accumulate)

    def _fast_path(self, x: DeviceArray, out: DeviceArray) -> Callable[[int, int], None] | None:
        """Accept what `LinearPlan` does, unless x is added to the result."""
        return None if self._adds_x else super()._fast_path(x, out)


def segmented_plan(spec: SegmentedSpec) -> SegmentedPlan:
    """Return the plan of a segmented mode multiply; it holds its own copy of the matrices."""
    with device_errors():
        return SegmentedPlan(spec)


def sweep_plan(sweeps: SweepList, matrices: Sequence[Array]) -> SweepPlan:
    """Return the plan of a list of sweeps; it holds its own copy of the matrices."""
    with device_errors():
        return SweepPlan(sweeps, matrices)
