"""Kron-Matmuls drawn at random, the same ones for the same seed, and how we stand on them."""

import math
import random
import statistics
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from benchmarks.core.tables import groups, words
from benchmarks.shapes import KronMatmul

MAX_ROWS = 4096
MAX_MODES = 10
MAX_SIZE = 128
MIN_LIMIT_BYTES = 1 << 20  # smallest limit of the data: below it hardly a shape of ten modes fits
KINDS = ("equal", "mixed", "rectangular")
DTYPES = ("float64", "float32")
PLAIN_SIZE = 64  # from this P on, and for one factor, a product is about a matrix multiply of BLAS
WORST = 10  # how many shapes each list of the worst has
NEEDED = {False: 1.0, True: 0.9}  # least ratio to the best peer, by `Draw.plain`
CLASSES = {False: f"d ≥ 2, P < {PLAIN_SIZE}", True: f"d = 1 or P ≥ {PLAIN_SIZE}"}


@dataclass(frozen=True)
class Draw:
    """A Kron-Matmul in one dtype."""

    shape: KronMatmul
    dtype: str

    @property
    def name(self):
        return f"{self.shape.name} {self.dtype}"

    @property
    def bytes(self):
        """The data: x, y, and the buffers of a chain, none for one factor and two for many."""
        buffers = min(2, len(self.shape.factors) - 1)
        elements = sum(self.shape.elements()) + buffers * self.shape.largest
        return elements * np.dtype(self.dtype).itemsize

    @property
    def plain(self):
        """Whether the product is about a plain matrix multiply: d = 1 or some P of 64 or more."""
        return len(self.shape.factors) == 1 or any(p >= PLAIN_SIZE for p, _ in self.shape.factors)


def draws(count, seed, limit_bytes):
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


def seed_of_today():
    return int(datetime.now(UTC).strftime("%Y%m%d"))


def _draw(generator, limit_bytes):
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


def _factors(generator, modes, kind, largest):
    if kind == "equal":
        size = log_uniform(generator, largest)
        return ((size, size),) * modes
    if kind == "mixed":
        sizes = [log_uniform(generator, largest) for _ in range(modes)]
        return tuple(zip(sizes, sizes, strict=True))
    return tuple(
        (log_uniform(generator, largest), log_uniform(generator, largest)) for _ in range(modes)
    )


def log_uniform(generator, largest):
    """An integer from 1 to ``largest``: n as likely as log(1 + 1 / n)."""
    return min(largest, int(math.exp(generator.random() * math.log(largest + 1))))


def standing(draw, call, seconds, peers):
    """One way of calling us on one shape, next to the best peer; empty where a time lacks."""
    if seconds is None or not peers:
        return []
    best = min(peers, key=lambda name: peers[name])
    found = {"shape": draw.shape.name, "dtype": draw.dtype, "call": call, "plain": draw.plain}
    found |= {"seconds": seconds, "best_peer": best, "best_peer_seconds": peers[best]}
    return [{**found, "ratio": peers[best] / seconds, "needed": NEEDED[draw.plain]}]


def margin(one):
    """The ratio over what is asked for: below 1 where it is missed."""
    return one["ratio"] / one["needed"]


def figures(standings, plain):
    own = [one for one in standings if one["plain"] == plain]
    ratios = [one["ratio"] for one in own]
    if not ratios:
        return {"shapes": 0}
    return {
        "shapes": len(ratios),
        "share": sum(margin(one) >= 1 for one in own) / len(own),
        "median_ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
    }


def summary(standings, share, median):
    """Yield whether as many shapes are ahead as shall be, for each way of calling us.

    ``share``: of the shapes of d ≥ 2 and P < 64, the others shall all be; ``median``: least of all.
    """
    for call, own in groups(standings, lambda one: one["call"]).items():
        for plain, name in CLASSES.items():
            found, needed = figures(own, plain), 1.0 if plain else share
            if found["shapes"]:
                met = found["share"] >= needed
                yield words({"call": call, "class": name, **found, "needed": needed, "met": met})
        middle = statistics.median(one["ratio"] for one in own)
        found = {"call": call, "shapes": len(own), "median_ratio": middle}
        yield words({**found, "needed": median, "met": middle >= median})


def worst(items, kind, order):
    """Yield the worst items of each kind."""
    for name, own in groups(items, kind).items():
        chosen = sorted(own, key=order)[:WORST]
        yield f"\n### The worst {len(chosen)}: {name}\n"
        yield from map(words, chosen)


def worst_standings(standings):
    return worst(standings, lambda one: one["call"], margin)
