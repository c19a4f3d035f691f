"""Predicted times of products with Kronecker-sparse matrices, a table (JSON file) for each device.

``python -m benchmarks.papers.advice`` fits a table to measured times. A time has three parts, each
with a rate of the table: a constant, bytes, and flops,

    seconds = start + ((byte · bytes + interleaved · apart)^p + (flop · flops)^p)^(1/p)

with p = `OVERLAP`: bytes are moved while others are multiplied, so the longer part counts most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple, get_args

from batchkron.spec.kron_sparse import Pattern

Way = Literal["batchkron", "bmm", "dense"]
"""Kernels for the pattern, copies around a batched multiply, or a dense matrix."""

WAYS: tuple[Way, ...] = get_args(Way)
OVERLAP = 4  # of 1, 2 and 4 the exponent by which most measured cells of an H100 are told right


class Rates(NamedTuple):
    """Seconds: of a call, and for each byte, each flop, and each byte that lies interleaved."""

    start: float
    byte: float
    flop: float
    interleaved: float

    def seconds(self, work: tuple[int, int, float]) -> float:
        """Return the predicted time of a product, from what `work_of` returns."""
        count, flops, apart = work
        moved = self.byte * count + self.interleaved * apart
        shorter, longer = sorted((moved, self.flop * flops))
        if longer == 0:
            return self.start
        return self.start + longer * math.pow(1 + math.pow(shorter / longer, OVERLAP), 1 / OVERLAP)


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """The rates of one device.

    ``machine``: where the times were measured.
    ``rates``: by "dtype layout", such as "float32 batch-first", then by `Way`.
    """

    machine: str
    rates: Mapping[str, Mapping[Way, Rates]]

    @property
    def dtypes(self) -> list[str]:
        """The dtypes whose times were measured."""
        return sorted({key.split()[0] for key in self.rates})


def work_of(way: Way, pattern: Pattern, batch: int, itemsize: int) -> tuple[int, int, float]:
    """Return what a product of a batch costs: bytes, flops, and bytes that lie interleaved.

    All values are read once. Vectors that lie interleaved count log2(d) times for kernels, and once
    for copies where d > 1: without them rows of x are multiplied where they are.
    """
    a, b, c, d = pattern
    rows, columns = pattern.shape
    vectors = itemsize * batch * (rows + columns)
    if way == "dense":
        return vectors + itemsize * rows * columns, 2 * batch * rows * columns, 0.0
    apart = math.log2(d) if way == "batchkron" else float(d > 1)
    moved = vectors + itemsize * pattern.nonzeros
    return moved, 2 * batch * a * b * c * d, vectors * apart


def predicted_seconds(
    rates: Mapping[Way, Rates],
    pattern: Pattern,
    batch: int,
    itemsize: int,
    layout: str,
    device: str,
) -> dict[Way, float]:
    """Return the predicted time of each way that has rates.

    On a device our product of one dense matrix, or of one that is dense but for interleaved zeros,
    may be the dense one: it takes no longer.
    """
    found = {way: one.seconds(work_of(way, pattern, batch, itemsize)) for way, one in rates.items()}
    if device == "cuda" and pattern.a == 1 and (pattern.d == 1 or layout == "batch-first"):
        found["batchkron"] = min(found["batchkron"], found["dense"])
    return found


@cache
def costs_of(device: str) -> CostTable:
    """Return the table of "cpu" or "cuda"."""
    return parsed(json.loads((resources.files(__name__) / f"{device}.json").read_text()))


def parsed(table: Mapping[str, Any]) -> CostTable:
    """Return a table that was read from a file."""
    rates = {
        key: {way: Rates(**own) for way, own in ways.items()}
        for key, ways in table["rates"].items()
    }
    return CostTable(table["machine"], rates)
