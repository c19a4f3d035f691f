"""Kronecker-sparse matrices that are measured: patterns, layouts, floors. No device is needed."""

import math
import random
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from benchmarks.gpu.cases.cases import COPY, FLOPS
from benchmarks.patterns import BATCH, LAYOUTS, Pattern, by_ratio, time_patterns
from benchmarks.random_shapes import log_uniform

SPARSE_DTYPES = ("float16", "float32", "float64")
# of the layers of a vision transformer, and of the paper's generator
FIRST = (
    (1, 192, 48, 2), (2, 48, 192, 1), (1, 768, 192, 2), (6, 64, 64, 1), (1, 48, 48, 64),
    (1, 64, 64, 16), (4, 128, 128, 4), (16, 64, 64, 16), (1, 256, 1024, 4), (3, 96, 96, 16),
    (1, 512, 512, 4), (64, 64, 64, 4),
)  # fmt: skip
# for the ablation: factors of butterflies and other small ones, and some whose vectors are
# transposed in batch-first
SMALL = (
    (1, 2, 2, 512), (32, 2, 2, 16), (512, 2, 2, 1), (64, 4, 4, 4), (16, 8, 8, 8), (8, 16, 16, 8),
    (4, 3, 5, 40),
)  # fmt: skip
LARGE = (
    (1, 1024, 1024, 8), (1, 1024, 256, 6), (1, 768, 192, 6), (1, 384, 384, 12), (1, 192, 192, 32),
)  # fmt: skip
DRAWN = (16, 1024, 1024, 32)  # the largest a, b, c and d that are drawn at random
DRAWN_BATCHES = (512, BATCH)  # and the numbers of vectors
OF_A_RATIO = 3  # patterns for each ratio (b + c) / (b c), beside the first ones
MAX_ELEMENTS = 1 << 29  # of x, and of y: 4 GiB in float64
SEED = 1
# per second, on matrix units with sums in float32; float64 on matrix units, float32 on cores
PEAKS = {"float16": 760e12, "float32": FLOPS, "float64": FLOPS}


@dataclass(frozen=True)
class SparseCase:
    """A pattern (a, b, c, d), where the vectors' elements are, and how many vectors there are."""

    pattern: Pattern
    layout: str
    batch: int = BATCH

    @property
    def name(self):
        vectors = "" if self.batch == BATCH else f" × {self.batch}"
        pattern = ",".join(map(str, self.pattern))
        return f"({pattern}) {self.layout.removeprefix('batch-')}{vectors}"

    @property
    def rows(self):
        a, b, _, d = self.pattern
        return a * b * d

    @property
    def columns(self):
        a, _, c, d = self.pattern
        return a * c * d

    @property
    def flops(self):
        return 2 * self.batch * math.prod(self.pattern)

    @property
    def dense_flops(self):
        return 2 * self.batch * self.rows * self.columns

    def bytes(self, dtype):
        elements = self.batch * (self.rows + self.columns) + math.prod(self.pattern)
        return elements * np.dtype(dtype).itemsize

    def floors(self, dtype, copy=COPY):
        """µs to read x and the values and write y once at ``copy`` bytes/s; of arithmetic."""
        return {
            "memory": 1e6 * self.bytes(dtype) / copy,
            "arithmetic": 1e6 * self.flops / PEAKS[dtype],
        }


@cache
def sparse_patterns():
    rng = np.random.default_rng(SEED)
    others = (
        (a, b, c, d)
        for a, b, c, d in time_patterns()
        if BATCH * a * max(b, c) * d <= MAX_ELEMENTS and (a, b, c, d) not in FIRST
    )
    found = list(FIRST)
    for own in by_ratio(others):
        places = rng.permutation(len(own))[:OF_A_RATIO]
        found += [own[place] for place in sorted(places.tolist())]
    return tuple(found)


def sparse_cases():
    return [SparseCase(pattern, layout) for pattern in sparse_patterns() for layout in LAYOUTS]


def drawn_patterns(count, seed):
    """Draw patterns whose vectors fit; the first ones stay if more are drawn."""
    generator = random.Random(seed)
    drawn = []
    while len(drawn) < count:
        a, b, c, d = (log_uniform(generator, largest) for largest in DRAWN)
        if len(drawn) % 2:
            b, c = (size - size % 8 if size > 8 else size for size in (b, c))
        if BATCH * a * max(b, c) * d <= MAX_ELEMENTS:
            drawn.append((a, b, c, d))
    return drawn


def cells_of(patterns, each):
    """Cases and dtypes: of the twelve of a pattern ``each``, all kinds about equally often."""
    kinds = [(dtype, *kind) for kind in product(LAYOUTS, DRAWN_BATCHES) for dtype in SPARSE_DTYPES]
    for number, pattern in enumerate(patterns):
        for turn in range(each):
            dtype, layout, batch = kinds[(number + turn * len(kinds) // each) % len(kinds)]
            yield SparseCase(pattern, layout, batch), dtype


def shape_of(case, dtype):
    vectors = (case.batch, 1) if case.layout == "batch-first" else (1, case.batch)
    return SparseShape(*case.pattern, *vectors, dtype)
