"""Products of ours on a device: operands, calls, and what a result must be. No peers here."""

import math
from contextlib import nullcontext
from functools import cached_property, partial, reduce

import cupy
import numpy as np

import batchkron as bk
from benchmarks.core.checks import on_host, relative_error
from benchmarks.core.device_timing import CACHE_BYTES, measured, random_array
from benchmarks.gpu.cases.cases import explicit_bytes, kron_bytes

MAX_BUFFER_SETS = 8  # pairs of input and output that calls rotate through
ARRAYS_AT_ONCE = 6  # input, output, the peers' two buffers, ours


class Subject:
    """A product in one dtype: calls of ours, where the last one writes, and its error there.

    Subclasses have dtype, out, and tolerance: the key of the largest error that is right. ``calls``
    builds the operator anew, which remembers its kernels, and returns a call for each set of
    vectors; ``expected`` is the checked part of the result of the last call, by the CPU.
    """

    checked = ...  # the index of what is compared with the CPU's

    @property
    def found(self):
        """The same part of what the last call has written, on the host."""
        return self.out[self.checked].get()

    def error(self):
        """The largest error of the last call, relative to the largest entry."""
        return relative_error(self.found, self.expected)

    def time_of(self, make, tolerance=""):
        """The time of what writes there, or why there is none; ``make`` as of `contender_of`."""
        how = tolerance or self.tolerance, self.out, self.error
        return measured(lambda: contender_of(make()), *how)

    def times_of(self, makers):
        """`time_of` of each, of which a text is the reason for there being none."""
        return {k: given(one) or self.time_of(one) for k, one in makers.items()}


def contender_of(made):
    """A contender, of which calls alone are its only variant, on any stream."""
    return made if isinstance(made, tuple) else ({"": made}, nullcontext)


def given(reason):
    """What is said in the place of a time, if that is a text."""
    return {"reason": reason} if isinstance(reason, str) else {}


def factors_of(shape, dtype):
    """Matrices A_k (Q_k, P_k): y = x (A_1^T ⊗ …), rows of x are mapped by A_1 ⊗ …"""
    rng = np.random.default_rng(1)
    return [(rng.standard_normal((q, p)) / p**0.5).astype(dtype) for p, q in shape.factors]


def that_fits(shape, dtype):
    """The shape with fewer rows where the device's memory does not hold it."""
    free = cupy.cuda.runtime.memGetInfo()[0]
    return shape.reduced(int(0.9 * free) // np.dtype(dtype).itemsize // ARRAYS_AT_ONCE)


def pairs_of(make, moved):
    """Pairs of input and output by their number, so many that no cache holds them."""
    return [make(seed) for seed in range(max(1, min(MAX_BUFFER_SETS, CACHE_BYTES // moved)))]


def buffers_of(shape, dtype):
    return [cupy.empty(shape.largest, dtype) for _ in range(min(2, len(shape.factors) - 1))]


class KronSubject(Subject):
    """A Kron-Matmul of a shape that fits; vectors are so many that no cache holds them.

    Unless one pair of them is tiny. With ``precision`` it is one of float32 on matrix units.
    """

    def __init__(self, shape, dtype, precision=None):
        self.shape, self.dtype, self.precision = shape, dtype, precision
        self.tolerance = precision or dtype
        self.factors = factors_of(shape, dtype)
        moved = kron_bytes(shape, dtype)
        read, written = ((shape.rows, columns) for columns in shape.columns)
        self.pairs = pairs_of(
            lambda seed: (random_array(read, dtype, seed), cupy.empty(written, dtype)),
            moved if moved > 1 << 20 else CACHE_BYTES,
        )
        self.out, self.checked = self.pairs[-1][1], shape.rows // 2

    def calls(self, full=False):
        """Calls of the operator in its precision, or in full precision."""
        precision = None if full else self.precision
        op = bk.KroneckerProduct(self.factors, precision=precision).to("cuda")
        return [partial(op.apply, x, out=y) for x, y in self.pairs]

    @cached_property
    def expected(self):
        """A row in the middle, in double precision where ours has less than its dtype."""
        x = self.pairs[-1][0][self.checked].get()
        return bk.KroneckerProduct(self.factors).apply(x.astype("f8") if self.precision else x)


def random_ids(count, below, seed):
    """Random numbers from 0 to ``below`` - 1, made on the device (splitmix64)."""
    z = (cupy.arange(count, dtype=np.uint64) + np.uint64(seed << 40)) * np.uint64(
        0x9E3779B97F4A7C15
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(below)).astype(np.int32)


def list_of(case, dtype):
    """Pools on the device; factor ids, inputs and outputs, sorted by output."""
    outputs = np.repeat(np.arange(case.blocks, dtype=np.int32), case.CONTRIBUTIONS)
    shapes, count = enumerate(case.factors), case.products
    pools = [random_array((case.POOL, *shape), dtype, seed) for seed, shape in shapes]
    columns = [random_ids(count, case.POOL, 1 + mode).get() for mode in range(case.modes)]
    return pools, np.stack(columns, 1), random_ids(count, case.blocks, 20).get(), outputs


class ListSubject(Subject):
    """A batch list; in random order where its sums are added atomically."""

    def __init__(self, case, dtype, sums="owner"):
        self.case, self.dtype, self.tolerance, self.sums = case, dtype, dtype, sums
        self.checked = (-1, 0) if case.vectors > 1 else 0

    @cached_property
    def x(self):
        case = self.case
        several = (case.vectors,) if case.vectors > 1 else ()
        return random_array((*several, case.blocks, case.input_block), self.dtype)

    @cached_property
    def out(self):
        return cupy.empty((*self.x.shape[:-1], self.case.output_block), self.dtype)

    @cached_property
    def content(self):
        pools, *lists = list_of(self.case, self.dtype)
        if self.sums == "owner":
            return pools, *lists
        order = np.random.default_rng(3).permutation(self.case.products)
        return pools, *(one[order] for one in lists)

    def operator(self, sums=None):
        counts = {"num_inputs": self.case.blocks, "num_outputs": self.case.blocks}
        op = bk.BatchedKron(*self.content, accumulation=sums or self.sums, **counts)
        return op.to("cuda")

    def calls(self, sums=None):
        return [partial(self.operator(sums).apply, self.x, out=self.out)]

    @cached_property
    def expected(self):
        pools, ids, inputs, outputs = self.content
        chosen = np.flatnonzero(outputs == 0)
        rows, places = np.unique(inputs[chosen], return_inverse=True)
        host = list(map(on_host, pools))
        check = bk.BatchedKron(host, ids[chosen], places, outputs[chosen], num_inputs=len(rows))
        x = self.x[-1] if self.case.vectors > 1 else self.x
        return check.apply(x[cupy.asarray(rows)].get())[0]


class SweepSubject(Subject):
    """An operator on a sparse grid."""

    def __init__(self, case, dtype, op=None):
        self.case, self.dtype, self.tolerance = case, dtype, dtype
        self.op = case.operator(dtype) if op is None else op
        size, itemsize = self.op.shape[0], np.dtype(dtype).itemsize
        self.pairs = pairs_of(
            lambda seed: (random_array((size,), dtype, seed), cupy.empty(size, dtype)),
            2 * size * itemsize,
        )
        self.out = self.pairs[-1][1]

    def calls(self, op=None):
        device = (self.case.operator(self.dtype) if op is None else op).to("cuda")
        return [partial(device.matvec, x, out=y) for x, y in self.pairs]

    @cached_property
    def expected(self):
        return self.op.matvec(self.pairs[-1][0].get())


class ExplicitSubject(Subject):
    """A product of square matrices that is written out."""

    def __init__(self, sizes, dtype):
        self.sizes, self.dtype, self.tolerance = sizes, dtype, dtype
        self.matrices = [random_array((n, n), dtype, seed) for seed, n in enumerate(sizes)]
        side, written = math.prod(sizes), explicit_bytes(sizes, dtype)
        count = max(1, min(4, CACHE_BYTES // written))
        self.outs = [cupy.empty((side, side), dtype) for _ in range(count)]
        self.out, self.checked = self.outs[-1], side // 2

    def calls(self):
        return [partial(bk.kron, *self.matrices, out=out) for out in self.outs]

    @cached_property
    def expected(self):
        places = np.unravel_index(self.checked, self.sizes)
        rows = [matrix.get()[k] for matrix, k in zip(self.matrices, places, strict=True)]
        return reduce(np.kron, rows)


def subject_of(choice, max_bytes=None):
    """The product of a cell, None if memory lacks; ``max_bytes``: of a Kron-Matmul's vectors."""
    case, dtype, part = choice.case, choice.dtype, choice.part
    if part in ("kron", "pde", "precision"):
        scalar, precision = ("float32", dtype) if part == "precision" else (dtype, None)
        shape = that_fits(case.shape, scalar)
        if shape is not None and max_bytes is not None:
            shape = shape.reduced(max_bytes // np.dtype(scalar).itemsize) or shape
        return None if shape is None else KronSubject(shape, scalar, precision)
    if part in ("batches", "atomic", "lists"):
        return ListSubject(case, dtype, "atomic" if part == "atomic" else "owner")
    if part == "sweeps":
        return SweepSubject(case, dtype)
    return ExplicitSubject(case, dtype) if part == "explicit" else None


def free_memory():
    from benchmarks.gpu.peers import torch_chain

    cupy.get_default_memory_pool().free_all_blocks()
    if not torch_chain.missing():
        torch_chain.torch.cuda.empty_cache()
