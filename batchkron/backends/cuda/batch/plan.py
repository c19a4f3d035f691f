"""Plans of batch lists on the device, and batched matrix multiplies expressed as such lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from batchkron.backends.cuda.batch.any_vectors import ListBatch
from batchkron.backends.cuda.batch.families import fastest_kernel
from batchkron.backends.cuda.batch.general import GENERAL
from batchkron.backends.cuda.batch.kernel import (
    MAX_SHORT_ID,
    WORD,
    BatchShape,
    list_records,
    matrix_pitch,
)
from batchkron.backends.cuda.batch.single_vectors import SingleVectors
from batchkron.backends.cuda.runtime.device import (
    DeviceArray,
    Workspaces,
    check_device,
    cupy,
    current_device,
    device_errors,
    device_limits,
    note_move,
    upload,
)
from batchkron.backends.cuda.runtime.kernel_cache import is_tuned
from batchkron.backends.cuda.runtime.launch import FastPath
from batchkron.backends.cuda.steps import Step, plan_order, plan_steps
from batchkron.backends.cuda.tuning.tuning import wanted_tuning
from batchkron.spec.kron import Array, BatchSpec


class BatchPlan(FastPath):
    """y[outputs[b]] += alpha * weights[b] * (A_1b ⊗ … ⊗ A_db) x[inputs[b]] on one device.

    With accumulation "atomic" each product has its own group of threads. With "owner" and "auto"
    each output has one, which adds its products in a fixed order.
    """

    def __init__(self, spec: BatchSpec) -> None:
        device = current_device()
        super().__init__(device)
        inputs = [pool.shape[3] for pool in spec.pools]
        outputs = [pool.shape[2] for pool in spec.pools]
        order = plan_order(inputs, outputs)
        owner = spec.accumulation != "atomic"
        self._order = order
        self._permutation = np.argsort(spec.outputs, kind="stable") if owner else slice(None)
        self._pools = _one_for_each(spec.pools, _empty_pool)
        self._weights = cupy.empty(spec.weights.shape, spec.dtype)
        # Arrays that are no longer used, kept because CUDA graphs captured earlier still read them.
        self._replaced: list[DeviceArray] = []
        self._unit_weights = cupy.empty((1,), np.int32)
        lists = self._lists(spec, owner)
        ids = lists["ids"]
        has_products = len(ids) > 0
        shape = BatchShape(
            steps=plan_steps(inputs, outputs, order, spec.dtype),
            dtype=spec.dtype,
            products=len(spec.inputs),
            systems=max(1, spec.systems),
            num_inputs=spec.num_inputs,
            num_outputs=spec.num_outputs,
            input_size=spec.input_size,
            output_size=spec.output_size,
            owner=owner,
            max_products=int(np.diff(lists["starts"]).max()) if owner and has_products else 0,
            short_ids=has_products and bool(ids.max() <= MAX_SHORT_ID),
            identities=has_products and bool(ids.min() < 0),
        )
        arrays = {key: cupy.asarray(value) for key, value in lists.items()}
        self._batch = ListBatch(shape, device, arrays)
        self._single = self._single_vectors(lists, arrays.get("starts"))
        self._workspaces = Workspaces()
        self._bind()
        self.set_values(spec.pools, spec.weights)
        tuning = wanted_tuning()
        if tuning is not None and self._single is not None:
            from batchkron.backends.cuda.batch.tuned import tuned_batch

            self._single = tuned_batch(self._single, device, tuning)
        if math.prod((shape.products, shape.input_size, shape.output_size)):
            self.reserve(1, 1)

    def _lists(self, spec: BatchSpec, owner: bool) -> dict[str, Array]:
        """Return the list with modes in the kernels' order and -1 for identity factors.

        With ``owner`` it is sorted by output.
        """
        columns = []
        for mode in self._order:
            ids = spec.factor_ids[:, mode]
            columns.append(np.where(spec.identity[mode][ids], -1, ids))
        sorted_outputs = spec.outputs[self._permutation]
        lists: dict[str, Array] = {
            "ids": np.stack(columns, axis=1)[self._permutation].astype(np.int32),
            "inputs": spec.inputs[self._permutation],
            "outputs": sorted_outputs,
        }
        if owner:
            lists["starts"] = _starts(sorted_outputs, spec.num_outputs)
        return lists

    def _single_vectors(self, lists: dict[str, Array], starts: DeviceArray) -> SingleVectors | None:
        """Return the list for a kernel that takes one vector at a time, None if none fits."""
        device = self._batch.device
        kernel = fastest_kernel(self._batch.shape, device_limits(device))
        if kernel is None or kernel.family is GENERAL:
            return None
        if not kernel.work.owner:
            names = "ids", "inputs", "outputs"
            arrays = {name: cupy.asarray(lists[name].astype(np.int32)) for name in names}
            return SingleVectors(kernel, device, arrays)
        if is_tuned():  # imported only then, to keep the start of other processes short
            from batchkron.backends.cuda.batch.tuned import planned_kernel

            kernel = planned_kernel(kernel, device)
        ids, bounds, short_ids = lists["ids"], lists["starts"], kernel.work.short_ids
        slots = int(kernel.arguments["slots"][0])
        arrays = {
            "list": cupy.asarray(list_records(ids, lists["inputs"], bounds, short_ids, slots)),
            "starts": starts,
            "unit_weights": self._unit_weights,
        }
        return SingleVectors(kernel, device, arrays)

    def _bind(self) -> None:
        """Pass the addresses of pools and weights to the kernels."""
        steps = self._batch.shape.steps
        pools = [self._pools[mode] for mode in self._order]
        self._batch.set_weights(self._weights)
        self._batch.set_factors(
            [_pool_factor(pool, step.K) for pool, step in zip(pools, steps, strict=True)]
        )
        if self._single is not None:
            places = [(pool.data.ptr, _system_stride(pool)) for pool in pools]
            self._single.set_values(places, self._weights)

    def _make_room(self, pools: Sequence[Array], weights: Array) -> None:
        """Allocate memory for values that modes or systems shared until now and no longer do."""
        new_pools, new_weights = _memory_for(pools, self._pools), self._weights
        if len(weights) not in (1, len(new_weights)):
            new_weights = cupy.empty(weights.shape, new_weights.dtype)
        old, new = [*self._pools, self._weights], [*new_pools, new_weights]
        if any(one is not other for one, other in zip(old, new, strict=True)):
            self._replaced += old
            self._pools, self._weights = new_pools, new_weights
            self._bind()
            note_move()

    def set_values(self, pools: Sequence[Array], weights: Array) -> None:
        """Copy new pools (systems or 1, count, P, Q) and weights (systems or 1, products).

        They are written in place, except where modes or systems shared values and now differ. On
        the device each matrix is column-major (its P entries of one column are consecutive), and
        padded.
        """
        with device_errors():
            self._make_room(pools, weights)
        pairs = {
            id(target): (_padded(pool, len(target)), target)
            for pool, target in zip(pools, self._pools, strict=True)
        }
        values, targets = zip(*pairs.values(), strict=True)
        ordered = np.broadcast_to(weights[:, self._permutation], self._weights.shape)
        unit = np.array([np.all(weights == 1)], np.int32)
        upload([*values, ordered, unit], [*targets, self._weights, self._unit_weights])

    def reserve(self, outer: int, inner: int) -> None:
        """Compile and allocate what `run` will need."""
        if self._single is None or not (inner == 1 or self._transposes_vectors()):
            self._batch.reserve(outer, inner)
            return
        self._single.prepare()
        if inner > 1:
            self._transposed_workspace(outer, inner)

    def run(
        self,
        x: DeviceArray,
        y: DeviceArray,
        outer: int,
        inner: int,
        alpha: complex,
        accumulate: bool,
    ) -> None:
        """Map x (outer, num_inputs, size, inner) to alpha A x, added to y or overwriting it."""
        single = self._single if x.size and y.size else None
        if single is None or not (inner == 1 or self._transposes_vectors()):
            self._batch.run(x, y, outer, inner, alpha, accumulate)
            return
        check_device(self._batch.device, x, y)
        with device_errors():
            if inner == 1:
                self._launch(x.data.ptr, y.data.ptr, outer, alpha, accumulate)
                return
            source, target = self._transposed_workspace(outer, inner)
            source[...] = x.reshape(outer, -1, inner).transpose(2, 0, 1)
            single.run(source.data.ptr, target.data.ptr, outer * inner, alpha, False)
            result, sums = target.transpose(1, 2, 0), y.reshape(outer, -1, inner)
            if accumulate:
                sums += result
            else:
                sums[...] = result

    def _launch(self, x: int, y: int, outer: int, alpha: complex, accumulate: bool) -> None:
        """Do what `run` does, for non-empty single vectors given by the addresses x and y."""
        single = self._single
        if single is not None and single.takes(x, y):
            single.run(x, y, outer, alpha, accumulate)
        else:
            self._batch.launch(x, y, outer, 1, alpha, accumulate)

    def _transposes_vectors(self) -> bool:
        """Whether several vectors are transposed for a kernel that takes single ones.

        They are copied from (outer, blocks, inner) to (inner, outer, blocks). This pays where the
        products together read more elements than one transposition of inputs and outputs moves.
        """
        shape = self._batch.shape
        blocks = shape.num_inputs * shape.input_size + shape.num_outputs * shape.output_size
        return self._single is not None and blocks <= shape.products * shape.input_size

    def _transposed_workspace(self, outer: int, inner: int) -> tuple[DeviceArray, DeviceArray]:
        """Return workspace for vectors (inner, outer, blocks) and for their results."""
        shape, vectors = self._batch.shape, outer * inner
        given, results = (
            shape.num_inputs * shape.input_size,
            shape.num_outputs * shape.output_size,
        )
        begin = -(-vectors * given // WORD) * WORD  # in elements, so also a multiple of 16 bytes
        memory = self._workspaces.array(begin + vectors * results, shape.dtype)
        source = memory[: vectors * given].reshape(inner, outer, given)
        return source, memory[begin:].reshape(inner, outer, results)

    def _fast_path(self, x: DeviceArray, out: DeviceArray) -> Callable[[int, int], None] | None:
        """Accept a flat vector (N,) of one system, or blocks (..., num_inputs, size)."""
        shape = self._batch.shape
        given = shape.num_inputs, shape.input_size
        results = shape.num_outputs, shape.output_size
        as_blocks = x.shape[-2:] == given and out.shape == (*x.shape[:-2], *results)
        as_vector = x.shape == (math.prod(given),) and out.shape == (math.prod(results),)
        if x.dtype != shape.dtype or shape.products == 0 or not (as_blocks or as_vector):
            return None
        outer = x.size // math.prod(given)
        return lambda source, target: self._launch(source, target, outer, 1, False)


def _one_for_each(
    arrays: Sequence[Array], make: Callable[[Array], DeviceArray]
) -> list[DeviceArray]:
    """Return ``make(array)`` for each array; it is called once for an array that occurs twice."""
    made = {id(array): array for array in arrays}
    results = {key: make(array) for key, array in made.items()}
    return [results[id(array)] for array in arrays]


def _empty_pool(pool: Array) -> DeviceArray:
    """Return memory for a pool (systems or 1, count, P, Q), each matrix padded to whole sectors.

    A sector is 32 bytes, the smallest unit that the device reads from memory.
    """
    systems, count, outputs, inputs = pool.shape
    pitch = matrix_pitch(outputs * inputs, pool.itemsize) // pool.itemsize
    return cupy.empty((systems, count, pitch), pool.dtype)


def _memory_for(pools: Sequence[Array], current: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Return the memory for new pools: that of the old ones where they fit, else new memory.

    Modes that share memory continue to share it as long as they have the same values.
    """
    chosen: list[tuple[DeviceArray, Array, DeviceArray]] = []
    result = []
    for pool, old in zip(pools, current, strict=True):
        memory = next((m for o, other, m in chosen if o is old and _is_same(other, pool)), None)
        if memory is None:
            fits = len(pool) in (1, len(old)) and all(m is not old for _, _, m in chosen)
            memory = old if fits else _empty_pool(pool)
            chosen.append((old, pool, memory))
        result.append(memory)
    return result


def _is_same(one: Array, other: Array) -> bool:
    return one is other or np.array_equal(one, other)


def _padded(pool: Array, systems: int) -> Array:
    """Return a pool (systems or 1, count, P, Q) as on the device: column-major and padded."""
    _, count, outputs, inputs = pool.shape
    pitch = matrix_pitch(outputs * inputs, pool.itemsize) // pool.itemsize
    module = np if isinstance(pool, np.ndarray) else cupy
    padded: Array = module.zeros((systems, count, pitch), pool.dtype)
    columns = pool.swapaxes(2, 3).reshape(len(pool), count, outputs * inputs)
    padded[:, :, : outputs * inputs] = columns
    return padded


def _system_stride(pool: DeviceArray) -> int:
    """Return the elements from one system's pool to the next one's, 0 if all share one."""
    systems, count, pitch = pool.shape
    return count * pitch if systems > 1 else 0


def _pool_factor(pool: DeviceArray, outputs: int) -> tuple[int, int, int, int, int]:
    """Return address and strides of a padded pool, as in `arguments.FACTOR`."""
    return pool.data.ptr, _system_stride(pool), pool.shape[2], 1, outputs


def _starts(outputs: Array, count: int) -> Array:
    """Return the index of each output's first product, in a list that is sorted by output."""
    return np.searchsorted(outputs, np.arange(count + 1)).astype(np.int64)


def batch_plan(spec: BatchSpec) -> BatchPlan:
    """Return the plan of a batch list; it holds its own copy of the pools on the device."""
    with device_errors():
        return BatchPlan(spec)


def batched_gemm(
    a: DeviceArray,
    b: DeviceArray,
    c: DeviceArray,
    alpha: complex,
    transpose_b: bool,
    ids: tuple[Array, Array, Array],
) -> None:
    """Add alpha * a[i] b[j] to c[k] for all (i, j, k) of ``ids``; c holds beta * c on entry.

    Done as a batch list with one mode: a[i] is the input block, its rows are the slices that are
    multiplied. ``ids`` are NumPy arrays.
    """
    a_ids, b_ids, c_ids = ids
    check_device(current_device(), a, b, c)
    if 0 in (c.size, a.shape[2], len(c_ids)):
        return
    if cupy.cuda.get_current_stream().is_capturing():
        raise RuntimeError(
            "a list of products cannot be copied to the device while a graph is captured; call "
            "batched_gemm once with the same shapes before the capture, with contiguous arrays of "
            "one dtype, and without ids and c, or capture a BatchedKron"
        )
    a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
    order = np.argsort(c_ids, kind="stable")
    outputs = c_ids[order]
    with device_errors():
        lists = {
            "ids": b_ids[order].astype(np.int32),
            "inputs": a_ids[order],
            "outputs": outputs,
            "starts": _starts(outputs, len(c)),
        }
        arrays = {key: cupy.asarray(value) for key, value in lists.items()}
        shape = gemm_shape(a.shape, c.shape, len(c_ids), c.dtype)
        batch = ListBatch(shape, current_device(), arrays)
        batch.set_factors([gemm_factor(b, transpose_b)])
        batch.run(a, c, 1, 1, alpha, True)


def gemm_shape(
    a: tuple[int, int, int], c: tuple[int, int, int], products: int, dtype: np.dtype[Any]
) -> BatchShape:
    """Return the batch list of products of matrices a (count, m, k) into c (count, m, n)."""
    num_inputs, m, k = a
    num_outputs, _, n = c
    (step,) = plan_steps((k,), (n,), (0,), dtype)
    return BatchShape(
        steps=(Step(0, m, k, n, 1, step.tile),),
        dtype=dtype,
        products=products,
        systems=1,
        num_inputs=num_inputs,
        num_outputs=num_outputs,
        input_size=m * k,
        output_size=m * n,
        owner=True,
    )


def gemm_factor(b: DeviceArray, transpose_b: bool) -> tuple[int, int, int, int, int]:
    """Return address and strides of contiguous matrices b, as in `arguments.FACTOR`."""
    _, first, second = b.shape
    row, column = (second, 1) if transpose_b else (1, second)
    return b.data.ptr, 0, first * second, row, column
