"""Kron-Matmuls that nobody has chosen: drawn at random, the same ones for the same seed."""

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from benchmarks.shapes import KronMatmul

MAX_ROWS = 4096
MAX_MODES = 10
MAX_SIZE = 128
MIN_LIMIT_BYTES = 1 << 20  # smallest limit of the data: below it hardly a shape of ten modes fits
KINDS = ("equal", "mixed", "rectangular")
DTYPES = ("float64", "float32")
PLAIN_SIZE = 64  # from this P on, and for one factor, a product is about a matrix multiply of BLAS


@dataclass(frozen=True)
class Draw:
    """A Kron-Matmul in one dtype."""

    shape: KronMatmul
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.shape.name} {self.dtype}"

    @property
    def bytes(self) -> int:
        """The data: x, y, and the buffers of a chain, none for one factor and two for many."""
        buffers = min(2, len(self.shape.factors) - 1)
        elements = sum(self.shape.elements()) + buffers * self.shape.largest
        return elements * np.dtype(self.dtype).itemsize

    @property
    def plain(self) -> bool:
        """Whether the product is about a plain matrix multiply: d = 1 or some P of 64 or more."""
        return len(self.shape.factors) == 1 or any(p >= PLAIN_SIZE for p, _ in self.shape.factors)


def draws(count: int, seed: int, limit_bytes: int) -> list[Draw]:
    """Draw shapes whose data have at most ``limit_bytes``; the first ones stay if more are drawn.

    Equally likely are d = 1 to 10, the kinds of `KINDS` (all factors n × n, each n_k × n_k, each
    P_k × Q_k) and both dtypes. Rows 1 to 4096 and all sizes are log-uniform. Sizes go from 1 to
    128, or to E^(2/d) if that is less, for the E numbers that the limit holds: products of d such
    sizes are about E. Rows and sizes, and they alone, are drawn again until the data are within
    the limit, so that every d, kind and dtype keeps its share.

    The numbers are those of `random.Random(seed).random`, which Python keeps for ever.
    """
    if limit_bytes < MIN_LIMIT_BYTES:
        raise ValueError(f"limit_bytes is {limit_bytes}; expected at least {MIN_LIMIT_BYTES}")
    generator = random.Random(seed)
    return [_draw(generator, limit_bytes) for _ in range(count)]


def seed_of_today() -> int:
    return int(datetime.now(UTC).strftime("%Y%m%d"))


def _draw(generator: random.Random, limit_bytes: int) -> Draw:
    modes = 1 + int(MAX_MODES * generator.random())
    kind = KINDS[int(len(KINDS) * generator.random())]
    dtype = DTYPES[int(len(DTYPES) * generator.random())]
    elements = limit_bytes // np.dtype(dtype).itemsize
    largest = min(MAX_SIZE, int(elements ** (2 / modes)))
    while True:
        rows = log_uniform(generator, MAX_ROWS)
        draw = Draw(KronMatmul(rows, _factors(generator, modes, kind, largest)), dtype)
        if draw.bytes <= limit_bytes:
            return draw


def _factors(
    generator: random.Random, modes: int, kind: str, largest: int
) -> tuple[tuple[int, int], ...]:
    if kind == "equal":
        size = log_uniform(generator, largest)
        return ((size, size),) * modes
    if kind == "mixed":
        sizes = [log_uniform(generator, largest) for _ in range(modes)]
        return tuple(zip(sizes, sizes, strict=True))
    return tuple(
        (log_uniform(generator, largest), log_uniform(generator, largest)) for _ in range(modes)
    )


def log_uniform(generator: random.Random, largest: int) -> int:
    """An integer from 1 to ``largest``: n as likely as log(1 + 1 / n)."""
    return min(largest, int(math.exp(generator.random() * math.log(largest + 1))))
