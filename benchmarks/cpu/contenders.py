"""Fresh random operands of a shape, what a result on them must be, and what takes part on them."""

import sys
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product

import numpy as np

import batchkron as bk
from benchmarks.core.checks import Data, random_array
from benchmarks.core.timing import (
    OUR_FUNCTION,
    OURS,
    Contender,
    absent,
    best_medians,
    measure,
    seconds_of,
)
from benchmarks.shapes import Batch, Explicit, KronMatmul, Shape

CHECKED_ELEMENTS = 1 << 20  # of a result that are compared with the reference, at most
CHECKED_PRODUCTS = 1024  # of a batch list that the reference computes, at most


class KronMatmulData(Data):
    """x (rows, ΠP), the factors, and outputs (rows, ΠQ)."""

    def __init__(self, shape, *given):
        super().__init__(*given)
        self.shape, dtype, sets, rng = shape, self.dtype, self.sets, self.rng
        self.factors = [
            random_array(rng, (p, q), dtype) / dtype.type(p**0.5) for p, q in shape.factors
        ]
        read, written = shape.columns
        self.inputs = [random_array(rng, (shape.rows, read), dtype) for _ in range(sets)]
        self.outputs = [np.ones((shape.rows, written), dtype) for _ in range(sets)]

    @cached_property
    def scratch(self):
        """Two buffers for intermediate results, shared by the contenders that bring none."""
        return np.ones(self.shape.largest, self.dtype), np.ones(self.shape.largest, self.dtype)

    @cached_property
    def reference(self):
        """Whole rows by the reference backend in double precision."""
        rows = self.picked(self.shape.rows, CHECKED_ELEMENTS // max(self.shape.columns))
        x = self.inputs[0][rows].astype(np.float64)
        factors = [factor.astype(np.float64) for factor in self.factors]
        with bk.backends.using("reference"):
            expected = bk.gemkm(x, factors)
            magnitude = bk.gemkm(np.abs(x), [np.abs(factor) for factor in factors])
        terms = sum(p + 2 for p, _ in self.shape.factors) + 2
        return rows, expected, self.epsilon(terms) * magnitude


class BatchData(Data):
    """A batch list, its pools, and blocks x and y (blocks, n^d)."""

    def __init__(self, shape, *given):
        super().__init__(*given)
        self.shape, dtype, sets, rng = shape, self.dtype, self.sets, self.rng
        n, modes = shape.size, shape.modes
        self.pools = [
            random_array(rng, (shape.POOL, n, n), dtype) / dtype.type(n**0.5) for _ in range(modes)
        ]
        self.ids = rng.integers(0, shape.POOL, (shape.products, modes))
        if shape.only is not None:
            for mode in set(range(modes)) - {shape.only}:
                self.pools[mode][0] = np.eye(n)
                self.ids[:, mode] = 0
        self.sources = rng.integers(0, shape.blocks, shape.products)
        self.targets = np.repeat(np.arange(shape.blocks), shape.contributions)
        blocks = (shape.blocks, shape.block)
        self.inputs = [random_array(rng, blocks, dtype) for _ in range(sets)]
        self.outputs = [np.ones(blocks, dtype) for _ in range(sets)]

    @cached_property
    def reference(self):
        """Whole output blocks by the reference backend in double precision."""
        contributions = self.shape.contributions
        blocks = self.picked(self.shape.blocks, CHECKED_PRODUCTS // contributions)
        chosen = np.flatnonzero(np.isin(self.targets, blocks))
        targets = np.repeat(np.arange(len(blocks)), contributions)
        x = self.inputs[0].astype(np.float64)
        pools = [pool.astype(np.float64) for pool in self.pools]
        with bk.backends.using("reference"):
            results = [
                bk.BatchedKron(
                    matrices, self.ids[chosen], self.sources[chosen], targets, num_inputs=len(x)
                ).apply(vectors)
                for matrices, vectors in ((pools, x), ([np.abs(pool) for pool in pools], np.abs(x)))
            ]
        terms = self.shape.modes * (self.shape.size + 2) + contributions + 2
        return blocks, results[0], self.epsilon(terms) * results[1]


class ExplicitData(Data):
    """The factors, and matrices for their product."""

    def __init__(self, shape, *given):
        super().__init__(*given)
        self.shape, dtype, sets, rng = shape, self.dtype, self.sets, self.rng
        self.factors = [random_array(rng, size, dtype) for size in shape.factors]
        rows = int(np.prod([p for p, _ in shape.factors]))
        self.outputs = [np.ones((rows, shape.elements()[1] // rows), dtype) for _ in range(sets)]

    @cached_property
    def reference(self):
        """Rows of the product, each the product of one row of every factor."""
        rows, columns = self.outputs[0].shape
        picked = self.picked(rows, CHECKED_ELEMENTS // columns)
        indices = np.unravel_index(picked, [p for p, _ in self.shape.factors])
        expected = np.ones((len(picked), 1))
        for factor, index in zip(self.factors, indices, strict=True):
            chosen = factor[index].astype(np.float64)
            expected = (expected[:, :, None] * chosen[:, None, :]).reshape(len(picked), -1)
        return picked, expected, self.epsilon(len(self.factors)) * np.abs(expected)


def make_data(shape, dtype, sets, rng):
    kinds = {KronMatmul: KronMatmulData, Batch: BatchData, Explicit: ExplicitData}
    return kinds[type(shape)](shape, dtype, sets, rng)


class Peer:
    """A library to compare with, of a ``name`` and a ``version()``.

    ``kron_matmul``, ``batch`` and ``explicit`` offer its variants of x (A_1 ⊗ … ⊗ A_d), of a batch
    list, and of A_1 ⊗ … ⊗ A_d written out, where it has some.
    """

    def missing(self):
        """Say why the peer cannot be measured on this machine, if so."""
        return None

    def maker(self, data):
        """What makes the variants for the data, None if there are none."""
        kinds = {KronMatmulData: "kron_matmul", BatchData: "batch", ExplicitData: "explicit"}
        return getattr(self, kinds[type(data)], None)


class Batchkron(Peer):
    """Ourselves, by public calls with ``out``; operators are built outside of the time."""

    name = OURS

    def kron_matmul(self, data):
        operator = bk.KroneckerProduct([factor.T for factor in data.factors])
        pairs = zip(data.inputs, data.outputs, strict=True)
        if data.shape.rows == 1:
            calls = [partial(operator.matvec, x[0], out[0]) for x, out in pairs]
        else:
            calls = [partial(operator.apply, x, out) for x, out in pairs]
        return [Contender(self.name, "operator", calls)]

    def batch(self, data):
        """The batch operator, or the segmented mode multiply where only one mode acts."""
        shape, blocks, mode = data.shape, data.shape.blocks, data.shape.only
        if mode is None:
            lists = data.pools, data.ids, data.sources, data.targets
            operator = bk.BatchedKron(*lists, num_inputs=blocks, num_outputs=blocks)
        else:
            starts = shape.contributions * np.arange(blocks + 1)
            lists = data.pools[mode], starts, data.ids[:, mode], data.sources
            before, behind = shape.size**mode, shape.size ** (shape.modes - 1 - mode)
            around = {"before": before, "behind": behind}
            operator = bk.SegmentedModeMultiply(*lists, **around, num_inputs=blocks)
        pairs = zip(data.inputs, data.outputs, strict=True)
        calls = [partial(operator.apply, *pair) for pair in pairs]
        return [Contender(self.name, "operator", calls)]

    def explicit(self, data):
        calls = [partial(bk.kron, *data.factors, out=out) for out in data.outputs]
        return [Contender(self.name, "function", calls)]


class OurFunction(Peer):
    """Ourselves, by the function that takes the factors in each call."""

    name = OUR_FUNCTION

    def kron_matmul(self, data):
        pairs = zip(data.inputs, data.outputs, strict=True)
        calls = [partial(bk.gemkm, x, data.factors, out=out) for x, out in pairs]
        return [Contender(self.name, "gemkm", calls)]


@dataclass(frozen=True)
class Key:
    """What identifies a cell: regimes that have the same one share its times."""

    shape: Shape
    dtype: str
    cold: bool
    threads: tuple[int, ...]

    @property
    def name(self):
        return f"{self.shape.name} {self.dtype}"


@dataclass
class Cell:
    """A cell as it was measured: ``measured`` has fewer rows where memory does not hold all."""

    key: Key
    measured: Shape | None
    beyond_cache: bool = False
    results: list = field(default_factory=list)

    @property
    def label(self):
        """The shape's name, and what it was reduced to."""
        name = self.key.shape.name
        is_whole = self.measured in (self.key.shape, None)
        return name if is_whole else f"{name} (reduced to {self.measured.name})"

    @property
    def flops(self):
        return self.measured.flops

    @property
    def traffic(self):
        """Bytes that are read and written at least; of an explicit product those written."""
        read, written = self.measured.elements()
        moved = written if isinstance(self.measured, Explicit) else read + written
        return np.dtype(self.key.dtype).itemsize * moved

    def ours(self, threads):
        return self.medians(threads).get(OURS)

    def medians(self, threads):
        return best_medians(self.results, threads)


@dataclass(frozen=True)
class Conditions:
    """What all cells are measured with."""

    peers: list
    missing: dict[str, str]
    set_threads: object
    effort: tuple[int, float]  # rounds, and the seconds of a contender's turn
    array_bytes: int
    cache_bytes: int
    rng: np.random.Generator


def in_order(work, items):
    """What some work makes of each item; the item's name and the seconds are printed."""
    for count, item in enumerate(items, 1):
        made = []
        seconds = seconds_of(lambda item=item, made=made: made.append(work(item)))
        print(f"[{count}/{len(items)}] {item.name}: {seconds:.1f} s", file=sys.stderr)
        yield made[0]


def keys_of(regime, shapes, threads):
    counts = tuple(n for n in threads if regime.threads is None or n in regime.threads)
    pairs = product(shapes, ("float64", "float32") if counts else ())
    return [Key(shape, dtype, regime.cold, counts) for shape, dtype in pairs]


def measure_cell(key, conditions):
    dtype = np.dtype(key.dtype)
    measured = key.shape.reduced(conditions.array_bytes // dtype.itemsize)
    cell = Cell(key, measured)
    if measured is None:
        size = f"larger than {conditions.array_bytes / 2**30:.1f} GiB"
        cell.results.append(absent(OURS, "operator", f"one vector is {size}"))
        return cell
    sets = 1 + conditions.cache_bytes // cell.traffic if key.cold else 1
    cell.beyond_cache = sets * cell.traffic > conditions.cache_bytes
    conditions.set_threads(max(key.threads))
    data = make_data(measured, dtype, sets, conditions.rng)
    offers = offers_of([Batchkron(), *conditions.peers], data, conditions)
    cell.results += results_of(offers, data, key.threads, conditions)
    return cell


def offers_of(peers, data, conditions):
    offers = []
    for peer in peers:
        make, why = peer.maker(data), conditions.missing.get(peer.name)
        if make is not None:
            offers += [absent(peer.name, "", why)] if why else make(data)
    return offers


def results_of(offers, data, threads, conditions):
    contenders = [offer for offer in offers if isinstance(offer, Contender)]
    times = measure(contenders, data, threads, conditions.set_threads, *conditions.effort)
    return [*times, *(offer for offer in offers if not isinstance(offer, Contender))]
