"""One cell of the benchmark: a shape in one dtype, measured for all contenders."""

import sys
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from benchmarks.core.timing import OURS, Contender, absent, best_medians, measure, seconds_of
from benchmarks.cpu.contenders import Batchkron, make_data
from benchmarks.shapes import Explicit, Shape


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
        if self.measured in (self.key.shape, None):
            return self.key.shape.name
        assert self.measured is not None
        return f"{self.key.shape.name} (reduced to {self.measured.name})"

    @property
    def itemsize(self):
        return int(np.dtype(self.key.dtype).itemsize)

    @property
    def flops(self):
        assert self.measured is not None
        return self.measured.flops

    @property
    def traffic(self):
        """Bytes that are read and written at least; of an explicit product those written."""
        assert self.measured is not None
        read, written = self.measured.elements()
        return self.itemsize * (written if isinstance(self.measured, Explicit) else read + written)

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
