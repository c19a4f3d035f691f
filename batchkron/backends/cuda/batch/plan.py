"""Plans of batch lists on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from batchkron.backends.cuda.batch.bound_list import BoundList
from batchkron.backends.cuda.batch.general import GENERAL
from batchkron.backends.cuda.batch.kernel import (
    MAX_SHORT_ID,
    WORD,
    BatchShape,
    list_records,
    list_starts,
    matrix_pitch,
)
from batchkron.backends.cuda.choose import kernel_of
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
from batchkron.backends.cuda.runtime.plan import LinearPlan
from batchkron.backends.cuda.steps import plan_order, plan_steps
from batchkron.backends.cuda.tuning.tuning import wanted_tuning
from batchkron.spec.kron import Array, BatchSpec


class BatchPlan(LinearPlan):
    """y[outputs[b]] += alpha * weights[b] * (A_1b ⊗ … ⊗ A_db) x[inputs[b]] on one device.

    With accumulation "atomic" each product has its own group of threads. With "owner" and "auto"
    each output has one, which adds its products in a fixed order.
    """

    def __init__(self, spec: BatchSpec) -> None:
        device = current_device()
        given, result = (spec.num_inputs, spec.input_size), (spec.num_outputs, spec.output_size)
        super().__init__(device, spec.dtype, given, result)
        inputs = [pool.shape[3] for pool in spec.pools]
        outputs = [pool.shape[2] for pool in spec.pools]
        order = plan_order(inputs, outputs)
        owner = spec.accumulation != "atomic"
        self._order = order
        self._permutation = np.argsort(spec.outputs, kind="stable") if owner else slice(None)
        memory: dict[int, DeviceArray] = {}  # by pool: modes may share one
        for pool in spec.pools:
            if id(pool) not in memory:
                memory[id(pool)] = _empty_pool(pool)
        self._pools = [memory[id(pool)] for pool in spec.pools]
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
        self.is_zero = shape.products == 0 or shape.input_size == 0
        arrays = {key: cupy.asarray(value) for key, value in lists.items()}
        self._general = BoundList(shape, device, arrays)
        self._single = self._for_single_vectors(lists, arrays.get("starts"))
        # Whether several vectors are transposed, from (outer, blocks, inner) to (inner, outer,
        # blocks), for a kernel that takes single ones: where the products together read more
        # elements than one transposition of inputs and outputs moves.
        moved = math.prod(given) + math.prod(result)
        self._transposes = self._single is not None and moved <= shape.products * shape.input_size
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
        """Return the list with the kernels' modes, -1 for identities; by output with ``owner``."""
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
            lists["starts"] = list_starts(sorted_outputs, spec.num_outputs)
        return lists

    def _for_single_vectors(self, lists: dict[str, Array], starts: DeviceArray) -> BoundList | None:
        """Return the list for a kernel that takes one vector at a time, None if none fits."""
        shape, device = self._general.shape, self._device
        kernel = kernel_of("batch", shape, device_limits(device))
        if kernel is None or kernel.family is GENERAL:
            return None
        if not shape.owner:
            names = "ids", "inputs", "outputs"
            arrays = {name: cupy.asarray(lists[name].astype(np.int32)) for name in names}
            return BoundList(shape, device, arrays, kernel)
        if is_tuned():  # imported only then, to keep the start of other processes short
            from batchkron.backends.cuda.batch.tuned import planned_kernel

            kernel = planned_kernel(kernel, device)
        numbers = lists["ids"], lists["inputs"], lists["starts"]
        records = list_records(*numbers, shape.short_ids, int(kernel.arguments["slots"][0]))
        arrays = {"list": cupy.asarray(records), "starts": starts}
        return BoundList(shape, device, arrays | {"unit_weights": self._unit_weights}, kernel)

    def _bind(self) -> None:
        """Pass the addresses of pools and weights to the kernels."""
        pools = [self._pools[mode] for mode in self._order]
        factors = [
            (pool.data.ptr, math.prod(pool.shape[1:]) * (len(pool) > 1), pool.shape[2], 1, step.K)
            for pool, step in zip(pools, self._general.shape.steps, strict=True)
        ]
        for one in filter(None, (self._general, self._single)):
            one.bind(factors, self._weights)

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
        if self._single is None or not (inner == 1 or self._transposes):
            self._general.reserve(outer, inner)
            return
        self._single.reserve(1, 1)
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
        if self._single is None or inner == 1 or not (self._transposes and x.size and y.size):
            super().run(x, y, outer, inner, alpha, accumulate)
            return
        check_device(self._device, x, y)
        with device_errors():
            source, target = self._transposed_workspace(outer, inner)
            source[...] = x.reshape(outer, -1, inner).transpose(2, 0, 1)
            ends = source.data.ptr, target.data.ptr
            self._single.launch(*ends, outer * inner, 1, alpha, False)
            result, sums = target.transpose(1, 2, 0), y.reshape(outer, -1, inner)
            if accumulate:
                sums += result
            else:
                sums[...] = result

    def _start(
        self, x: int, y: int, outer: int, inner: int, alpha: complex, accumulate: bool
    ) -> None:
        single = self._single
        fits = single is not None and inner == 1 and single.takes(x, y)
        chosen = single if fits else self._general
        chosen.launch(x, y, outer, inner, alpha, accumulate)  # type: ignore[union-attr]

    def _transposed_workspace(self, outer: int, inner: int) -> tuple[DeviceArray, DeviceArray]:
        """Return workspace for vectors (inner, outer, blocks) and for their results."""
        vectors, given = outer * inner, math.prod(self._given)
        results = math.prod(self._result)
        begin = -(-vectors * given // WORD) * WORD  # in elements, so also a multiple of 16 bytes
        memory = self._workspaces.array(begin + vectors * results, self._dtype)
        source = memory[: vectors * given].reshape(inner, outer, given)
        return source, memory[begin:].reshape(inner, outer, results)


def _empty_pool(pool: Array) -> DeviceArray:
    """Return memory for a pool (systems or 1, count, P, Q), each matrix padded to whole sectors."""
    systems, count, outputs, inputs = pool.shape
    pitch = matrix_pitch(outputs * inputs, pool.itemsize) // pool.itemsize
    return cupy.empty((systems, count, pitch), pool.dtype)


def _memory_for(pools: Sequence[Array], current: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Return the memory for new pools: that of the old ones where they fit, else new memory.

    Modes that share memory continue to share it as long as they have the same values.
    """

    def is_same(one: Array, other: Array) -> bool:
        return one is other or np.array_equal(one, other)

    chosen: list[tuple[DeviceArray, Array, DeviceArray]] = []
    result = []
    for pool, old in zip(pools, current, strict=True):
        memory = next((m for o, other, m in chosen if o is old and is_same(other, pool)), None)
        if memory is None:
            fits = len(pool) in (1, len(old)) and all(m is not old for _, _, m in chosen)
            memory = old if fits else _empty_pool(pool)
            chosen.append((old, pool, memory))
        result.append(memory)
    return result


def _padded(pool: Array, systems: int) -> Array:
    """Return a pool (systems or 1, count, P, Q) as on the device: column-major and padded."""
    _, count, outputs, inputs = pool.shape
    pitch = matrix_pitch(outputs * inputs, pool.itemsize) // pool.itemsize
    module = np if isinstance(pool, np.ndarray) else cupy
    padded: Array = module.zeros((systems, count, pitch), pool.dtype)
    columns = pool.swapaxes(2, 3).reshape(len(pool), count, outputs * inputs)
    padded[:, :, : outputs * inputs] = columns
    return padded


def batch_plan(spec: BatchSpec) -> BatchPlan:
    """Return the plan of a batch list; it holds its own copy of the pools on the device."""
    with device_errors():
        return BatchPlan(spec)
