"""Kronecker-sparse matrices that are measured: patterns, layouts, floors. No device is needed."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from batchkron.backends.cuda.kron_sparse.kernel import SparseShape
from benchmarks.gpu.cases.floors import COPY, FLOPS
from benchmarks.patterns import BATCH, LAYOUTS, Pattern, by_ratio, time_patterns

SPARSE_DTYPES = ("float16", "float32", "float64")
# of the layers of a vision transformer, and of the paper's generator
FIRST: tuple[Pattern, ...] = (
    (1, 192, 48, 2), (2, 48, 192, 1), (1, 768, 192, 2), (6, 64, 64, 1), (1, 48, 48, 64),
    (1, 64, 64, 16), (4, 128, 128, 4), (16, 64, 64, 16), (1, 256, 1024, 4), (3, 96, 96, 16),
    (1, 512, 512, 4), (64, 64, 64, 4),
)  # fmt: skip
# for the ablation: factors of butterflies and other small ones, and some whose vectors are
# transposed in batch-first
SMALL: tuple[Pattern, ...] = (
    (1, 2, 2, 512), (32, 2, 2, 16), (512, 2, 2, 1), (64, 4, 4, 4), (16, 8, 8, 8), (8, 16, 16, 8),
    (4, 3, 5, 40),
)  # fmt: skip
LARGE: tuple[Pattern, ...] = (
    (1, 1024, 1024, 8), (1, 1024, 256, 6), (1, 768, 192, 6), (1, 384, 384, 12), (1, 192, 192, 32),
)  # fmt: skip
OF_A_RATIO = 3  # patterns for each ratio (b + c) / (b c), beside the first ones
MAX_ELEMENTS = 1 << 29  # of x, and of y: 4 GiB in float64
SEED = 1
# per second, on matrix units with sums in float32; float64 on matrix units, float32 on cores
PEAKS = {"float16": 760e12, "float32": FLOPS, "float64": FLOPS}


@dataclass(frozen=True)
class SparseCase:
    """A pattern (a, b, c, d), and where the vectors' elements are."""

    pattern: Pattern
    layout: str

    @property
    def name(self) -> str:
        return f"({','.join(map(str, self.pattern))}) {self.layout.removeprefix('batch-')}"

    @property
    def rows(self) -> int:
        a, b, _, d = self.pattern
        return a * b * d

    @property
    def columns(self) -> int:
        a, _, c, d = self.pattern
        return a * c * d

    @property
    def flops(self) -> int:
        return 2 * BATCH * math.prod(self.pattern)

    @property
    def dense_flops(self) -> int:
        return 2 * BATCH * self.rows * self.columns

    def bytes(self, dtype: str) -> int:
        elements = BATCH * (self.rows + self.columns) + math.prod(self.pattern)
        return elements * np.dtype(dtype).itemsize

    def floors(self, dtype: str, copy: float = COPY) -> dict[str, float]:
        """µs to read x and the values and write y once at ``copy`` bytes/s; of arithmetic."""
        return {
            "memory": 1e6 * self.bytes(dtype) / copy,
            "arithmetic": 1e6 * self.flops / PEAKS[dtype],
        }


@cache
def sparse_patterns() -> tuple[Pattern, ...]:
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


def sparse_cases() -> list[SparseCase]:
    return [SparseCase(pattern, layout) for pattern in sparse_patterns() for layout in LAYOUTS]


def shape_of(case: SparseCase, dtype: str) -> SparseShape:
    vectors = (BATCH, 1) if case.layout == "batch-first" else (1, BATCH)
    return SparseShape(*case.pattern, *vectors, dtype)
